"""Negative squared distance as similarity."""

import tensorflow as tf

from object_detection.core import determinism


class NegSqDistSimilarity:
    """Minus the squared Euclidean distance of two boxes as points [ymin, xmin, ymax, xmax]."""

    def compare(
        self, boxes: tf.Tensor, others: tf.Tensor, scores: tf.Tensor | None = None
    ) -> tf.Tensor:
        """Compares each pair of boxes.

        Args:
          boxes: float32 [..., N, 4].
          others: float32 [..., M, 4], in the same frame.
          scores: every similarity takes it; this one does not depend on it.

        Returns:
          float32 [..., N, M], at most 0.
        """
        del scores
        # One coordinate at a time, to avoid a tensor [..., N, M, 4].
        coordinates = zip(tf.unstack(boxes, axis=-1), tf.unstack(others, axis=-1), strict=True)
        distances = [
            tf.math.squared_difference(a[..., :, tf.newaxis], b[..., tf.newaxis, :])
            for a, b in coordinates
        ]
        return -determinism.sum_in_order(distances)
