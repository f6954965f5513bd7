"""Feature extractors of single-shot detectors by their `type` in configs.

Each module `ssd_<backbone>.py` of this folder exports `ROWS` of this table.
"""

from object_detection.models.feature_extractors import (
    extractor_types,
    ssd_efficientnet,
    ssd_mobilenet,
    ssd_pooling_pyramid,
    ssd_resnet,
)
from object_detection.models.feature_extractors.extractor_types import ExtractorType
from object_detection.models.feature_extractors.feature_extractor import FeatureExtractor
from object_detection.models.feature_extractors.single_shot import (
    BiFpnOptions,
    FpnOptions,
    SingleShotOptions,
)

__all__ = ['SSD', 'BiFpnOptions', 'FpnOptions', 'SingleShotOptions', 'build_ssd', 'check_ssd']

SSD: dict[str, ExtractorType] = (
    ssd_mobilenet.ROWS | ssd_pooling_pyramid.ROWS | ssd_resnet.ROWS | ssd_efficientnet.ROWS
)


def build_ssd(type_name: str, options: SingleShotOptions) -> FeatureExtractor:
    """Builds the feature extractor that `type_name` names.

    Raises:
      ValueError: in the cases of `check_ssd`.
    """
    return extractor_types.build(SSD, type_name, options)


def check_ssd(type_name: str, options: SingleShotOptions) -> None:
    """Checks the arguments of `build_ssd` without building the extractor.

    Raises:
      ValueError: if there is no extractor of that name, or `options` do not fit it.
    """
    extractor_types.check(SSD, type_name, options)
