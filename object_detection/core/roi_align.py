"""RoIAlign: crops of feature maps (Mask R-CNN, https://arxiv.org/abs/1703.06870, sec. 3).

A box is cut into bins, each of which is the mean of `sampling_ratio` x `sampling_ratio` samples,
bilinearly interpolated, in the middles of the equal parts that they divide it into. Unlike the
crops of `crop_and_resize`, no sample lies on an edge of the box.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from object_detection.core import determinism, tracing
from object_detection.core.crop_and_resize import add_to_pixels, crop_by_products
from object_detection.core.shapes import dimensions
from object_detection.errors import UserError


@dataclasses.dataclass(frozen=True)
class SampleGrid:
    """How a box is sampled.

    Attributes:
      output_size: bins (h, w) of a box.
      sampling_ratio: samples a bin, along each axis.
      offset: added to coordinates in cells. -0.5 where the centre of cell 0 lies half a cell inside
        of the image; 0 where it lies on its edge.
    """

    output_size: tuple[int, int]
    sampling_ratio: int = 1
    offset: float = -0.5

    def __post_init__(self):
        if min(self.output_size) < 1 or self.sampling_ratio < 1:
            raise UserError(
                'RoIAlign: expected output_size and sampling_ratio of at least 1; adaptive '
                f'sampling is not built. Received: {self.output_size[0]} and {self.sampling_ratio}.'
            )


class _Terms(NamedTuple):
    """The sums of pixels that bins are: both [..., K], K terms a bin."""

    pixels: tf.Tensor
    weights: tf.Tensor


def roi_align(
    feature_maps: Sequence[tf.Tensor],
    boxes: tf.Tensor,
    levels: tf.Tensor,
    scales: Sequence[tuple[Any, Any]],
    grid: SampleGrid,
    *,
    use_matmul: bool = False,
    box_gradients: bool = False,
) -> tf.Tensor:
    """Crops each box out of one level of its image's feature pyramid.

    Samples up to one cell outside of a map take the value of its edge, those further away are 0.
    Boxes of less than a cell are not enlarged, as others do without the half-cell offset.

    Args:
      feature_maps: L maps, float [B, Hl, Wl, C], C static.
      boxes: float32 [B, P, 4], in any frame.
      levels: int32 [B, P] in [0, L).
      scales: cells of each map that a unit of the boxes' frame has, (y, x).
      grid: how a box is sampled.
      use_matmul: sample by matrix products over all levels; else by index, each box from its own
        level alone. XLA compiles both, and they give the same numbers; products of bfloat16
        features round to bfloat16. By index, the gradient is a scatter under XLA, whose order of
        summation on GPUs is fixed only by TensorFlow's determinism.
      box_gradients: whether gradients flow to the boxes too, not to the feature maps alone.

    Returns:
      [B, P, h, w, C] of the features' dtype.
    """
    if not box_gradients:
        boxes = tf.stop_gradient(boxes)
    if use_matmul:
        return _by_products(feature_maps, boxes, levels, scales, grid)
    channels = feature_maps[0].shape[-1]
    pyramid = tf.concat([_flat(features) for features in feature_maps], axis=1)
    terms = _terms(feature_maps, boxes, levels, scales, grid)
    batch, count = dimensions(boxes, 0, 1)
    # Of images of any size, XLA would compile each size anew.
    is_static = all(None not in features.shape[1:] for features in feature_maps)
    crops = _sum_terms(
        tf.reshape(pyramid, [-1, channels]),
        _Terms(*(tf.reshape(part, [-1, part.shape[-1]]) for part in terms)),
        is_static=is_static and boxes.shape[1] is not None,
        weight_gradients=box_gradients,
    )
    return tf.reshape(crops, [batch, count, *grid.output_size, channels])


def _flat(features: tf.Tensor) -> tf.Tensor:
    """[B, H, W, C] -> [B, H * W, C]."""
    batch, height, width, channels = dimensions(features, 0, 1, 2, 3)
    return tf.reshape(features, [batch, height * width, channels])


def _terms(
    feature_maps: Sequence[tf.Tensor],
    boxes: tf.Tensor,
    levels: tf.Tensor,
    scales: Sequence[tuple[Any, Any]],
    grid: SampleGrid,
) -> _Terms:
    """The terms of each bin, [B, P, h, w, K]; pixels are rows of the batch's flat pyramids."""
    sizes = tf.stack([tf.shape(features)[1:3] for features in feature_maps])  # [L, 2]
    ends = tf.cumsum(sizes[:, 0] * sizes[:, 1])
    first = tf.gather(ends - sizes[:, 0] * sizes[:, 1], levels)  # [B, P]
    first += (tf.range(tf.shape(boxes)[0]) * ends[-1])[:, tf.newaxis]
    heights, widths = tf.unstack(tf.gather(sizes, levels), axis=-1)
    scale_y, scale_x = tf.unstack(tf.gather(_table(scales), levels), axis=-1)
    ymin, xmin, ymax, xmax = tf.unstack(boxes, axis=-1)
    y = _coordinates(ymin * scale_y, ymax * scale_y, grid, 0)
    x = _coordinates(xmin * scale_x, xmax * scale_x, grid, 1)
    rows = _neighbours(y, heights, grid.sampling_ratio)  # [B, P, h, 2 * ratio]
    columns = _neighbours(x, widths, grid.sampling_ratio)
    starts = first[..., tf.newaxis, tf.newaxis] + rows.pixels * widths[..., None, None]
    pixels = starts[:, :, :, None, :, None] + columns.pixels[:, :, None, :, None, :]
    weights = rows.weights[:, :, :, None, :, None] * columns.weights[:, :, None, :, None, :]
    batch, count = dimensions(boxes, 0, 1)
    shape = [batch, count, *grid.output_size, (2 * grid.sampling_ratio) ** 2]
    return _Terms(tf.reshape(pixels, shape), tf.reshape(weights, shape))


