"""Crops of feature maps inside boxes, and the choice of the pyramid level for each box.

Every function samples as `tf.image.crop_and_resize` does: sample i of `size` in a box lies at the
pixel coordinate y1 * (H - 1) + i * (y2 - y1) * (H - 1) / (size - 1), bilinearly interpolated, so
the first and last samples lie on the box's edges; a single sample lies at the centre. Samples
outside of the map take the extrapolation value.
"""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from object_detection.core import determinism, tracing
from object_detection.core.shapes import dimensions

# A box of this side in pixels belongs to the unit level (Feature Pyramid Networks,
# https://arxiv.org/abs/1612.03144, eq. 1).
_UNIT_SIDE = 224.0
# Samples on the map's far edge are computed with a relative error of at most six roundings.
_ROUNDING = 2.0**-21


def crop_and_resize(
    features: tf.Tensor,
    boxes: tf.Tensor,
    crop_size: tuple[int, int],
    *,
    use_matmul: bool = False,
    extrapolation_value: float = 0.0,
    box_gradients: bool = False,
) -> tf.Tensor:
    """Crops each box out of its image's feature map.

    Args:
      features: float [B, H, W, C].
      boxes: float32 [B, P, 4], normalized to the map's image.
      crop_size: height h and width w of a crop.
      use_matmul: sample by matrix products with interpolation weights; else by TensorFlow's kernel,
        or by index where XLA compiles. The numbers are the same for float32; products of bfloat16
        features round to bfloat16. (The reference's product form fades samples outside of the map
        out over one pixel; here both take the extrapolation value there.)
      extrapolation_value: value of samples outside of the map.
      box_gradients: whether gradients flow to the boxes too, not to the features alone.

    Returns:
      [B, P, h, w, C] of the features' dtype.
    """
    if not box_gradients:
        boxes = tf.stop_gradient(boxes)
    if not use_matmul and tracing.is_compiled():
        levels = tf.zeros_like(boxes[..., 0], tf.int32)
        return _crop_by_index([features], boxes, levels, crop_size, extrapolation_value)
    if not use_matmul:
        batch, count = dimensions(boxes, 0, 1)
        crops = _crop_natively(
            features,
            tf.reshape(boxes, [-1, 4]),
            _image_indices(batch, count),
            crop_size,
            extrapolation_value,
            box_gradients=box_gradients,
        )
        return tf.reshape(crops, [batch, count, *crop_size, features.shape[-1]])
    rows, columns = _interpolation_weights(boxes, tf.shape(features)[1:3], crop_size)
    crops = crop_by_products(features, rows, columns)
    if extrapolation_value:
        # The weights of a sample outside of the map are all zero, those inside sum to one.
        inside = tf.reduce_sum(rows, -1)[..., tf.newaxis] * tf.reduce_sum(columns, -1)[:, :, None]
        outside = tf.cast(tf.round(1.0 - inside), crops.dtype)[..., tf.newaxis]
        crops += outside * tf.cast(extrapolation_value, crops.dtype)
    return crops


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

    level = floor(log2(sqrt(box area in pixels) / unit_side)) + unit_level, limited to the levels
    there are. Computed by comparison with the powers of two: a box exactly on one belongs to the
    level above in every execution, and boxes of no size belong to level 0.

    Args:
      boxes: float32 [..., 4], normalized to the image.
      image_height, image_width: the image's size in pixels, numbers or scalar tensors.
      num_levels: L.
      unit_level: level of boxes of `unit_side` pixels, which may be none of those there are;
        None = L - 2.
      unit_side: 224 is the paper's.

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
      feature_maps: L maps, float [B, Hl, Wl, C], fine to coarse.
      boxes: float32 [B, P, 4], normalized to the image.
      levels: int32 [B, P] in [0, L).
      crop_size: height h and width w of a crop.
      use_matmul: sample by matrix products over all levels; else each box is cropped from its own
        level alone, by TensorFlow's kernel, or by index where XLA compiles.
      box_gradients: whether gradients flow to the boxes too, not to the feature maps alone.

    Returns:
      [B, P, h, w, C] of the features' dtype; 0 outside of the image.
    """
    if not box_gradients:
        boxes = tf.stop_gradient(boxes)
    if not use_matmul and tracing.is_compiled():
        return _crop_by_index(feature_maps, boxes, levels, crop_size, 0.0)
    if not use_matmul:
        return _multilevel_natively(feature_maps, boxes, levels, crop_size, box_gradients)
    crops = []
    for level, features in enumerate(feature_maps):
        rows, columns = _interpolation_weights(boxes, tf.shape(features)[1:3], crop_size)
        is_here = tf.cast(levels == level, rows.dtype)[:, :, tf.newaxis, tf.newaxis]
        crops.append(crop_by_products(features, rows * is_here, columns))
    return determinism.sum_in_order(crops)


def sample_coordinates(
    low: tf.Tensor, high: tf.Tensor, size: int, length: tf.Tensor | int
) -> tf.Tensor:
    """Returns where the samples of boxes lie along one axis.

    Args:
      low, high: float32 [...], edges of the boxes along the axis, normalized.
      size: number of samples.
      length: number of pixels along the axis.

    Returns:
      float32 [..., size], pixel indices; the order of operations is the kernel's, so that both
      round alike.
    """
    last = tf.cast(length - 1, tf.float32)
    if size == 1:
        return (0.5 * (low + high) * last)[..., tf.newaxis]
    step = (high - low) * last / (size - 1)
    return (low * last)[..., tf.newaxis] + tf.range(size, dtype=tf.float32) * step[..., tf.newaxis]


def tent_weights(coordinates: tf.Tensor, length: tf.Tensor | int) -> tf.Tensor:
    """Weights of bilinear interpolation along one axis.

    Args:
      coordinates: float32 [..., S], pixel indices.
      length: number of pixels along the axis.

    Returns:
      float32 [..., S, length]; rows sum to 1, or are 0 for coordinates outside [0, length - 1].
    """
    last = tf.cast(length - 1, tf.float32)
    inside = tf.cast((coordinates >= 0.0) & (coordinates <= last), tf.float32)
    pixels = tf.range(length, dtype=tf.float32)
    tents = tf.nn.relu(1.0 - tf.abs(coordinates[..., tf.newaxis] - pixels))
    return tents * inside[..., tf.newaxis]


def crop_by_products(features: tf.Tensor, rows: tf.Tensor, columns: tf.Tensor) -> tf.Tensor:
    """Crops by weights of the pixels along each axis.

    Args:
      features: float [B, H, W, C].
      rows, columns: float32 [B, P, h, H] and [B, P, w, W].

    Returns:
      [B, P, h, w, C] of the features' dtype.
    """
    rows, columns = tf.cast(rows, features.dtype), tf.cast(columns, features.dtype)
    bands = tf.einsum('bpiy,byxc->bpixc', rows, features)
    return tf.einsum('bpjx,bpixc->bpijc', columns, bands)


def add_to_pixels(
    values: tf.Tensor, pixels: tf.Tensor, weights: tf.Tensor, num_pixels: tf.Tensor
) -> tf.Tensor:
    """Adds each value to K pixels, by weight; always in the same order on CPUs.

    Args:
      values: float32 [R, C].
      pixels: int32 [R, K] in [0, N).
      weights: float32 [R, K].
      num_pixels: N.

    Returns:
      float32 [N, C].
    """
    count, terms = dimensions(pixels, 0, 1)
    samples = tf.repeat(tf.range(count), terms)
    matrix = tf.SparseTensor(
        tf.cast(tf.stack([tf.reshape(pixels, [-1]), samples], axis=-1), tf.int64),
        tf.reshape(weights, [-1]),
        tf.cast(tf.stack([num_pixels, count]), tf.int64),
    )
    return tf.sparse.sparse_dense_matmul(matrix, values)


def _crop_by_index(
    feature_maps: Sequence[tf.Tensor],
    boxes: tf.Tensor,
    levels: tf.Tensor,
    crop_size: tuple[int, int],
    extrapolation_value: float,
) -> tf.Tensor:
    """As `_multilevel_natively`, of operations that XLA makes one loop of."""
    channels = feature_maps[0].shape[-1]
    # Float32 at once, so that gradients are added up in it.
    flat = [tf.reshape(tf.cast(maps, tf.float32), [-1, channels]) for maps in feature_maps]
    sizes = tf.stack([tf.shape(maps)[1:3] for maps in feature_maps])  # [L, 2]
    areas = sizes[:, 0] * sizes[:, 1]
    batch, count = dimensions(boxes, 0, 1)
    height, width = tf.unstack(tf.gather(sizes, levels)[:, :, tf.newaxis], axis=-1)  # [B, P, 1]
    first = tf.gather(tf.cumsum(areas, exclusive=True) * batch, levels)
    first += tf.range(batch)[:, tf.newaxis] * tf.gather(areas, levels)  # [B, P]
    y, x = _held_coordinates(boxes, height[..., 0], width[..., 0], crop_size)
    (rows, row_weights), (columns, column_weights) = _neighbours(y, height), _neighbours(x, width)
    starts = first[..., tf.newaxis, tf.newaxis] + rows * width[..., tf.newaxis]  # [B, P, h, 2]
    pyramid, crops, inside = tf.concat(flat, axis=0), 0.0, 0.0
    for row, column in ((0, 0), (0, 1), (1, 0), (1, 1)):
        pixels = starts[..., row][..., tf.newaxis] + columns[..., column][:, :, tf.newaxis]
        weights = row_weights[..., row][..., tf.newaxis] * column_weights[..., column][:, :, None]
        crops += tf.gather(pyramid, pixels) * weights[..., tf.newaxis]
        inside += weights
    if extrapolation_value:
        crops += tf.round(1.0 - inside)[..., tf.newaxis] * extrapolation_value
    crops = tf.cast(crops, feature_maps[0].dtype)
    return tf.reshape(crops, [batch, count, *crop_size, channels])


def _multilevel_natively(
    feature_maps: Sequence[tf.Tensor],
    boxes: tf.Tensor,
    levels: tf.Tensor,
    crop_size: tuple[int, int],
    box_gradients: bool,
) -> tf.Tensor:
    batch, count = dimensions(boxes, 0, 1)
    flat_levels = tf.reshape(levels, [-1])
    num_levels = len(feature_maps)

    def by_level(rows: tf.Tensor) -> list[tf.Tensor]:
        return tf.dynamic_partition(rows, flat_levels, num_levels)

    crops = [
        _crop_natively(
            features, level_boxes, level_images, crop_size, 0.0, box_gradients=box_gradients
        )
        for features, level_boxes, level_images in zip(
            feature_maps,
            by_level(tf.reshape(boxes, [-1, 4])),
            by_level(_image_indices(batch, count)),
            strict=True,
        )
    ]
    positions = by_level(tf.range(batch * count))
    crops = tf.dynamic_stitch(positions, crops)
    return tf.reshape(crops, [batch, count, *crop_size, feature_maps[0].shape[-1]])


def _crop_natively(
    features: tf.Tensor,
    boxes: tf.Tensor,
    image_indices: tf.Tensor,
    crop_size: tuple[int, int],
    extrapolation_value: float,
    *,
    box_gradients: bool,
) -> tf.Tensor:
    """Boxes [R, 4] of the images [R] -> [R, h, w, C] of the features' dtype.

    The gradient of the features is our own: the CPU kernel's adds to one pixel from several
    threads without a lock, and loses some of the sums.
    """
    boxes = _hold_last_samples(boxes, tf.shape(features)[1:3], crop_size)

    @tf.custom_gradient
    def crop(maps: tf.Tensor, boxes: tf.Tensor) -> tuple[tf.Tensor, Callable]:
        # The kernel does not know bfloat16.
        maps_float32 = tf.cast(maps, tf.float32)
        crops = tf.image.crop_and_resize(
            maps_float32, boxes, image_indices, crop_size, extrapolation_value=extrapolation_value
        )

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
    """The transpose of cropping: adds each sample to its pixels, by interpolation weight.

    Args:
      crops: float [R, h, w, C].
      boxes: float32 [R, 4], normalized.
      image_indices: int32 [R].
      map_shape: int32 [4]: (B, H, W, C).

    Returns:
      float32 [B, H, W, C].
    """
    _, height, width, channels = tf.unstack(map_shape)
    crop_height, crop_width = crops.shape[1:3]
    ymin, xmin, ymax, xmax = tf.unstack(boxes, axis=-1)
    rows, row_weights = _neighbours(sample_coordinates(ymin, ymax, crop_height, height), height)
    columns, column_weights = _neighbours(sample_coordinates(xmin, xmax, crop_width, width), width)
    first_rows = image_indices[:, tf.newaxis, tf.newaxis] * height
    # Axes [R, h, w, 2 rows, 2 columns].
    pixels = (first_rows + rows)[:, :, tf.newaxis, :, tf.newaxis] * width
    pixels += columns[:, tf.newaxis, :, tf.newaxis, :]
    weights = row_weights[:, :, tf.newaxis, :, tf.newaxis]
    weights *= column_weights[:, tf.newaxis, :, tf.newaxis, :]
    spread = add_to_pixels(
        tf.reshape(tf.cast(crops, tf.float32), [-1, channels]),
        tf.reshape(pixels, [-1, 4]),
        tf.reshape(weights, [-1, 4]),
        tf.reduce_prod(map_shape[:3]),
    )
    return tf.reshape(spread, map_shape)


def _neighbours(coordinates: tf.Tensor, length: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Coordinates [..., S] -> the two pixels next to each and their weights, [..., S, 2]."""
    last = length - 1
    inside = (coordinates >= 0.0) & (coordinates <= tf.cast(last, tf.float32))
    # Coordinates outside may be too large for an integer.
    coordinates = tf.where(inside, coordinates, 0.0)
    low = tf.floor(coordinates)
    fraction = coordinates - low
    weights = tf.stack([1.0 - fraction, fraction], axis=-1)
    low = tf.cast(low, tf.int32)
    pixels = tf.stack([low, tf.minimum(low + 1, last)], axis=-1)
    return pixels, weights * tf.cast(inside, tf.float32)[..., tf.newaxis]


