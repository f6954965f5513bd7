"""Feature pyramid networks (https://arxiv.org/abs/1612.03144) as functional Keras models."""

import dataclasses
from collections.abc import Sequence

import keras
import tensorflow as tf

from object_detection.core.shapes import dimensions
from object_detection.errors import expected
from object_detection.models import rounding
from object_detection.models.hyperparams import LayerHyperparams, SeparableSetup
from object_detection.models.necks.resizing import CropTo, Doubling
from object_detection.models.necks.table import Neck, NeckOptions
from object_detection.models.normalization import normalized


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of variants of the pyramid; the defaults are those of the reference.

    Attributes:
      pool_extra_levels: whether the levels that the backbone does not have are every second cell of
        every second row of the level before (a max pool of kernel 1), not convolutions.
      pre_activate_extra_levels: whether these levels are convolutions with a bias and without a
        norm, padded alike on both sides, with a ReLU before each but the first, as in RetinaNet of
        torchvision.
      extra_levels_from_backbone: whether the first of these levels is made of the last map of the
        backbone, not of the last level of the pyramid.
      bilinear: whether levels are doubled in size linearly (half-pixel centres), not by nearest
        neighbour.
      smooth_outputs: whether all levels including the top are smoothed, but not the maps that are
        propagated down, as in the paper.
      propagate_sums: whether the maps that are propagated down are not smoothed, as in the paper,
        but the top level is not smoothed at all, as in TF-Slim.
      projection_norm: whether the projections of the maps of the backbone have a norm, and no bias.
      use_depthwise: whether the 3x3 convolutions are separable; initializer and penalty then only
        apply to their depthwise kernels, as in the reference.
      explicit_padding: whether the convolutions of stride 2 are padded alike on both sides,
        for every size of their input; False is SAME padding.
      crop_upsampled: whether maps of the backbone need not be exactly half as large as those
        before, but may be rounded up: a doubled map is then cut at the bottom and right to the size
        of the map that it is added to.
      same_size_levels: levels whose maps of the backbone are as large as those of the next level,
        which is then not doubled.
    """

    pool_extra_levels: bool = False
    pre_activate_extra_levels: bool = False
    extra_levels_from_backbone: bool = False
    bilinear: bool = False
    smooth_outputs: bool = False
    propagate_sums: bool = False
    projection_norm: bool = False
    use_depthwise: bool = False
    explicit_padding: bool = False
    crop_upsampled: bool = False
    same_size_levels: Sequence[int] = ()


_DEFAULTS = Options()


class BilinearUpsampling(rounding.Roundable):
    """Doubles the size of maps [B, H, W, C]; Keras's layer needs static sizes for that."""

    def call(self, inputs):
        sizes = [2 * size for size in dimensions(inputs, 1, 2)]
        return tf.cast(tf.image.resize(inputs, sizes), inputs.dtype)