def _table(scales: Sequence[tuple[Any, Any]]) -> tf.Tensor:
    """float32 [L, 2]."""
    return tf.stack([[tf.cast(value, tf.float32) for value in pair] for pair in scales])


def _coordinates(low: tf.Tensor, high: tf.Tensor, grid: SampleGrid, axis: int) -> tf.Tensor:
    """Edges along an axis [...], in cells -> cells of the samples [..., h * ratio]."""
    count = grid.output_size[axis] * grid.sampling_ratio
    middles = (tf.range(count, dtype=tf.float32) + 0.5) / count
    return low[..., tf.newaxis] + (high - low)[..., tf.newaxis] * middles + grid.offset


def _onto_map(coordinates: tf.Tensor, length: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Coordinates held on the map, and 1 where they are near it, else 0 (of NaN too)."""
    length = tf.cast(length, tf.float32)
    is_near = (coordinates >= -1.0) & (coordinates <= length)
    held = tf.clip_by_value(coordinates, 0.0, length - 1.0)
    return tf.where(is_near, held, 0.0), tf.cast(is_near, tf.float32)


def _neighbours(coordinates: tf.Tensor, lengths: tf.Tensor, ratio: int) -> _Terms:
    """Samples [B, P, h * ratio] of maps of lengths [B, P] -> terms of bins [B, P, h, 2 * ratio]."""
    held, is_near = _onto_map(coordinates, lengths[..., tf.newaxis])
    low = tf.floor(held)
    fraction = held - low
    weights = tf.stack([1.0 - fraction, fraction], axis=-1) * (is_near / ratio)[..., tf.newaxis]
    low = tf.cast(low, tf.int32)
    pixels = tf.stack([low, tf.minimum(low + 1, lengths[..., tf.newaxis] - 1)], axis=-1)
    batch, count, samples = dimensions(coordinates, 0, 1, 2)
    shape = [batch, count, samples // ratio, 2 * ratio]
    return _Terms(tf.reshape(pixels, shape), tf.reshape(weights, shape))


def _sum_terms(
    rows: tf.Tensor, terms: _Terms, *, is_static: bool, weight_gradients: bool
) -> tf.Tensor:
    """Float rows [N, C], terms [R, K] -> [R, C] of the rows' dtype, summed in float32."""
    pixels = terms.pixels

    @tf.custom_gradient
    def total(rows: tf.Tensor, weights: tf.Tensor) -> tuple[tf.Tensor, Callable]:
        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor | None]:
            upstream = tf.cast(upstream, tf.float32)
            spread = _scatter if tracing.is_compiled() else add_to_pixels
            by_rows = spread(upstream, pixels, weights, tf.shape(rows)[0])
            by_weights = _dot(rows, pixels, upstream) if weight_gradients else None
            return tf.cast(by_rows, rows.dtype), by_weights

        return _forward(is_static)(rows, pixels, weights), gradient

    return total(rows, terms.weights)