def _interpolation_weights(
    boxes: tf.Tensor, map_size: tf.Tensor, crop_size: tuple[int, int]
) -> tuple[tf.Tensor, tf.Tensor]:
    """Boxes [B, P, 4], sizes (H, W) and (h, w) -> weights [B, P, h, H] and [B, P, w, W]."""
    rows, columns = _held_coordinates(boxes, map_size[0], map_size[1], crop_size)
    return tent_weights(rows, map_size[0]), tent_weights(columns, map_size[1])


def _held_coordinates(
    boxes: tf.Tensor, height: tf.Tensor, width: tf.Tensor, crop_size: tuple[int, int]
) -> tuple[tf.Tensor, tf.Tensor]:
    """Where the samples of boxes [B, P, 4] lie, [B, P, h] and [B, P, w].

    Of a box that ends at the border none rounds past it. Sizes of maps are scalars or [B, P].
    """
    ymin, xmin, ymax, xmax = tf.unstack(boxes, axis=-1)

    def inside(low: tf.Tensor, high: tf.Tensor, size: int, length: tf.Tensor) -> tf.Tensor:
        coordinates = sample_coordinates(low, high, size, length)
        last = tf.cast(length - 1, tf.float32)[..., tf.newaxis]
        held = tf.minimum(coordinates, last)
        return tf.where((high <= 1.0 + _ROUNDING)[..., tf.newaxis], held, coordinates)

    return inside(ymin, ymax, crop_size[0], height), inside(xmin, xmax, crop_size[1], width)


def _hold_last_samples(boxes: tf.Tensor, map_size: Any, crop_size: tuple[int, int]) -> tf.Tensor:
    """Moves the far edges of boxes inwards whose last samples the kernel rounds past the border.

    Else the outermost row or column of a box clipped to the image would be zero, by chance. What
    the edges move by is of the size of the rounding error.

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
    """Whether the kernel rounds low * last + (size - 1) * step to more than last = length - 1.

    Processors that multiply and add at once leave out the rounding of either product. Float64
    where the graph's optimizer would else change how float32 is rounded (it multiplies by
    reciprocals rather than divide).
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


def _image_indices(batch: Any, count: Any) -> tf.Tensor:
    """int32 [B * P]: which image each box belongs to."""
    return tf.repeat(tf.range(batch), count)
