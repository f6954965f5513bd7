"""RoIAlign: crops of feature maps (Mask R-CNN, https://arxiv.org/abs/1703.06870, sec. 3).

A box is divided into bins. The value of a bin is the mean of `sampling_ratio` x `sampling_ratio`
bilinearly interpolated samples, in the centres of equal parts of the bin. Unlike in the crops of
`crop_and_resize`, no sample is on an edge of the box.

Position-sensitive crops of score maps (R-FCN, https://arxiv.org/abs/1605.06409, sec. 3).

A box is divided into a grid of bins, and each bin reads score maps of its own: the channels of the
maps are ordered by row of the grid, column of the grid, channel within the bin. A bin is sampled
like a box in `core/crop_and_resize.py`: its first and last samples are on its edges. Outside of the
maps, samples fade to zero over one pixel. All steps are matrix products, which XLA compiles.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from object_detection.core import bilinear, tracing
from object_detection.core.shapes import dimensions
from object_detection.errors import UserError, expected


@dataclasses.dataclass(frozen=True)
class SampleGrid:
    """The grid of samples of a box.

    Attributes:
      output_size: number of bins (h, w) of a box.
      sampling_ratio: samples per bin along each axis.
      offset: added to coordinates in cells; -0.5 if the centre of cell 0 is half a cell inside of
        the image, 0 if it is on the edge of the image.
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

    Samples up to one cell outside of a map take the value of its edge; samples further outside are
    0. With the offset 0, boxes lower or narrower than a cell get the size of a cell, from their
    upper left corner on, as in Detectron and torchvision.

    Args:
      feature_maps: L maps, float [B, Hl, Wl, C], C static.
      boxes: float32 [B, P, 4], in any frame.
      levels: int32 [B, P] in [0, L).
      scales: (y, x), cells of each map per unit of the frame of the boxes.
      grid: the samples of a box.
      use_matmul: sample by matrix products over all levels; otherwise by index, each box from its
        own level only. XLA compiles both, and their results are the same; products of bfloat16
        features round to bfloat16. By index, the gradient is a scatter under XLA, whose order of
        summation on GPUs is fixed only by TensorFlow's determinism. Within `tracing.portable`, and
        not within `tracing.BasicOperations`, the kernel of `tf.image.crop_and_resize` samples, in
        a third of the time of other operations without XLA.
      box_gradients: whether gradients also flow to the boxes, not only to the feature maps.

    Returns:
      [B, P, h, w, C] of the features' dtype.
    """
    if not box_gradients:
        boxes = tf.stop_gradient(boxes)
    is_basic = tracing.is_compiled() or tracing.BasicOperations.is_on()
    if not (use_matmul or tracing.may_compile() or is_basic):
        return _align_natively(feature_maps, boxes, levels, scales, grid)
    ymin, xmin, ymax, xmax = tf.unstack(boxes, axis=-1)
    table = tf.stack([[tf.cast(scale, tf.float32) for scale in pair] for pair in scales])  # [L, 2]

    def samples(
        levels: tf.Tensor | int, heights: tf.Tensor, widths: tf.Tensor
    ) -> tuple[bilinear.Samples, bilinear.Samples]:
        scale_y, scale_x = tf.unstack(tf.gather(table, levels), axis=-1)
        y = _coordinates(ymin * scale_y, ymax * scale_y, grid, 0)
        x = _coordinates(xmin * scale_x, xmax * scale_x, grid, 1)
        return _onto_map(y, heights[..., tf.newaxis]), _onto_map(x, widths[..., tf.newaxis])

    return bilinear.crop(
        feature_maps,
        levels,
        samples,
        ratio=grid.sampling_ratio,
        use_matmul=use_matmul,
        grid_gradients=box_gradients,
    )


def _coordinates(low: tf.Tensor, high: tf.Tensor, grid: SampleGrid, axis: int) -> tf.Tensor:
    """Returns the samples [..., h * ratio] between edges [...] along an axis, in cells."""
    count = grid.output_size[axis] * grid.sampling_ratio
    high = _at_least_a_cell(low, high, grid)
    middles = (tf.range(count, dtype=tf.float32) + 0.5) / count
    return low[..., tf.newaxis] + (high - low)[..., tf.newaxis] * middles + grid.offset


def _at_least_a_cell(low: tf.Tensor, high: tf.Tensor, grid: SampleGrid) -> tf.Tensor:
    """Returns the upper edges of boxes in cells; without an offset, of at least one cell."""
    return high if grid.offset else low + tf.maximum(high - low, 1.0)


def _onto_map(coordinates: tf.Tensor, length: tf.Tensor) -> bilinear.Samples:
    """Moves coordinates near the map onto it; the share of other coordinates and NaN is 0."""
    length = tf.cast(length, tf.float32)
    is_near = (coordinates >= -1.0) & (coordinates <= length)
    held = tf.clip_by_value(coordinates, 0.0, length - 1.0)
    return bilinear.Samples(tf.where(is_near, held, 0.0), tf.cast(is_near, tf.float32))


def _align_natively(
    feature_maps: Sequence[tf.Tensor],
    boxes: tf.Tensor,
    levels: tf.Tensor,
    scales: Sequence[tuple[Any, Any]],
    grid: SampleGrid,
) -> tf.Tensor:
    """Computes `roi_align` by TensorFlow's kernel, which samples from edge to edge of boxes.

    Around each map its edge is repeated, so that samples near the map take its value. The kernel
    would read beyond the map for boxes that are not finite; they have no samples on the map.
    """
    batch, count = dimensions(boxes, 0, 1)
    is_finite = tf.reduce_all(tf.math.is_finite(boxes), axis=-1, keepdims=True)
    level_of_row = tf.reshape(levels, [-1])

    def by_level(rows: tf.Tensor) -> list[tf.Tensor]:
        return tf.dynamic_partition(rows, level_of_row, len(feature_maps))

    level_boxes = by_level(tf.reshape(boxes, [-1, 4]))
    level_flags = by_level(tf.reshape(is_finite, [-1, 1]))
    level_images = by_level(tf.repeat(tf.range(batch), count))
    cells = [
        tf.where(is_used, rows * _twice(scale), 0.0)
        for is_used, rows, scale in zip(level_flags, level_boxes, scales, strict=True)
    ]
    crops = [
        _crop_natively(*of_level, grid)
        for of_level in zip(feature_maps, cells, level_flags, level_images, strict=True)
    ]
    rows = tf.dynamic_stitch(by_level(tf.range(batch * count)), crops)
    return tf.reshape(rows, [batch, count, *grid.output_size, feature_maps[0].shape[-1]])


def _crop_natively(
    features: tf.Tensor, boxes: tf.Tensor, is_used: tf.Tensor, images: tf.Tensor, grid: SampleGrid
) -> tf.Tensor:
    """Crops one map.

    Args:
      features: [B, H, W, C].
      boxes: float32 [R, 4], in cells.
      is_used: bool [R, 1]; crops of the others are 0.
      images: int32 [R].
      grid: the samples of a box.

    Returns:
      [R, h, w, C] of the dtype of the features.
    """
    low, high = tf.split(boxes, 2, axis=-1)
    high = _at_least_a_cell(low, high, grid)
    counts = [size * grid.sampling_ratio for size in grid.output_size]
    to_first = (high - low) * (0.5 / tf.constant(counts, tf.float32))
    padded = _repeat_edges(features)
    # One cell of the edge comes before the first cell of the map.
    first, last = low + to_first + (1.0 + grid.offset), high - to_first + (1.0 + grid.offset)
    ends = tf.cast(tf.shape(padded)[1:3] - 1, tf.float32)
    corners = tf.where(is_used, tf.concat([first / ends, last / ends], axis=-1), -1.0)
    # The kernel does not support bfloat16.
    crops = tf.image.crop_and_resize(tf.cast(padded, tf.float32), corners, images, counts)
    if grid.sampling_ratio > 1:
        crops = tf.nn.avg_pool2d(crops, grid.sampling_ratio, grid.sampling_ratio, 'VALID')
    return tf.cast(crops, features.dtype)


def _repeat_edges(maps: tf.Tensor) -> tf.Tensor:
    """[B, H, W, C] -> [B, H + 2, W + 2, C]; copies whole rows, which `tf.pad` does not."""
    maps = tf.concat([maps[:, :1], maps, maps[:, -1:]], axis=1)
    return tf.concat([maps[:, :, :1], maps, maps[:, :, -1:]], axis=2)


def _twice(scale: tuple[Any, Any]) -> tf.Tensor:
    return tf.stack([tf.cast(each, tf.float32) for each in (*scale, *scale)])


def mean_crop(
    maps: tf.Tensor,
    boxes: tf.Tensor,
    crop_size: tuple[int, int],
    num_bins: tuple[int, int],
    *,
    box_gradients: bool = False,
) -> tf.Tensor:
    """Crops each box, every bin out of its own channels, and returns the mean over each crop.

    The mean is a weighted sum of all pixels and channel groups of the image's maps, so that all
    boxes of an image take one matrix product, and no crop is made.

    Args:
      maps: float [B, H, W, R * S * C], channels static.
      boxes: float32 [B, P, 4], normalized to the maps' image.
      crop_size: height h and width w of a crop, multiples of R and S.
      num_bins: rows R and columns S of the grid.
      box_gradients: whether gradients also flow to `boxes`.

    Returns:
      [B, P, C] of the maps' dtype.

    Raises:
      ValueError: if the crop or the channels cannot be divided among the bins.
    """
    batch, height, width = dimensions(maps, 0, 1, 2)
    (count,) = dimensions(boxes, 1)
    depth = _channels_per_bin(maps, num_bins)
    boxes = boxes if box_gradients else tf.stop_gradient(boxes)
    rows, columns = _sampling_weights(boxes, (height, width), crop_size, num_bins)
    num_groups = num_bins[0] * num_bins[1]
    rows = tf.reduce_mean(rows, axis=3) / num_groups  # [B, P, R, H]
    columns = tf.reduce_mean(columns, axis=3)  # [B, P, S, W]
    weights = tf.einsum('bpry,bpsx->bpyxrs', rows, columns)
    size = height * width * num_groups
    weights = tf.cast(tf.reshape(weights, [batch, count, size]), maps.dtype)
    return tf.matmul(weights, tf.reshape(maps, [batch, size, depth]))


def check_crop_size(crop_size: tuple[int, int], num_bins: tuple[int, int]) -> None:
    """Checks that every bin of a crop gets the same number of samples, at least one.

    Raises:
      ValueError: if `crop_size` is no positive multiple of `num_bins`.
    """
    if any(size < 1 or size % number for size, number in zip(crop_size, num_bins, strict=True)):
        raise UserError(
            'position-sensitive crops: expected a crop size that is a multiple of the grid of bins '
            f'{tuple(num_bins)}. Received: {tuple(crop_size)}.'
        )


def _sampling_weights(
    boxes: tf.Tensor,
    map_size: tuple[Any, Any],
    crop_size: tuple[int, int],
    num_bins: tuple[int, int],
) -> tuple[tf.Tensor, tf.Tensor]:
    """Weights of the maps' rows [B, P, R, h / R, H] and columns [B, P, S, w / S, W]."""
    check_crop_size(crop_size, num_bins)
    ymin, xmin, ymax, xmax = tf.unstack(boxes, axis=-1)

    def along(low: tf.Tensor, high: tf.Tensor, axis: int) -> tf.Tensor:
        number, length = num_bins[axis], map_size[axis]
        side = ((high - low) / number)[..., tf.newaxis]
        low = low[..., tf.newaxis] + tf.range(number, dtype=side.dtype) * side
        size = crop_size[axis] // number
        coordinates = bilinear.sample_coordinates(low, low + side, size, length)
        return bilinear.bilinear_weights(coordinates, length)

    return along(ymin, ymax, 0), along(xmin, xmax, 1)


def _channels_per_bin(maps: tf.Tensor, num_bins: tuple[int, int]) -> int:
    channels, groups = maps.shape[-1], num_bins[0] * num_bins[1]
    if channels % groups:
        raise expected('position-sensitive crops', f'channels in a multiple of {groups}', channels)
    return channels // groups
