"""Pads images until both sides are multiples of a number."""

from object_detection.resizers.resizer import Resizer, Size


class PadToMultipleResizer(Resizer):
    """Keeps the scale and pads with zeros to the next multiple of `multiple`.

    Raises:
      ValueError: if `multiple` is not positive.
    """

    def __init__(self, *, multiple: int, convert_to_grayscale: bool = False):
        super().__init__(convert_to_grayscale=convert_to_grayscale)
        if multiple < 1:
            raise ValueError(
                f'PadToMultipleResizer: multiple must be positive. Received: {multiple}.'
            )
        self._multiple = multiple

    def resized_size(self, height: Size, width: Size) -> tuple[Size, Size]:
        return height, width

    def padded_size(self, height: Size, width: Size) -> tuple[Size, Size]:
        return tuple(-(-side // self._multiple) * self._multiple for side in (height, width))
