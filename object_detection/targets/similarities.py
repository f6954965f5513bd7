"""Similarities of pairs of boxes.

Similarity of objects and predictions for set matching.
"""

from collections.abc import Callable

import tensorflow as tf

from object_detection.core import boxes as box_ops
from object_detection.core import determinism
from object_detection.errors import UserError


class Similarity:
    """Compares each pair of boxes of two sets."""

    def compare(
        self, boxes: tf.Tensor, others: tf.Tensor, scores: tf.Tensor | None = None
    ) -> tf.Tensor:
        """Compares each pair of boxes.

        Args:
          boxes: float32 [..., N, 4].
          others: float32 [..., M, 4], in the same frame.
          scores: float32 [..., N], of `boxes`; None = all 1. Only `ThresholdedIouSimilarity`
            depends on it.

        Returns:
          float32 [..., N, M].
        """
        raise NotImplementedError

    def compare_with(self, others: tf.Tensor) -> Callable[..., tf.Tensor]:
        """Returns `compare` as a function of `boxes` and `scores`, for loops."""
        return lambda boxes, scores=None: self.compare(boxes, others, scores)


class IouSimilarity(Similarity):
    """Intersection over union, 0 for boxes that do not overlap."""

    def compare(
        self, boxes: tf.Tensor, others: tf.Tensor, scores: tf.Tensor | None = None
    ) -> tf.Tensor:
        del scores
        return box_ops.iou(boxes, others)

    def compare_with(self, others: tf.Tensor) -> Callable[..., tf.Tensor]:
        iou = box_ops.iou_with(others)
        return lambda boxes, scores=None: iou(boxes)


class IoaSimilarity(Similarity):
    """Intersection over the area of the second box; 0 for second boxes of zero size."""

    def compare(
        self, boxes: tf.Tensor, others: tf.Tensor, scores: tf.Tensor | None = None
    ) -> tf.Tensor:
        del scores
        return box_ops.ioa(boxes, others)


class NegSqDistSimilarity(Similarity):
    """Minus the squared Euclidean distance of two boxes as points [ymin, xmin, ymax, xmax]."""

    def compare(
        self, boxes: tf.Tensor, others: tf.Tensor, scores: tf.Tensor | None = None
    ) -> tf.Tensor:
        del scores
        # One coordinate at a time: there is never a tensor [..., N, M, 4].
        coordinates = zip(tf.unstack(boxes, axis=-1), tf.unstack(others, axis=-1), strict=True)
        distances = [
            tf.math.squared_difference(a[..., :, tf.newaxis], b[..., tf.newaxis, :])
            for a, b in coordinates
        ]
        return -determinism.sum_in_order(distances)


class ThresholdedIouSimilarity(Similarity):
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
        overlaps = box_ops.iou(boxes, others) > self._iou_threshold
        row_scores = 1.0 if scores is None else scores[..., :, tf.newaxis]
        return tf.where(overlaps, row_scores, 0.0)


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
