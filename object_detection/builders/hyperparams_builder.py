"""Builds the layers' set-up that a Hyperparams proto describes."""

from collections.abc import Callable, Mapping
from typing import Any

import keras

from object_detection.builders.oneof import build_oneof
from object_detection.models.hyperparams import (
    L2,
    BatchNormParams,
    GroupNormParams,
    LayerHyperparams,
)
from object_detection.protos import hyperparams_pb2

ACTIVATIONS: Mapping[int, str | None] = {
    hyperparams_pb2.Hyperparams.NONE: None,
    hyperparams_pb2.Hyperparams.RELU: 'relu',
    hyperparams_pb2.Hyperparams.RELU_6: 'relu6',
    hyperparams_pb2.Hyperparams.SWISH: 'swish',
}

# The proto's L2 weight is of half the sum of squares, Keras's, which L2 follows, of the whole.
REGULARIZERS: Mapping[str, Callable[[Any], keras.regularizers.Regularizer]] = {
    'l1_regularizer': lambda config: keras.regularizers.L1(config.weight),
    'l2_regularizer': lambda config: L2(config.weight * 0.5),
}

INITIALIZERS: Mapping[str, Callable[[Any], keras.initializers.Initializer]] = {
    'truncated_normal_initializer': lambda config: keras.initializers.TruncatedNormal(
        config.mean, config.stddev
    ),
    'random_normal_initializer': lambda config: keras.initializers.RandomNormal(
        config.mean, config.stddev
    ),
    'variance_scaling_initializer': lambda config: keras.initializers.VarianceScaling(
        config.factor,
        mode=config.Mode.Name(config.mode).lower(),
        distribution='uniform' if config.uniform else 'truncated_normal',
    ),
    'keras_initializer_by_name': lambda name: _initializer_by_name(name),
}

NORMALIZERS: Mapping[str, Callable[[Any], BatchNormParams | GroupNormParams]] = {
    'batch_norm': lambda config: _batch_norm(config, synchronized=False),
    'sync_batch_norm': lambda config: _batch_norm(config, synchronized=True),
    'group_norm': lambda config: _group_norm(config),
}


def build(config: hyperparams_pb2.Hyperparams) -> LayerHyperparams:
    """Builds the set-up of layers.

    Without an initializer it is Keras's default, Glorot uniform; without a normalizer there is no
    normalisation. `op` has no effect: whether layers are convolutions or dense is theirs to say.

    Raises:
      ValueError: for a Keras initializer that does not exist, or parameters of `group_norm` that
        are not positive.
    """
    options: dict[str, Any] = {}
    initializer = build_initializer(config.initializer)
    if initializer is not None:
        options['initializer'] = initializer
    if config.regularizer.WhichOneof('regularizer_oneof'):
        options['regularizer'] = build_oneof(config.regularizer, 'regularizer_oneof', REGULARIZERS)
    if config.WhichOneof('normalizer_oneof'):
        norm = build_oneof(config, 'normalizer_oneof', NORMALIZERS)
        options['group_norm' if isinstance(norm, GroupNormParams) else 'batch_norm'] = norm
    return LayerHyperparams(
        activation=ACTIVATIONS[config.activation],
        force_use_bias=config.force_use_bias,
        **options,
    )


def build_initializer(
    config: hyperparams_pb2.Initializer,
) -> keras.initializers.Initializer | None:
    """Builds an initializer; None where the message names none.

    Raises:
      ValueError: for a Keras initializer that does not exist.
    """
    if not config.WhichOneof('initializer_oneof'):
        return None
    return build_oneof(config, 'initializer_oneof', INITIALIZERS)


def _initializer_by_name(name: str) -> keras.initializers.Initializer:
    try:
        return keras.initializers.get(name)
    except ValueError as error:
        raise ValueError(
            'Initializer.keras_initializer_by_name: expected the name of a Keras initializer, such '
            f'as glorot_uniform. Received: {name!r}.'
        ) from error


def _batch_norm(config: hyperparams_pb2.BatchNorm, *, synchronized: bool) -> BatchNormParams:
    return BatchNormParams(
        momentum=config.decay,
        epsilon=config.epsilon,
        center=config.center,
        scale=config.scale,
        train=config.train,
        synchronized=synchronized,
    )


def _group_norm(config: hyperparams_pb2.GroupNorm) -> GroupNormParams:
    for name in ('groups', 'epsilon'):
        value = getattr(config, name)
        if not value > 0:
            raise ValueError(f'GroupNorm.{name}: expected a positive number. Received: {value:g}.')
    return GroupNormParams(groups=config.groups, epsilon=config.epsilon)
