"""Similarity of objects and predictions for set matching."""

import tensorflow as tf

from object_detection.core import boxes as box_ops
from object_detection.core import determinism


class DetrSimilarity:
    """Class score, less the distances of the boxes (DETR, https://arxiv.org/abs/2005.12872, eq. 1).

        score of the object's class - l1_weight * L1 - giou_weight * (1 - GIoU)

    L1 is the distance of the boxes as [y_center, x_center, height, width]. It needs classes in
    addition to boxes, unlike the similarities of a config; it is used with `HungarianMatcher`.

    Args:
      l1_weight, giou_weight: factors of the distances.
    """

    def __init__(self, l1_weight: float = 5.0, giou_weight: float = 2.0):
        self._l1_weight = l1_weight
        self._giou_weight = giou_weight

    def compare(
        self,
        boxes: tf.Tensor,
        others: tf.Tensor,
        classes: tf.Tensor,
        class_scores: tf.Tensor,
    ) -> tf.Tensor:
        """Compares each object with each prediction.

        Args:
          boxes: float32 [..., M, 4], of objects.
          others: float32 [..., N, 4], predicted, in the same frame.
          classes: float32 [..., M, K], one-hot.
          class_scores: float32 [..., N, K], of the predictions.

        Returns:
          float32 [..., M, N].
        """
        scores = tf.matmul(classes, class_scores, transpose_b=True)
        far = self._l1_weight * center_size_l1(boxes, others)
        apart = self._giou_weight * (1.0 - box_ops.giou(boxes, others))
        return scores - far - apart


def center_size_l1(boxes: tf.Tensor, others: tf.Tensor) -> tf.Tensor:
    """Sums the differences of [y_center, x_center, height, width]; shapes as `box_ops.iou`."""
    # One coordinate at a time, to avoid a tensor [..., M, N, 4].
    coordinates = zip(
        tf.unstack(box_ops.corners_to_center_size(boxes), axis=-1),
        tf.unstack(box_ops.corners_to_center_size(others), axis=-1),
        strict=True,
    )
    distances = [tf.abs(a[..., :, tf.newaxis] - b[..., tf.newaxis, :]) for a, b in coordinates]
    return determinism.sum_in_order(distances)
