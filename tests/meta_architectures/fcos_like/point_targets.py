"""What the points of FCOS (https://arxiv.org/abs/1904.01355) learn of a box."""

from collections.abc import Sequence

import tensorflow as tf

from object_detection.core import boxes as box_ops
from object_detection.core.shapes import dimensions
from object_detection.targets.assigners import Candidates


def cells(maps: Sequence[tf.Tensor], strides: Sequence[int]) -> Candidates:
    """Returns the cells of feature maps [B, H, W, C] in pixels: level, y, x."""
    boxes, levels, sides = [], [], []
    for level, (features, stride) in enumerate(zip(maps, strides, strict=True)):
        rows, columns = (tf.range(side, dtype=tf.float32) for side in dimensions(features, 1, 2))
        corners = tf.reshape(tf.stack(tf.meshgrid(rows, columns, indexing='ij'), -1), [-1, 2])
        boxes.append(stride * tf.concat([corners, corners + 1.0], axis=-1))
        levels.append(tf.fill(tf.shape(corners)[:1], level))
        sides.append(tf.fill(tf.shape(corners)[:1], float(stride)))
    return Candidates(*(tf.concat(each, axis=0) for each in (boxes, levels, sides)))


class SideCoder:
    """Encodes a box as the distances of its sides from a point: [top, left, bottom, right].

    The point is the centre of a cell, and the unit of distances the side of the cell.
    """

    code_size = 4

    def encode(self, boxes: tf.Tensor, cells: tf.Tensor) -> tf.Tensor:
        """Returns the distances, float32 [..., N, 4], of boxes from cells, both [..., N, 4]."""
        center, size = tf.split(box_ops.corners_to_center_size(cells), 2, axis=-1)
        return tf.concat([center - boxes[..., :2], boxes[..., 2:] - center], -1) / _twice(size)

    def decode(self, codes: tf.Tensor, cells: tf.Tensor) -> tf.Tensor:
        """Returns the boxes, float32 [..., N, 4], of distances and cells, both [..., N, 4]."""
        center, size = tf.split(box_ops.corners_to_center_size(cells), 2, axis=-1)
        before, after = tf.split(codes * _twice(size), 2, axis=-1)
        return tf.concat([center - before, center + after], axis=-1)


def _twice(pairs: tf.Tensor) -> tf.Tensor:
    return tf.concat([pairs, pairs], axis=-1)


def centerness(distances: tf.Tensor) -> tf.Tensor:
    """Returns how near a point is to the centre of its box (eq. 3): 1 there, 0 at the sides.

    Args:
      distances: float32 [..., 4], of `SideCoder`, not negative.

    Returns:
      float32 [...]; 0 for distances of 0.
    """
    before, after = tf.split(distances, 2, axis=-1)
    shares = tf.math.divide_no_nan(tf.minimum(before, after), tf.maximum(before, after))
    return tf.sqrt(tf.reduce_prod(shares, axis=-1))
