"""Feature extractors of EfficientDet: EfficientNet with a bidirectional pyramid.

Paper: https://arxiv.org/abs/1911.09070.
"""

import dataclasses
import functools

from object_detection.errors import UserError
from object_detection.models.backbones import efficientnet
from object_detection.models.feature_extractors import single_shot
from object_detection.models.feature_extractors.extractor_types import ExtractorType
from object_detection.models.feature_extractors.feature_extractor import (
    FeatureExtractor,
    Preprocess,
)
from object_detection.models.feature_extractors.single_shot import BiFpnOptions, SingleShotOptions
from object_detection.models.hyperparams import LayerHyperparams
from object_detection.models.necks import bifpn

# Images are normalized by the statistics of ImageNet.
_PREPROCESS = Preprocess(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225), scale=1 / 255)

# Size of the backbone -> pyramid of a config without `bifpn`.
_PYRAMIDS = (
    BiFpnOptions(num_iterations=3, num_filters=64),
    BiFpnOptions(num_iterations=4, num_filters=88),
    BiFpnOptions(num_iterations=5, num_filters=112),
    BiFpnOptions(num_iterations=6, num_filters=160),
    BiFpnOptions(num_iterations=7, num_filters=224),
    BiFpnOptions(num_iterations=7, num_filters=288),
    BiFpnOptions(num_iterations=8, num_filters=384, combine_method='sum'),
    BiFpnOptions(num_iterations=8, num_filters=384, combine_method='sum'),
)
_FIRST_LEVEL, _LAST_LEVEL = min(efficientnet.LEVELS), max(efficientnet.LEVELS)
# Options that the extractors do not have.
_UNUSED = {
    'fpn': 'expected `bifpn`, as the type has a bidirectional pyramid.',
    'num_layers': 'expected `bifpn.max_level`, as the type has a bidirectional pyramid.',
    'depth_multiplier': 'expected 1, as the type determines the size of the backbone.',
    'use_explicit_padding': 'expected false, as an EfficientNet has SAME padding.',
    'use_depthwise': 'expected false, as the convolutions of the type are always separable.',
}


def _check(size: int, options: SingleShotOptions) -> None:
    single_shot.check_depths(options)
    single_shot.check_unused(options, _UNUSED)
    pyramid = options.bifpn or _PYRAMIDS[size]
    if not _FIRST_LEVEL <= pyramid.min_level <= _LAST_LEVEL:
        raise UserError(
            f'bifpn.min_level: expected {_FIRST_LEVEL} to {_LAST_LEVEL}. '
            f'Received: {pyramid.min_level}.'
        )
    for field in ('num_iterations', 'num_filters'):
        if getattr(pyramid, field) < 1:
            usual = getattr(_PYRAMIDS[size], field)
            raise UserError(
                f'bifpn.{field}: expected at least 1, in EfficientDet with this backbone {usual}; '
                f'the field has no default. Received: {getattr(pyramid, field)}.'
            )
    bifpn.check(pyramid)


def _backbone_hyperparams(options: SingleShotOptions) -> LayerHyperparams:
    """Returns the hyperparameters of the backbone.

    As in the reference, a config that overrides them determines the penalty alone: norms,
    initializers and activations are always those of EfficientNet.
    """
    default = efficientnet.default_hyperparams()
    if not options.override_backbone:
        return default
    return dataclasses.replace(default, regularizer=options.hyperparams.regularizer)


def _efficientnet_bifpn(size: int) -> ExtractorType:
    """Returns the row of EfficientNet-B<size> with a bidirectional pyramid."""

    def build(options: SingleShotOptions) -> FeatureExtractor:
        pyramid = options.bifpn or _PYRAMIDS[size]
        top_level = min(pyramid.max_level, _LAST_LEVEL)
        backbone = efficientnet.trunk(
            size,
            levels=range(pyramid.min_level, top_level + 1),
            hyperparams=_backbone_hyperparams(options),
            batch_norm_trainable=options.batch_norm_trainable,
            name='backbone',
        )
        return FeatureExtractor(
            backbone=backbone,
            pyramid=bifpn.bidirectional_pyramid(
                [output.shape[-1] for output in backbone.outputs],
                hyperparams=options.hyperparams,
                batch_norm_trainable=options.batch_norm_trainable,
                name='fpn',
                options=pyramid,
            ),
            strides=[2**level for level in range(pyramid.min_level, pyramid.max_level + 1)],
            pad_to_multiple=options.pad_to_multiple or 1,
            normalize=_PREPROCESS,
        )

    return ExtractorType(build, functools.partial(_check, size))


ROWS: dict[str, ExtractorType] = {
    f'ssd_efficientnet-b{size}_bifpn_keras': _efficientnet_bifpn(size)
    for size in range(len(_PYRAMIDS))
}
