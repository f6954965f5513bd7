"""Bilinear sampling of boxes: coordinates -> pixels and weights -> crops.

The samples of a box are a grid, so that each axis is treated alone. Callers choose the positions of
the samples and which of them count; crops are then made by index or by matrix products.

Dimensions: B images, P boxes, L levels of a pyramid, C channels; S samples along an axis.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import tensorflow as tf

from object_detection.core import determinism, tracing
from object_detection.core.shapes import dimensions


class Samples(NamedTuple):
    """Samples along one axis, both float32 [..., S].

    Attributes:
      coordinates: pixel indices within [0, length - 1].
      shares: 1, or 0 for a sample that is outside of the map and counts as zero.
    """

    coordinates: tf.Tensor
    shares: tf.Tensor


class Terms(NamedTuple):
    """Weighted sums of K pixels each: int32 and float32 [..., K]."""

    pixels: tf.Tensor
    weights: tf.Tensor


# XLA compiles for numbers of samples that are powers of two, from this power on.
_MIN_POWER = 12

# Levels, heights and widths of maps -> samples along the vertical and the horizontal axis.
Grid = Callable[[tf.Tensor | int, tf.Tensor, tf.Tensor], tuple[Samples, Samples]]


def sample_coordinates(
    low: tf.Tensor, high: tf.Tensor, size: tf.Tensor | int, length: tf.Tensor | int
) -> tf.Tensor:
    """Spreads samples from edge to edge of boxes, along one axis, as `tf.image.crop_and_resize`.

    Args:
      low, high: float32 [...], edges of the boxes along the axis, normalized.
      size: number of samples; a single sample is at the centre, or at `low` if it is a tensor.
      length: number of pixels along the axis.

    Returns:
      float32 [..., size], pixel indices. The order of operations is that of the kernel, so that
      both have the same rounding errors.
    """
    last = tf.cast(length - 1, tf.float32)
    if tf.is_tensor(size):
        steps = tf.cast(tf.maximum(size - 1, 1), tf.float32)
    elif size == 1:
        return (0.5 * (low + high) * last)[..., tf.newaxis]
    else:
        steps = size - 1
    step = (high - low) * last / steps
    return (low * last)[..., tf.newaxis] + tf.range(size, dtype=tf.float32) * step[..., tf.newaxis]


def drop_outside(coordinates: tf.Tensor, length: tf.Tensor | int) -> Samples:
    """Sets the shares of samples [..., S] outside of [0, length - 1] to 0."""
    inside = (coordinates >= 0.0) & (coordinates <= tf.cast(length - 1, tf.float32))
    # Coordinates outside of the map may be too large for an integer.
    return Samples(tf.where(inside, coordinates, 0.0), tf.cast(inside, tf.float32))


def neighbours(samples: Samples, length: tf.Tensor, ratio: int = 1) -> Terms:
    """Returns the two pixels next to each sample, and their weights.

    Args:
      samples: [..., S]; [B, P, S] if `ratio` is not 1.
      length: number of pixels along the axis, a scalar or [..., 1].
      ratio: each sum is the mean of this many adjacent samples.

    Returns:
      Terms [..., S / ratio, 2 * ratio].
    """
    low = tf.floor(samples.coordinates)
    fraction = samples.coordinates - low
    shares = samples.shares if ratio == 1 else samples.shares / ratio
    weights = tf.stack([1.0 - fraction, fraction], axis=-1) * shares[..., tf.newaxis]
    low = tf.cast(low, tf.int32)
    pixels = tf.stack([low, tf.minimum(low + 1, length - 1)], axis=-1)
    if ratio == 1:
        return Terms(pixels, weights)
    batch, count, size = dimensions(low, 0, 1, 2)
    shape = [batch, count, size // ratio, 2 * ratio]
    return Terms(tf.reshape(pixels, shape), tf.reshape(weights, shape))


def bilinear_weights(
    coordinates: tf.Tensor, length: tf.Tensor | int, shares: tf.Tensor | None = None
) -> tf.Tensor:
    """Returns the weights of all pixels along one axis.

    Args:
      coordinates: float32 [..., S], pixel indices. Outside of the map weights fade to zero over one
        pixel.
      length: number of pixels along the axis.
      shares: float32 [..., S], factors of the weights; None means 1.

    Returns:
      float32 [..., S, length].
    """
    pixels = tf.range(length, dtype=tf.float32)
    weights = tf.nn.relu(1.0 - tf.abs(coordinates[..., tf.newaxis] - pixels))
    return weights if shares is None else weights * shares[..., tf.newaxis]


def combine_axes(rows: Terms, columns: Terms, first: tf.Tensor, width: tf.Tensor) -> Terms:
    """Multiplies the terms of the rows of grids by those of the columns.

    Args:
      rows, columns: [..., h, K] and [..., w, J].
      first: int32 [...], index of each map's first pixel.
      width: int32, columns of each map, a scalar or [...].

    Returns:
      Terms [R, K * J] of all R samples; pixels are numbered row by row, starting with `first`.
    """
    if tracing.BasicOperations.is_on():
        # Tensors of phones have at most five axes.
        rows, columns = (
            Terms(*(tf.reshape(each, [-1, *each.shape[-2:]]) for each in terms))
            for terms in (rows, columns)
        )
        first = tf.reshape(first, [-1])
        width = tf.reshape(width, [-1])
    starts = first[..., tf.newaxis, tf.newaxis] + rows.pixels * width[..., tf.newaxis, tf.newaxis]
    pixels = starts[..., tf.newaxis, :, tf.newaxis] + columns.pixels[..., None, :, None, :]
    weights = rows.weights[..., tf.newaxis, :, tf.newaxis] * columns.weights[..., None, :, None, :]
    shape = [-1, rows.pixels.shape[-1] * columns.pixels.shape[-1]]
    return Terms(tf.reshape(pixels, shape), tf.reshape(weights, shape))


def crop(
    feature_maps: Sequence[tf.Tensor],
    levels: tf.Tensor,
    grid: Grid,
    *,
    ratio: int = 1,
    use_matmul: bool = False,
    grid_gradients: bool = False,
    one_scatter: bool = False,
) -> tf.Tensor:
    """Crops each box out of one level of its image's feature pyramid.

    Args:
      feature_maps: L maps, float [B, Hl, Wl, C], C static.
      levels: int32 [B, P] in [0, L).
      grid: `(levels, heights, widths)`, each [B, P] or the scalar of one level -> samples
        [B, P, h * ratio] and [B, P, w * ratio] of the boxes in maps of these sizes.
      ratio: each value of a crop is the mean of ratio x ratio samples.
      use_matmul: sample by matrix products over all levels; otherwise by index, each box from its
        own level only. XLA compiles both.
      grid_gradients: whether gradients also flow to the coordinates.
      one_scatter: by index under XLA, the gradient of the maps is one scatter of all terms, rather
        than one for each of the terms that a value has. The sums round differently.

    Returns:
      [B, P, h, w, C] of the features' dtype.
    """
    if use_matmul:
        return _crop_by_products(feature_maps, levels, grid, ratio)

    def sum_terms(pyramid: tf.Tensor, terms: Terms, is_static: bool) -> tf.Tensor:
        shape = [-1, pyramid.shape[-1]]
        if one_scatter and tracing.is_compiled():
            # The cast is before the reshape, so that the gradients of pixels are summed in float32.
            rows = tf.reshape(tf.cast(pyramid, tf.float32), shape)
            return tf.cast(_gather(rows, terms), pyramid.dtype)
        rows = tf.reshape(pyramid, shape)
        return _sum_terms(rows, terms, is_static=is_static, weight_gradients=grid_gradients)

    return _crop_by_index(feature_maps, levels, grid, ratio, sum_terms)


def _crop_by_products(
    feature_maps: Sequence[tf.Tensor], levels: tf.Tensor, grid: Grid, ratio: int
) -> tf.Tensor:
    crops = []
    for level, features in enumerate(feature_maps):
        height, width = tf.unstack(tf.shape(features)[1:3])
        y, x = grid(level, height, width)
        is_here = tf.cast(levels == level, tf.float32)[:, :, tf.newaxis, tf.newaxis]
        rows = tf.cast(_mean_weights(y, height, ratio) * is_here, features.dtype)
        columns = tf.cast(_mean_weights(x, width, ratio), features.dtype)
        bands = tf.einsum('bpiy,byxc->bpixc', rows, features)
        crops.append(tf.einsum('bpjx,bpixc->bpijc', columns, bands))
    return determinism.sum_in_order(crops)


def _mean_weights(samples: Samples, length: tf.Tensor, ratio: int) -> tf.Tensor:
    """Returns the weights of all pixels, [B, P, S / ratio, length], for samples [B, P, S]."""
    weights = bilinear_weights(samples.coordinates, length, samples.shares)
    if ratio == 1:
        return weights
    batch, count, size = dimensions(samples.coordinates, 0, 1, 2)
    return tf.reduce_mean(tf.reshape(weights, [batch, count, size // ratio, ratio, length]), axis=3)


def _crop_by_index(
    feature_maps: Sequence[tf.Tensor],
    levels: tf.Tensor,
    grid: Grid,
    ratio: int,
    sum_terms: Callable[[tf.Tensor, Terms, bool], tf.Tensor],
) -> tf.Tensor:
    batch, count = dimensions(levels, 0, 1)
    channels = feature_maps[0].shape[-1]
    pyramid = tf.concat([_flatten(features) for features in feature_maps], axis=1)
    sizes = tf.stack([tf.shape(features)[1:3] for features in feature_maps])  # [L, 2]
    areas = sizes[:, 0] * sizes[:, 1]
    ends = tf.cumsum(areas)
    first = tf.gather(ends - areas, levels) + (tf.range(batch) * ends[-1])[:, tf.newaxis]
    heights, widths = tf.unstack(tf.gather(sizes, levels), axis=-1)
    y, x = grid(levels, heights, widths)
    rows = neighbours(y, heights[..., tf.newaxis], ratio)
    columns = neighbours(x, widths[..., tf.newaxis], ratio)
    terms = combine_axes(rows, columns, first, widths)
    # For images of varying size, XLA would compile each size separately.
    is_static = all(None not in features.shape[1:] for features in feature_maps)
    crops = sum_terms(pyramid, terms, is_static)
    shape = [batch, count, rows.pixels.shape[-2], columns.pixels.shape[-2], channels]
    return tf.reshape(crops, shape)


def _flatten(features: tf.Tensor) -> tf.Tensor:
    """[B, H, W, C] -> [B, H * W, C]."""
    batch, height, width, channels = dimensions(features, 0, 1, 2, 3)
    return tf.reshape(features, [batch, height * width, channels])


def _sum_terms(
    rows: tf.Tensor, terms: Terms, *, is_static: bool, weight_gradients: bool
) -> tf.Tensor:
    """Float rows [N, C], terms [R, K] -> [R, C] of the rows' dtype, summed in float32."""
    pixels = terms.pixels

    @tf.custom_gradient
    def total(rows: tf.Tensor, weights: tf.Tensor) -> tuple[tf.Tensor, Callable]:
        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor | None]:
            upstream = tf.cast(upstream, tf.float32)
            spread = _scatter if tracing.is_compiled() else add_to_pixels
            by_rows = spread(upstream, Terms(pixels, weights), tf.shape(rows)[0])
            by_weights = _dot(rows, pixels, upstream) if weight_gradients else None
            return tf.cast(by_rows, rows.dtype), by_weights

        return _forward(is_static)(rows, Terms(pixels, weights)), gradient

    return total(rows, terms.weights)


