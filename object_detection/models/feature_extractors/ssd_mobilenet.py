"""Feature extractors of single-shot detectors on MobileNet: six maps, or a feature pyramid.

The types of the reference implementation under TensorFlow 1, without `_keras`, denote the networks
of TensorFlow 1, so that its detectors give the same results: `depth_multiplier` counts once in
MobileNet v1, a feature pyramid propagates maps before they are smoothed, and if its convolutions
are separable, MobileNet v2 ends with 256 channels, too. Penalties are those of the types with
`_keras`: under TensorFlow 1, the depthwise kernels of a MobileNet v2 that the config does not
override have none.
"""

from typing import Any

import keras

from object_detection.models.backbones import mobilenet, mobilenet_v2
from object_detection.models.feature_extractors import single_shot
from object_detection.models.feature_extractors.extractor_types import ExtractorType
from object_detection.models.feature_extractors.feature_extractor import (
    FeatureExtractor,
    scale_to_unit,
)
from object_detection.models.feature_extractors.single_shot import SingleShotOptions
from object_detection.models.necks import multi_resolution

# Stride of the first map of extractors without a feature pyramid.
_FIRST_STRIDE = 16
# Channels at the end of a backbone under a pyramid with separable convolutions.
_THIN_V1 = (512, 256)
_THIN_V2 = 256


def trunk_options(options: SingleShotOptions) -> dict[str, Any]:
    """Returns the common arguments of the backbones."""
    return {
        'hyperparams': options.backbone_hyperparams(mobilenet.default_hyperparams()),
        'batch_norm_trainable': options.batch_norm_trainable,
        'name': 'backbone',
        'options': mobilenet.Options(
            depth_multiplier=options.depth_multiplier,
            min_depth=options.min_depth,
            explicit_padding=options.use_explicit_padding,
        ),
    }


def _backbone_of_six_maps(version: int, slim: bool, options: SingleShotOptions) -> keras.Model:
    """Returns the backbone with the last maps of the strides 16 and 32."""
    arguments = trunk_options(options)
    if version == 1:
        levels = mobilenet.LEVELS
        return mobilenet.trunk([levels[4], levels[5]], squares_multiplier=not slim, **arguments)
    outputs = [mobilenet_v2.BEFORE_LAST_STRIDE, mobilenet_v2.LAST]
    return mobilenet_v2.trunk(outputs, **arguments)


def _backbone_of_pyramid(version: int, slim: bool, options: SingleShotOptions) -> keras.Model:
    """Returns the backbone with the maps of the levels of the pyramid."""
    arguments = trunk_options(options)
    levels = single_shot.pyramid_levels(options)
    if version == 2:
        if options.use_depthwise and slim:
            arguments['last_filters'] = _THIN_V2
        return mobilenet_v2.trunk([mobilenet_v2.LEVELS[level] for level in levels], **arguments)
    if options.use_depthwise:
        arguments['last_filters'] = _THIN_V1
    return mobilenet.trunk(
        [mobilenet.LEVELS[level] for level in levels],
        squares_multiplier=not slim,
        **arguments,
    )


def _six_maps(version: int, *, slim: bool) -> ExtractorType:
    """Returns the row of a MobileNet with the coarser maps of SSD; see `_pyramid`."""

    def build(options: SingleShotOptions) -> FeatureExtractor:
        backbone = _backbone_of_six_maps(version, slim, options)
        maps = multi_resolution.multi_resolution_maps(
            [output.shape[-1] for output in backbone.outputs],
            hyperparams=options.hyperparams,
            batch_norm_trainable=options.batch_norm_trainable,
            name='fpn',
            options=_map_options(options),
        )
        return FeatureExtractor(
            backbone=backbone,
            pyramid=maps,
            strides=[_FIRST_STRIDE * 2**i for i in range(len(maps.outputs))],
            pad_to_multiple=options.pad_to_multiple or 1,
            normalize=scale_to_unit,
        )

    def check(options: SingleShotOptions) -> None:
        single_shot.check_depths(options)
        reason = 'expected none, as the type has no feature pyramid.'
        single_shot.check_unused(options, {'fpn': reason, 'bifpn': reason})
        _map_options(options)

    return ExtractorType(build, check)


def _map_options(options: SingleShotOptions) -> multi_resolution.Options:
    num_layers = options.num_layers
    return multi_resolution.Options(
        num_maps=multi_resolution.MAX_MAPS if num_layers is None else num_layers,
        depth_multiplier=options.depth_multiplier,
        min_depth=options.min_depth,
        use_depthwise=options.use_depthwise,
        explicit_padding=options.use_explicit_padding,
    )


def _pyramid(version: int, *, slim: bool) -> ExtractorType:
    """Returns the row of a MobileNet with a feature pyramid network.

    Args:
      version: of the MobileNet.
      slim: whether it is the network of TensorFlow 1.
    """

    def build(options: SingleShotOptions) -> FeatureExtractor:
        backbone = _backbone_of_pyramid(version, slim, options)
        channels = [output.shape[-1] for output in backbone.outputs]
        return FeatureExtractor(
            backbone=backbone,
            pyramid=single_shot.feature_pyramid(channels, options, propagate_sums=slim),
            strides=single_shot.pyramid_strides(options),
            pad_to_multiple=options.pad_to_multiple or 1,
            normalize=scale_to_unit,
        )

    def check(options: SingleShotOptions) -> None:
        single_shot.check_depths(options)
        single_shot.check_pyramid(options)

    return ExtractorType(build, check)


ROWS: dict[str, ExtractorType] = {
    'ssd_mobilenet_v1_keras': _six_maps(1, slim=False),
    'ssd_mobilenet_v2_keras': _six_maps(2, slim=False),
    'ssd_mobilenet_v1_fpn_keras': _pyramid(1, slim=False),
    'ssd_mobilenet_v2_fpn_keras': _pyramid(2, slim=False),
    # Networks of the reference implementation under TensorFlow 1.
    'ssd_mobilenet_v1': _six_maps(1, slim=True),
    'ssd_mobilenet_v2': _six_maps(2, slim=True),
    'ssd_mobilenet_v1_fpn': _pyramid(1, slim=True),
    'ssd_mobilenet_v2_fpn': _pyramid(2, slim=True),
}
