"""The functions of the SSD family in `families.MODELS`; loads no TensorFlow."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from object_detection.meta_architectures.ssd import loss_names as names
from object_detection.protos.ssd_pb2 import Ssd

if TYPE_CHECKING:
    from object_detection.meta_architectures.detection_model import DetectionModel


def build(config: Ssd, is_training: bool) -> 'DetectionModel':
    """Builds the detector; see `ModelFamily.build`."""
    from object_detection.builders.ssd import build as builder  # loads TensorFlow

    return builder.build(config, is_training)


def loss_names(config: Ssd) -> Sequence[str]:
    """Returns the names of the losses; see `ModelFamily.loss_names`."""
    del config
    return names.NAMES


def needs_keypoints(config: Ssd) -> bool:
    """Returns whether boxes are coded together with keypoints."""
    return config.box_coder.WhichOneof('box_coder_oneof') == 'keypoint_box_coder'
