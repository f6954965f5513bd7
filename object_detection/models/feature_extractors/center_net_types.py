"""Feature extractors of CenterNet by their `type` in configs.

Each module `center_net_<backbone>.py` of this folder exports `ROWS` of this table.
"""

from object_detection.models import feature_extractor
from object_detection.models.feature_extractor import ExtractorType, FeatureExtractor
from object_detection.models.feature_extractors import (
    center_net_hourglass,
    center_net_mobilenet,
    center_net_resnet,
)
from object_detection.models.feature_extractors.center_net import CenterNetOptions

__all__ = ['CENTER_NET', 'CenterNetOptions', 'build_center_net', 'check_center_net']

CENTER_NET: dict[str, ExtractorType] = (
    center_net_resnet.ROWS | center_net_mobilenet.ROWS | center_net_hourglass.ROWS
)


def build_center_net(type_name: str, options: CenterNetOptions) -> FeatureExtractor:
    """Builds the feature extractor that `type_name` names.

    Raises:
      ValueError: in the cases of `check_center_net`.
    """
    return feature_extractor.build(CENTER_NET, type_name, options)


def check_center_net(type_name: str, options: CenterNetOptions) -> None:
    """Checks the arguments of `build_center_net` without building the extractor.

    Raises:
      ValueError: if there is no extractor of that name, or `options` do not fit it.
    """
    feature_extractor.check(CENTER_NET, type_name, options)
