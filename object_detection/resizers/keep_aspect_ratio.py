"""Fits images into a box without changing their aspect ratio."""

import tensorflow as tf

from object_detection.resizers.resizer import BILINEAR, Resizer, Size


class KeepAspectRatioResizer(Resizer):
    """Scales an image to the largest size that fits `min_dimension` x `max_dimension`.

    The longer side of that box lies along the longer side of the image.

    Args:
      min_dimension, max_dimension: pixels.
      pad_to_max_dimension: pad to `max_dimension` x `max_dimension`, so that all outputs are of
        one size.
      method, convert_to_grayscale, pad_values: see `Resizer`.

    Raises:
      ValueError: if the dimensions are not positive or in the wrong order, or pad values are
        given but not one for each of the three channels.
    """

    def __init__(
        self,
        *,
        min_dimension: int,
        max_dimension: int,
        pad_to_max_dimension: bool = False,
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
        self._min_dimension = min_dimension
        self._max_dimension = max_dimension
        self._pad_to_max_dimension = pad_to_max_dimension

    def resized_size(self, height: Size, width: Size) -> tuple[Size, Size]:
        size = tf.cast(tf.stack([height, width]), tf.float32)
        low, high = float(self._min_dimension), float(self._max_dimension)
        limits = tf.where(height < width, [low, high], [high, low])
        # tf.round takes halves to the even number, as the reference does.
        resized = tf.cast(tf.round(tf.reduce_min(limits / size) * size), tf.int32)
        resized = tf.maximum(resized, 1)
        return resized[0], resized[1]

    def padded_size(self, height: Size, width: Size) -> tuple[Size, Size]:
        if self._pad_to_max_dimension:
            return self._max_dimension, self._max_dimension
        return height, width

    @property
    def static_shape(self) -> tuple[int, int, int] | None:
        if not self._pad_to_max_dimension:
            return None
        return self._max_dimension, self._max_dimension, self._output_channels()
