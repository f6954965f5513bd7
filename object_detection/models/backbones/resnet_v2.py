"""ResNets whose blocks begin with norm and ReLU (https://arxiv.org/abs/1603.05027).

Depths 50 and 101 are the networks `ResNet50V2` and `ResNet101V2` of `keras.applications`, without
the norm at their end. Depths 18 and 34, with blocks of two 3x3 convolutions and a ReLU before their
sums, are those that the reference calls ResNet v1 in CenterNet. Layers are named as there; the
stride of a stage is at its last block.
"""

import dataclasses
from collections.abc import Callable, Sequence

import keras
import tensorflow as tf

from object_detection.models import image_channels, rounding
from object_detection.models.backbones.table import TRUNK_NAME, Backbone, BackboneOptions
from object_detection.models.hyperparams import LayerHyperparams
from object_detection.models.image_values import caffe, to_unit
from object_detection.models.normalization import BatchNormParams, normalized

_FILTERS = (64, 128, 256, 512)
HYPERPARAMS = LayerHyperparams(
    batch_norm=BatchNormParams(momentum=0.99, epsilon=1.001e-5, scale=True)
)


@dataclasses.dataclass(frozen=True)
class _Variant:
    """Number of blocks of the stages 2-5, their strides, and whether they are bottlenecks."""

    blocks: tuple[int, int, int, int]
    strides: tuple[int, int, int, int]
    bottleneck: bool


_VARIANTS = {
    18: _Variant((2, 2, 2, 2), (1, 2, 2, 2), bottleneck=False),
    34: _Variant((3, 4, 6, 3), (1, 2, 2, 2), bottleneck=False),
    50: _Variant((3, 4, 6, 3), (2, 2, 2, 1), bottleneck=True),
    101: _Variant((3, 4, 23, 3), (2, 2, 2, 1), bottleneck=True),
}


def trunk(
    depth: int, *, stages: Sequence[int], batch_norm_trainable: bool, name: str
) -> keras.Model:
    """Builds the network from the image to the last stage.

    Args:
      depth: 18, 34, 50 or 101.
      stages: ascending, within 2..5: the stages whose results are returned.
      batch_norm_trainable: False freezes the batch norms.
      name: name of the model.

    Returns:
      A model from images [B, H, W, C] to a list of maps. Those of the stages 2 to 5 have the
      strides 4, 8, 16, 32 for the depths 18 and 34, and 8, 16, 32, 32 for the others.
    """
    variant = _VARIANTS[depth]
    block = _bottleneck_block if variant.bottleneck else _basic_block
    layers = _Layers(batch_norm_trainable)
    images = keras.Input((None, None, image_channels.current()), name='images')
    x = layers.conv(images, 64, 7, strides=2, use_bias=True, name='conv1')
    x = rounding.ZeroPadding2D(1, name='pool1_pad')(x)
    x = rounding.MaxPooling2D(3, strides=2, padding='valid', name='pool1_pool')(x)
    outputs = []
    rows = zip(range(2, 6), variant.blocks, variant.strides, _FILTERS, strict=True)
    for stage, blocks, stride, filters in rows:
        for i in range(1, blocks + 1):
            strides = stride if i == blocks else 1
            x = block(layers, x, filters, strides, i == 1, f'conv{stage}_block{i}')
        if stage in stages:
            outputs.append(x)
    return keras.Model(images, outputs, name=name)


def append_basic_blocks(x, filters: int, count: int, *, batch_norm_trainable: bool, name: str):
    """Returns a tensor of Keras after `count` blocks of two 3x3 convolutions, without strides.

    The first block projects its input. Layers are named NAME_block1_..., NAME_block2_...
    """
    layers = _Layers(batch_norm_trainable)
    for i in range(1, count + 1):
        x = _basic_block(layers, x, filters, 1, i == 1, f'{name}_block{i}')
    return x


