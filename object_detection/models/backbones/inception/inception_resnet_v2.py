"""Inception-ResNet v2 (https://arxiv.org/abs/1602.07261) as functional Keras models.

Layers that have a name in `keras.applications` have the same name here; layers that are only
numbered there are named by block, branch and position: `block35_1_branch1_2`, `..._bn`, `..._ac`.
As in the reference implementation, every padding is SAME, so that all maps are aligned. The ends of
the residual branches (`block35_1_conv`) have a bias and no norm.
"""

import dataclasses
from collections.abc import Sequence

import keras

from object_detection.errors import UserError
from object_detection.models import image_channels, rounding
from object_detection.models.backbones.inception import inception
from object_detection.models.backbones.table import CROP_STAGE_NAME, Backbone, BackboneOptions
from object_detection.models.hyperparams import LayerHyperparams
from object_detection.models.image_values import scale_to_unit
from object_detection.models.normalization import normalized

STRIDES = (8, 16)
TRUNK_CHANNELS = 1088

# Filters and kernel size of the convolutions of a branch, one after the other.
_Branch = tuple[tuple[int, int | tuple[int, int]], ...]


@dataclasses.dataclass(frozen=True)
class _Residual:
    """A kind of residual block.

    Attributes:
      repeats: number of consecutive blocks of the kind.
      scale: factor of the output of the branches before it is added to the input of the block.
      branches: branches of the block; a convolution of size 1 maps them to the input channels.
    """

    repeats: int
    scale: float
    branches: tuple[_Branch, ...]


_BLOCK35 = _Residual(10, 0.17, (((32, 1),), ((32, 1), (32, 3)), ((32, 1), (48, 3), (64, 3))))
_BLOCK17 = _Residual(20, 0.1, (((192, 1),), ((128, 1), (160, (1, 7)), (192, (7, 1)))))
# The tenth block adds its branches with a factor of 1 and has no activation.
_BLOCK8 = _Residual(9, 0.2, (((192, 1),), ((192, 1), (224, (1, 3)), (256, (3, 1)))))

_MIXED_5B = (((96, 1),), ((48, 1), (64, 5)), ((64, 1), (96, 3), (96, 3)))
_MIXED_6A = (((384, 3),), ((256, 1), (256, 3), (384, 3)))
_MIXED_7A = (((256, 1), (384, 3)), ((256, 1), (288, 3)), ((256, 1), (288, 3), (320, 3)))


