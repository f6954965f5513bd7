"""Stretches every image to one size."""

from object_detection.resizers.resizer import BILINEAR, Resizer, Size


class FixedShapeResizer(Resizer):
    """Resizes to `height` x `width`, whatever the aspect ratio.

    Raises:
      ValueError: if a size is not positive.
    """

    def __init__(
        self,
        *,
        height: int,
        width: int,
        method: str = BILINEAR,
        convert_to_grayscale: bool = False,
    ):
        super().__init__(method=method, convert_to_grayscale=convert_to_grayscale)
        if height < 1 or width < 1:
            raise ValueError(
                'FixedShapeResizer: height and width must be positive. '
                f'Received: height={height}, width={width}.'
            )
        self._size = (height, width)

    def resized_size(self, height: Size, width: Size) -> tuple[Size, Size]:
        return self._size

    @property
    def static_shape(self) -> tuple[int, int, int]:
        return (*self._size, self._output_channels())