def _forward(is_static: bool) -> Callable[[tf.Tensor, Terms], tf.Tensor]:
    """Returns the fastest function to sum terms in the current context."""
    if tracing.is_compiled() or tracing.BasicOperations.is_on():
        return _gather
    if is_static and tracing.may_compile() and not tf.executing_eagerly():
        # XLA makes one loop of it, without any intermediate result.
        return _gather_by_xla
    return _multiply


def _gather_by_xla(rows: tf.Tensor, terms: Terms) -> tf.Tensor:
    """Computes `_gather` by programs of XLA; they are few, even if R varies."""
    compute = tf.function(_gather, jit_compile=True, autograph=False)
    if terms.pixels.shape[0] is not None:
        return compute(rows, terms)
    count = tf.shape(terms.pixels)[0]
    sizes = tf.constant([2**power for power in range(_MIN_POWER, 31)])
    missing = tf.gather(sizes, tf.searchsorted(sizes, count[tf.newaxis]))[0] - count
    terms = Terms(*(tf.pad(term, [[0, missing], [0, 0]]) for term in terms))
    return compute(rows, terms)[:count]


def _gather(rows: tf.Tensor, terms: Terms) -> tf.Tensor:
    """Sums terms [R, K] of rows [N, C] to [R, C]. Only XLA makes one loop of it."""
    total = tf.zeros([], tf.float32)
    for term in range(terms.pixels.shape[1]):
        values = tf.cast(tf.gather(rows, terms.pixels[:, term]), tf.float32)
        total += values * terms.weights[:, term, tf.newaxis]
    return tf.cast(total, rows.dtype)