def _forward(is_static: bool) -> Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor]:
    """The fastest way to sum, where it is called."""
    if tracing.is_compiled():
        return _gather
    if is_static and tracing.may_compile() and not tf.executing_eagerly():
        # One loop for all, without any intermediate result.
        return tf.function(_gather, jit_compile=True, autograph=False)
    return _multiply


def _gather(rows: tf.Tensor, pixels: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """Rows [N, C], terms [R, K] -> [R, C]. Only XLA makes one loop of it."""
    total = tf.zeros([], tf.float32)
    for term in range(pixels.shape[1]):
        values = tf.cast(tf.gather(rows, pixels[:, term]), tf.float32)
        total += values * weights[:, term, tf.newaxis]
    return tf.cast(total, rows.dtype)


def _multiply(rows: tf.Tensor, pixels: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """As `_gather`, by a sparse matrix product, which needs little memory without XLA."""
    count, terms = dimensions(pixels, 0, 1)
    sums = tf.repeat(tf.range(count, dtype=tf.int64), terms)
    matrix = tf.SparseTensor(
        tf.stack([sums, tf.cast(tf.reshape(pixels, [-1]), tf.int64)], axis=-1),
        tf.reshape(weights, [-1]),
        tf.cast(tf.stack([count, tf.shape(rows)[0]]), tf.int64),
    )
    product = tf.sparse.sparse_dense_matmul(matrix, tf.cast(rows, tf.float32))
    return tf.cast(product, rows.dtype)


def _scatter(
    values: tf.Tensor, pixels: tf.Tensor, weights: tf.Tensor, num_pixels: tf.Tensor
) -> tf.Tensor:
    """As `add_to_pixels`, in a form that XLA compiles."""
    total = tf.zeros([num_pixels, values.shape[-1]], tf.float32)
    for term in range(pixels.shape[1]):
        updates = values * weights[:, term, tf.newaxis]
        total = tf.tensor_scatter_nd_add(total, pixels[:, term, tf.newaxis], updates)
    return total


def _dot(rows: tf.Tensor, pixels: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
    """Rows [N, C], pixels [R, K], values [R, C] -> products of each value and its pixels [R, K]."""
    products = [
        tf.reduce_sum(tf.cast(tf.gather(rows, pixels[:, term]), tf.float32) * values, axis=-1)
        for term in range(pixels.shape[1])
    ]
    return tf.stack(products, axis=-1)


def _by_products(
    feature_maps: Sequence[tf.Tensor],
    boxes: tf.Tensor,
    levels: tf.Tensor,
    scales: Sequence[tuple[Any, Any]],
    grid: SampleGrid,
) -> tf.Tensor:
    crops = []
    ymin, xmin, ymax, xmax = tf.unstack(boxes, axis=-1)
    for level, (features, scale) in enumerate(zip(feature_maps, scales, strict=True)):
        scale_y, scale_x = (tf.cast(value, tf.float32) for value in scale)
        y = _coordinates(ymin * scale_y, ymax * scale_y, grid, 0)
        x = _coordinates(xmin * scale_x, xmax * scale_x, grid, 1)
        height, width = tf.unstack(tf.shape(features)[1:3])
        is_here = tf.cast(levels == level, tf.float32)[:, :, tf.newaxis, tf.newaxis]
        rows = _bin_weights(y, height, grid.sampling_ratio) * is_here
        crops.append(crop_by_products(features, rows, _bin_weights(x, width, grid.sampling_ratio)))
    return determinism.sum_in_order(crops)


def _bin_weights(coordinates: tf.Tensor, length: tf.Tensor, ratio: int) -> tf.Tensor:
    """Samples [B, P, h * ratio] -> weights of a line's pixels for each bin, [B, P, h, length]."""
    held, is_near = _onto_map(coordinates, length)
    pixels = tf.range(length, dtype=tf.float32)
    tents = tf.nn.relu(1.0 - tf.abs(held[..., tf.newaxis] - pixels)) * is_near[..., tf.newaxis]
    batch, count, samples = dimensions(coordinates, 0, 1, 2)
    return tf.reduce_mean(
        tf.reshape(tents, [batch, count, samples // ratio, ratio, length]), axis=3
    )