def trunk(
    *, stride: int, hyperparams: LayerHyperparams, batch_norm_trainable: bool, name: str
) -> keras.Model:
    """Builds the network from the image up to the last of the 17 x 17 blocks.

    Args:
      stride: of the feature map. With 8 instead of 16, `mixed_6a` keeps the resolution and the
        blocks after it are dilated, so that weights for stride 16 stay valid: where its input has
        even sides, every second cell of every second row is what stride 16 gives.
      hyperparams: set-up of all layers.
      batch_norm_trainable: False freezes the batch norms.
      name: of the model.

    Returns:
      A model from images [B, H, W, 3] to [B, ceil(H / stride), ceil(W / stride), 1088].

    Raises:
      ValueError: if the stride is neither 8 nor 16.
    """
    if stride not in STRIDES:
        raise UserError(f'Inception-ResNet v2: expected a stride of 8 or 16. Received: {stride}.')
    layers = _Layers(hyperparams, batch_norm_trainable)
    images = keras.Input((None, None, image_channels.current()), name='images')
    x = _stem(layers, images)
    x = _mixed_5b(layers, x)
    x = _residuals(layers, x, _BLOCK35, 'block35')
    x = _reduction(layers, x, _MIXED_6A, 'mixed_6a', strides=stride // 8)
    x = _residuals(layers, x, _BLOCK17, 'block17', dilation=16 // stride)
    return keras.Model(images, x, name=name)


def stage(
    *,
    hyperparams: LayerHyperparams,
    batch_norm_trainable: bool,
    name: str,
    reduction_padding: str = 'same',
) -> keras.Model:
    """Builds the rest of the network: [N, h, w, 1088] -> [N, ceil(h / 2), ceil(w / 2), 1536].

    With the `reduction_padding` 'valid' (as in the reference's network of TensorFlow 1), what the
    first block halves is not padded, and the sides become (h - 1) // 2.
    """
    layers = _Layers(hyperparams, batch_norm_trainable)
    dtype = keras.config.dtype_policy().compute_dtype
    features = keras.Input((None, None, TRUNK_CHANNELS), name='features', dtype=dtype)
    x = _reduction(layers, features, _MIXED_7A, 'mixed_7a', strides=2, padding=reduction_padding)
    x = _residuals(layers, x, _BLOCK8, 'block8')
    x = _residual(layers, x, dataclasses.replace(_BLOCK8, scale=1.0), 'block8_10')
    return keras.Model(features, layers.conv_norm(x, 1536, 1, name='conv_7b'), name=name)


class _ScaledAdd(keras.layers.Layer):
    """Adds the second input, multiplied by a constant, to the first."""

    def __init__(self, scale: float, *, name: str):
        super().__init__(name=name)
        self._scale = scale

    def call(self, inputs):
        shortcut, residual = inputs
        return shortcut + self._scale * residual


class _Layers:
    """Builds the layers of one network with its hyperparameters."""

    def __init__(self, hyperparams: LayerHyperparams, batch_norm_trainable: bool):
        self._hyperparams = hyperparams
        self._batch_norm_trainable = batch_norm_trainable

    def conv_norm(self, x, filters: int, kernel_size, *, name: str, **options):
        """Applies convolution, norm and activation."""
        conv = self._hyperparams.conv(filters, kernel_size, name=name, **options)
        norm = self._hyperparams.norm(frozen=not self._batch_norm_trainable, name=f'{name}_bn')
        return self.activate(normalized(conv, norm, x), name=f'{name}_ac')

    def expand(self, x, channels: int, *, name: str):
        """Maps the branches of a residual block to the number of channels of its input."""
        return self._hyperparams.conv(channels, 1, use_bias=True, name=name)(x)

    def activate(self, x, *, name: str):
        return self._hyperparams.activation_layer(name=name)(x)


def _stem(layers: _Layers, x):
    """Appends the layers from the image to stride 8 and 192 channels."""
    x = layers.conv_norm(x, 32, 3, strides=2, name='conv_1a')
    x = layers.conv_norm(x, 32, 3, name='conv_2a')
    x = layers.conv_norm(x, 64, 3, name='conv_2b')
    x = _max_pool(x, 2, name='pool_3a')
    x = layers.conv_norm(x, 80, 1, name='conv_3b')
    x = layers.conv_norm(x, 192, 3, name='conv_4a')
    return _max_pool(x, 2, name='pool_5a')


def _mixed_5b(layers: _Layers, x):
    """Appends Inception-A, with 320 channels of the same resolution."""
    branches = _branches(layers, x, _MIXED_5B, 'mixed_5b')
    pooled = rounding.AveragePooling2D(3, 1, padding='same', name='mixed_5b_pool')(x)
    branches.append(layers.conv_norm(pooled, 64, 1, name='mixed_5b_branch3_1'))
    return rounding.Concatenate(name='mixed_5b')(branches)


def _reduction(
    layers: _Layers,
    x,
    branches: Sequence[_Branch],
    name: str,
    *,
    strides: int,
    padding: str = 'same',
):
    """Appends branches whose last convolutions have the stride, and a pooling of that stride."""
    outputs = _branches(layers, x, branches, name, last_strides=strides, last_padding=padding)
    outputs.append(_max_pool(x, strides, name=f'{name}_pool', padding=padding))
    return rounding.Concatenate(name=name)(outputs)


def _residuals(layers: _Layers, x, kind: _Residual, name: str, *, dilation: int = 1):
    for i in range(1, kind.repeats + 1):
        x = _residual(layers, x, kind, f'{name}_{i}', dilation=dilation)
        x = layers.activate(x, name=f'{name}_{i}_ac')
    return x


def _residual(layers: _Layers, x, kind: _Residual, name: str, *, dilation: int = 1):
    """Appends one residual block without its activation."""
    branches = _branches(layers, x, kind.branches, name, dilation=dilation)
    mixed = rounding.Concatenate(name=f'{name}_mixed')(branches)
    residual = layers.expand(mixed, x.shape[-1], name=f'{name}_conv')
    return _ScaledAdd(kind.scale, name=f'{name}_add')([x, residual])


def _branches(
    layers: _Layers,
    x,
    branches: Sequence[_Branch],
    name: str,
    *,
    last_strides: int = 1,
    last_padding: str = 'same',
    dilation: int = 1,
) -> list:
    """Returns the output of each branch for `x`."""
    outputs = []
    for i, branch in enumerate(branches):
        y = x
        for j, (filters, kernel_size) in enumerate(branch, start=1):
            y = layers.conv_norm(
                y,
                filters,
                kernel_size,
                strides=last_strides if j == len(branch) else 1,
                padding=last_padding if j == len(branch) else 'same',
                dilation_rate=dilation,
                name=f'{name}_branch{i}_{j}',
            )
        outputs.append(y)
    return outputs


def _max_pool(x, strides: int, *, name: str, padding: str = 'same'):
    return rounding.MaxPooling2D(3, strides, padding=padding, name=name)(x)


def _row(padding: str) -> Backbone:
    def network(levels: Sequence[int], options: BackboneOptions) -> keras.Model:
        return trunk(stride=options.stride or 2 ** levels[-1], **options.arguments())

    def crop_stage(options: BackboneOptions) -> keras.Model:
        return stage(reduction_padding=padding, **options.arguments(CROP_STAGE_NAME))

    return Backbone(
        network,
        range(4, 5),
        scale_to_unit,
        inception.default_hyperparams(),
        crop_stage=crop_stage,
        strides=STRIDES,
    )


INCEPTION_RESNET_V2 = _row('same')
INCEPTION_RESNET_V2_SLIM = _row('valid')
