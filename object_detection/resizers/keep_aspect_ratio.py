"""Fits images into a box without changing their aspect ratio."""

import copy

import tensorflow as tf

from object_detection.resizers.resizer import BILINEAR, Resizer, Size


class KeepAspectRatioResizer(Resizer):
    """Scales an image to the largest size that fits `min_dimension` x `max_dimension`.

    The longer side of that box lies along the longer side of the image. With `pad_size` the image
    has to fit that as well, whose sides do not turn with the image.

    Args:
      min_dimension, max_dimension: pixels.
      pad_to_max_dimension: pad to `max_dimension` x `max_dimension`, so that all outputs are of
        one size.
      pad_size: (height, width) to pad to in place of that square; None does not.
      min_dimension_range: (smallest, largest) of what `for_training` draws in place of
        `min_dimension`; None draws nothing.
      method, convert_to_grayscale, pad_values: see `Resizer`.

    Raises:
      ValueError: if the dimensions are not positive or in the wrong order, there are two sizes to
        pad to, or pad values are given but not one for each of the three channels.
    """

    def __init__(
        self,
        *,
        min_dimension: int,
        max_dimension: int,
        pad_to_max_dimension: bool = False,
        pad_size: tuple[int, int] | None = None,
        min_dimension_range: tuple[int, int] | None = None,
        method: str = BILINEAR,
        convert_to_grayscale: bool = False,
        pad_values: tuple[float, ...] = (),
    ):
        super().__init__(
            method=method, convert_to_grayscale=convert_to_grayscale, pad_values=pad_values
        )
        if not 0 < min_dimension <= max_dimension:
            raise ValueError(
                'KeepAspectRatioResizer: min_dimension must be positive and at most max_dimension. '
                f'Received: min_dimension={min_dimension}, max_dimension={max_dimension}.'
            )
        if len(pad_values) not in (0, 3):
            raise ValueError(
                'KeepAspectRatioResizer: per_channel_pad_value needs one value for each of the 3 '
                f'channels, or none. Received: {tuple(pad_values)}.'
            )
        _check_range(min_dimension_range, max_dimension)
        self._min_dimension: Size = min_dimension
        self._max_dimension = max_dimension
        self._pad_size = _checked_pad_size(
            pad_size, (max_dimension, max_dimension) if pad_to_max_dimension else None
        )
        # The square holds every image anyway.
        self._limits_by_padding = pad_size is not None
        self._min_dimension_range = min_dimension_range

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
        if self._limits_by_padding:
            limits = tf.minimum(limits, tf.constant(self._pad_size, tf.float32))
        # tf.round takes halves to the even number, as the reference does.
        resized = tf.cast(tf.round(tf.reduce_min(limits / size) * size), tf.int32)
        resized = tf.maximum(resized, 1)
        return resized[0], resized[1]

    def padded_size(self, height: Size, width: Size) -> tuple[Size, Size]:
        return self._pad_size or (height, width)

    @property
    def static_shape(self) -> tuple[int, int, int] | None:
        return (*self._pad_size, self._output_channels()) if self._pad_size else None


def _checked_pad_size(
    pad_size: tuple[int, int] | None, square: tuple[int, int] | None
) -> tuple[int, int] | None:
    """Returns whichever is given."""
    if pad_size is not None and square is not None:
        raise ValueError(
            'KeepAspectRatioResizer: expected one of pad_to_max_dimension and pad_height with '
            'pad_width. Received: both.'
        )
    if pad_size is not None and min(pad_size) < 1:
        raise ValueError(
            'KeepAspectRatioResizer: pad_height and pad_width must both be positive, or both be '
            f'left out. Received: pad_height={pad_size[0]}, pad_width={pad_size[1]}.'
        )
    return pad_size or square


def _check_range(min_dimension_range: tuple[int, int] | None, max_dimension: int) -> None:
    low, high = min_dimension_range or (1, 1)
    if not 0 < low <= high <= max_dimension:
        raise ValueError(
            'KeepAspectRatioResizer: min_dimension_range needs a positive min, at most its max, '
            f'which is at most max_dimension ({max_dimension}). Received: min={low}, max={high}.'
        )
