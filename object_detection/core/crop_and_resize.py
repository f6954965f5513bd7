"""Crops of feature maps inside boxes, and the choice of the pyramid level for each box.

Every function samples as `tf.image.crop_and_resize` does: sample i of `size` in a box is at the
pixel coordinate y1 * (H - 1) + i * (y2 - y1) * (H - 1) / (size - 1), bilinearly interpolated, so
the first and last samples are on the edges of the box; a single sample is at its centre. Samples
outside of the map take the extrapolation value.
"""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from object_detection.core import bilinear, tracing
from object_detection.core.shapes import dimensions

# A box of this side in pixels belongs to the unit level (Feature Pyramid Networks,
# https://arxiv.org/abs/1612.03144, eq. 1).
_UNIT_SIDE = 224.0
# Relative rounding error (at most six roundings) of samples on the far edge of the map.
_ROUNDING = 2.0**-21


def crop_and_resize(
    features: tf.Tensor,
    boxes: tf.Tensor,
    crop_size: tuple[int, int],
    *,
    use_matmul: bool = False,
    box_gradients: bool = False,
) -> tf.Tensor:
    """Crops each box out of its image's feature map, float [B, H, W, C].

    See `multilevel_crop_and_resize` for the other arguments and the result.
    """
    levels = tf.zeros_like(boxes[..., 0], tf.int32)
    return multilevel_crop_and_resize(
        [features], boxes, levels, crop_size, use_matmul=use_matmul, box_gradients=box_gradients
    )


def fpn_levels(
    boxes: tf.Tensor,
    image_height: Any,
    image_width: Any,
    num_levels: int,
    *,
    unit_level: int | None = None,
    unit_side: float = _UNIT_SIDE,
) -> tf.Tensor:
    """Chooses the pyramid level of each box (https://arxiv.org/abs/1612.03144, eq. 1).

    level = floor(log2(sqrt(box area in pixels) / unit_side)) + unit_level, limited to the existing
    levels. It is computed by comparison with the powers of two, so that a box exactly on a power
    gets the higher level in every execution, and boxes of zero size get level 0.

    Args:
      boxes: float32 [..., 4], normalized to the image.
      image_height, image_width: the image's size in pixels, numbers or scalar tensors.
      num_levels: L.
      unit_level: level of boxes of `unit_side` pixels, which need not be an existing level; None
        means L - 2.
      unit_side: side in pixels; the paper has 224.

    Returns:
      int32 [...], 0 = the finest level.
    """
    if unit_level is None:
        unit_level = num_levels - 2
    ymin, xmin, ymax, xmax = tf.unstack(boxes, axis=-1)
    pixels = tf.cast(image_height, tf.float32) * tf.cast(image_width, tf.float32)
    side = tf.sqrt(tf.nn.relu((ymax - ymin) * (xmax - xmin))) * (tf.sqrt(pixels) / unit_side)
    lower_bounds = [2.0 ** (level - unit_level) for level in range(1, num_levels)]
    reached = side[..., tf.newaxis] >= tf.constant(lower_bounds, tf.float32, [num_levels - 1])
    return tf.reduce_sum(tf.cast(reached, tf.int32), axis=-1)


