"""The functions of the Faster R-CNN family in `families.MODELS`; loads no TensorFlow."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from object_detection.config.model_rules import AnchorOptions, matched_threshold
from object_detection.meta_architectures.faster_rcnn import loss_names as names
from object_detection.meta_architectures.faster_rcnn import rules
from object_detection.protos.faster_rcnn_pb2 import FasterRcnn

if TYPE_CHECKING:
    from object_detection.meta_architectures.detection_model import DetectionModel

NVIDIA_NAMES = names.NVIDIA_NAMES


def build(config: FasterRcnn, is_training: bool) -> 'DetectionModel':
    """Builds the detector; see `ModelFamily.build`."""
    from object_detection.meta_architectures.faster_rcnn import build as builder  # loads TensorFlow

    return builder.build(config, is_training)


def loss_names(config: FasterRcnn) -> Sequence[str]:
    """Returns the names of the losses; see `ModelFamily.loss_names`."""
    return names.of_stages(config.number_of_stages, keypoints=needs_keypoints(config))


def needs_masks(config: FasterRcnn) -> bool:
    """Returns whether there is a third stage, which predicts masks."""
    return config.number_of_stages == 3


def needs_keypoints(config: FasterRcnn) -> bool:
    """Returns whether keypoints are predicted."""
    return rules.predicts_keypoints(config)


def input_flags(config: FasterRcnn) -> dict[str, str]:
    """Returns options of input readers that predictions need; see `ModelFamily.input_flags`."""
    has_memory = rules.has_memory(config)
    return {'load_context_features': rules.FIELD} if has_memory else {}


def example_options(config: FasterRcnn) -> dict[str, Any]:
    """Returns options of the input; see `ModelFamily.example_options`."""
    options: dict[str, Any] = {'mask_crop_size': config.groundtruth_mask_crop_size}
    if rules.has_memory(config):
        context = config.context_config
        options['context_size'] = (
            context.max_num_context_features,
            context.context_feature_length,
        )
    return options


def anchor_options(config: FasterRcnn) -> AnchorOptions:
    """Returns the anchors of the first stage; see `ModelFamily.anchor_options`."""
    if config.HasField('first_stage_outside_anchors'):
        outside = config.OutsideAnchors.Name(config.first_stage_outside_anchors)
    else:
        outside = 'CLIP' if config.clip_anchors_to_image else 'PRUNE'
    return AnchorOptions(
        'first_stage_anchor_generator',
        config.first_stage_anchor_generator,
        config.image_resizer,
        matched_threshold(config.first_stage_matcher, 0.7),
        is_inside_only=outside in ('PRUNE', 'IGNORE_LABEL'),
    )
