"""Losses of box codes or boxes, with one value per anchor.

Each is a callable `(predictions [B, N, D], targets [B, N, D], weights [B, N]) -> [B, N]`, float32,
unless its docstring says otherwise. The caller sums over anchors and normalises.
"""

import tensorflow as tf

from object_detection.core import boxes as box_ops
from object_detection.errors import UserError, expected


class L2LocalizationLoss:
    """0.5 * |weight * (prediction - target)|^2; the weight counts squared, as in the reference."""

    def __call__(self, predictions: tf.Tensor, targets: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        """Returns the loss of each anchor; shapes as the module says."""
        differences = (predictions - targets) * weights[..., tf.newaxis]
        return 0.5 * tf.reduce_sum(tf.square(differences), axis=-1)


class SmoothL1LocalizationLoss:
    """Huber loss (Fast R-CNN, https://arxiv.org/abs/1504.08083, eq. 3), summed over the code.

        0.5 d^2 where |d| <= delta, delta * |d| - 0.5 delta^2 elsewhere.

    Args:
      delta: difference from which on the loss is linear, positive.

    Raises:
      ValueError: if `delta` is not positive.
    """

    def __init__(self, *, delta: float = 1.0):
        if delta <= 0:
            raise UserError(f'SmoothL1LocalizationLoss: delta must be positive. Received: {delta}.')
        self._delta = delta

    def __call__(self, predictions: tf.Tensor, targets: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        """Returns the loss of each anchor; shapes as the module says."""
        distances = tf.abs(predictions - targets)
        curved = tf.minimum(distances, self._delta)
        losses = curved * (distances - 0.5 * curved)
        return weights * tf.reduce_sum(losses, axis=-1)


class L1LocalizationLoss:
    """weight * |prediction - target|, not summed, so that it also applies to dense maps."""

    def __call__(self, predictions: tf.Tensor, targets: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        """Returns the loss of each element.

        Args:
          predictions, targets: float32 [...].
          weights: float32, of the same rank, broadcast to the predictions.

        Returns:
          float32 of the predictions' shape.

        Raises:
          ValueError: if the ranks differ.
        """
        if weights.shape.rank != predictions.shape.rank:
            raise expected(
                'L1LocalizationLoss', f'weights of the rank of {predictions.shape}', weights.shape
            )
        return tf.abs(predictions - targets) * weights


class IouLocalizationLoss:
    """weight * (1 - IoU) of matched boxes (UnitBox, https://arxiv.org/abs/1608.01471).

    Predictions and targets are boxes [ymin, xmin, ymax, xmax], not codes: decode first. (The
    reference's detectors pass codes, whose IoU means nothing.)
    """

    def __call__(self, predictions: tf.Tensor, targets: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        """Returns the loss of each anchor; shapes as the module says, D = 4."""
        return weights * (1.0 - box_ops.matched_iou(predictions, targets))


class GiouLocalizationLoss:
    """weight * (1 - GIoU) of matched boxes (https://arxiv.org/abs/1902.09630, algorithm 1).

    Predictions and targets are boxes [ymin, xmin, ymax, xmax], not codes: decode first. (The
    reference's detectors pass codes, whose IoU means nothing.)
    """

    def __call__(self, predictions: tf.Tensor, targets: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        """Returns the loss of each anchor; shapes as the module says, D = 4."""
        return weights * (1.0 - box_ops.matched_giou(predictions, targets))


def fill_nan_targets(targets: tf.Tensor, predictions: tf.Tensor) -> tf.Tensor:
    """Replaces NaN targets, which mean "not annotated", by the predictions: their loss is 0.

    Args:
      targets, predictions: float32 of one shape.

    Returns:
      float32 of that shape.
    """
    return tf.where(tf.math.is_nan(targets), predictions, targets)
