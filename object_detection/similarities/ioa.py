"""Intersection over area as similarity."""

import tensorflow as tf

from object_detection.core import boxes as box_ops


class IoaSimilarity:
    """Intersection over the area of the second box; 0 for second boxes of zero size."""

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
        return box_ops.ioa(boxes, others)