def multilevel_crop_and_resize(
    feature_maps: Sequence[tf.Tensor],
    boxes: tf.Tensor,
    levels: tf.Tensor,
    crop_size: tuple[int, int],
    *,
    use_matmul: bool = False,
    box_gradients: bool = False,
) -> tf.Tensor:
    """Crops each box out of one level of its image's feature pyramid.

    Args:
      feature_maps: L maps, float [B, Hl, Wl, C], fine to coarse, C static.
      boxes: float32 [B, P, 4], normalized to the image.
      levels: int32 [B, P] in [0, L).
      crop_size: height h and width w of a crop.
      use_matmul: sample by matrix products over all levels; otherwise each box is cropped from its
        own level only, by TensorFlow's kernel, or by index where XLA compiles. Results are the
        same for float32; products of bfloat16 features round to bfloat16. (The reference's product
        form fades samples outside of the image out over one pixel; here both are 0 there.)
      box_gradients: whether gradients also flow to the boxes, not only to the feature maps.

    Returns:
      [B, P, h, w, C] of the features' dtype; 0 outside of the image.
    """
    if not box_gradients:
        boxes = tf.stop_gradient(boxes)
    is_basic = tracing.is_compiled() or tracing.BasicOperations.is_on()
    if not use_matmul and not is_basic:
        return _multilevel_natively(feature_maps, boxes, levels, crop_size, box_gradients)
    ymin, xmin, ymax, xmax = tf.unstack(boxes, axis=-1)

    def samples(
        levels: tf.Tensor | int, heights: tf.Tensor, widths: tf.Tensor
    ) -> tuple[bilinear.Samples, bilinear.Samples]:
        return (
            _held_samples(ymin, ymax, crop_size[0], heights),
            _held_samples(xmin, xmax, crop_size[1], widths),
        )

    return bilinear.crop(
        feature_maps,
        levels,
        samples,
        use_matmul=use_matmul,
        grid_gradients=box_gradients,
        one_scatter=True,
    )


def _held_samples(
    low: tf.Tensor, high: tf.Tensor, size: int, length: tf.Tensor
) -> bilinear.Samples:
    """Samples [B, P, size] along an axis; of a box that ends at the border none rounds past it."""
    coordinates = bilinear.sample_coordinates(low, high, size, length)
    # tf2onnx converts no slice of a scalar.
    length = tf.expand_dims(length, axis=-1)
    held = tf.minimum(coordinates, tf.cast(length - 1, tf.float32))
    ends_inside = (high <= 1.0 + _ROUNDING)[..., tf.newaxis]
    return bilinear.drop_outside(tf.where(ends_inside, held, coordinates), length)


def _multilevel_natively(
    feature_maps: Sequence[tf.Tensor],
    boxes: tf.Tensor,
    levels: tf.Tensor,
    crop_size: tuple[int, int],
    box_gradients: bool,
) -> tf.Tensor:
    batch, count = dimensions(boxes, 0, 1)
    num_levels = len(feature_maps)

    def by_level(rows: tf.Tensor) -> list[tf.Tensor]:
        if num_levels == 1:
            return [rows]
        return tf.dynamic_partition(rows, tf.reshape(levels, [-1]), num_levels)

    level_boxes = by_level(tf.reshape(boxes, [-1, 4]))
    level_images = by_level(tf.repeat(tf.range(batch), count))
    crops = [
        _crop_natively(*arguments, crop_size, box_gradients=box_gradients)
        for arguments in zip(feature_maps, level_boxes, level_images, strict=True)
    ]
    if num_levels == 1:
        crops = crops[0]
    else:
        crops = tf.dynamic_stitch(by_level(tf.range(batch * count)), crops)
    return tf.reshape(crops, [batch, count, *crop_size, feature_maps[0].shape[-1]])


def _crop_natively(
    features: tf.Tensor,
    boxes: tf.Tensor,
    image_indices: tf.Tensor,
    crop_size: tuple[int, int],
    *,
    box_gradients: bool,
) -> tf.Tensor:
    """Boxes [R, 4] of the images [R] -> [R, h, w, C] of the features' dtype.

    The gradient of the features has its own implementation: that of the CPU kernel adds to one
    pixel from several threads without a lock and loses some of the terms.
    """
    boxes = _hold_last_samples(boxes, tf.shape(features)[1:3], crop_size)

    @tf.custom_gradient
    def crop(maps: tf.Tensor, boxes: tf.Tensor) -> tuple[tf.Tensor, Callable]:
        # The kernel does not support bfloat16.
        maps_float32 = tf.cast(maps, tf.float32)
        crops = tf.image.crop_and_resize(maps_float32, boxes, image_indices, crop_size)

        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor | None]:
            spread = _spread_crops(upstream, boxes, image_indices, tf.shape(maps))
            by_boxes = None
            if box_gradients:
                by_boxes = tf.raw_ops.CropAndResizeGradBoxes(
                    grads=tf.cast(upstream, tf.float32),
                    image=maps_float32,
                    boxes=boxes,
                    box_ind=image_indices,
                )
            return tf.cast(spread, maps.dtype), by_boxes

        return tf.cast(crops, maps.dtype), gradient

    return crop(features, boxes)


