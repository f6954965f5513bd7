"""The rows of the built-in necks; `table` names them."""

from collections.abc import Sequence
from typing import Any

import keras

from object_detection.models.necks import bifpn, fpn, multi_resolution, resizing
from object_detection.models.necks.table import Neck, NeckOptions

_NAME = 'fpn'


def _arguments(options: NeckOptions) -> dict[str, Any]:
    return {
        'hyperparams': options.hyperparams,
        'batch_norm_trainable': options.batch_norm_trainable,
        'name': _NAME,
    }


def _fpn(channels: Sequence[int], options: NeckOptions) -> keras.Model:
    chosen = {'use_depthwise': options.use_depthwise, 'explicit_padding': options.explicit_padding}
    return fpn.feature_pyramid(
        channels,
        min_level=options.levels[0],
        depth=options.depth,
        num_coarse_levels=len(options.levels) - len(channels),
        options=fpn.Options(**(dict(options.settings) | chosen)),
        **_arguments(options),
    )


def _bifpn(channels: Sequence[int], options: NeckOptions) -> keras.Model:
    size = bifpn.Options(options.levels[0], options.levels[-1], **options.settings)
    return bifpn.bidirectional_pyramid(channels, options=size, **_arguments(options))


def _multi_resolution(channels: Sequence[int], options: NeckOptions) -> keras.Model:
    network = multi_resolution.Options(
        num_maps=len(options.levels),
        depth_multiplier=options.depth_multiplier,
        min_depth=options.min_depth,
        use_depthwise=options.use_depthwise,
        explicit_padding=options.explicit_padding,
    )
    return multi_resolution.multi_resolution_maps(channels, options=network, **_arguments(options))


def _pooling_pyramid(channels: Sequence[int], options: NeckOptions) -> keras.Model:
    return multi_resolution.pooling_pyramid(
        channels[-1], depth=options.depth, num_maps=len(options.levels), **_arguments(options)
    )


def _merged_pyramid(channels: Sequence[int], options: NeckOptions) -> keras.Model:
    return multi_resolution.merged_pyramid(
        channels,
        use_separable=options.use_depthwise,
        bilinear=options.bilinear,
        **options.settings,
        **_arguments(options),
    )


def _upsampling(channels: Sequence[int], options: NeckOptions) -> keras.Model:
    return resizing.upsampling(channels[-1], **options.settings, **_arguments(options))


FPN = Neck(_fpn, frozenset({'fpn', 'use_depthwise'}))
BIFPN = Neck(_bifpn, frozenset({'bifpn'}))
MULTI_RESOLUTION = Neck(_multi_resolution, frozenset({'num_layers', 'use_depthwise'}))
POOLING_PYRAMID = Neck(_pooling_pyramid, frozenset({'num_layers'}))
MERGED_PYRAMID = Neck(
    _merged_pyramid, frozenset({'use_separable_conv', 'upsampling_interpolation'})
)
UPSAMPLING = Neck(_upsampling)
