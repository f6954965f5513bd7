"""Boxes on crowds, which are regions of many objects without separate annotations."""

from typing import NamedTuple

import tensorflow as tf

from object_detection.core import boxes as box_ops
from object_detection.core.groundtruth import Groundtruth
from object_detection.core.nms_tiles import at_least_one_row, used_first
from object_detection.core.shapes import dimensions
from object_detection.errors import UserError


class WithoutCrowds(NamedTuple):
    """Ground truth in which crowds are replaced by padding.

    Attributes:
      boxes: float32 [B, M, 4], zero for crowds.
      weights: float32 [B, M], zero for crowds.
      is_on_crowd: bool [B, N], whether a region to match is on a crowd.
    """

    boxes: tf.Tensor
    weights: tf.Tensor
    is_on_crowd: tf.Tensor


def without_crowds(
    regions: tf.Tensor,
    groundtruth_boxes: tf.Tensor,
    groundtruth: Groundtruth,
    ioa_threshold: float,
) -> WithoutCrowds:
    """Replaces crowds by padding, and finds the regions that are on crowds.

    Args:
      regions: float32 [N, 4], or [B, N, 4] with separate regions for each image.
      groundtruth_boxes: float32 [B, M, 4], in the same frame.
      groundtruth: ground truth with the weights and `is_crowd`.
      ioa_threshold: a region is on a crowd that covers at least this share of its area; above 0.

    Raises:
      ValueError: if the ground truth has no `is_crowd`.
    """
    is_crowd = groundtruth.is_crowd
    if is_crowd is None:
        raise UserError(
            f'Regions on crowds are to be ignored (crowd_ioa_threshold {ioa_threshold:g}): '
            'expected groundtruth.is_crowd, bool [B, M]. Received: None.'
        )
    return WithoutCrowds(
        boxes=tf.where(is_crowd[..., tf.newaxis], 0.0, groundtruth_boxes),
        weights=tf.where(is_crowd, 0.0, groundtruth.weights),
        is_on_crowd=is_on_crowd(regions, groundtruth_boxes, is_crowd, ioa_threshold),
    )


def is_on_crowd(
    boxes: tf.Tensor, groundtruth_boxes: tf.Tensor, is_crowd: tf.Tensor, ioa_threshold: float
) -> tf.Tensor:
    """Returns which boxes have at least a given share of their area on one crowd.

    It compares crowd by crowd, since images have few; all pairs would need as much memory as the
    matching.

    Args:
      boxes: float32 [N, 4], or [B, N, 4].
      groundtruth_boxes: float32 [B, M, 4], in the same frame.
      is_crowd: bool [B, M]; False for padding.
      ioa_threshold: the minimum share, above 0.

    Returns:
      bool [B, N].
    """
    is_crowd = at_least_one_row(is_crowd, False)
    batch, rows = dimensions(is_crowd, 0, 1)
    (count,) = dimensions(boxes, -2)
    is_used, order = used_first(is_crowd, rows)
    crowds = tf.gather(at_least_one_row(groundtruth_boxes), order, batch_dims=1)
    crowds = tf.where(is_used[..., tf.newaxis], crowds, 0.0)
    most = tf.reduce_max(tf.reduce_sum(tf.cast(is_crowd, tf.int32), axis=1))

    def visit(row: tf.Tensor, shares: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        crowd = tf.gather(crowds, row, axis=1)[:, tf.newaxis]  # [B, 1, 4]
        on_crowd = box_ops.ioa(crowd, boxes)[:, 0]
        return row + 1, tf.ensure_shape(tf.maximum(shares, on_crowd), shares.shape)

    _, shares = tf.while_loop(lambda row, _: row < most, visit, (0, tf.zeros([batch, count])))
    return shares >= ioa_threshold
