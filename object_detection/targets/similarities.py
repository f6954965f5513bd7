"""Similarities of pairs of boxes."""

from collections.abc import Callable

import tensorflow as tf

from object_detection.core import boxes as box_ops
from object_detection.core import determinism
from object_detection.errors import expected


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
            raise expected('ThresholdedIouSimilarity', '0 <= iou_threshold <= 1', iou_threshold)
        self._iou_threshold = iou_threshold

    def compare(
        self, boxes: tf.Tensor, others: tf.Tensor, scores: tf.Tensor | None = None
    ) -> tf.Tensor:
        overlaps = box_ops.iou(boxes, others) > self._iou_threshold
        row_scores = 1.0 if scores is None else scores[..., :, tf.newaxis]
        return tf.where(overlaps, row_scores, 0.0)


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
