"""Position-sensitive crops of score maps (R-FCN, https://arxiv.org/abs/1605.06409, sec. 3).

A box is divided into a grid of bins, and each bin reads score maps of its own: the channels of the
maps are ordered by row of the grid, column of the grid, channel within the bin. A bin is sampled
like a box in `core/crop_and_resize.py`: its first and last samples are on its edges. Outside of the
maps, samples fade to zero over one pixel. All steps are matrix products, which XLA compiles.
"""

from typing import Any

import tensorflow as tf

from object_detection.core import bilinear
from object_detection.core.shapes import dimensions
from object_detection.errors import UserError


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
        raise UserError(
            f'position-sensitive crops: expected a multiple of {groups} channels, some for each of '
            f'{num_bins[0]} x {num_bins[1]} bins. Received: {channels}.'
        )
    return channels // groups
