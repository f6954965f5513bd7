"""The regions that the training sample of the second stage is drawn from."""

from typing import NamedTuple

import tensorflow as tf

from object_detection.core.groundtruth import Groundtruth


class Candidates(NamedTuple):
    """Regions of a batch, in rows of which some may be padding.

    Attributes:
      boxes: float32 [B, N, 4], absolute.
      scores: float32 [B, N], objectness.
      is_valid: bool [B, N], False for padding.
    """

    boxes: tf.Tensor
    scores: tf.Tensor
    is_valid: tf.Tensor


def with_objects(
    candidates: Candidates, groundtruth_boxes: tf.Tensor, groundtruth: Groundtruth
) -> Candidates:
    """Appends the boxes of the objects, with a score of 1.

    Crowds and objects of weight 0 become padding: rows of zeros.

    Args:
      candidates: N an image.
      groundtruth_boxes: float32 [B, M, 4], absolute.
      groundtruth: gives weights and crowds.

    Returns:
      N + M candidates an image.
    """
    is_valid = groundtruth.weights > 0
    if groundtruth.is_crowd is not None:
        is_valid &= ~groundtruth.is_crowd
    scores = tf.cast(is_valid, tf.float32)
    boxes = groundtruth_boxes * scores[..., tf.newaxis]
    objects = Candidates(boxes, scores, is_valid)
    return Candidates(*(tf.concat(rows, axis=1) for rows in zip(candidates, objects, strict=True)))
