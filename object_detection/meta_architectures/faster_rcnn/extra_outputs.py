"""Outputs that a two-stage detector returns only if its config requests them."""

import dataclasses

import tensorflow as tf

from object_detection.core import boxes as box_ops
from object_detection.core.shapes import dimensions
from object_detection.meta_architectures.faster_rcnn.box_stage import BoxStage
from object_detection.meta_architectures.faster_rcnn.predictions import BoxPredictions
from object_detection.meta_architectures.faster_rcnn.proposals import true_image_windows


@dataclasses.dataclass(frozen=True)
class ExtraOutputs:
    """The requested outputs.

    Attributes:
      box_features: `postprocess` returns `detection_features` [B, T, h, w, C], which the last
        box stage would classify the final boxes by.
      cropped_features: `postprocess` returns `cropped_rpn_box_features` [B, T, h, w, C], the crops
        of the final boxes that those are made of.
      raw_detections: `predict` returns `raw_boxes`.
    """

    box_features: bool = False
    cropped_features: bool = False
    raw_detections: bool = False

    @property
    def need_crops(self) -> bool:
        """Whether the features of final boxes are requested."""
        return self.box_features or self.cropped_features


def of_detections(rows: tf.Tensor, detections: dict[str, tf.Tensor]) -> tf.Tensor:
    """[B * T, ...] -> float32 [B, T, ...], zero in unused slots."""
    batch, slots = dimensions(detections['detection_scores'], 0, 1)
    rows = tf.reshape(rows, tf.concat([[batch, slots], tf.shape(rows)[1:]], axis=0))
    counts = detections['num_detections'][:, tf.newaxis]
    is_used = tf.cast(tf.range(slots), tf.float32) < counts
    is_used = tf.reshape(is_used, [batch, slots] + [1] * (len(rows.shape) - 2))
    return tf.where(is_used, tf.cast(rows, tf.float32), 0.0)


def absolute_boxes(boxes: tf.Tensor, true_shapes: tf.Tensor) -> tf.Tensor:
    """Converts boxes float32 [B, T, 4], normalized to the true images, int32 [B, 3]."""
    sizes = tf.cast(true_shapes[:, :2], tf.float32)
    return boxes * tf.concat([sizes, sizes], axis=1)[:, tf.newaxis]


def raw_boxes(box_stage: BoxStage, predicted: BoxPredictions, true_shapes: tf.Tensor) -> tf.Tensor:
    """Returns the refined boxes of all classes, before suppression.

    Args:
      box_stage: the stage that decodes them.
      predicted: what it predicted for P proposals per image.
      true_shapes: int32 [B, 3].

    Returns:
      float32 [B, P, K or 1, 4], clipped and normalized to the true images.
    """
    boxes = box_stage.decode(predicted.regions.box_codes, predicted.proposals)
    batch, rows, count = dimensions(boxes, 0, 1, 2)
    windows = true_image_windows(true_shapes)
    flat = tf.reshape(boxes, [batch, rows * count, 4])
    flat = box_ops.change_frame(box_ops.clip(flat, windows), windows)
    return tf.reshape(flat, [batch, rows, count, 4])
