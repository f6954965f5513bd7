"""Resizers to a fixed size, to the size of the image itself, and to its next multiple.

Resizes only images that are too large or too small.
"""

import tensorflow as tf

from object_detection.core.shapes import round_up
from object_detection.errors import expected
from object_detection.resizers.resizer import BILINEAR, Resizer, Size


class FixedShapeResizer(Resizer):
    """Resizes to `height` x `width` without keeping the aspect ratio.

    Raises:
      ValueError: if a size is not positive.
    """

    def __init__(
        self,
        *,
        height: int,
        width: int,
        method: str = BILINEAR,
        half_pixel_centers: bool = False,
        convert_to_grayscale: bool = False,
    ):
        super().__init__(
            method=method,
            half_pixel_centers=half_pixel_centers,
            convert_to_grayscale=convert_to_grayscale,
        )
        if height < 1 or width < 1:
            raise expected('FixedShapeResizer', 'height and width above 0', f'{height} and {width}')
        self._size = (height, width)

    def resized_size(self, height: Size, width: Size) -> tuple[Size, Size]:
        return self._size

    @property
    def static_shape(self) -> tuple[int, int, int]:
        return (*self._size, self._output_channels())


class IdentityResizer(Resizer):
    """Keeps the size and only converts to float32."""

    def resized_size(self, height: Size, width: Size) -> tuple[Size, Size]:
        return height, width


class PadToMultipleResizer(Resizer):
    """Keeps the scale and pads with zeros to the next multiple of `multiple`.

    Raises:
      ValueError: if `multiple` is not positive.
    """

    def __init__(self, *, multiple: int, convert_to_grayscale: bool = False):
        super().__init__(convert_to_grayscale=convert_to_grayscale)
        if multiple < 1:
            raise expected('PadToMultipleResizer', 'a multiple above 0', multiple)
        self._multiple = multiple

    def resized_size(self, height: Size, width: Size) -> tuple[Size, Size]:
        return height, width

    def padded_size(self, height: Size, width: Size) -> tuple[Size, Size]:
        return tuple(round_up(side, self._multiple) for side in (height, width))


GREATER = 'greater'
SMALLER = 'smaller'


class ConditionalShapeResizer(Resizer):
    """Resizes images beyond a threshold to the threshold and keeps their aspect ratio.

    Args:
      condition: GREATER scales images whose longer side is above `size_threshold` down to it;
        SMALLER scales images whose shorter side is below `size_threshold` up to it.
      size_threshold: pixels.
      method, convert_to_grayscale: see `Resizer`. Corner pixels are aligned here.

    Raises:
      ValueError: if the condition is unknown or the threshold is not positive.
    """

    def __init__(
        self,
        *,
        condition: str,
        size_threshold: int,
        method: str = BILINEAR,
        convert_to_grayscale: bool = False,
    ):
        super().__init__(
            method=method, align_corners=True, convert_to_grayscale=convert_to_grayscale
        )
        if condition not in (GREATER, SMALLER):
            raise expected(
                'ConditionalShapeResizer: condition', f'{GREATER!r} or {SMALLER!r}', repr(condition)
            )
        if size_threshold < 1:
            raise expected('ConditionalShapeResizer', 'a size_threshold above 0', size_threshold)
        self._condition = condition
        self._size_threshold = size_threshold

    def resized_size(self, height: Size, width: Size) -> tuple[Size, Size]:
        if self._condition == GREATER:
            side = tf.maximum(height, width)
            target = tf.minimum(side, self._size_threshold)
        else:
            side = tf.minimum(height, width)
            target = tf.maximum(side, self._size_threshold)
        # Integers make the side in question equal to the threshold exactly; fractions of a pixel
        # are cut off, not rounded, as in the reference.
        return tuple(tf.maximum(length * target // side, 1) for length in (height, width))
