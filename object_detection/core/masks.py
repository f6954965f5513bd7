"""Mask targets of regions, cropped from the masks of the objects matched to the regions.

Targets are sampled as `tf.image.crop_and_resize` does (see `crop_and_resize`). Each region reads
the mask of its object by index; no mask is copied for a region.
"""

import tensorflow as tf

from object_detection.core import bilinear
from object_detection.core import boxes as box_ops
from object_detection.core.bilinear import sample_coordinates

# Samples this far (in samples of a crop) outside of the object's box count as on its edge, since
# changes of frame round, and a region equal to the object's box must include its edges.
_EDGE_TOLERANCE = 1e-3


def mask_targets_from_images(
    masks: tf.Tensor, boxes: tf.Tensor, rows: tf.Tensor, size: tuple[int, int]
) -> tf.Tensor:
    """Crops targets from masks that cover the whole image; XLA compiles it.

    Args:
      masks: any real type [B, M, H, W].
      boxes: float32 [B, P, 4], normalized to the image that the masks cover.
      rows: int32 [B, P] in [0, M): whose mask each region takes.
      size: height h and width w of a target.

    Returns:
      float32 [B, P, h, w], 0 outside of the image, and all zero where there are no masks (M = 0);
      no gradient.
    """
    height, width = tf.unstack(tf.shape(masks)[2:])
    ymin, xmin, ymax, xmax = tf.unstack(boxes, axis=-1)
    y = sample_coordinates(ymin, ymax, size[0], height)
    x = sample_coordinates(xmin, xmax, size[1], width)
    return tf.stop_gradient(_sample_by_index(masks, rows, y, x))


def mask_targets_from_crops(
    crops: tf.Tensor,
    crop_boxes: tf.Tensor,
    boxes: tf.Tensor,
    rows: tf.Tensor,
    size: tuple[tf.Tensor | int, tf.Tensor | int],
    *,
    use_matmul: bool = False,
) -> tf.Tensor:
    """Crops targets from masks that each cover the box of their object.

    Sample i of S of a crop is at y1 + i * (y2 - y1) / (S - 1) of its box; the mask is 0 outside
    of the box. XLA compiles both executions, and their results are the same.

    Args:
      crops: any real type [B, M, S, S'].
      crop_boxes: float32 [B, M, 4], boxes of the objects. A box of zero size gives zeros.
      boxes: float32 [B, P, 4], in the same frame.
      rows: int32 [B, P] in [0, M): whose mask each region takes.
      size: height h and width w of a target.
      use_matmul: whether to gather and interpolate by matrix products, not by index.

    Returns:
      float32 [B, P, h, w], all zero where there are no masks (M = 0); no gradient.
    """
    height, width = tf.unstack(tf.shape(crops)[2:])
    object_boxes = _gather_rows(crop_boxes, rows, use_matmul)  # [B, P, 4]
    low, high = tf.split(object_boxes, 2, axis=-1)
    region_low, region_high = tf.split(boxes, 2, axis=-1)
    ymin, xmin = tf.unstack(tf.math.divide_no_nan(region_low - low, high - low), axis=-1)
    ymax, xmax = tf.unstack(tf.math.divide_no_nan(region_high - low, high - low), axis=-1)
    y = _onto_edges(sample_coordinates(ymin, ymax, size[0], height), height)
    x = _onto_edges(sample_coordinates(xmin, xmax, size[1], width), width)
    if use_matmul:
        own = _gather_rows(tf.cast(crops, tf.float32), rows, use_matmul)  # [B, P, S, S']
        y, x = bilinear.drop_outside(y, height), bilinear.drop_outside(x, width)
        row_weights = bilinear.bilinear_weights(y.coordinates, height, y.shares)
        column_weights = bilinear.bilinear_weights(x.coordinates, width, x.shares)
        bands = tf.einsum('bpiy,bpyx->bpix', row_weights, own)
        targets = tf.einsum('bpjx,bpix->bpij', column_weights, bands)
    else:
        targets = _sample_by_index(crops, rows, y, x)
    has_size = (box_ops.area(object_boxes) > 0)[..., tf.newaxis, tf.newaxis]
    return tf.stop_gradient(tf.where(has_size, targets, 0.0))


def _sample_by_index(masks: tf.Tensor, rows: tf.Tensor, y: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
    """Interpolates masks [B, M, H, W] at y [B, P, h] and x [B, P, w] -> float32 [B, P, h, w]."""
    height, width = tf.unstack(tf.shape(masks)[2:])
    y, x = bilinear.drop_outside(y, height), bilinear.drop_outside(x, width)
    lines, y_weights = bilinear.neighbours(y, height)
    columns, x_weights = (part[:, :, tf.newaxis] for part in bilinear.neighbours(x, width))
    starts = rows[:, :, tf.newaxis] * height
    pixels = tf.reshape(masks, [tf.shape(masks)[0], -1])

    def values_along(line: tf.Tensor) -> tf.Tensor:
        """Interpolates along the pixel rows `line`, int32 [B, P, h]."""
        first = ((starts + line) * width)[..., tf.newaxis]  # [B, P, h, 1]
        at_left = _gather_pixels(pixels, first + columns[..., 0])
        at_right = _gather_pixels(pixels, first + columns[..., 1])
        return at_left + (at_right - at_left) * x_weights[..., 1]

    upper, lower = values_along(lines[..., 0]), values_along(lines[..., 1])
    inside = y.shares[:, :, :, tf.newaxis] * x.shares[:, :, tf.newaxis, :] > 0
    return tf.where(inside, upper + (lower - upper) * y_weights[..., 1, tf.newaxis], 0.0)


def _onto_edges(coordinates: tf.Tensor, length: tf.Tensor) -> tf.Tensor:
    """Moves coordinates that rounding moved out of [0, length - 1] back to its ends."""
    last = tf.cast(length - 1, tf.float32)
    near = (coordinates >= -_EDGE_TOLERANCE) & (coordinates <= last + _EDGE_TOLERANCE)
    return tf.where(near, tf.clip_by_value(coordinates, 0.0, last), coordinates)


def _gather_pixels(pixels: tf.Tensor, indices: tf.Tensor) -> tf.Tensor:
    """Any real type [B, n], int32 [B, ...] -> float32 [B, ...]; zeros where n = 0."""
    return _gather_or_zeros(
        pixels,
        tf.shape(indices),
        lambda: tf.cast(tf.gather(pixels, indices, batch_dims=1), tf.float32),
    )


def _gather_rows(params: tf.Tensor, rows: tf.Tensor, use_matmul: bool) -> tf.Tensor:
    """Gathers rows [B, P] of float32 [B, M, ...] -> [B, P, ...]; zeros where M = 0."""
    if use_matmul:
        chosen = tf.one_hot(rows, tf.shape(params)[1])
        return tf.einsum('bpm,bm...->bp...', chosen, params)
    shape = tf.concat([tf.shape(rows), tf.shape(params)[2:]], axis=0)
    return _gather_or_zeros(params, shape, lambda: tf.gather(params, rows, batch_dims=1))


def _gather_or_zeros(params: tf.Tensor, shape: tf.Tensor, gather) -> tf.Tensor:
    """Calls `gather`, or returns zeros of `shape` if `params` has no second axis to index."""
    if params.shape[1] is not None:
        return gather() if params.shape[1] else tf.zeros(shape)
    return tf.cond(tf.shape(params)[1] > 0, gather, lambda: tf.zeros(shape))
