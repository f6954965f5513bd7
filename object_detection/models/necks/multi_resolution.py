"""Necks of other maps than a feature pyramid's.

The maps of SSD (https://arxiv.org/abs/1512.02325), which are those of a backbone and ever coarser
ones; the pooled maps of PPN (https://arxiv.org/abs/1807.03284); the pyramid of CenterNet, which is
merged into a single map, the finest.
"""

import dataclasses
from collections.abc import Sequence

import keras

from object_detection.errors import UserError
from object_detection.models import rounding
from object_detection.models.hyperparams import LayerHyperparams, SeparableSetup
from object_detection.models.necks.fpn import BilinearUpsampling
from object_detection.models.necks.resizing import Doubling
from object_detection.models.necks.table import Neck, NeckOptions
from object_detection.models.normalization import normalized

# Channels of the maps after those of the backbone, before the factor of the options.
_FILTERS = (512, 256, 256, 128)


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of variants of the maps.

    Attributes:
      num_maps: number of maps, those of the backbone included; None is all of them.
      filters: channels of the maps after those of the backbone.
      last_kernel_size: size of the convolution of stride 2 of the last one; others are 3x3.
      num_valid: how many of the last ones have a convolution of stride 1 without padding instead.
      depth_multiplier: factor of the numbers of channels.
      min_depth: minimum number of channels of a convolution.
      use_depthwise: whether convolutions of stride 2 are a depthwise one and one of size 1, each
        with norm and activation.
      depthwise_setup: name of a `SeparableSetup`. As in the reference under TensorFlow 2, the
        hyperparameters do not apply to the depthwise kernels, which have Keras's initializer
        (Glorot uniform) and no penalty; under TensorFlow 1, DEPTHWISE, they apply.
      explicit_padding: whether the convolutions of stride 2 are padded alike on both sides, for
        every size of their input, one of an even size by one pixel more at the bottom and on the
        right; False is SAME padding.
    """

    num_maps: int | None = None
    filters: Sequence[int] = _FILTERS
    last_kernel_size: int = 3
    num_valid: int = 0
    depth_multiplier: float = 1.0
    min_depth: int = 1
    use_depthwise: bool = False
    depthwise_setup: str = SeparableSetup.NEITHER.name
    explicit_padding: bool = False

    def depth(self, filters: float) -> int:
        """Returns the number of channels of a convolution for the number in the paper."""
        return max(int(filters * self.depth_multiplier), self.min_depth)


_DEFAULTS = Options()


def multi_resolution_maps(
    channels: Sequence[int],
    *,
    hyperparams: LayerHyperparams,
    batch_norm_trainable: bool,
    name: str,
    options: Options = _DEFAULTS,
) -> keras.Model:
    """Builds the maps that follow those of a backbone, two in the paper.

    Each of them is a convolution of size 1 to half of its channels and one of stride 2 or without
    padding, both with norm and activation, on the map before. Layers of map i, counted from 0, are
    named `map_<i>_projection`, `map_<i>_depthwise` and `map_<i>_conv`.

    Args:
      channels: channels of the backbone maps, the finest one first.
      hyperparams: hyperparameters of all layers.
      batch_norm_trainable: False freezes the batch norms.
      name: name of the model.
      options: variant of the maps.

    Returns:
      A model from the list of the backbone maps to the list of all maps, which are the backbone's
      and those of the options, each half as large as the one before, rounded up, or without
      padding two cells less in height and width.

    Raises:
      ValueError: if the number of maps is not within its range.
    """
    most = len(channels) + len(options.filters)
    num_maps = most if options.num_maps is None else options.num_maps
    if not 1 <= num_maps <= most:
        raise UserError(f'num_layers: expected 1 to {most}. Received: {num_maps}.')
    # Outputs that are inputs keep the dtype of the backbone.
    dtype = keras.config.dtype_policy().compute_dtype
    inputs = [
        keras.Input((None, None, c), name=f'map_{i}', dtype=dtype) for i, c in enumerate(channels)
    ]
    layers = _Layers(hyperparams, batch_norm_trainable, options)
    outputs = inputs[:num_maps]
    for index in range(len(inputs), num_maps):
        filters = options.filters[index - len(inputs)]
        kernel_size = options.last_kernel_size if index == most - 1 else 3
        is_valid = index >= most - options.num_valid
        outputs.append(layers.shrink(outputs[-1], filters, kernel_size, is_valid, f'map_{index}'))
    return keras.Model(inputs, outputs, name=name)


class _Layers:
    """Builds the layers of the maps with their hyperparameters."""

    def __init__(self, hyperparams: LayerHyperparams, batch_norm_trainable: bool, options: Options):
        self._hyperparams = hyperparams
        self._batch_norm_trainable = batch_norm_trainable
        self._options = options

    def shrink(self, x, filters: int, kernel_size: int, is_valid: bool, name: str):
        """Applies the layers of a map to the map before."""
        x = self._conv(x, filters / 2, 1, name=f'{name}_projection')
        strided = {'strides': 2, 'padding': 'same'}
        if is_valid:
            strided = {'padding': 'valid'}
        elif self._options.explicit_padding:
            around = ((kernel_size - 1) // 2, kernel_size // 2)
            x = rounding.ZeroPadding2D((around, around), name=f'{name}_pad')(x)
            strided['padding'] = 'valid'
        if not self._options.use_depthwise:
            return self._conv(x, filters, kernel_size, name=f'{name}_conv', **strided)
        depthwise = self._hyperparams.depthwise_conv(
            kernel_size,
            name=f'{name}_depthwise',
            setup=SeparableSetup[self._options.depthwise_setup],
            **strided,
        )
        x = self._normalize_and_activate(depthwise, x)
        return self._conv(x, filters, 1, name=f'{name}_conv')

    def _conv(self, x, filters: float, kernel_size: int, *, name: str, **options):
        depth = self._options.depth(filters)
        conv = self._hyperparams.conv(depth, kernel_size, name=name, **options)
        return self._normalize_and_activate(conv, x)

    def _normalize_and_activate(self, conv: keras.layers.Layer, x):
        frozen = not self._batch_norm_trainable
        norm = self._hyperparams.norm(frozen=frozen, name=f'{conv.name}_bn')
        activation = self._hyperparams.activation_layer(name=f'{conv.name}_activation')
        return activation(normalized(conv, norm, x))


# Channels of the merged maps on a ResNet, coarse to fine.
RESNET_DEPTHS = (256, 128, 64)


def merged_pyramid(
    channels: Sequence[int],
    *,
    hyperparams: LayerHyperparams,
    batch_norm_trainable: bool,
    depths: Sequence[int] = RESNET_DEPTHS,
    use_separable: bool = False,
    bilinear: bool = False,
    name: str = 'fpn',
) -> keras.Model:
    """Builds the pyramid on maps of strides 4, 8, 16 and 32.

    The coarsest map is projected; then, three times, it is doubled in size, added
    to the projection of the next map, and convolved (3x3, batch norm, ReLU).

    Args:
      channels: numbers of channels of the maps of the backbone, fine to coarse.
      hyperparams: set-up of all layers.
      batch_norm_trainable: False freezes the batch norms.
      depths: numbers of channels of the merged maps, coarse to fine.
      use_separable: whether the 3x3 convolutions are separable.
      bilinear: whether maps are doubled in size linearly, not by nearest neighbour.
      name: name of the model.

    Returns:
      A model from the maps [B, H, W, C] to the merged one, of stride 4.
    """
    dtype = keras.config.dtype_policy().compute_dtype
    maps = [keras.Input((None, None, count), dtype=dtype) for count in channels]
    double = BilinearUpsampling if bilinear else Doubling
    x = hyperparams.conv(depths[0], 1, name='projection_top')(maps[-1])
    for i, (features, count) in enumerate(zip(maps[-2::-1], depths, strict=True)):
        x = double(name=f'doubling_{i}')(x)
        x = rounding.Add(name=f'sum_{i}')(
            [x, hyperparams.conv(count, 1, name=f'lateral_{i}')(features)]
        )
        following = depths[min(i + 1, len(depths) - 1)]
        if use_separable:
            convolution = hyperparams.separable_conv(
                following, 3, name=f'merge_{i}', setup=SeparableSetup.BOTH
            )
        else:
            convolution = hyperparams.conv(following, 3, name=f'merge_{i}')
        norm = hyperparams.norm(frozen=not batch_norm_trainable, name=f'merge_{i}_bn')
        x = normalized(convolution, norm, x)
        x = hyperparams.activation_layer(name=f'merge_{i}_relu')(x)
    return keras.Model(maps, x, name=name)


def pooling_pyramid(
    channels: int,
    *,
    depth: int | None,
    num_maps: int,
    hyperparams: LayerHyperparams,
    batch_norm_trainable: bool,
    name: str,
) -> keras.Model:
    """Builds the maps that are pooled from one map of a backbone, one after the other.

    The poolings take the maximum of 2x2 cells and have no weights, so one predictor that all maps
    share sees the same features at each size.

    Args:
      channels: channels of the backbone map.
      depth: channels of all maps, to which a convolution of size 1 with norm and activation, named
        `base`, converts the backbone map first; None leaves the backbone map as it is.
      num_maps: number of maps.
      hyperparams: hyperparameters of the convolution.
      batch_norm_trainable: False freezes its batch norm.
      name: name of the model.

    Returns:
      A model from a map [B, H, W, channels] to the list of maps, the finest first, each half as
      large as the one before, rounded up.

    Raises:
      ValueError: if the number of maps is not positive.
    """
    if num_maps < 1:
        raise UserError(f'num_layers: expected at least 1. Received: {num_maps}.')
    # An output that is the input keeps the dtype of the backbone.
    dtype = keras.config.dtype_policy().compute_dtype
    features = keras.Input((None, None, channels), name='features', dtype=dtype)
    x = features
    if depth is not None:
        conv = hyperparams.conv(depth, 1, name='base')
        norm = hyperparams.norm(frozen=not batch_norm_trainable, name='base_bn')
        x = hyperparams.activation_layer(name='base_activation')(normalized(conv, norm, x))
    maps = [x]
    for index in range(1, num_maps):
        pool = rounding.MaxPooling2D(2, strides=2, padding='same', name=f'pool_{index}')
        maps.append(pool(maps[-1]))
    return keras.Model(features, maps, name=name)


def _build_multi_resolution(channels: Sequence[int], options: NeckOptions) -> keras.Model:
    network = Options(
        num_maps=len(options.levels),
        depth_multiplier=options.depth_multiplier,
        min_depth=options.min_depth,
        use_depthwise=options.use_depthwise,
        explicit_padding=options.explicit_padding,
        **options.settings,
    )
    return multi_resolution_maps(channels, options=network, **options.arguments())


def _build_merged_pyramid(channels: Sequence[int], options: NeckOptions) -> keras.Model:
    return merged_pyramid(
        channels,
        use_separable=options.use_depthwise,
        bilinear=options.bilinear,
        **options.settings,
        **options.arguments(),
    )


def _build_pooling_pyramid(channels: Sequence[int], options: NeckOptions) -> keras.Model:
    return pooling_pyramid(
        channels[-1], depth=options.depth, num_maps=len(options.levels), **options.arguments()
    )


MULTI_RESOLUTION = Neck(_build_multi_resolution, frozenset({'num_layers', 'use_depthwise'}))
MERGED_PYRAMID = Neck(
    _build_merged_pyramid, frozenset({'use_separable_conv', 'upsampling_interpolation'})
)
POOLING_PYRAMID = Neck(_build_pooling_pyramid, frozenset({'num_layers'}))
