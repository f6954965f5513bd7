"""The points of FCOS (https://arxiv.org/abs/1904.01355)."""

from collections.abc import Sequence

import tensorflow as tf

from object_detection.core.shapes import dimensions
from object_detection.targets.assigners import Candidates


def cells(maps: Sequence[tf.Tensor], strides: Sequence[int]) -> Candidates:
    """Returns the cells of feature maps [B, H, W, C] in pixels: level, y, x."""
    boxes, levels = [], []
    for level, (features, stride) in enumerate(zip(maps, strides, strict=True)):
        rows, columns = (tf.range(side, dtype=tf.float32) for side in dimensions(features, 1, 2))
        corners = tf.reshape(tf.stack(tf.meshgrid(rows, columns, indexing='ij'), -1), [-1, 2])
        boxes.append(stride * tf.concat([corners, corners + 1.0], axis=-1))
        levels.append(tf.fill(tf.shape(corners)[:1], level))
    return Candidates(*(tf.concat(each, axis=0) for each in (boxes, levels)))
