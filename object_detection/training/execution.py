"""Decides how steps are executed, from the config and the limits of data, model and devices."""

import logging
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from object_detection.config import report
from object_detection.core.fields import InputFields
from object_detection.errors import ConfigError
from object_detection.meta_architectures.detection_model import DetectionModel
from object_detection.models.normalization import FrozenBatchNorm
from object_detection.optimizers.gradients import Execution
from object_detection.protos.train_pb2 import TrainConfig
from object_detection.system import private_names

_logger = logging.getLogger(__name__)

_COMPILE = 'train_config.jit_compile'
_ACCUMULATE = 'train_config.gradient_accumulation_steps'
_RECOMPUTE = 'train_config.recompute_activations'
_SIZES_VARY = (
    'images have no fixed size, and each size is compiled for itself; set pad_height and pad_width '
    'of keep_aspect_ratio_resizer, or aspect_ratio_buckets of the reader'
)


def of_training(
    config: TrainConfig,
    detector: DetectionModel,
    element_spec: Any,
    bucket_sizes: Sequence[tuple[int, int]] = (),
) -> Execution:
    """Decides how the steps of a training are executed in the current strategy.

    Args:
      config: `train_config` of the pipeline config.
      detector: the detector, with variables.
      element_spec: specification of the batches.
      bucket_sizes: (height, width) of the batches, if the reader has buckets.

    Raises:
      ConfigError: if the config asks for an impossible execution.
    """
    strategy = tf.distribute.get_strategy()
    # On TPUs, the whole step is always compiled.
    is_tpu = isinstance(strategy, tf.distribute.TPUStrategy)
    compiles = not is_tpu and _compiles(
        config,
        has_fixed_sizes=bool(bucket_sizes) or _has_fixed_sizes(element_spec),
        obstacle=_synchronized_norms(detector, strategy),
    )
    parts = config.gradient_accumulation_steps
    if parts > 1:
        _check_parts(config, strategy, element_spec)
        _check_norms(detector, strategy)
    # Batches of a single size have static shapes already.
    sizes = tuple(bucket_sizes) if len(bucket_sizes) > 1 else ()
    # Replicas can synchronize in a step for all sizes, but not within the graph of one size.
    if strategy.num_replicas_in_sync > 1 and not (compiles or is_tpu or parts > 1):
        sizes = ()
    execution = Execution(compiles, max(parts, 1), sizes, config.recompute_activations)
    if config.recompute_activations and tf.config.functions_run_eagerly():
        report.current().warn(f'{_RECOMPUTE}: it saves no memory with --run_eagerly.')
    if execution != Execution():
        _logger.info(
            'a step: %s, %s%s%s',
            'compiled by XLA' if compiles else 'not compiled',
            f'{execution.accumulation_steps} parts' if parts > 1 else 'the whole batch at once',
            ', a graph for each of ' + ', '.join(f'{h}x{w}' for h, w in sizes) if sizes else '',
            ', activations are computed again' if execution.recomputes else '',
        )
    return execution


def compiles_inference(
    config: TrainConfig, element_spec: Any, bucket_sizes: Sequence[tuple[int, int]] = ()
) -> bool:
    """Returns whether evaluation is compiled; see `of_training` for the arguments."""
    return _compiles(config, has_fixed_sizes=bool(bucket_sizes) or _has_fixed_sizes(element_spec))


def _compiles(config: TrainConfig, *, has_fixed_sizes: bool, obstacle: str = '') -> bool:
    if tf.config.functions_run_eagerly():
        if config.jit_compile:
            report.current().warn(f'{_COMPILE}: --run_eagerly leaves no graph to compile.')
        return False
    if not config.HasField('jit_compile'):
        if not tf.config.list_logical_devices('GPU'):
            return False
        reason = obstacle or ('' if has_fixed_sizes else _SIZES_VARY)
        if reason:
            _logger.info('steps are not compiled by XLA (%s): %s', _COMPILE, reason)
        return not reason
    if config.jit_compile and obstacle:
        raise ConfigError(f'{_COMPILE}: expected false, or not set: {obstacle}. Received: true.')
    if config.jit_compile and not has_fixed_sizes:
        report.current().warn(f'{_COMPILE}: {_SIZES_VARY}.')
    return config.jit_compile


def _has_fixed_sizes(element_spec: Any) -> bool:
    return None not in _image_spec(element_spec).shape[1:]


def _image_spec(element_spec: Any) -> tf.TensorSpec:
    """Returns the specification of the images of one replica, for every strategy."""
    return tf.nest.flatten(element_spec[InputFields.IMAGE], expand_composites=True)[0]


def _synchronized_norms(detector: DetectionModel, strategy: tf.distribute.Strategy) -> str:
    """Returns why replicas must synchronize within a program; '' if they need not."""
    if strategy.num_replicas_in_sync == 1:
        return ''
    norms = [layer.name for layer in _moving_norms(detector) if layer.synchronized]
    if not norms:
        return ''
    return (
        f'{len(norms)} batch norms over all replicas (sync_batch_norm, or those of an hourglass), '
        f'such as {norms[0]}, add up over the replicas, which a compiled program of one cannot'
    )


def _check_parts(config: TrainConfig, strategy: tf.distribute.Strategy, element_spec: Any) -> None:
    parts, replicas = config.gradient_accumulation_steps, strategy.num_replicas_in_sync
    if config.batch_size % (parts * replicas):
        raise ConfigError(
            f'{_ACCUMULATE}: expected a number that divides train_config.batch_size'
            f'{f" / {replicas} replicas" if replicas > 1 else ""}, the images of one update. '
            f'Received: {parts}, and a batch_size of {config.batch_size}.'
        )
    if _image_spec(element_spec).shape[0] is None:
        raise ConfigError(
            f'{_ACCUMULATE}: expected train_input_reader.drop_remainder: true with it, as a last '
            'batch of fewer images cannot be divided. Received: false there.'
        )


def _check_norms(detector: DetectionModel, strategy: tf.distribute.Strategy) -> None:
    """Checks for batch norms whose statistics do not cover the whole batch of an update."""
    obstacle = _synchronized_norms(detector, strategy)
    if obstacle:
        raise ConfigError(
            f'{_ACCUMULATE}: expected 1, or frozen batch norms (batch_norm_trainable, '
            f'batch_norm.train) or group norms: {obstacle}.'
        )
    norms = _moving_norms(detector)
    if norms:
        report.current().warn(
            f'{_ACCUMULATE}: {len(norms)} batch norms, such as {norms[0].name}, take the '
            'statistics of each part for itself, so that the training is not that of the whole '
            'batch; with frozen batch norms or group norms it is.'
        )


def _moving_norms(detector: DetectionModel) -> list[keras.layers.BatchNormalization]:
    """Returns the batch norms that use and track the statistics of batches in training."""
    return [
        layer
        for layer in private_names.layers_in(detector, include_self=False)
        if isinstance(layer, keras.layers.BatchNormalization)
        and layer.trainable
        and not isinstance(layer, FrozenBatchNorm)
    ]
