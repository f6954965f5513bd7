"""The functions of the SSD family in `families.MODELS`; loads no TensorFlow."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from object_detection.config.model_rules import AnchorOptions, matched_threshold
from object_detection.meta_architectures.ssd import loss_names as names
from object_detection.protos.box_coder_pb2 import BoxCoder
from object_detection.protos.post_processing_pb2 import PostProcessing
from object_detection.protos.ssd_pb2 import Ssd

if TYPE_CHECKING:
    from object_detection.meta_architectures.detection_model import DetectionModel


class AnchorDetection(NamedTuple):
    """How the box codes and scores of anchors become detections.

    Attributes:
      num_classes: K, without background.
      box_coder: decodes the boxes.
      post_processing: suppresses them.
    """

    num_classes: int
    box_coder: BoxCoder
    post_processing: PostProcessing


def build(config: Ssd, is_training: bool) -> 'DetectionModel':
    """Builds the detector; see `ModelFamily.build`."""
    from object_detection.meta_architectures.ssd import build as builder  # loads TensorFlow

    return builder.build(config, is_training)


def loss_names(config: Ssd) -> Sequence[str]:
    """Returns the names of the losses; see `ModelFamily.loss_names`."""
    del config
    return names.NAMES


def needs_keypoints(config: Ssd) -> bool:
    """Returns whether boxes are coded together with keypoints."""
    return config.box_coder.WhichOneof('box_coder_oneof') == 'keypoint_box_coder'


def anchor_detection(config: Ssd) -> AnchorDetection:
    """Returns the options of the post-processing; see `ModelFamily.anchor_detection`."""
    num_classes = config.num_classes - config.explicit_background_class
    return AnchorDetection(num_classes, config.box_coder, config.post_processing)


def anchor_options(config: Ssd) -> AnchorOptions:
    """Returns the anchors and their matcher; see `ModelFamily.anchor_options`."""
    return AnchorOptions(
        'anchor_generator',
        config.anchor_generator,
        config.image_resizer,
        matched_threshold(config.matcher, 0.5),
        sees_static_size=True,
    )
