"""Similarity by the scores of the boxes that overlap enough."""

import tensorflow as tf

from object_detection.core import boxes as box_ops
from object_detection.errors import UserError


class ThresholdedIouSimilarity:
    """The first box's score where the boxes' IoU is above a threshold, else 0.

    Args:
      iou_threshold: in [0, 1].
    """

    def __init__(self, iou_threshold: float = 0.5):
        if not 0 <= iou_threshold <= 1:
            raise UserError(
                'ThresholdedIouSimilarity: iou_threshold must be in [0, 1]. '
                f'Received: {iou_threshold}.'
            )
        self._iou_threshold = iou_threshold

    def compare(
        self, boxes: tf.Tensor, others: tf.Tensor, scores: tf.Tensor | None = None
    ) -> tf.Tensor:
        """Compares each pair of boxes.

        Args:
          boxes: float32 [..., N, 4].
          others: float32 [..., M, 4], in the same frame.
          scores: float32 [..., N], of `boxes`; None = all 1.

        Returns:
          float32 [..., N, M].
        """
        overlaps = box_ops.iou(boxes, others) > self._iou_threshold
        row_scores = 1.0 if scores is None else scores[..., :, tf.newaxis]
        return tf.where(overlaps, row_scores, 0.0)
