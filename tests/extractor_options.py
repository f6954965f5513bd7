"""Options of feature extractors for tests, from one flat set of fields."""

from object_detection.meta_architectures.faster_rcnn.feature_extractor import (
    PyramidOptions,
    TwoStageOptions,
)
from object_detection.models.backbones.table import BACKBONES

_RESNET = BACKBONES['resnet_v1_50'].uses
_PYRAMID = {'levels': 'levels', 'pyramid_depth': 'depth', 'pyramid': 'network'}


def two_stage_options(**fields) -> TwoStageOptions:
    """Builds the options from fields of them, of the ResNet's and of the pyramid's.

    None means what a config that does not have the field means.
    """
    pyramid = {_PYRAMID[name]: value for name, value in fields.items() if name in _PYRAMID}
    pyramid = {name: value for name, value in pyramid.items() if value is not None}
    resnet = {n: v for n, v in fields.items() if n in _RESNET and v is not None}
    others = {name: value for name, value in fields.items() if name not in {*_RESNET, *_PYRAMID}}
    return TwoStageOptions(
        **others,
        pyramid=PyramidOptions(**pyramid) if pyramid else None,
        resnet=resnet,
    )
