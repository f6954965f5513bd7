"""Checks of values in files of strangers; errors name the file, the record and the field."""

import math
from typing import Any, NoReturn

from object_detection.errors import DataError

# Annotation files of whole data sets have gigabytes.
MAX_BYTES = 4 << 30
_MAX_SHOWN = 100  # characters


class FieldError(Exception):
    """A field of a record cannot be used; whoever knows the record raises it as `DataError`.

    Attributes:
      field: name of the field.
      expected: what it should be.
      received: its value, or `ABSENT`.
    """

    def __init__(self, field: str, expected: str, received: Any):
        super().__init__(field)
        self.field, self.expected, self.received = field, expected, received


ABSENT = object()


def fail(path: str, record: str, error: FieldError) -> NoReturn:
    """Raises the error of a record, such as 'entry 3', of a file."""
    if error.received is ABSENT:
        shown = 'nothing'
    else:
        shown = repr(error.received)
        shown = shown if len(shown) <= _MAX_SHOWN else f'{shown[:_MAX_SHOWN]}...'
    raise DataError(
        f'{path}, {record}: {error.field}: expected {error.expected}. Received: {shown}.'
    ) from error


def number(value: Any, field: str, expected: str = 'a finite number') -> float:
    """Returns a JSON number as float."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            as_float = float(value)
        except OverflowError:
            as_float = math.inf
        if math.isfinite(as_float):
            return as_float
    raise FieldError(field, expected, value)


def text_number(value: str, field: str, expected: str = 'a finite number') -> float:
    """Returns the number that a text says."""
    try:
        as_float = float(value)
    except ValueError:
        as_float = math.nan
    if math.isfinite(as_float):
        return as_float
    raise FieldError(field, expected, value)


def box(value: Any, field: str = 'bbox') -> tuple[float, float, float, float]:
    """Returns COCO's box [x, y, width, height]; width and height may be 0."""
    expected = 'four finite numbers, [x, y, width, height], the last two at least 0'
    if not isinstance(value, list) or len(value) != 4:
        raise FieldError(field, expected, value)
    try:
        x, y, width, height = [number(side, field) for side in value]
    except FieldError:
        raise FieldError(field, expected, value) from None
    if width < 0 or height < 0 or not math.isfinite(width * height):
        raise FieldError(field, expected, value)
    return x, y, width, height


def corners(sides: dict[str, str]) -> tuple[float, float, float, float]:
    """Returns (ymin, xmin, ymax, xmax) of texts by the names of the fields, in this order."""
    ymin, xmin, ymax, xmax = [text_number(text, name) for name, text in sides.items()]
    low_y, low_x, *highs = sides
    if ymax < ymin:
        raise FieldError(highs[0], f'at least {low_y}, {ymin:g}', ymax)
    if xmax < xmin:
        raise FieldError(highs[1], f'at least {low_x}, {xmin:g}', xmax)
    return ymin, xmin, ymax, xmax
