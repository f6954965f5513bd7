"""Reads the JSON of requests whose size is known before objects are made of it.

Python's objects for a text of short values take forty times its size. The images of a request are
therefore read some rows at a time into arrays, and what is left may hold few values.

Imports no TensorFlow.
"""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from object_detection.errors import UserError
from object_detection.serving.limits import RequestError

# Reading takes so many bytes for each byte of a body: its text, and the strings or arrays.
BYTES_PER_BYTE = 4
# More values than requests have besides the pixels: for each image, and for all.
_VALUES_PER_IMAGE, _VALUES = 16, 64
# Characters that are read together: whole rows, and at most the longest row.
_PIECE, _MAX_ROW = 2**16, 2**20
_IMAGE = re.compile(r'\[[ \t\r\n]*+(?=\[[ \t\r\n]*+\[[ \t\r\n]*+[-0-9])')
_ROW_END = re.compile(r'\][ \t\r\n]*+\](?=[ \t\r\n]*+(\]?))')
_NUMBERS = re.compile(r'[][0-9,.eE+ \t\r\n-]*')
_AFTER_ROW = re.compile(r'[ \t\r\n]*+([],])[ \t\r\n]*+')
# JSON has no such value: in the text without its images it stands for one.
_PLACE = 'NaN'

AsPixels = Callable[[np.ndarray], np.ndarray]


def read(body: bytes, status: int, max_images: int, as_pixels: AsPixels | None = None) -> Any:
    """Returns the value of JSON text.

    Args:
      body: the text.
      status: that of errors of its form.
      max_images: most images.
      as_pixels: from rows of an image, numbers [H, W, C], to the same in the dtype of images; it
        raises RequestError for other values. Lists [H, W, C] of numbers then become arrays. None
        expects no numbers.

    Raises:
      RequestError: with `status` for other text, and 413 for more values than the images need.
    """
    try:
        text = body.decode(json.detect_encoding(body))
        rest = _Rest(text, max_images, as_pixels)
        places = iter(rest.images)
        return json.loads(rest.text, parse_constant=lambda name: _image_at(name, places))
    except RequestError:
        raise
    except (ValueError, RecursionError) as error:
        raise RequestError(status, f'JSON Parse error: {error}') from error


def _image_at(name: str, places: Iterator[np.ndarray]) -> np.ndarray:
    image = next(places, None)
    if image is None:
        raise UserError(f'{name} is no number')
    return image


class _Rest:
    """A text without its images.

    Args:
      text, max_images, as_pixels: see `read`.

    Attributes:
      images: the images in order.
      text: what is left, with a place for each.
    """

    def __init__(self, text: str, max_images: int, as_pixels: AsPixels | None):
        self.images: list[np.ndarray] = []
        self._max_images, self._count = max_images, 0
        if as_pixels is None:
            self._add(text)
            self.text = text
            return
        parts, end, has_constants = [], 0, False
        while end < len(text):
            # No beginning of an image has a comma.
            stop = text.rfind(',', end, end + _MAX_ROW) + 1 or end + _MAX_ROW
            found = _IMAGE.search(text, end, stop)
            parts.append(text[end : found.start() if found else stop])
            self._add(parts[-1])
            has_constants |= _PLACE in parts[-1] or 'Infinity' in parts[-1]
            end = stop
            if found:
                self._check_room()
                image, end = _read_image(text, found.end(), as_pixels)
                self.images.append(image)
                parts.append(_PLACE)
        if has_constants and self.images:
            raise UserError('NaN and Infinity are no numbers')
        self.text = ''.join(parts)

    def _check_room(self) -> None:
        if len(self.images) == self._max_images:
            raise RequestError(413, f'expected at most {self._max_images} images. Received: more.')

    def _add(self, part: str) -> None:
        self._count += sum(map(part.count, '[{",:'))
        most = _VALUES_PER_IMAGE * self._max_images + _VALUES
        if self._count > most:
            raise RequestError(
                413,
                f'expected at most {self._max_images} images. Received: {self._count} brackets, '
                'quotes and commas or more outside lists [height][width][3] of numbers; expected '
                f'at most {most}.',
            )


def _read_image(text: str, start: int, as_pixels: AsPixels) -> tuple[np.ndarray, int]:
    """Reads an image, whose first row begins at `start`; returns it and where it ends."""
    pixels, shape = bytearray(), None
    while True:
        rows, start = _read_rows(text, start)
        if rows.ndim != 3 or shape not in (None, rows.shape[1:]):
            raise RequestError(400, _RAGGED)
        rows, shape = as_pixels(rows), rows.shape[1:]
        pixels += rows.tobytes()
        after = _AFTER_ROW.match(text, start)
        if after is None:
            raise UserError(f'expected "," or "]" after a row: char {start}')
        if after[1] == ']':
            return np.frombuffer(pixels, rows.dtype).reshape(-1, *shape), after.end(1)
        start = after.end()


def _read_rows(text: str, start: int) -> tuple[np.ndarray, int]:
    """Reads the first rows of what is left of an image; returns [H, W, C] and where they end."""
    end = _end_of_rows(text, start)
    if not _NUMBERS.fullmatch(text, start, end):
        raise RequestError(400, 'expected pixels of numbers. Received: other values.')
    try:
        rows = json.loads(f'[{text[start:end]}]')
    except json.JSONDecodeError as error:
        message = f'{error.msg}, or lists of several depths: char {start + error.pos - 1}'
        raise UserError(message) from error
    try:
        return np.array(rows), end
    except ValueError as error:
        raise RequestError(400, _RAGGED) from error


def _end_of_rows(text: str, start: int) -> int:
    end = None
    for found in _ROW_END.finditer(text, start, start + _MAX_ROW):
        if end is not None and found.end() > start + _PIECE:
            break
        end = found.end()
        if found[1]:  # The image ends, too.
            break
    if end is not None:
        return end
    if len(text) <= start + _MAX_ROW:
        raise UserError('a list has no end')
    raise RequestError(
        413, f'expected rows of an image within {_MAX_ROW} characters. Received: a longer one.'
    )


_RAGGED = 'expected images of one size. Received: lists of several lengths.'
