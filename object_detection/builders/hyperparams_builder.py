"""Builds the hyperparameters of layers, and the options of feature pyramids, from their protos."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import keras
from google.protobuf.message import Message

from object_detection.config import ranges, reading, walk
from object_detection.config.oneof import build_oneof
from object_detection.errors import UserError
from object_detection.models.hyperparams import GELU, L2, LEAKY_RELU, LayerHyperparams
from object_detection.models.necks import fpn
from object_detection.models.normalization import (
    BatchNormParams,
    GroupNormParams,
    LayerNormParams,
)
from object_detection.protos import fpn_pb2, hyperparams_pb2

M = TypeVar('M', bound=Message)

ACTIVATIONS: Mapping[int, str | None] = {
    hyperparams_pb2.Hyperparams.NONE: None,
    hyperparams_pb2.Hyperparams.RELU: 'relu',
    hyperparams_pb2.Hyperparams.RELU_6: 'relu6',
    hyperparams_pb2.Hyperparams.SWISH: 'swish',
    hyperparams_pb2.Hyperparams.LEAKY_RELU: LEAKY_RELU,
    hyperparams_pb2.Hyperparams.GELU: GELU,
    hyperparams_pb2.Hyperparams.HARD_SWISH: 'hard_swish',
    hyperparams_pb2.Hyperparams.MISH: 'mish',
}

# The proto's L2 weight multiplies half the sum of squares, that of Keras and L2 the whole sum.
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
    'keras_initializer_by_name': keras.initializers.get,
}

# Option -> the argument of `LayerHyperparams`.
NORMALIZERS: Mapping[str, Callable[[Any], dict[str, Any]]] = {
    'batch_norm': lambda config: {'batch_norm': _batch_norm(config, synchronized=False)},
    'sync_batch_norm': lambda config: {'batch_norm': _batch_norm(config, synchronized=True)},
    'group_norm': lambda config: {'group_norm': GroupNormParams(config.groups, config.epsilon)},
    'layer_norm': lambda config: {'layer_norm': LayerNormParams(config.epsilon)},
}

# The coarsest map of a backbone.
_TOP_LEVEL = 5
_NAMED_INITIALIZER = 'Initializer.keras_initializer_by_name'
_NO_DEPTHWISE_PENALTY = 'as in the reference, none of these layers reads it'


def problems(config: Message, path: str) -> Iterator[str]:
    """Yields one sentence for each invalid field of the hyperparameters of layers.

    Args:
      config: a message that contains `Hyperparams` or `Initializer` messages at any depth.
      path: path of the message.
    """
    yield from ranges.find(config, path=path).errors
    for found in walk.set_fields(config, path=path):
        if found.key == _NAMED_INITIALIZER and not _is_initializer(found.value):
            yield (
                f'{found.path}: expected the name of a Keras initializer, such as '
                f'glorot_uniform. Received: {found.value!r}.'
            )


def mended(config: M) -> M:
    """Returns a copy without the values that `problems` is about, to find what else is wrong."""
    copy = ranges.mended(config)
    for found in list(walk.set_fields(copy)):
        name = getattr(found.value, 'keras_initializer_by_name', '')
        if name and not _is_initializer(name):
            found.value.Clear()
    return copy


def _is_initializer(name: str) -> bool:
    try:
        keras.initializers.get(name)
    except ValueError:
        return False
    return True


def build(
    config: hyperparams_pb2.Hyperparams, *, separable: bool = False, activation: int | None = None
) -> LayerHyperparams:
    """Builds the hyperparameters of layers.

    The default initializer is Glorot uniform, as in Keras; without a normalizer there is no
    normalisation. `op` has no effect: the caller decides between convolutions and dense layers.

    Args:
      config: the message.
      separable: whether the layers are those of a network of TF-Slim with separable convolutions.
      activation: a value of `Hyperparams.Activation` in place of that of the message.

    Raises:
      ValueError: for a Keras initializer that does not exist, or a number out of its range.
    """
    _raise_first_problem(config)
    if not separable:
        reading.unused(config, 'regularize_depthwise', _NO_DEPTHWISE_PENALTY)
    options: dict[str, Any] = {}
    initializer = build_initializer(config.initializer)
    if initializer is not None:
        options['initializer'] = initializer
    if config.regularizer.WhichOneof('regularizer_oneof'):
        options['regularizer'] = build_oneof(config.regularizer, 'regularizer_oneof', REGULARIZERS)
    if config.WhichOneof('normalizer_oneof'):
        options |= build_oneof(config, 'normalizer_oneof', NORMALIZERS)
    if activation is None:
        activation = config.activation
    if activation != hyperparams_pb2.Hyperparams.LEAKY_RELU:
        reading.unused(config, 'leaky_relu_slope', 'the activation is not LEAKY_RELU')
    return LayerHyperparams(
        activation=ACTIVATIONS[activation],
        leaky_relu_slope=config.leaky_relu_slope,
        force_use_bias=config.force_use_bias,
        regularize_depthwise=config.regularize_depthwise,
        **options,
    )


def build_initializer(config: hyperparams_pb2.Initializer) -> keras.initializers.Initializer | None:
    """Builds an initializer; returns None if the message names none.

    Raises:
      ValueError: for a Keras initializer that does not exist, or a number out of its range.
    """
    _raise_first_problem(config)
    if not config.WhichOneof('initializer_oneof'):
        return None
    return build_oneof(config, 'initializer_oneof', INITIALIZERS)


def _raise_first_problem(config: Message) -> None:
    for problem in problems(reading.plain(config), config.DESCRIPTOR.name):
        raise UserError(problem)


def _batch_norm(config: hyperparams_pb2.BatchNorm, *, synchronized: bool) -> BatchNormParams:
    return BatchNormParams(
        momentum=config.decay,
        epsilon=config.epsilon,
        center=config.center,
        scale=config.scale,
        train=config.train,
        synchronized=synchronized,
    )


def network_options(config: fpn_pb2.FeaturePyramidNetworks) -> fpn.Options:
    """Returns the options of the network that the message describes."""
    if config.max_level <= _TOP_LEVEL:
        names = ('extra_level_type', 'extra_level_input')
        reading.unused(config, names, f'no level is above {_TOP_LEVEL}')
    if config.extra_level_input == config.BACKBONE and config.extra_level_type == config.MAX_POOL:
        raise UserError(
            'fpn.extra_level_input: expected LAST_LEVEL with extra_level_type: MAX_POOL, as a map '
            'of the backbone has other channels. Received: BACKBONE.'
        )
    return fpn.Options(
        pool_extra_levels=config.extra_level_type == config.MAX_POOL,
        pre_activate_extra_levels=config.extra_level_type == config.PRE_ACTIVATED_CONV,
        extra_levels_from_backbone=config.extra_level_input == config.BACKBONE,
        bilinear=config.upsample_type == config.BILINEAR,
        smooth_outputs=config.smoothing_type == config.AFTER_TOP_DOWN,
        projection_norm=config.projection_norm,
    )


def depth(config: fpn_pb2.FeaturePyramidNetworks) -> int:
    """Returns the number of channels of a pyramid, which two fields may set.

    Raises:
      ValueError: if they differ.
    """
    depth, filters = config.additional_layer_depth, config.num_filters
    if not config.HasField('num_filters'):
        return depth
    if config.HasField('additional_layer_depth') and depth != filters:
        raise UserError(
            'fpn.num_filters: expected that of fpn.additional_layer_depth, which says the same: '
            f'all levels have as many channels. Received: {filters} and {depth}.'
        )
    return filters
