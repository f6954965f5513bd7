"""What a two-stage detector returns only where its config asks for it."""

import dataclasses
from typing import Any

import tensorflow as tf

from object_detection.core import boxes as box_ops
from object_detection.core.fields import DetectionFields
from object_detection.core.shapes import dimensions
from object_detection.meta_architectures.faster_rcnn.box_stage import BoxStage
from object_detection.meta_architectures.faster_rcnn.region_proposal_network import (
    Proposals,
    true_image_windows,
)


@dataclasses.dataclass(frozen=True)
class ExtraOutputs:
    """Which of them are asked for.

    Attributes:
      box_features: `postprocess` returns `detection_features` [B, T, h, w, C], which the final
        boxes would be classified by.
      cropped_features: `postprocess` returns `cropped_rpn_box_features` [B, T, h, w, C], the crops
        of the final boxes that those are made of.
      raw_detections: `predict` returns what `raw_detections` does.
    """

    box_features: bool = False
    cropped_features: bool = False
    raw_detections: bool = False

    @property
    def need_crops(self) -> bool:
        """Whether the features of final boxes are asked for."""
        return self.box_features or self.cropped_features


def raw_detections(
    box_stage: BoxStage, predictions: dict[str, Any], proposals: Proposals, true_shapes: tf.Tensor
) -> dict[str, tf.Tensor]:
    """Returns the refined boxes of all classes, before suppression.

    Args:
      box_stage: decodes.
      predictions: with `refined_box_encodings`.
      proposals: P an image.
      true_shapes: int32 [B, 3].

    Returns:
      `raw_detection_boxes`: float32 [B, P, K or 1, 4], clipped and normalized to the true images;
      `raw_detection_feature_map_indices`: int32 [B, P, K or 1], zero as in the reference.
    """
    boxes = box_stage.decode(predictions, proposals)
    batch, rows, count = dimensions(boxes, 0, 1, 2)
    windows = true_image_windows(true_shapes)
    flat = tf.reshape(boxes, [batch, rows * count, 4])
    flat = box_ops.change_frame(box_ops.clip(flat, windows), windows)
    normalized = tf.reshape(flat, [batch, rows, count, 4])
    return {
        DetectionFields.RAW_BOXES: normalized,
        'raw_detection_feature_map_indices': tf.zeros([batch, rows, count], tf.int32),
    }
