"""Heat maps of points: their targets, and their peaks (Objects as Points, arXiv:1904.07850).

Points, sizes and distances are in cells of the map; a cell covers a square of the image whose side
is the stride. The cell of a point is the one that it lies in: its coordinates rounded down.
"""

import math
from typing import NamedTuple

import tensorflow as tf

from object_detection.core import tracing
from object_detection.core.shapes import dimensions, smaller

# Tiles of fewer values are not worth their search; the length of rows whose length is not known.
_MIN_TILE = 4
_USUAL_LENGTH = 1 << 18
# A cell is a peak if no cell of its window is higher by more than this.
_PEAK_TOLERANCE = 1e-6


class Peaks(NamedTuple):
    """The k highest cells of each image, best first.

    Attributes:
      scores: float32 [B, k].
      rows, columns: int32 [B, k], the cell.
      channels: int32 [B, k].
    """

    scores: tf.Tensor
    rows: tf.Tensor
    columns: tf.Tensor
    channels: tf.Tensor


def max_shift(heights: tf.Tensor, widths: tf.Tensor, min_overlap: float) -> tf.Tensor:
    """Returns by how much the corners of boxes may move, so that they overlap with themselves.

    The solutions of the quadratic equations lack the division by twice their first coefficient, as
    in the reference, whose weights were trained so.

    Args:
      heights, widths: float32 [...], sizes of the boxes.
      min_overlap: smallest intersection over union.

    Returns:
      float32 [...], the smallest shift of: both corners alike, both inwards, both outwards.
    """
    perimeter, area = heights + widths, heights * widths
    alike = _root(1.0, -perimeter, area * (1.0 - min_overlap) / (1.0 + min_overlap))
    inwards = _root(4.0, -2.0 * perimeter, (1.0 - min_overlap) * area)
    outwards = _root(4.0 * min_overlap, 2.0 * min_overlap * perimeter, (min_overlap - 1.0) * area)
    return tf.minimum(tf.minimum(alike, inwards), outwards)


def peak_widths(heights: tf.Tensor, widths: tf.Tensor, min_overlap: float) -> tf.Tensor:
    """Returns the standard deviations of the peaks of boxes, float32 [...]; see `max_shift`."""
    radii = tf.maximum(tf.floor(max_shift(heights, widths, min_overlap)), 0.0)
    return (2.0 * radii + 1.0) / 6.0


def draw_peaks(
    points: tf.Tensor,
    deviations: tf.Tensor,
    channels: tf.Tensor,
    heights: tf.Tensor,
    *,
    num_channels: int,
    size: tuple,
) -> tf.Tensor:
    """Draws a Gaussian peak for each point; where peaks overlap, the highest counts.

    A peak is drawn for its channel only, so that memory is that of [N, H, W] and of the result, for
    one image at a time.

    Args:
      points: float32 [B, N, 2], (y, x).
      deviations: float32 [B, N], standard deviations.
      channels: int32 [B, N], of 0 to C - 1; others draw nothing.
      heights: float32 [B, N]; 0 draws nothing.
      num_channels: C.
      size: H, W.

    Returns:
      float32 [B, H, W, C]; the cell of a point is exactly as high as `heights` says.
    """
    rows, columns = (tf.range(side, dtype=tf.float32) for side in map(as_float, size))

    def draw(image: tuple[tf.Tensor, ...]) -> tf.Tensor:
        points, deviations, channels, heights = image
        cells, factors = tf.floor(points), -0.5 / tf.square(deviations)[:, tf.newaxis]
        # Of a product, the exponentials are those of rows and columns.
        down = tf.exp(factors * tf.square(rows - cells[:, :1])) * heights[:, tf.newaxis]
        across = tf.exp(factors * tf.square(columns - cells[:, 1:]))  # [N, W]
        peaks = down[:, :, tf.newaxis] * across[:, tf.newaxis]
        return highest_of_channel(peaks, channels, num_channels)

    shape = [size[0], size[1], num_channels]
    maps = tf.map_fn(draw, (points, deviations, channels, heights), fn_output_signature=tf.float32)
    return tf.ensure_shape(maps, [None, *(None if tf.is_tensor(side) else side for side in shape)])


