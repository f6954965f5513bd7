"""Fits images into a box without changing their aspect ratio."""

import copy
from collections.abc import Sequence

import tensorflow as tf

from object_detection.errors import expected
from object_detection.resizers.resizer import BILINEAR, Resizer, Size

_NAME = 'KeepAspectRatioResizer'


class KeepAspectRatioResizer(Resizer):
    """Scales an image to the largest size that fits `min_dimension` x `max_dimension`.

    The longer side of that box is parallel to the longer side of the image. With `pad_size` the
    image must fit `pad_size` as well, whose sides are not exchanged for images in portrait format.

    Args:
      min_dimension, max_dimension: pixels.
      pad_to_max_dimension: pad to `max_dimension` x `max_dimension`, so that all outputs have
        one size.
      pad_size: (height, width) to pad to in place of that square; None for no such padding.
      min_dimension_range: (smallest, largest) value that `for_training` draws in place of
        `min_dimension`; None draws no value.
      round_down: whether sizes are rounded down, of a scale of single precision, as by PyTorch's
        `interpolate`; False rounds to the nearest integer.
      method, half_pixel_centers, convert_to_grayscale, pad_values: see `Resizer`.

    Raises:
      ValueError: if the dimensions are not positive or in the wrong order, there are two sizes to
        pad to, or there are pad values, but not one for each of the three channels.
    """

    def __init__(
        self,
        *,
        min_dimension: int,
        max_dimension: int,
        pad_to_max_dimension: bool = False,
        pad_size: tuple[int, int] | None = None,
        min_dimension_range: tuple[int, int] | None = None,
        round_down: bool = False,
        method: str = BILINEAR,
        half_pixel_centers: bool = False,
        convert_to_grayscale: bool = False,
        pad_values: tuple[float, ...] = (),
    ):
        super().__init__(
            method=method,
            half_pixel_centers=half_pixel_centers,
            convert_to_grayscale=convert_to_grayscale,
            pad_values=pad_values,
        )
        if not 0 < min_dimension <= max_dimension:
            raise expected(
                _NAME, '0 < min_dimension <= max_dimension', f'{min_dimension}, {max_dimension}'
            )
        if len(pad_values) not in (0, 3):
            raise expected(_NAME, '3 numbers of per_channel_pad_value, or none', tuple(pad_values))
        _check_range(min_dimension_range, max_dimension)
        self._min_dimension: Size = min_dimension
        self._max_dimension = max_dimension
        self._round_down = round_down
        padded = _checked_pad_size(
            pad_size, (max_dimension, max_dimension) if pad_to_max_dimension else None
        )
        self._pad_sizes: tuple[tuple[int, int], ...] = (padded,) if padded else ()
        self._min_dimension_range = min_dimension_range

    def with_buckets(self, sizes: Sequence[tuple[int, int]]) -> 'KeepAspectRatioResizer':
        """Returns a resizer that pads each image to one of `sizes` in place of its own size.

        It chooses the size that leaves the image largest, and the smallest of several such sizes,
        so that images get a size of their orientation.

        Args:
          sizes: (height, width) of each bucket, pixels; at least one.

        Raises:
          ValueError: if there are no sizes, or one has a side that is not positive.
        """
        if not sizes or min(map(min, sizes)) < 1:
            raise expected(_NAME, 'buckets of positive height and width', list(sizes))
        bucketed = copy.copy(self)
        bucketed._pad_sizes = tuple((height, width) for height, width in sizes)
        return bucketed

    def for_training(self, seed: tf.Tensor) -> Resizer:
        if self._min_dimension_range is None:
            return self
        low, high = self._min_dimension_range
        drawn = copy.copy(self)
        drawn._min_dimension = tf.random.stateless_uniform([], seed, low, high + 1, tf.int32)
        return drawn

    def resized_size(self, height: Size, width: Size) -> tuple[Size, Size]:
        size = tf.cast(tf.stack([height, width]), tf.float32)
        low, high = tf.cast(self._min_dimension, tf.float32), float(self._max_dimension)
        limits = tf.where(height < width, [low, high], [high, low])
        if self._pad_sizes:
            limits = tf.minimum(limits, tf.constant(self._pad_sizes, tf.float32))
        scale = tf.reduce_max(tf.reduce_min(limits / size, axis=-1))
        if self._round_down:
            # Products of single precision would be rounded up to the next integer.
            sides = tf.floor(tf.cast(scale, tf.float64) * tf.cast(size, tf.float64))
        else:
            # tf.round rounds halves to the even number, as the reference does.
            sides = tf.round(scale * size)
        resized = tf.maximum(tf.cast(sides, tf.int32), 1)
        return resized[0], resized[1]

    def padded_size(self, height: Size, width: Size) -> tuple[Size, Size]:
        if not self._pad_sizes:
            return height, width
        if len(self._pad_sizes) == 1:
            return self._pad_sizes[0]
        # The image was resized for the size that leaves it largest. The smallest of the sizes that
        # hold the resized image leaves it as large, with the least padding.
        sizes = tf.constant(self._pad_sizes, tf.int32)
        holds = tf.reduce_all(tf.stack([height, width]) <= sizes, axis=-1)
        area = tf.where(holds, tf.reduce_prod(sizes, axis=-1), sizes.dtype.max)
        chosen = sizes[tf.argmin(area, output_type=tf.int32)]
        return chosen[0], chosen[1]

    @property
    def static_shape(self) -> tuple[int, int, int] | None:
        if len(self._pad_sizes) != 1:
            return None
        return (*self._pad_sizes[0], self._output_channels())


def _checked_pad_size(
    pad_size: tuple[int, int] | None, square: tuple[int, int] | None
) -> tuple[int, int] | None:
    """Returns the one of the two sizes that is given, or None."""
    if pad_size is not None and square is not None:
        raise expected(_NAME, 'pad_to_max_dimension, or pad_height with pad_width', 'both')
    if pad_size is not None and min(pad_size) < 1:
        raise expected(_NAME, 'pad_height and pad_width above 0, or neither', pad_size)
    return pad_size or square


def _check_range(min_dimension_range: tuple[int, int] | None, max_dimension: int) -> None:
    low, high = min_dimension_range or (1, 1)
    if not 0 < low <= high <= max_dimension:
        raise expected(
            _NAME, f'0 < min <= max <= {max_dimension} of min_dimension_range', (low, high)
        )
