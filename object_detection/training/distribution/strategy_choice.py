"""Chooses the kind of strategy by flags and environment. Imports no TensorFlow."""

import logging
import os
from collections.abc import Mapping
from typing import NamedTuple

from object_detection.config.job_options import TrainOptions
from object_detection.errors import ConfigError
from object_detection.training.distribution import cluster as clusters

_logger = logging.getLogger(__name__)

ONE_DEVICE, MIRRORED, MULTI_WORKER, TPU = 'one_device', 'mirrored', 'multi_worker', 'tpu'


class Choice(NamedTuple):
    """What `strategies.build` builds.

    Attributes:
      kind: one of the constants above; None is `MIRRORED` on several GPUs, otherwise `ONE_DEVICE`.
      cluster: the workers; several only with `MULTI_WORKER`.
      tpu_name: name or address of the TPU; '' finds it by the environment.
      worker_timeout: seconds without a heartbeat after which a worker counts as lost.
      start_timeout: seconds to wait for all workers at the start.
    """

    kind: str | None = None
    cluster: clusters.Cluster = clusters.Cluster()
    tpu_name: str = ''
    worker_timeout: int = 30
    start_timeout: int = 600


def choose(options: TrainOptions, environment: Mapping[str, str] = os.environ) -> Choice:
    """Chooses by flags and environment.

    Without --strategy, processes that TF_CONFIG, srun or mpirun describe as several train together.

    Raises:
      ConfigError: if flags and environment contradict each other.
    """
    kind = options.strategy
    wants_tpu = options.use_tpu or options.tpu_name is not None
    if wants_tpu and kind not in (None, TPU):
        raise ConfigError(
            '--use_tpu, --tpu_name: expected --strategy tpu, or no --strategy, with them. '
            f'Received: --strategy {kind}.'
        )
    if wants_tpu:
        kind = TPU
    cluster = _cluster(kind, options, environment)
    if kind is None and cluster.num_workers > 1:
        kind = MULTI_WORKER
        _logger.info(
            '%s names %d workers, which train together', cluster.source, cluster.num_workers
        )
    _check_devices(kind, options)
    return Choice(
        kind, cluster, options.tpu_name or '', options.worker_timeout, options.start_timeout
    )


def _cluster(
    kind: str | None, options: TrainOptions, environment: Mapping[str, str]
) -> clusters.Cluster:
    given = {'hosts': options.worker_hosts, 'port': options.worker_port}
    if kind in (None, MULTI_WORKER):
        cluster = clusters.read(options.num_workers, environment, **given)
        if kind == MULTI_WORKER and not cluster.source:
            raise ConfigError(
                f'--strategy: expected the variables of several workers with multi_worker: '
                f'{clusters.VARIABLE}, or those that srun, mpirun or `tfod launch` set. '
                'Received: none of them, or of one process.'
            )
        return cluster
    if options.num_workers > 1 or any(value is not None for value in given.values()):
        raise ConfigError(
            '--num_workers, --worker_hosts, --worker_port: expected --strategy multi_worker, or no '
            f'--strategy, with them. Received: {_described(kind, options)}.'
        )
    # Tasks of srun and mpirun may be separate trainings; with TF_CONFIG they are not.
    if environment.get(clusters.VARIABLE, '').strip():
        cluster = clusters.read(environment=environment)
        if cluster.num_workers > 1:
            raise ConfigError(
                f'{_described(kind, options)}: expected no {clusters.VARIABLE} with several '
                f'workers. Received: {cluster.num_workers} workers.'
            )
    return clusters.Cluster()


def _check_devices(kind: str | None, options: TrainOptions) -> None:
    device = options.device
    if device is None:
        return
    if kind == TPU:
        raise ConfigError(
            f'--device: expected none with a TPU (--strategy tpu, --use_tpu, --tpu_name). '
            f'Received: {device!r}.'
        )
    if kind == ONE_DEVICE and ',' in device:
        raise ConfigError(
            f'--device: expected one device with --strategy one_device. Received: {device!r}.'
        )


def _described(kind: str | None, options: TrainOptions) -> str:
    if kind == TPU and options.strategy is None:
        return '--use_tpu, --tpu_name'
    return f'--strategy {kind}'
