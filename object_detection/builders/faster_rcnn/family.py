"""What the surroundings of a detector ask of a FasterRcnn proto; loads no TensorFlow."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from object_detection.meta_architectures.faster_rcnn import loss_names as names
from object_detection.protos.faster_rcnn_pb2 import FasterRcnn

if TYPE_CHECKING:
    from object_detection.meta_architectures.detection_model import DetectionModel

NVIDIA_NAMES = names.NVIDIA_NAMES


def build(config: FasterRcnn, is_training: bool) -> 'DetectionModel':
    """As `ModelFamily.build`."""
    from object_detection.builders.faster_rcnn import build as builder  # loads TensorFlow

    return builder.build(config, is_training)


def loss_names(config: FasterRcnn) -> Sequence[str]:
    """As `ModelFamily.loss_names`."""
    return names.of_stages(config.number_of_stages)


def needs_masks(config: FasterRcnn) -> bool:
    """As `ModelFamily.needs_masks`: the third stage is that of masks."""
    return config.number_of_stages == 3


def example_options(config: FasterRcnn) -> dict[str, Any]:
    """As `ModelFamily.example_options`."""
    return {'mask_crop_size': config.groundtruth_mask_crop_size}
