"""EfficientNet (https://arxiv.org/abs/1905.11946) as functional Keras models.

Layers are named as in `keras.applications`. As in the reference implementation, padding is SAME,
and biases are penalised while depthwise kernels are not. There is no stochastic depth: the rates of
the reference are products with the index of the first block, and so are all zero.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence

import keras

from object_detection.errors import UserError, expected
from object_detection.models import image_channels, rounding
from object_detection.models.backbones.mobilenet import round_to_eights
from object_detection.models.backbones.table import Backbone, BackboneOptions
from object_detection.models.hyperparams import L2, LayerHyperparams
from object_detection.models.image_values import Preprocess
from object_detection.models.normalization import BatchNormParams, normalized

# Level l, of stride 2**l -> its output, a block. The reference takes the same ones for all sizes:
# deeper networks have further blocks of some of these strides.
LEVELS = {1: 'block1a', 2: 'block2b', 3: 'block3b', 4: 'block5c', 5: 'block7a'}


@dataclasses.dataclass(frozen=True)
class _Stage:
    """Blocks of one resolution in B0; the first one changes channels and resolution."""

    kernel_size: int
    blocks: int
    filters: int
    expansion: int
    strides: int


_STAGES = (
    _Stage(3, 1, 16, 1, 1),
    _Stage(3, 2, 24, 6, 2),
    _Stage(5, 2, 40, 6, 2),
    _Stage(3, 3, 80, 6, 2),
    _Stage(5, 3, 112, 6, 1),
    _Stage(5, 4, 192, 6, 2),
    _Stage(3, 1, 320, 6, 1),
)
# Factors of the numbers of channels and of the numbers of blocks of B0 to B7.
_SIZES = (
    (1.0, 1.0),
    (1.0, 1.1),
    (1.1, 1.2),
    (1.2, 1.4),
    (1.4, 1.8),
    (1.6, 2.2),
    (1.8, 2.6),
    (2.0, 3.1),
)
_FIRST_FILTERS, _LAST_FILTERS = 32, 1280
# Share of a block's input channels that the squeezed maps have.
_SQUEEZED = 0.25
_NUM_CLASSES = 1000
# Statistics of ImageNet.
IMAGENET = Preprocess(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225), scale=1 / 255)


def default_hyperparams() -> LayerHyperparams:
    """Returns the hyperparameters of the backbone."""
    return LayerHyperparams(
        initializer=keras.initializers.VarianceScaling(2.0, 'fan_out', 'truncated_normal'),
        regularizer=L2(5e-6),
        activation='swish',
        batch_norm=BatchNormParams(momentum=0.99, epsilon=0.001, scale=True),
    )


def trunk(
    size: int,
    *,
    levels: Sequence[int],
    hyperparams: LayerHyperparams,
    batch_norm_trainable: bool,
    name: str,
) -> keras.Model:
    """Builds the network, of which only what leads to the last of `levels` is computed.

    Args:
      size: 0 to 7, for B0 to B7.
      levels: ascending, of LEVELS: the feature maps to return, of stride 2**level.
      hyperparams: set-up of all layers.
      batch_norm_trainable: False freezes the batch norms.
      name: name of the model.

    Returns:
      A model from images [B, H, W, 3] to a list of [B, ceil(H / stride), ceil(W / stride), C].
      Its attribute `unused` has the layers after the last map, up to the logits of ImageNet: they
      have variables and penalties, as in checkpoints of the reference, but are never computed.

    Raises:
      ValueError: if the size or a level is not supported.
    """
    if not 0 <= size < len(_SIZES):
        raise UserError(f'EfficientNet: expected a size of 0 to 7. Received: {size}.')
    if not levels or list(levels) != sorted(set(levels)) or not set(levels) <= set(LEVELS):
        raise expected('EfficientNet', f'ascending levels of {tuple(LEVELS)}', list(levels))
    layers = _Layers(size, hyperparams, batch_norm_trainable)
    images = keras.Input((None, None, image_channels.current()), name='images')
    ends = _blocks(layers, images)
    model = keras.Model(images, [ends[LEVELS[level]] for level in levels], name=name)
    used = {id(layer) for layer in model.layers}
    model.unused = [layer for layer in layers.made if id(layer) not in used]
    return model


class _Layers:
    """Builds the layers of one network and notes those with variables in their order.

    Args:
      size: 0 to 7.
      hyperparams: set-up of all layers.
      batch_norm_trainable: False freezes the batch norms.

    Attributes:
      made: the layers.
    """

    def __init__(self, size: int, hyperparams: LayerHyperparams, batch_norm_trainable: bool):
        self.made: list[keras.layers.Layer] = []
        self._width, self._depth = _SIZES[size]
        self._hyperparams = dataclasses.replace(hyperparams, force_use_bias=False)
        self._batch_norm_trainable = batch_norm_trainable

    def scaled(self, filters: int) -> int:
        return round_to_eights(filters * self._width)

    def repeats(self, blocks: int) -> int:
        return math.ceil(self._depth * blocks)

    def conv_norm(self, x, filters: int, kernel_size: int = 1, *, name: str, strides: int = 1):
        """Convolution `<name>_conv` and norm `<name>_bn`."""
        conv = self._hyperparams.conv(filters, kernel_size, strides=strides, name=f'{name}_conv')
        return self._normalize(conv, x, name)

    def depthwise_norm(self, x, kernel_size: int, *, name: str, strides: int):
        """Depthwise convolution `<name>_dwconv`, without a penalty, and norm `<name>_bn`."""
        free = dataclasses.replace(self._hyperparams, regularizer=None)
        conv = free.depthwise_conv(kernel_size, strides=strides, name=f'{name}_dwconv')
        return self._normalize(conv, x, name)

    def squeeze(self, x, filters: int, *, name: str):
        """Multiplies the channels by factors in 0..1 that depend on their means."""
        factors = rounding.GlobalAveragePooling2D(keepdims=True, name=f'{name}_se_squeeze')(x)
        steps = (
            ('reduce', filters, self._hyperparams.activation),
            ('expand', x.shape[-1], 'sigmoid'),
        )
        for step, channels, activation in steps:
            conv = self._hyperparams.conv(
                channels,
                1,
                use_bias=True,
                bias_regularizer=self._hyperparams.regularizer,
                activation=activation,
                name=f'{name}_se_{step}',
            )
            self.made.append(conv)
            factors = conv(factors)
        return rounding.Multiply(name=f'{name}_se_excite')([x, factors])

    def dense(self, x, units: int, *, name: str):
        regularizer = self._hyperparams.regularizer
        dense = keras.layers.Dense(
            units,
            kernel_initializer=keras.initializers.VarianceScaling(1 / 3, 'fan_out', 'uniform'),
            kernel_regularizer=regularizer,
            bias_regularizer=regularizer,
            name=name,
        )
        self.made.append(dense)
        return dense(x)

    def activate(self, x, *, name: str):
        return self._hyperparams.activation_layer(name=f'{name}_activation')(x)

    def _normalize(self, conv: keras.layers.Layer, x, name: str):
        norm = self._hyperparams.norm(frozen=not self._batch_norm_trainable, name=f'{name}_bn')
        self.made += [conv, norm]
        return normalized(conv, norm, x)


def _blocks(layers: _Layers, images) -> Mapping[str, keras.KerasTensor]:
    """Builds the whole network; returns the outputs of its blocks by name."""
    x = layers.conv_norm(images, layers.scaled(_FIRST_FILTERS), 3, strides=2, name='stem')
    x = layers.activate(x, name='stem')
    ends = {}
    for number, stage in enumerate(_STAGES, start=1):
        strides = stage.strides
        for index in range(layers.repeats(stage.blocks)):
            block = f'block{number}{chr(ord("a") + index)}'
            x = ends[block] = _block(layers, x, stage, strides, block)
            strides = 1
    x = layers.conv_norm(x, layers.scaled(_LAST_FILTERS), name='top')
    x = rounding.GlobalAveragePooling2D(name='avg_pool')(layers.activate(x, name='top'))
    layers.dense(x, _NUM_CLASSES, name='predictions')
    return ends


def _block(layers: _Layers, x, stage: _Stage, strides: int, name: str):
    """Appends an inverted residual block with squeeze-and-excitation."""
    inputs, channels = x, x.shape[-1]
    filters = layers.scaled(stage.filters)
    if stage.expansion > 1:
        x = layers.conv_norm(x, stage.expansion * channels, name=f'{name}_expand')
        x = layers.activate(x, name=f'{name}_expand')
    x = layers.depthwise_norm(x, stage.kernel_size, strides=strides, name=name)
    x = layers.activate(x, name=name)
    x = layers.squeeze(x, max(1, int(_SQUEEZED * channels)), name=name)
    x = layers.conv_norm(x, filters, name=f'{name}_project')
    if strides == 1 and channels == filters:
        x = rounding.Add(name=f'{name}_add')([x, inputs])
    return x


def _row(size: int) -> Backbone:
    default = default_hyperparams()

    def network(levels: Sequence[int], options: BackboneOptions) -> keras.Model:
        # As in the reference, a config that overrides the hyperparameters determines the penalty
        # alone: norms, initializers and activations are always those of EfficientNet.
        hyperparams = dataclasses.replace(default, regularizer=options.hyperparams.regularizer)
        return trunk(size, levels=levels, **options.arguments() | {'hyperparams': hyperparams})

    return Backbone(network, range(min(LEVELS), max(LEVELS) + 1), IMAGENET, default)


EFFICIENTNET_B0 = _row(0)
EFFICIENTNET_B1 = _row(1)
EFFICIENTNET_B2 = _row(2)
EFFICIENTNET_B3 = _row(3)
EFFICIENTNET_B4 = _row(4)
EFFICIENTNET_B5 = _row(5)
EFFICIENTNET_B6 = _row(6)
EFFICIENTNET_B7 = _row(7)