def _spread_crops(
    crops: tf.Tensor, boxes: tf.Tensor, image_indices: tf.Tensor, map_shape: tf.Tensor
) -> tf.Tensor:
    """Computes the transpose of cropping: adds each sample to its pixels, by weight.

    Args:
      crops: float [R, h, w, C].
      boxes: float32 [R, 4], normalized.
      image_indices: int32 [R].
      map_shape: int32 [4]: (B, H, W, C).

    Returns:
      float32 [B, H, W, C].
    """
    _, height, width, channels = tf.unstack(map_shape)
    ymin, xmin, ymax, xmax = tf.unstack(boxes, axis=-1)

    def along(low: tf.Tensor, high: tf.Tensor, size: int, length: tf.Tensor) -> bilinear.Terms:
        return bilinear.neighbours(_held_samples(low, high, size, length), length)

    rows = along(ymin, ymax, crops.shape[1], height)
    columns = along(xmin, xmax, crops.shape[2], width)
    spread = bilinear.add_to_pixels(
        tf.reshape(tf.cast(crops, tf.float32), [-1, channels]),
        bilinear.combine_axes(rows, columns, image_indices * (height * width), width),
        tf.reduce_prod(map_shape[:3]),
    )
    return tf.reshape(spread, map_shape)


def _hold_last_samples(boxes: tf.Tensor, map_size: Any, crop_size: tuple[int, int]) -> tf.Tensor:
    """Moves the far edges of boxes inwards whose last samples the kernel rounds past the border.

    Otherwise the outermost row or column of a box clipped to the image would be zero by chance.
    The edges move by a distance of the order of the rounding error.

    Args:
      boxes: float32 [..., 4], normalized.
      map_size: (H, W) of the feature map.
      crop_size: (h, w) of a crop.
    """
    ymin, xmin, ymax, xmax = tf.unstack(boxes, axis=-1)

    def held(low: tf.Tensor, high: tf.Tensor, size: int, length: tf.Tensor) -> tf.Tensor:
        past = _last_sample_is_past(low, high, size, length) & (high <= 1.0 + _ROUNDING)
        return tf.where(past, tf.minimum(high, 1.0) - _ROUNDING, high)

    ymax = held(ymin, ymax, crop_size[0], map_size[0])
    xmax = held(xmin, xmax, crop_size[1], map_size[1])
    return tf.stack([ymin, xmin, ymax, xmax], axis=-1)


def _last_sample_is_past(
    low: tf.Tensor, high: tf.Tensor, size: int, length: tf.Tensor
) -> tf.Tensor:
    """Returns whether the kernel rounds low * last + (size - 1) * step to more than last.

    last is length - 1. Processors with fused multiply-add omit the rounding of either product.
    Float64 prevents that the optimizer of the graph changes the rounding of float32 (it multiplies
    by reciprocals instead of dividing).
    """
    if size == 1:
        return tf.zeros_like(low, tf.bool)
    last = tf.cast(length - 1, tf.float32)

    def wide(x: tf.Tensor) -> tf.Tensor:
        return tf.cast(x, tf.float64)

    step = tf.cast(wide((high - low) * last) / (size - 1), tf.float32)
    first, span = low * last, tf.cast(wide(step) * (size - 1), tf.float32)
    sums = [
        wide(first) + wide(span),
        wide(low) * wide(last) + wide(span),
        wide(first) + wide(step) * (size - 1),
    ]
    return tf.cast(tf.reduce_max(tf.stack(sums), axis=0), tf.float32) > last
