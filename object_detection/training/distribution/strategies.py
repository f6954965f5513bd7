"""Builds the tf.distribute strategy of a training, and describes it.

A *worker* is a process, and has one or more *replicas*, one for each device. All workers run the
same program and the same steps; they communicate by `collectives`.
"""

import contextlib
import logging
import re
import signal
import socket
import threading
import time
from collections.abc import Iterator

import tensorflow as tf

from object_detection.errors import ConfigError, WorkerError
from object_detection.system import private_names
from object_detection.training.distribution import rendezvous, strategy_choice
from object_detection.training.distribution.strategy_choice import Choice

_logger = logging.getLogger(__name__)

_TPU_TIMEOUT = 10.0  # seconds
# The errors of a collective when another worker is lost.
_LOST = (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError)
_ABORTED = 'Collective ops is aborted'
# How errors of TensorFlow name workers.
_TASK = re.compile(r'/job:worker/(?:replica:0/)?task:(\d+)')
# The least time that TensorFlow gets to set up its devices and to connect workers.
_CONNECTION_SECONDS = 60


def build(choice: Choice | None = None) -> tf.distribute.Strategy:
    """Builds the strategy; to be called before TensorFlow computes anything.

    Args:
      choice: see `strategy_choice.choose`. By default, and for the kind None, all visible GPUs if
        there are several; otherwise the default strategy, which has one device (a GPU if there is
        one) and no overhead.

    Raises:
      ConfigError: if a device, or an address of the cluster, cannot be used.
      WorkerError: if other workers do not come in time.
    """
    choice = choice or Choice()
    if choice.kind == strategy_choice.TPU:
        return _tpu(choice.tpu_name)
    gpus = tf.config.get_visible_devices('GPU')
    if choice.cluster.num_workers > 1:
        return _several_workers(choice, len(gpus))
    if choice.kind == strategy_choice.MIRRORED:
        kind = 'GPU' if gpus else 'CPU'
        return tf.distribute.MirroredStrategy(
            [device.name for device in tf.config.list_logical_devices(kind)]
        )
    is_one = choice.kind == strategy_choice.ONE_DEVICE or len(gpus) < 2
    return tf.distribute.get_strategy() if is_one else tf.distribute.MirroredStrategy()


def num_workers(strategy: tf.distribute.Strategy) -> int:
    """Returns the number of processes that train together."""
    return len(_addresses(strategy)) or 1


def worker_index(strategy: tf.distribute.Strategy) -> int:
    """Returns the index of this process among those that train together."""
    return strategy.cluster_resolver.task_id if _addresses(strategy) else 0


def is_chief(strategy: tf.distribute.Strategy) -> bool:
    """Returns whether this process is the one that writes files, evaluates and shows progress."""
    return worker_index(strategy) == 0


def describe(strategy: tf.distribute.Strategy) -> str:
    """Returns a phrase for the log, e.g. '2 replicas, worker 0 of 2'."""
    replicas, workers = strategy.num_replicas_in_sync, num_workers(strategy)
    text = '1 replica' if replicas == 1 else f'{replicas} replicas'
    if workers > 1:
        text += f', worker {worker_index(strategy)} of {workers}'
    return text


def check_batch_size(
    strategy: tf.distribute.Strategy, batch_size: int, where: str = 'train_config.batch_size'
) -> None:
    """Checks that the global batch can be divided equally among all replicas.

    Raises:
      ConfigError: naming `where`.
    """
    replicas = strategy.num_replicas_in_sync
    if batch_size % replicas:
        raise ConfigError(
            f'{where}: expected a multiple of {replicas}, the number of replicas (devices of all '
            f'workers), among which it is divided. Received: {batch_size}.'
        )


def check_endless(strategy: tf.distribute.Strategy, num_epochs: int) -> None:
    """Checks that the data of no replica end before those of another.

    Raises:
      ConfigError: naming the field.
    """
    if strategy.num_replicas_in_sync > 1 and num_epochs:
        raise ConfigError(
            'train_input_reader.num_epochs: expected 0 (for ever) with several replicas, whose '
            f'parts of the data end at different steps. Received: {num_epochs}.'
        )


