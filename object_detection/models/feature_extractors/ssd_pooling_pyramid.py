"""Feature extractors of single-shot detectors with pooled maps, PPN (arXiv:1807.03284).

The reference implementation has them under TensorFlow 1 only. A ResNet there has its strides at the
ends of stages, which gives the same maps as those at the beginnings of the next stages here.
"""

from object_detection.errors import UserError
from object_detection.models.backbones import mobilenet, resnet_v1
from object_detection.models.feature_extractors import resnet, single_shot
from object_detection.models.feature_extractors.extractor_types import ExtractorType
from object_detection.models.feature_extractors.feature_extractor import (
    FeatureExtractor,
    scale_to_unit,
)
from object_detection.models.feature_extractors.single_shot import SingleShotOptions
from object_detection.models.feature_extractors.ssd_mobilenet import trunk_options
from object_detection.models.necks.multi_resolution import pooling_pyramid

# Level of the backbone's map that is pooled.
_LEVEL = 4
# Channels of all maps on a ResNet.
_RESNET_DEPTH = 1024


def _extractor(backbone, depth: int | None, options: SingleShotOptions, normalize):
    """Returns the extractor with the maps that are pooled from the backbone's last one."""
    num_maps = single_shot.NUM_LAYERS if options.num_layers is None else options.num_layers
    return FeatureExtractor(
        backbone=backbone,
        pyramid=pooling_pyramid(
            backbone.outputs[-1].shape[-1],
            depth=depth,
            num_maps=num_maps,
            hyperparams=options.hyperparams,
            batch_norm_trainable=options.batch_norm_trainable,
            name='fpn',
        ),
        strides=[2 ** (_LEVEL + i) for i in range(num_maps)],
        pad_to_multiple=options.pad_to_multiple or 1,
        normalize=normalize,
    )


def _check(options: SingleShotOptions) -> None:
    """Checks the options of all pooling pyramids."""
    single_shot.check_depths(options)
    reason = 'expected none, as the maps of the type are pooled.'
    reasons = {'fpn': reason, 'bifpn': reason}
    reasons['use_depthwise'] = 'expected false, as the type has no 3x3 convolution after its maps.'
    single_shot.check_unused(options, reasons)
    if options.num_layers is not None and options.num_layers < 1:
        raise UserError(f'num_layers: expected at least 1. Received: {options.num_layers}.')


def _mobilenet_v1() -> ExtractorType:
    """Returns the row of MobileNet v1, whose own map is the first one."""

    def build(options: SingleShotOptions) -> FeatureExtractor:
        backbone = mobilenet.trunk([mobilenet.LEVELS[_LEVEL]], **trunk_options(options))
        return _extractor(backbone, None, options, scale_to_unit)

    return ExtractorType(build, _check)


def _resnet_v1(depth: int) -> ExtractorType:
    """Returns the row of a ResNet, whose map a convolution of size 1 converts first."""

    def build(options: SingleShotOptions) -> FeatureExtractor:
        default = resnet_v1.default_hyperparams(resnet.SLIM_PENALTY)
        backbone = resnet_v1.trunk(
            depth, levels=[_LEVEL], name='backbone', **resnet.network_options(options, default)
        )
        return _extractor(backbone, _RESNET_DEPTH, options, resnet.normalization(options))

    def check(options: SingleShotOptions) -> None:
        _check(options)
        reasons = {
            'depth_multiplier': 'expected 1, as in the reference the type has no such factor.',
            'use_explicit_padding': 'expected false, as a ResNet has a padding of its own.',
        }
        single_shot.check_unused(options, reasons)
        resnet.check_resnet(options, _LEVEL)

    return ExtractorType(build, check, resnet.ResnetOptions)


ROWS: dict[str, ExtractorType] = {
    'ssd_mobilenet_v1_ppn': _mobilenet_v1(),
    'ssd_resnet50_v1_ppn': _resnet_v1(50),
    'ssd_resnet101_v1_ppn': _resnet_v1(101),
    'ssd_resnet152_v1_ppn': _resnet_v1(152),
}