def highest_of_channel(maps: tf.Tensor, channels: tf.Tensor, num_channels: int) -> tf.Tensor:
    """Merges the maps of each channel: where they overlap, the highest counts.

    Args:
      maps: float32 [N, H, W], not negative.
      channels: int32 [N], of 0 to C - 1; others count nowhere.
      num_channels: C.

    Returns:
      float32 [H, W, C], 0 where a channel has no map.
    """
    highest = tf.math.unsorted_segment_max(maps, channels, num_channels)  # [C, H, W]
    # A channel without maps has the lowest number of the type.
    return tf.maximum(tf.transpose(highest, [1, 2, 0]), 0.0)


def valid_cells(true_shapes: tf.Tensor, size: tuple, stride: int) -> tf.Tensor:
    """Returns which cells see the true image, float32 [B, H, W] of 0 and 1.

    Args:
      true_shapes: int32 [B, 3], in pixels.
      size: H, W.
      stride: side of a cell in pixels.
    """
    limits = tf.math.ceil(tf.cast(true_shapes[:, :2], tf.float32) / stride)  # [B, 2]
    rows, columns = (tf.range(side, dtype=tf.float32) for side in map(as_float, size))
    rows = rows < limits[:, :1]  # [B, H]
    columns = columns < limits[:, 1:]  # [B, W]
    return tf.cast(rows[:, :, tf.newaxis] & columns[:, tf.newaxis], tf.float32)


def cells_outside(
    boxes: tf.Tensor, hidden: tf.Tensor, size: tuple, scale: float = 1.0
) -> tf.Tensor:
    """Returns which cells lie outside of all boxes that hide them, float32 [B, H, W, K] of 0 and 1.

    Args:
      boxes: float32 [B, N, 4], in cells.
      hidden: bool [B, N, K], whether a box hides the cells in it for each of K maps.
      size: H, W.
      scale: factor of the sides of the boxes.
    """
    rows, columns = (tf.range(side, dtype=tf.float32) for side in map(as_float, size))
    # From centres and sizes, as in the reference, whose rounding decides at the edges.
    sizes = boxes[..., 2:] - boxes[..., :2]
    middles = boxes[..., :2] + sizes / 2.0
    sizes *= scale
    top, left = tf.split(middles - sizes / 2.0, 2, axis=-1)  # [B, N, 1]
    bottom, right = tf.split(middles + sizes / 2.0, 2, axis=-1)
    is_row = tf.cast((rows >= top) & (rows < bottom), tf.float32)  # [B, N, H]
    is_column = tf.cast((columns >= left) & (columns < right), tf.float32)  # [B, N, W]
    by_map = tf.transpose(tf.cast(hidden, tf.float32), [0, 2, 1])[:, :, tf.newaxis]  # [B, K, 1, N]
    is_row = tf.transpose(is_row, [0, 2, 1])[:, tf.newaxis]  # [B, 1, H, N]
    count = tf.matmul(by_map * is_row, is_column[:, tf.newaxis])  # [B, K, H, W]
    return tf.cast(tf.transpose(count, [0, 2, 3, 1]) < 0.5, tf.float32)