def _multiply(rows: tf.Tensor, terms: Terms) -> tf.Tensor:
    """Computes `_gather` by a sparse matrix product, which needs little memory without XLA."""
    matrix = _sparse_matrix(terms, tf.shape(rows)[0])
    return tf.cast(tf.sparse.sparse_dense_matmul(matrix, tf.cast(rows, tf.float32)), rows.dtype)


def add_to_pixels(values: tf.Tensor, terms: Terms, num_pixels: tf.Tensor) -> tf.Tensor:
    """Adds each value to its pixels, by weight; always in the same order on CPUs.

    Args:
      values: float32 [R, C].
      terms: [R, K], pixels in [0, N).
      num_pixels: N.

    Returns:
      float32 [N, C].
    """
    matrix = _sparse_matrix(terms, num_pixels)
    return tf.sparse.sparse_dense_matmul(matrix, values, adjoint_a=True)


def _sparse_matrix(terms: Terms, num_pixels: tf.Tensor) -> tf.SparseTensor:
    """Terms [R, K] -> matrix [R, N]."""
    count, size = dimensions(terms.pixels, 0, 1)
    sums = tf.repeat(tf.range(count), size)
    indices = tf.stack([sums, tf.reshape(terms.pixels, [-1])], axis=-1)
    return tf.SparseTensor(
        tf.cast(indices, tf.int64),
        tf.reshape(terms.weights, [-1]),
        tf.cast(tf.stack([count, num_pixels]), tf.int64),
    )


def _scatter(values: tf.Tensor, terms: Terms, num_pixels: tf.Tensor) -> tf.Tensor:
    """Computes `add_to_pixels` by operations that XLA compiles."""
    total = tf.zeros([num_pixels, values.shape[-1]], tf.float32)
    for term in range(terms.pixels.shape[1]):
        updates = values * terms.weights[:, term, tf.newaxis]
        total = tf.tensor_scatter_nd_add(total, terms.pixels[:, term, tf.newaxis], updates)
    return total


def _dot(rows: tf.Tensor, pixels: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
    """Rows [N, C], pixels [R, K], values [R, C] -> products of each value and its pixels [R, K]."""
    products = [
        tf.reduce_sum(tf.cast(tf.gather(rows, pixels[:, term]), tf.float32) * values, axis=-1)
        for term in range(pixels.shape[1])
    ]
    return tf.stack(products, axis=-1)
