"""Feature extractors of single-shot detectors on ResNet v1 with a pyramid, as in RetinaNet.

Paper: https://arxiv.org/abs/1708.02002. The types of the reference implementation under
TensorFlow 1, without `_keras`, denote the networks of TensorFlow 1, so that its detectors give the
same results: their pyramids propagate maps before they are smoothed, and the penalty of a backbone
is that of TF-Slim, half of the one under TensorFlow 2. The strides at the ends of stages there give
the same maps as those at the beginnings of the next stages here.
"""

import dataclasses
from typing import Any

from object_detection.models.backbones import resnet_v1
from object_detection.models.feature_extractors import resnet, single_shot
from object_detection.models.feature_extractors.extractor_types import ExtractorType
from object_detection.models.feature_extractors.feature_extractor import FeatureExtractor
from object_detection.models.feature_extractors.single_shot import SingleShotOptions

# Factor of the sum of squares of a backbone under TensorFlow 2, unless the config overrides it.
_PENALTY = 1e-4


def _trunk_options(options: SingleShotOptions, penalty: float) -> dict[str, Any]:
    """Returns the arguments of the backbone, whose convolutions before norms have no bias."""
    arguments = resnet.network_options(options, resnet_v1.default_hyperparams(penalty))
    return arguments | {
        'name': 'backbone',
        'hyperparams': dataclasses.replace(arguments['hyperparams'], force_use_bias=False),
        'options': dataclasses.replace(
            arguments['options'],
            depth_multiplier=options.depth_multiplier,
            min_depth=options.min_depth,
        ),
    }


def _resnet_v1_fpn(depth: int, *, slim: bool = False) -> ExtractorType:
    """Returns the row of a ResNet with a feature pyramid network.

    Args:
      depth: of the ResNet.
      slim: whether it is the network of TensorFlow 1.
    """
    penalty = resnet.SLIM_PENALTY if slim else _PENALTY

    def build(options: SingleShotOptions) -> FeatureExtractor:
        levels = single_shot.pyramid_levels(options)
        backbone = resnet_v1.trunk(depth, levels=levels, **_trunk_options(options, penalty))
        frozen = resnet.with_freezing(options.hyperparams, options)
        return FeatureExtractor(
            backbone=backbone,
            pyramid=single_shot.feature_pyramid(
                [output.shape[-1] for output in backbone.outputs],
                dataclasses.replace(options, hyperparams=frozen),
                propagate_sums=slim,
            ),
            strides=single_shot.pyramid_strides(options),
            pad_to_multiple=options.pad_to_multiple or 1,
            normalize=resnet.normalization(options),
        )

    def check(options: SingleShotOptions) -> None:
        single_shot.check_depths(options)
        single_shot.check_pyramid(options)
        reason = 'expected false, as a ResNet has a padding of its own.'
        single_shot.check_unused(options, {'use_explicit_padding': reason})
        resnet.check_resnet(options, single_shot.pyramid_levels(options)[-1])

    return ExtractorType(build, check, resnet.ResnetOptions)


ROWS: dict[str, ExtractorType] = {
    'ssd_resnet18_v1_fpn_keras': _resnet_v1_fpn(18),
    'ssd_resnet34_v1_fpn_keras': _resnet_v1_fpn(34),
    'ssd_resnet50_v1_fpn_keras': _resnet_v1_fpn(50),
    'ssd_resnet101_v1_fpn_keras': _resnet_v1_fpn(101),
    'ssd_resnet152_v1_fpn_keras': _resnet_v1_fpn(152),
    # Networks of the reference implementation under TensorFlow 1.
    'ssd_resnet50_v1_fpn': _resnet_v1_fpn(50, slim=True),
    'ssd_resnet101_v1_fpn': _resnet_v1_fpn(101, slim=True),
    'ssd_resnet152_v1_fpn': _resnet_v1_fpn(152, slim=True),
}