@contextlib.contextmanager
def lost_workers_named(strategy: tf.distribute.Strategy) -> Iterator[None]:
    """A context that turns the errors of TensorFlow about a lost worker into one sentence.

    Raises:
      WorkerError: in place of TensorFlow's error.
    """
    try:
        yield
    except tf.errors.OpError as error:
        is_lost = isinstance(error, _LOST) or _ABORTED in error.message
        if num_workers(strategy) == 1 or not is_lost:
            raise
        own = strategy.cluster_resolver.task_id
        lost = sorted({int(n) for n in _TASK.findall(error.message)} - {own})
        named = f' (worker {", ".join(map(str, lost))})' if lost else ''
        raise WorkerError(
            f'Worker {own} lost touch with another one{named}, which has ended, failed or fallen '
            'silent: its log says why. Start all of them again to go on from the newest checkpoint.'
        ) from error


def _addresses(strategy: tf.distribute.Strategy) -> list[str]:
    """Returns the addresses of the workers; [] if the process is alone."""
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return []
    return strategy.cluster_resolver.cluster_spec().as_dict()['worker']


def _several_workers(choice: Choice, num_gpus: int) -> tf.distribute.Strategy:
    cluster = choice.cluster
    own = cluster.addresses[cluster.index]
    _logger.info(
        'worker %d of %d, %s: waiting for the others', cluster.index, cluster.num_workers, own
    )
    # TensorFlow's own reader of TF_CONFIG does not check consistency.
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec({'worker': list(cluster.addresses)}),
        task_type='worker',
        task_id=cluster.index,
        num_accelerators={'GPU': num_gpus} if num_gpus else {},
        rpc_layer='grpc',
    )
    private_names.set_heartbeat(cluster.num_workers, choice.worker_timeout)
    deadline = time.monotonic() + choice.start_timeout
    try:
        rendezvous.gather(cluster, choice.start_timeout)
        # TensorFlow also sets up its devices, which takes minutes on some machines.
        left = max(_CONNECTION_SECONDS, choice.worker_timeout, deadline - time.monotonic())
        with (
            _signal_handlers_kept(),
            rendezvous.killed_after(
                left,
                f'Error: worker {cluster.index} of {cluster.num_workers} was ended, as it had not '
                f'connected {left:.0f} seconds after all had come (--start_timeout): another one '
                'was lost meanwhile, or devices take longer to start; start all of them again.',
            ),
        ):
            return tf.distribute.MultiWorkerMirroredStrategy(cluster_resolver=resolver)
    except (OSError, tf.errors.OpError) as error:
        reason = getattr(error, 'message', error)
        if rendezvous.is_taken(int(own.rpartition(':')[2])):
            raise WorkerError(
                f'{cluster.source}: worker {cluster.index} cannot serve at {own}: another program '
                f'listens there. Start all workers again, or choose other ports. Received: {reason}'
            ) from error
        raise ConfigError(
            f'{cluster.source}: worker {cluster.index} cannot serve at {own}, expected an address '
            f'of this machine with a free port. Received: {reason}'
        ) from error


@contextlib.contextmanager
def _signal_handlers_kept() -> Iterator[None]:
    """A context that restores the handler of SIGTERM: with TensorFlow's, it has no effect."""
    try:
        yield
    finally:
        handler = signal.getsignal(signal.SIGTERM)
        if handler is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)


def _tpu(name: str) -> tf.distribute.Strategy:
    try:
        _check_answers(name)
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=name)
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
        return tf.distribute.TPUStrategy(resolver)
    # Libraries of many kinds raise errors of their own, depending on what is missing.
    except Exception as error:
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise ConfigError(
            '--use_tpu, --tpu_name: expected a TPU that can be reached. '
            f'Received: {name or "no name"} ({reason[0].rstrip(".")}).'
        ) from error


def _check_answers(name: str) -> None:
    """Connects to an address once, as TensorFlow would wait for ever without an answer."""
    host, _, port = name.removeprefix('grpc://').rpartition(':')
    if host and port.isdigit():
        socket.create_connection((host, int(port)), timeout=_TPU_TIMEOUT).close()