def feature_pyramid(
    channels: Sequence[int],
    *,
    min_level: int,
    depth: int,
    num_coarse_levels: int,
    hyperparams: LayerHyperparams,
    batch_norm_trainable: bool,
    name: str,
    options: Options = _DEFAULTS,
) -> keras.Model:
    """Builds the top-down pyramid and the coarser levels after it.

    Each level is a 1x1 projection (by default with a bias and no norm) of its backbone map plus the
    next coarser level, doubled in size, smoothed by a 3x3 convolution, norm and activation. By
    default, like the reference implementation and unlike the paper, what is propagated down is the
    smoothed map, and the top level is not smoothed. Levels that the backbone does not have are 3x3
    convolutions of stride 2, norm and activation, chained on the top level, or pooled from it.

    Args:
      channels: channels of the backbone maps, finest first.
      min_level: level of the first backbone map; level l has stride 2**l.
      depth: number of channels of all levels of the pyramid.
      num_coarse_levels: number of levels beyond those of the backbone.
      hyperparams: hyperparameters of all layers.
      batch_norm_trainable: False freezes the batch norms.
      name: name of the model.
      options: differences from the pyramid of the reference.

    Returns:
      A model from the list of backbone maps, each half as large as the one before (exactly so
      unless `options.crop_upsampled`), to the list of pyramid maps [B, H, W, depth], finest first.

    Raises:
      ValueError: for a norm of projections without one in `hyperparams`.
    """
    if options.projection_norm and not hyperparams.has_norm:
        raise expected('fpn.projection_norm', 'a norm in conv_hyperparams', 'none')
    top_level = min_level + len(channels) - 1
    # A model converts its inputs to the dtypes of its `Input`s; the maps of the backbone fit.
    dtype = keras.config.dtype_policy().compute_dtype
    inputs = {
        level: keras.Input((None, None, c), name=f'features_{level}', dtype=dtype)
        for level, c in enumerate(channels, start=min_level)
    }

    def conv_norm(x, name: str, **layout):
        if options.use_depthwise:
            setup = SeparableSetup.DEPTHWISE
            conv = hyperparams.separable_conv(depth, 3, name=name, setup=setup, **layout)
        else:
            conv = hyperparams.conv(depth, 3, name=name, **layout)
        norm = hyperparams.norm(frozen=not batch_norm_trainable, name=f'{name}_bn')
        return hyperparams.activation_layer(name=f'{name}_activation')(normalized(conv, norm, x))

    def project(level: int):
        name = f'projection_{level}'
        if not options.projection_norm:
            return hyperparams.conv(depth, 1, use_bias=True, name=name)(inputs[level])
        conv = hyperparams.conv(depth, 1, name=name)
        norm = hyperparams.norm(frozen=not batch_norm_trainable, name=f'{name}_bn')
        return normalized(conv, norm, inputs[level])

    def smooth(x, level: int):
        return conv_norm(x, f'smoothing_{level}')

    def coarser(x, level: int):
        if options.pool_extra_levels:
            return rounding.MaxPooling2D(1, strides=2, name=f'coarse_{level}')(x)
        if options.pre_activate_extra_levels:
            if level > top_level + 1:
                x = rounding.Activation('relu', name=f'coarse_{level}_relu')(x)
            x = rounding.ZeroPadding2D(1, name=f'coarse_{level}_pad')(x)
            layout = {'strides': 2, 'padding': 'valid', 'use_bias': True}
            return hyperparams.conv(depth, 3, name=f'coarse_{level}', **layout)(x)
        padding = 'same'
        if options.explicit_padding:
            x = rounding.ZeroPadding2D(1, name=f'coarse_{level}_pad')(x)
            padding = 'valid'
        return conv_norm(x, f'coarse_{level}', strides=2, padding=padding)

    def double(x, level: int):
        if level in options.same_size_levels:
            return x
        if options.bilinear:
            x = BilinearUpsampling(name=f'upsampling_{level}')(x)
        else:
            x = Doubling(name=f'upsampling_{level}')(x)
        if options.crop_upsampled:
            x = CropTo(name=f'crop_{level}')(x, inputs[level])
        return x

    x = project(top_level)
    outputs = [smooth(x, top_level) if options.smooth_outputs else x]
    for level in range(top_level - 1, min_level - 1, -1):
        x = rounding.Add(name=f'add_{level}')([double(x, level), project(level)])
        smoothed = smooth(x, level)
        outputs.insert(0, smoothed)
        x = x if options.smooth_outputs or options.propagate_sums else smoothed
    x = inputs[top_level] if options.extra_levels_from_backbone else outputs[-1]
    for level in range(top_level + 1, top_level + 1 + num_coarse_levels):
        x = coarser(x, level)
        outputs.append(x)
    return keras.Model(list(inputs.values()), outputs, name=name)


def _build(channels: Sequence[int], options: NeckOptions) -> keras.Model:
    chosen = {'use_depthwise': options.use_depthwise, 'explicit_padding': options.explicit_padding}
    return feature_pyramid(
        channels,
        min_level=options.levels[0],
        depth=options.depth,
        num_coarse_levels=len(options.levels) - len(channels),
        options=Options(**(dict(options.settings) | chosen)),
        **options.arguments(),
    )


FPN = Neck(_build, frozenset({'fpn', 'use_depthwise'}))
