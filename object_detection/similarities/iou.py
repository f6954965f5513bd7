"""Intersection over union as similarity."""

import tensorflow as tf

from object_detection.core import boxes as box_ops


class IouSimilarity:
    """Intersection over union, 0 for boxes that do not overlap."""

    def compare(
        self, boxes: tf.Tensor, others: tf.Tensor, scores: tf.Tensor | None = None
    ) -> tf.Tensor:
        """Compares each pair of boxes.

        Args:
          boxes: float32 [..., N, 4].
          others: float32 [..., M, 4], in the same frame.
          scores: every similarity takes it; this one does not depend on it.

        Returns:
          float32 [..., N, M].
        """
        del scores
        return box_ops.iou(boxes, others)
