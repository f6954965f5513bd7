"""Heat maps of keypoints inside of boxes: what they learn, and the points that they show.

Points are (y, x). NaN stands for a keypoint that is not labelled.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from object_detection.core.shapes import dimensions

# Sub-cell search around the highest cell of a heat map: up to `_REACH` cells to each side, in
# steps of 1 / `_STEPS` of a cell. Cubic interpolation there reads `_TAPS` cells to each side.
_REACH, _STEPS, _TAPS = 1, 16, 2
# The constant of cubic convolution that PyTorch's bicubic enlargement has, and so detectron2.
CUBIC = -0.75


class HeatMapTargets(NamedTuple):
    """The cells of keypoints in the heat maps of P boxes.

    Attributes:
      cells: int32 [B, P, K], row * width + column; 0 where there is none.
      is_inside: bool [B, P, K], whether the keypoint is labelled and inside of the box.
    """

    cells: tf.Tensor
    is_inside: tf.Tensor


def heat_map_targets(
    keypoints: tf.Tensor, boxes: tf.Tensor, rows: tf.Tensor, size: tuple[int, int]
) -> HeatMapTargets:
    """Returns the cell that each keypoint of an object lies in, of a grid over each box.

    A point on the lower or right edge of a box belongs to the last cell (detectron2's
    `keypoints_to_heatmap`).

    Args:
      keypoints: float32 [B, M, K, 2]; NaN where not labelled.
      boxes: float32 [B, P, 4], in the same frame. A box of zero size has no targets.
      rows: int32 [B, P] in [0, M): whose keypoints each box takes.
      size: rows h and columns w of the grid.
    """
    points = gather_rows(keypoints, rows, np.nan)
    low, high = tf.split(boxes[:, :, tf.newaxis], 2, axis=-1)  # [B, P, 1, 2]
    count = tf.constant(size, tf.float32)
    position = tf.floor((points - low) / (high - low) * count)
    position = tf.where(points == high, count - 1, position)
    # Comparisons with NaN are false.
    is_inside = tf.reduce_all(
        (points >= low) & (points <= high) & (high > low) & (position < count), axis=-1
    )
    position = tf.cast(tf.where(is_inside[..., tf.newaxis], position, 0.0), tf.int32)
    return HeatMapTargets(position[..., 0] * size[1] + position[..., 1], is_inside)


def gather_rows(values: tf.Tensor, rows: tf.Tensor, default: float) -> tf.Tensor:
    """Gathers rows [B, P] of float32 [B, M, ...] -> [B, P, ...]; `default` where M = 0."""
    one_more = tf.pad(
        values, [[0, 0], [0, 1]] + [[0, 0]] * (values.shape.rank - 2), constant_values=default
    )
    return tf.gather(one_more, rows, batch_dims=1)


def decode_heat_maps(logits: tf.Tensor, boxes: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the keypoints that heat maps of boxes show, more exactly than a cell.

    A keypoint is where the cubic interpolation of its map is greatest, in steps of a sixteenth of a
    cell around the highest cell. `box_pixels.decode_in_pixels` looks at the interpolation in the
    middle of each pixel of the box: the two agree to half a step and half a pixel.

    Args:
      logits: float32 [R, K, h, w].
      boxes: float32 [R, 4], in any frame.

    Returns:
      Points float32 [R, K, 2] in the frame of the boxes, and scores [R, K]: the softmax over the
      cells of a map at the point, in [0, 1].
    """
    regions, count, height, width = dimensions(logits, 0, 1, 2, 3)
    flat = tf.reshape(logits, [regions * count, height * width])
    best = tf.argmax(flat, axis=-1, output_type=tf.int32)
    top = tf.reduce_max(flat, axis=-1)
    # The highest cell is 0 then, so that products of fewer bits keep what matters.
    flat -= top[:, tf.newaxis]
    cell = tf.stack([best // width, best % width], axis=-1)  # [R * K, 2]
    taps = tf.range(-_TAPS, _TAPS + 1)
    # Cells beyond the map take the value of its edge.
    lines = tf.clip_by_value(cell[:, :1] + taps, 0, height - 1)
    columns = tf.clip_by_value(cell[:, 1:] + taps, 0, width - 1)
    indices = lines[:, :, tf.newaxis] * width + columns[:, tf.newaxis]  # [R * K, 5, 5]
    patches = tf.gather(flat, indices, batch_dims=1)
    offsets, weights = _cubic_weights()
    values = tf.einsum('si,nij,tj->nst', weights, patches, weights)
    # The places of the samples, in cells from the edge of the map: [R * K, 2, S].
    places = tf.cast(cell, tf.float32)[..., tf.newaxis] + (offsets + 0.5)
    size = tf.cast(tf.stack([height, width]), tf.float32)
    is_inside = (places >= 0.0) & (places <= size[:, tf.newaxis])
    is_inside = is_inside[:, 0, :, tf.newaxis] & is_inside[:, 1, tf.newaxis]
    values = tf.reshape(tf.where(is_inside, values, -np.inf), [-1, len(offsets) ** 2])
    index = tf.argmax(values, axis=-1, output_type=tf.int32)
    step = tf.stack([index // len(offsets), index % len(offsets)], axis=-1)
    shares = tf.gather(places, step, batch_dims=2) / size
    shares = tf.reshape(shares, [regions, count, 2])
    low, high = tf.split(boxes[:, tf.newaxis], 2, axis=-1)
    total = tf.reduce_logsumexp(flat, axis=-1)
    scores = tf.exp(tf.minimum(tf.reduce_max(values, axis=-1) - total, 0.0))
    return low + (high - low) * shares, tf.reshape(scores, [regions, count])


def cubic_convolution(distances: tf.Tensor) -> tf.Tensor:
    """Returns the weights of cells at distances from a place, in cells, of any shape."""
    near = ((CUBIC + 2) * distances - (CUBIC + 3)) * distances**2 + 1
    far = CUBIC * (((distances - 5) * distances + 8) * distances - 4)
    far = tf.where(distances < 2, far, tf.zeros_like(distances))
    return tf.where(distances <= 1, near, far)


def _cubic_weights() -> tuple[np.ndarray, tf.Tensor]:
    """Returns offsets [S] from a cell, in cells, and the weights of the cells around, [S, T]."""
    offsets = np.arange(-_REACH * _STEPS, _REACH * _STEPS + 1, dtype=np.float32) / _STEPS
    distances = np.abs(offsets[:, np.newaxis] - np.arange(-_TAPS, _TAPS + 1, dtype=np.float32))
    return offsets, cubic_convolution(tf.constant(distances))
