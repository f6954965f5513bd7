"""Inception v2, batch-normalised Inception (https://arxiv.org/abs/1502.03167), as Keras models.

It is the network of TF-Slim: its first convolution is separable, and every padding is SAME. Layers
are named by the scopes there and their places: `mixed_3b_branch1_2` is the second convolution of
Mixed_3b/Branch_1, followed by `..._bn` and `..._ac`; the stem has `conv_1a`, `conv_2b` and
`conv_2c`. Unless the config says otherwise, kernels are initialized as Glorot's, not as
TF-Slim's truncated normals.
"""

from collections.abc import Sequence

import keras

from object_detection.errors import expected
from object_detection.models import image_channels, rounding
from object_detection.models.backbones.table import CROP_STAGE_NAME, Backbone, BackboneOptions
from object_detection.models.hyperparams import LayerHyperparams
from object_detection.models.image_values import scale_to_unit
from object_detection.models.normalization import BatchNormParams, normalized

STRIDES = (16,)
MIN_DEPTH = 16

# Filters of the convolutions of each branch, one after the other: the first of size 1, the others
# of size 3.
_Branches = tuple[tuple[int, ...], ...]

# The last branch is a convolution of size 1 after a pooling.
_MIXED: dict[str, _Branches] = {
    '3b': ((64,), (64, 64), (64, 96, 96), (32,)),
    '3c': ((64,), (64, 96), (64, 96, 96), (64,)),
    '4b': ((224,), (64, 96), (96, 128, 128), (128,)),
    '4c': ((192,), (96, 128), (96, 128, 128), (128,)),
    '4d': ((160,), (128, 160), (128, 160, 160), (96,)),
    '4e': ((96,), (128, 192), (160, 192, 192), (96,)),
    '5b': ((352,), (192, 320), (160, 224, 224), (128,)),
    '5c': ((352,), (192, 320), (192, 224, 224), (128,)),
}
# The last convolution of each branch has a stride of 2; another branch is only a pooling.
_REDUCTIONS: dict[str, _Branches] = {
    '4a': ((128, 160), (64, 96, 96)),
    '5a': ((128, 192), (192, 256, 256)),
}


def default_hyperparams() -> LayerHyperparams:
    """Returns the hyperparameters of a backbone unless the config overrides them: no penalty."""
    return LayerHyperparams(
        initializer=keras.initializers.GlorotUniform(),
        activation='relu',
        batch_norm=BatchNormParams(momentum=0.9997, epsilon=0.001, scale=False),
    )


def trunk(
    *,
    hyperparams: LayerHyperparams,
    batch_norm_trainable: bool,
    name: str,
    depth_multiplier: float = 1.0,
) -> keras.Model:
    """Builds the network from the image up to Mixed_4e.

    Args:
      hyperparams: set-up of all layers.
      batch_norm_trainable: False freezes the batch norms.
      name: of the model.
      depth_multiplier: factor of the numbers of channels, which stay at least 16.

    Returns:
      A model from images [B, H, W, 3] to [B, ceil(H / 16), ceil(W / 16), 576 * depth_multiplier].

    Raises:
      ValueError: if the factor is not positive.
    """
    layers = _Layers(hyperparams, batch_norm_trainable, depth_multiplier)
    images = keras.Input((None, None, image_channels.current()), name='images')
    x = layers.separable_conv_norm(images, 64, 7, strides=2, name='conv_1a')
    x = _max_pool(x, 2, name='pool_2a')
    x = layers.conv_norm(x, 64, 1, name='conv_2b')
    x = layers.conv_norm(x, 192, 3, name='conv_2c')
    x = _max_pool(x, 2, name='pool_3a')
    for block in ('3b', '3c', '4a', '4b', '4c', '4d', '4e'):
        x = _block(layers, x, block)
    return keras.Model(images, x, name=name)