class _Layers:
    """Builds the layers of a network."""

    def __init__(self, batch_norm_trainable: bool):
        self._frozen = not batch_norm_trainable

    def conv(self, x, filters: int, size: int, *, name: str, strides: int = 1, use_bias: bool):
        """Convolution; a 3x3 or larger one is padded alike on all sides."""
        return self._convolution(x, filters, size, name, strides, use_bias)

    def conv_norm(self, x, filters: int, size: int, *, name: str, strides: int = 1):
        """Convolution and norm."""
        norm = HYPERPARAMS.norm(frozen=self._frozen, name=f'{name}_bn')
        return self._convolution(x, filters, size, name, strides, False, norm)

    def norm_relu(self, x, *, name: str):
        """Norm and ReLU before a block."""
        x = HYPERPARAMS.norm(frozen=self._frozen, name=f'{name}_bn')(x)
        return self.relu(x, name=f'{name}_relu')

    def relu(self, x, *, name: str):
        return HYPERPARAMS.activation_layer(name=name)(x)

    def _convolution(self, x, filters, size, name, strides, use_bias, norm=None):
        if size > 1:
            x = rounding.ZeroPadding2D(size // 2, name=f'{name}_pad')(x)
        conv = HYPERPARAMS.conv(
            filters, size, name=f'{name}_conv', strides=strides, padding='valid', use_bias=use_bias
        )
        return conv(x) if norm is None else normalized(conv, norm, x)


def _basic_block(layers: _Layers, x, filters: int, strides: int, begins: bool, name: str):
    active = layers.norm_relu(x, name=f'{name}_preact')
    y = layers.conv_norm(active, filters, 3, name=f'{name}_1')
    y = layers.relu(y, name=f'{name}_1_relu')
    y = layers.conv_norm(y, filters, 3, strides=strides, name=f'{name}_2')
    y = layers.relu(y, name=f'{name}_2_relu')
    shortcut = _shortcut(layers, x, active, filters, strides, begins, name)
    return rounding.Add(name=f'{name}_out')([y, shortcut])


def _bottleneck_block(layers: _Layers, x, filters: int, strides: int, begins: bool, name: str):
    active = layers.norm_relu(x, name=f'{name}_preact')
    shortcut = _shortcut(layers, x, active, 4 * filters, strides, begins, name)
    x = layers.conv_norm(active, filters, 1, name=f'{name}_1')
    x = layers.relu(x, name=f'{name}_1_relu')
    x = layers.conv_norm(x, filters, 3, strides=strides, name=f'{name}_2')
    x = layers.relu(x, name=f'{name}_2_relu')
    x = layers.conv(x, 4 * filters, 1, use_bias=True, name=f'{name}_3')
    return rounding.Add(name=f'{name}_out')([shortcut, x])


def _shortcut(layers: _Layers, x, active, filters: int, strides: int, begins: bool, name: str):
    """Returns the projection of a stage's first block; later blocks keep their input."""
    if begins:
        return layers.conv(active, filters, 1, strides=strides, use_bias=True, name=f'{name}_0')
    if strides == 1:
        return x
    return rounding.MaxPooling2D(1, strides=strides, padding='valid', name=f'{name}_0_pool')(x)


def _row(depth: int, normalize: Callable[[tf.Tensor], tf.Tensor], levels: range) -> Backbone:
    def network(levels: Sequence[int], options: BackboneOptions) -> keras.Model:
        return trunk(
            depth,
            stages=levels,
            batch_norm_trainable=options.batch_norm_trainable,
            name=TRUNK_NAME,
        )

    return Backbone(network, levels, normalize, HYPERPARAMS)


RESNET_V1_18_BIASED = _row(18, caffe, range(2, 6))
RESNET_V1_34_BIASED = _row(34, caffe, range(2, 6))
# Their strides are at the ends of stages, and the last stage has none.
RESNET_V2_50 = _row(50, to_unit, range(5, 6))
RESNET_V2_101 = _row(101, to_unit, range(5, 6))