def neighbors(points: tf.Tensor, radius: int, size: tuple) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the cells around points, and which of them are on the map.

    Args:
      points: float32 [..., 2], (y, x).
      radius: greatest distance from the point's cell.
      size: H, W.

    Returns:
      float32 [..., n, 2], the cells whose centres are at most so far away, by rows; bool [..., n].
    """
    offsets = [
        (float(y), float(x))
        for y in range(-radius, radius + 1)
        for x in range(-radius, radius + 1)
        if y * y + x * x <= radius * radius
    ]
    cells = tf.floor(points)[..., tf.newaxis, :] + tf.constant(offsets)
    limits = tf.stack([tf.cast(side, tf.float32) for side in size])
    return cells, tf.reduce_all((cells >= 0.0) & (cells < limits), axis=-1)


def find_peaks(maps: tf.Tensor, window: int) -> tf.Tensor:
    """Returns the maps, float32 [B, H, W, C], where only cells that are peaks are not 0.

    Args:
      maps: float32 [B, H, W, C], not negative.
      window: side of the square around a cell that may not have a higher one; 1 keeps all.
    """
    if window == 1:
        return maps
    highest = tf.nn.max_pool2d(maps, window, strides=1, padding='SAME')
    return tf.where(highest - maps < _PEAK_TOLERANCE, maps, 0.0)


def top_cells(maps: tf.Tensor, count: int, *, per_channel: bool = False) -> Peaks:
    """Returns the highest cells of each image; of equal cells, the first by row, column, channel.

    Where there are fewer, the last one is repeated with a score of 0.

    Args:
      maps: float32 [B, H, W, C].
      count: number of cells.
      per_channel: whether there are so many of each channel; they follow each other.
    """
    batch, height, width, channels = dimensions(maps, 0, 1, 2, 3)
    if not per_channel:
        flat = tf.reshape(maps, [batch, height * width * channels])
        scores, indices = _top_k(flat, count)
        cells, found = indices // channels, indices % channels
    else:
        flat = tf.reshape(tf.transpose(maps, [0, 3, 1, 2]), [batch, channels, height * width])
        flat = tf.reshape(flat, [batch * channels, height * width])
        scores, cells = (tf.reshape(each, [batch, channels, count]) for each in _top_k(flat, count))
        found = tf.zeros_like(cells) + tf.range(channels)[:, tf.newaxis]
        scores, cells, found = (
            tf.reshape(each, [batch, channels * count]) for each in (scores, cells, found)
        )
    return Peaks(scores, cells // width, cells % width, found)


def _top_k(values: tf.Tensor, count: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Computes `tf.math.top_k` of rows [R, N], also of equal values, without sorting whole rows.

    A value among the best `count` is in one of the `count` tiles with the highest maxima: every
    such tile before its own has a value that comes before it. Where N is below `count`, the last
    index is repeated with a value of 0.
    """
    (length,) = dimensions(values, 1)
    best, places = _top_k_of_tiles(values, length, count)
    if isinstance(length, int) and length >= count:
        return best, places
    return tf.where(places < length, best, 0.0), tf.minimum(places, length - 1)


def _top_k_of_tiles(
    values: tf.Tensor, length: int | tf.Tensor, count: int
) -> tuple[tf.Tensor, tf.Tensor]:
    """See `_top_k`; indices of N and more are those of no value."""
    # About as many tiles as values in the tiles that are chosen.
    known = length if isinstance(length, int) else _USUAL_LENGTH
    size = 2 ** max(round(math.log2(max(known / count, 1.0)) / 2), 0)
    plain = size < _MIN_TILE or tracing.BasicOperations.is_on()
    missing = -smaller(length - count, 0) if plain else -length % size
    if not isinstance(missing, int) or missing:
        values = tf.pad(values, [[0, 0], [0, missing]], constant_values=values.dtype.min)
    if plain:
        return tf.math.top_k(values, count)
    tiles = tf.reshape(values, [-1, (length + size - 1) // size, size])
    if not isinstance(length, int):
        # Maps of any size may have fewer tiles.
        fewest = tf.maximum(count - tf.shape(tiles)[1], 0)
        tiles = tf.pad(tiles, [[0, 0], [0, fewest], [0, 0]], constant_values=values.dtype.min)
    _, chosen = tf.math.top_k(tf.reduce_max(tiles, axis=-1), count)
    # In their order, in which equal values are found.
    chosen = -tf.math.top_k(-chosen, count).values  # [R, count]
    candidates = tf.gather(tiles, chosen, batch_dims=1)  # [R, count, size]
    (number,) = dimensions(values, 0)
    best, places = tf.math.top_k(tf.reshape(candidates, [number, count * size]), count)
    return best, tf.gather(chosen, places // size, batch_dims=1) * size + places % size


def gather_cells(maps: tf.Tensor, rows: tf.Tensor, columns: tf.Tensor) -> tf.Tensor:
    """Returns the values of cells, [B, N, C]; cells outside of the map are moved to its edge.

    Args:
      maps: [B, H, W, C].
      rows, columns: int32 [B, N].
    """
    batch, height, width, channels = dimensions(maps, 0, 1, 2, 3)
    rows, columns = (
        tf.clip_by_value(each, 0, side - 1) for each, side in ((rows, height), (columns, width))
    )
    flat = tf.reshape(maps, [batch, height * width, channels])
    return tf.gather(flat, rows * width + columns, batch_dims=1)


def _root(a: float, b: tf.Tensor, c: tf.Tensor) -> tf.Tensor:
    return (-b + tf.sqrt(tf.maximum(tf.square(b) - 4.0 * a * c, 0.0))) / 2.0


def as_float(side: int | tf.Tensor) -> tf.Tensor | float:
    """Returns the size of a map, static or not, as a number."""
    return tf.cast(side, tf.float32) if tf.is_tensor(side) else float(side)