def stage(
    *,
    hyperparams: LayerHyperparams,
    batch_norm_trainable: bool,
    name: str,
    depth_multiplier: float = 1.0,
) -> keras.Model:
    """Builds the rest, Mixed_5a to 5c: [N, h, w, 576] -> [N, ceil(h / 2), ceil(w / 2), 1024].

    See `trunk` for the arguments; `depth_multiplier` changes the numbers of channels.
    """
    layers = _Layers(hyperparams, batch_norm_trainable, depth_multiplier)
    channels = sum(layers.depth(branch[-1]) for branch in _MIXED['4e'])
    dtype = keras.config.dtype_policy().compute_dtype
    features = keras.Input((None, None, channels), name='features', dtype=dtype)
    x = features
    for block in ('5a', '5b', '5c'):
        x = _block(layers, x, block)
    return keras.Model(features, x, name=name)


class _Layers:
    """Builds the layers of one network with its hyperparameters."""

    def __init__(
        self, hyperparams: LayerHyperparams, batch_norm_trainable: bool, depth_multiplier: float
    ):
        if not depth_multiplier > 0:
            raise expected('Inception v2', 'a positive depth_multiplier', f'{depth_multiplier:g}')
        self._hyperparams = hyperparams
        self._batch_norm_trainable = batch_norm_trainable
        self._depth_multiplier = depth_multiplier

    def depth(self, filters: int) -> int:
        """Returns the number of channels of a layer for the number in the tables."""
        return max(int(filters * self._depth_multiplier), MIN_DEPTH)

    def conv_norm(self, x, filters: int, kernel_size: int, *, name: str, strides: int = 1):
        """Applies convolution, norm and activation."""
        convolution = self._hyperparams.conv(
            self.depth(filters), kernel_size, strides=strides, name=name
        )
        return self._normalize(convolution, x, name)

    def separable_conv_norm(self, x, filters: int, kernel_size: int, *, name: str, strides: int):
        """Applies a depthwise convolution, one of size 1, norm and activation; see `conv_norm`."""
        depth = self.depth(filters)
        convolution = self._hyperparams.separable_conv(
            depth, kernel_size, strides=strides, depth_multiplier=min(depth // 3, 8), name=name
        )
        return self._normalize(convolution, x, name)

    def _normalize(self, convolution: keras.layers.Layer, x, name: str):
        norm = self._hyperparams.norm(frozen=not self._batch_norm_trainable, name=f'{name}_bn')
        activation = self._hyperparams.activation_layer(name=f'{name}_ac')
        return activation(normalized(convolution, norm, x))


def _block(layers: _Layers, x, block: str):
    """Appends one Inception block, such as Mixed_3b."""
    name = f'mixed_{block}'
    if block in _REDUCTIONS:
        branches = [
            _branch(layers, x, filters, f'{name}_branch{i}', last_strides=2)
            for i, filters in enumerate(_REDUCTIONS[block])
        ]
        branches.append(_max_pool(x, 2, name=f'{name}_pool'))
        return rounding.Concatenate(name=name)(branches)
    *convolved, after_pool = _MIXED[block]
    branches = [
        _branch(layers, x, filters, f'{name}_branch{i}') for i, filters in enumerate(convolved)
    ]
    if block == '5c':
        pooled = _max_pool(x, 1, name=f'{name}_pool')
    else:
        pooled = rounding.AveragePooling2D(3, 1, padding='same', name=f'{name}_pool')(x)
    branches.append(layers.conv_norm(pooled, *after_pool, 1, name=f'{name}_branch3_1'))
    return rounding.Concatenate(name=name)(branches)


def _branch(layers: _Layers, x, filters: Sequence[int], name: str, *, last_strides: int = 1):
    for i, depth in enumerate(filters, start=1):
        strides = last_strides if i == len(filters) else 1
        x = layers.conv_norm(x, depth, 1 if i == 1 else 3, strides=strides, name=f'{name}_{i}')
    return x


def _max_pool(x, strides: int, *, name: str):
    return rounding.MaxPooling2D(3, strides, padding='same', name=name)(x)


def _network(levels: Sequence[int], options: BackboneOptions) -> keras.Model:
    del levels  # It has one.
    return trunk(**options.arguments())


INCEPTION_V2 = Backbone(
    _network,
    range(4, 5),
    scale_to_unit,
    default_hyperparams(),
    crop_stage=lambda options: stage(**options.arguments(CROP_STAGE_NAME)),
    strides=STRIDES,
)
