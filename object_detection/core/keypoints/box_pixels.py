"""The pixel of a box at which its heat map, enlarged to the pixels of the box, is greatest.

torchvision and detectron2 decode keypoints so (`heatmaps_to_keypoints`): they resize the map of
each box by cubic convolution to the box's own whole number of pixels. Here no enlarged map is
made, since its size differs from box to box. It consists of bicubic pieces, one between each
four cells. The control points of a piece bound it from above, so pieces are searched in the order
of their bounds, a fixed number at once, until no bound is above the greatest value that is found:
the result is that of a search of all pixels.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from object_detection.core.keypoints.heat_maps import CUBIC, cubic_convolution
from object_detection.core.shapes import dimensions

# Pieces of a map that are searched at once.
_PIECES = 8
# Cells on each side of a map that repeat its edge, and cells that a value depends on, in an axis.
_BORDER, _TAPS = 2, 4
# The slope at a cell, by the difference of the cells beside it. A third of it leads from an outer
# control point to the inner one.
_SLOPE = -CUBIC


class _Axis(NamedTuple):
    """The pieces of the maps of R boxes along an axis.

    Attributes:
      first: int32 [R, cells + 2], the first pixel of each piece, and the number of pixels.
      scale: float32 [R], cells a pixel.
    """

    first: tf.Tensor
    scale: tf.Tensor


class _Found(NamedTuple):
    """The greatest values so far, and the pixels: float32 and int32 [R, K]."""

    value: tf.Tensor
    pixel: tf.Tensor


def decode_in_pixels(
    logits: tf.Tensor,
    boxes: tf.Tensor,
    absolute: tf.Tensor,
    max_size: tuple[int | tf.Tensor, int | tf.Tensor],
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the centres of the pixels at which enlarged heat maps of boxes are greatest.

    Args:
      logits: float32 [R, K, h, w].
      boxes: float32 [R, 4], in any frame.
      absolute: float32 [R, 4], the boxes in pixels. A map is enlarged to a box's height and width,
        each at least 1 and rounded up.
      max_size: the greatest height and width of a box, in pixels; greater ones are searched in
        part.

    Returns:
      Points float32 [R, K, 2] in the frame of `boxes`, and the logits at them [R, K]; without
    gradients.
    """
    logits = tf.stop_gradient(logits)
    regions, count, height, width = dimensions(logits, 0, 1, 2, 3)
    size = absolute[:, 2:] - absolute[:, :2]
    pixels = tf.maximum(tf.math.ceil(size), 1.0)  # [R, 2]
    axes = _axis(height, pixels[:, 0]), _axis(width, pixels[:, 1])
    padded = logits
    for axis, cells in ((2, height), (3, width)):
        places = tf.clip_by_value(tf.range(-_BORDER, cells + _BORDER), 0, cells - 1)
        padded = tf.gather(padded, places, axis=axis)
    bounds = tf.where(_has_pixels(*axes), _bounds(padded), -np.inf)
    count_all = (height + 1) * (width + 1)
    bounds, order = tf.math.top_k(tf.reshape(bounds, [regions, count, count_all]), k=count_all)
    # The last pieces that are searched at once may be fewer.
    extra = [[0, 0], [0, 0], [0, _PIECES]]
    bounds, order = tf.pad(bounds, extra, constant_values=-np.inf), tf.pad(order, extra)
    most = [limit // cells + 2 for limit, cells in zip(max_size, (height, width), strict=True)]

    def is_open(start: tf.Tensor, found: _Found) -> tf.Tensor:
        return tf.reduce_any(bounds[:, :, start] > found.value)

    def search(start: tf.Tensor, found: _Found) -> tuple[tf.Tensor, _Found]:
        pieces = tf.slice(order, [0, 0, start], [-1, -1, _PIECES])
        pieces = tf.ensure_shape(pieces, [None, None, _PIECES])
        return start + _PIECES, _better(found, _best(padded, pieces, axes, most))

    shape = tf.stack([regions, count])
    nothing = _Found(tf.fill(shape, -np.inf), tf.zeros(shape, tf.int32))
    _, found = tf.while_loop(is_open, search, (tf.constant(0), nothing))
    across = tf.cast(pixels[:, 1:], tf.int32)
    pixel = tf.stack([found.pixel // across, found.pixel % across], axis=-1)
    shares = (tf.cast(pixel, tf.float32) + 0.5) / pixels[:, tf.newaxis]
    low, high = tf.split(boxes, 2, axis=-1)
    # Boxes are at least a pixel large.
    extent = tf.maximum(size, 1.0) * tf.math.divide_no_nan(high - low, size)
    return low[:, tf.newaxis] + extent[:, tf.newaxis] * shares, found.value


def _axis(cells: int, pixels: tf.Tensor) -> _Axis:
    """Returns the pieces along an axis of maps of boxes with these numbers of pixels, [R]."""
    scale = tf.cast(cells, tf.float32) / pixels
    # Piece i is between the middles of the cells i - 1 and i.
    starts = tf.cast(tf.range(-1, cells + 1), tf.float32) + 0.5
    first = tf.math.ceil(starts / scale[:, tf.newaxis] - 0.5)
    first = tf.clip_by_value(first, 0.0, pixels[:, tf.newaxis])
    return _Axis(tf.cast(first, tf.int32), scale)


def _has_pixels(rows: _Axis, columns: _Axis) -> tf.Tensor:
    """Whether there are pixels in a piece, bool [R, 1, h + 1, w + 1]."""
    down, across = (each.first[:, 1:] > each.first[:, :-1] for each in (rows, columns))
    return down[:, tf.newaxis, :, tf.newaxis] & across[:, tf.newaxis, tf.newaxis]


def _bounds(padded: tf.Tensor) -> tf.Tensor:
    """The greatest control point of each piece, [R, K, h + 1, w + 1] of [R, K, h + 4, w + 4]."""
    bounds = None
    for lines in _controls(padded, axis=2):
        for points in _controls(lines, axis=3):
            bounds = points if bounds is None else tf.maximum(bounds, points)
    return bounds


def _controls(maps: tf.Tensor, axis: int) -> list[tf.Tensor]:
    """The four control points of the cubic curves between cells along an axis."""
    (length,) = dimensions(maps, axis)
    ranges = (tf.range(tap, length - _TAPS + 1 + tap) for tap in range(_TAPS))
    before, start, end, after = (tf.gather(maps, places, axis=axis) for places in ranges)
    return [
        start,
        start + _SLOPE / 3 * (end - before),
        end - _SLOPE / 3 * (after - start),
        end,
    ]


def _best(
    padded: tf.Tensor, pieces: tf.Tensor, axes: tuple[_Axis, _Axis], most: list[int | tf.Tensor]
) -> _Found:
    """Returns the greatest value at the pixels of pieces, and the first pixel that has it.

    Args:
      padded: float32 [R, K, h + 4, w + 4].
      pieces: int32 [R, K, P], row * (w + 1) + column of a piece.
      axes: those of rows and columns.
      most: the greatest numbers of rows and columns of pixels in a piece.
    """
    (regions, count, height, width) = dimensions(padded, 0, 1, 2, 3)
    across = width - _TAPS + 1
    piece = (pieces // across, pieces % across)
    (lines, in_lines, by_line), (columns, in_columns, by_column) = (
        _samples(*each) for each in zip(axes, piece, most, strict=True)
    )
    taps = tf.range(_TAPS)
    taps = taps[:, tf.newaxis] * width + taps
    corner = piece[0] * width + piece[1]
    cells = tf.gather(
        tf.reshape(padded, [regions, count, height * width]),
        corner[..., tf.newaxis, tf.newaxis] + taps,
        batch_dims=2,
    )
    values = tf.einsum('rkpsa,rkpab,rkptb->rkpst', by_line, cells, by_column)
    is_pixel = in_lines[..., :, tf.newaxis] & in_columns[..., tf.newaxis, :]
    values = tf.where(is_pixel, values, -np.inf)
    value = tf.reduce_max(values, axis=[2, 3, 4], keepdims=True)
    number = tf.reshape(axes[1].first[:, -1], [-1, 1, 1, 1, 1])
    pixel = lines[..., :, tf.newaxis] * number + columns[..., tf.newaxis, :]
    pixel = tf.where(values == value, pixel, pixel.dtype.max)
    return _Found(value[..., 0, 0, 0], tf.reduce_min(pixel, axis=[2, 3, 4]))


def _samples(
    axis: _Axis, piece: tf.Tensor, most: int | tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns pixels of pieces int32 [R, K, P, S], whether they are in them, and their weights."""
    first, after = (tf.gather(axis.first, piece + step, batch_dims=1) for step in (0, 1))
    pixels = first[..., tf.newaxis] + tf.range(most)
    scale = axis.scale[:, tf.newaxis, tf.newaxis, tf.newaxis]
    places = (tf.cast(pixels, tf.float32) + 0.5) * scale - 0.5
    # From the first of the four cells.
    places -= tf.cast(piece, tf.float32)[..., tf.newaxis] - _BORDER
    distances = tf.abs(places[..., tf.newaxis] - tf.range(_TAPS, dtype=tf.float32))
    return pixels, pixels < after[..., tf.newaxis], cubic_convolution(distances)


def _better(found: _Found, other: _Found) -> _Found:
    """Returns the greater values; of equal ones the first pixel."""
    is_better = other.value > found.value
    is_better |= (other.value == found.value) & (other.pixel < found.pixel)
    return _Found(*(tf.where(is_better, b, a) for a, b in zip(found, other, strict=True)))
