"""Reads the segmentations of COCO annotations and writes masks as PNG."""

import contextlib
import struct
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from pycocotools import mask as coco_mask

from object_detection.errors import UnusableError, UserError

# Of one number; they fill 60 bits.
_MAX_LETTERS = 12
# Bytes of a text of run lengths that is read faster without NumPy.
_SHORT = 64
# The rasteriser takes about 120 bytes for each pixel that the edges of an object's polygons are
# long; the outlines of a whole city map are shorter than this.
_MAX_OUTLINE = 1_000_000
# Of a polygon: three corners.
_MIN_NUMBERS = 6
# pycocotools counts in 32 bits.
_MAX_PIXELS = 2**31 - 1
_PNG_START = b'\x89PNG\r\n\x1a\n'


def run_lengths(segmentation: Any, height: int, width: int) -> np.ndarray:
    """Returns the lengths of the runs of 0 and 1 in a mask, int64 [n].

    Runs go down the columns; the first run is of zeros. Their sum is `height` * `width`.

    Args:
      segmentation: polygons, [[x, y, x, y, ...], ...], or run lengths {'size', 'counts'},
        compressed or not. Polygons with less than three corners are ignored, see `num_ignored`;
        one polygon may lack the outer list, and corners may be lists, [x, y].
      height: the image's height in pixels.
      width: the image's width in pixels.

    Raises:
      UnusableError: if it has another form, or does not fit the image.
    """
    to_counts = _counts_of_run_lengths if isinstance(segmentation, dict) else _counts_of_polygons
    with _errors_as_unusable():
        return to_counts(segmentation, height, width)


def num_ignored(segmentation: Any) -> int:
    """Returns the number of polygons with less than three corners of a usable segmentation."""
    if isinstance(segmentation, dict):
        return 0
    return sum(np.size(polygon) < _MIN_NUMBERS for polygon in _nested(segmentation))


def is_drawn(segmentation: Any) -> bool:
    """Whether a segmentation is run lengths, or has a polygon with three corners."""
    is_empty = num_ignored(segmentation) == len(_nested(segmentation))
    return isinstance(segmentation, dict) or not is_empty


def check(segmentation: Any, height: int, width: int) -> None:
    """Raises the errors of `run_lengths` without rasterising polygons."""
    to_shape = _counts_of_run_lengths if isinstance(segmentation, dict) else _polygons
    with _errors_as_unusable():
        to_shape(segmentation, height, width)


def encode(segmentation: Any, height: int, width: int) -> bytes:
    """Returns the counts of a segmentation in COCO's compressed form; see `run_lengths`."""
    if not isinstance(segmentation, dict):
        with _errors_as_unusable():
            return _merged_polygons(segmentation, height, width)
    counts = run_lengths(segmentation, height, width)
    if np.any(counts[1:] == 0):
        # pycocotools stops comparing two masks after an empty run that both contain.
        return coco_mask.encode(np.asfortranarray(fill(counts, height)))['counts']
    runs = {'counts': counts.tolist(), 'size': [height, width]}
    return coco_mask.frPyObjects(runs, height, width)['counts']


def decode(segmentation: Any, height: int, width: int) -> np.ndarray:
    """Returns a segmentation as a mask uint8 [height, width] of 0 and 1; see `run_lengths`."""
    return fill(run_lengths(segmentation, height, width), height)


def fill(counts: np.ndarray, height: int) -> np.ndarray:
    """Returns run lengths of whole columns, int64 [n], as a mask uint8 [height, W] of 0 and 1."""
    runs = np.arange(len(counts), dtype=np.uint8) % 2
    return np.repeat(runs, counts).reshape(-1, height).T


def to_png(mask: np.ndarray) -> bytes:
    """Returns a mask, bool or uint8 [H, W], as a PNG file: black, and white where it is not 0.

    A pixel has one bit, so that files are written and read several times as fast as those of a byte
    a pixel; readers of records take all that is not black for the object.
    """
    return _png(np.packbits(mask, axis=1), 0, mask.shape[1])


def runs_to_png(counts: np.ndarray, height: int, width: int) -> bytes:
    """Returns run lengths, int64 [n], as of `run_lengths`, as a PNG file, see `to_png`."""
    return _png(*_packed_columns(counts, height), width)


def _packed_columns(counts: np.ndarray, height: int) -> tuple[np.ndarray, int]:
    """Returns the columns with pixels of 1, eight in a byte, and the number of the first byte.

    Args:
      counts: run lengths, int64 [n].
      height: the mask's height.

    Returns:
      (uint8 [height, n], number of the first byte in a row).
    """
    # An odd number of runs ends with zeros.
    ends = np.cumsum(counts)[: len(counts) // 2 * 2]
    if not len(ends) or ends[-1] <= ends[0]:
        return np.zeros((height, 0), np.uint8), 0
    start, end = ends[0] // height // 8, -(-ends[-1] // height // 8)
    # A pixel differs from the one above it where a run ends; the first row is known by itself.
    changes = np.zeros((height, end - start), np.uint8)
    tops = np.arange(8 * start, 8 * end) * height
    changes[0] = np.packbits((np.searchsorted(ends, tops, side='right') % 2).astype(np.uint8))
    columns, rows = np.divmod(ends, height)
    columns, rows = columns[rows > 0], rows[rows > 0]
    places = rows * (end - start) + columns // 8 - start
    np.bitwise_xor.at(changes.reshape(-1), places, (128 >> columns % 8).astype(np.uint8))
    return np.bitwise_xor.accumulate(changes, axis=0), start


def _png(content: np.ndarray, start: int, width: int) -> bytes:
    """Returns a grey PNG file of one bit a pixel without PIL, which tries all filters of PNG.

    Args:
      content: bytes of each row, uint8 [height, n]; those before and after them are 0.
      start: place of the first of them in a row.
      width: pixels in a row.
    """
    height = len(content)
    # Each row begins with the number of its filter.
    rows = np.zeros((height, 1 + -(-width // 8)), np.uint8)
    rows[:, 1 + start :][:, : content.shape[1]] = content
    # Compression of runs alone is the fastest for masks, and their files are no larger.
    compressor = zlib.compressobj(1, strategy=zlib.Z_RLE)
    data = compressor.compress(rows.data) + compressor.flush()
    header = struct.pack('>IIBBBBB', width, height, 1, 0, 0, 0, 0)
    chunks = ((b'IHDR', header), (b'IDAT', data), (b'IEND', b''))
    return _PNG_START + b''.join(_chunk(name, part) for name, part in chunks)


def _chunk(name: bytes, content: bytes) -> bytes:
    checksum = zlib.crc32(content, zlib.crc32(name))
    return struct.pack('>I', len(content)) + name + content + struct.pack('>I', checksum)


@contextlib.contextmanager
def _errors_as_unusable() -> Iterator[None]:
    try:
        yield
    except (TypeError, ValueError, KeyError, OverflowError) as error:
        raise UnusableError('bad_mask', f'segmentation cannot be read: {error}') from error


def _counts_of_run_lengths(segmentation: dict[str, Any], height: int, width: int) -> np.ndarray:
    _check_size(height, width)
    size, counts = list(segmentation['size']), segmentation['counts']
    if size != [height, width]:
        raise UserError(f'run lengths are for {size}, the image is {[height, width]}')
    counts = np.array(counts, np.int64) if isinstance(counts, list) else _decompress(counts)
    if counts.ndim != 1:
        raise UserError('run lengths are no list of numbers')
    # The maximum is checked first, since a sum of large numbers would wrap around.
    is_possible = counts.min(initial=0) >= 0 and counts.max(initial=0) <= height * width
    if not is_possible or counts.sum() != height * width:
        raise UserError(f'run lengths do not add up to {height} x {width} pixels')
    return counts


def _counts_of_polygons(segmentation: Any, height: int, width: int) -> np.ndarray:
    return _decompress(_merged_polygons(segmentation, height, width))


def _merged_polygons(segmentation: Any, height: int, width: int) -> bytes:
    parts = coco_mask.frPyObjects(_polygons(segmentation, height, width), height, width)
    return (parts[0] if len(parts) == 1 else coco_mask.merge(parts))['counts']


def _polygons(segmentation: Any, height: int, width: int) -> list[np.ndarray]:
    _check_size(height, width)
    polygons = [np.asarray(polygon, np.float64) for polygon in _nested(segmentation)]
    # Some programs write points, [[x, y], ...].
    polygons = [polygon.ravel() if polygon.shape[1:] == (2,) else polygon for polygon in polygons]
    polygons = [polygon for polygon in polygons if polygon.size >= _MIN_NUMBERS]
    if not polygons or any(polygon.ndim > 1 or len(polygon) % 2 for polygon in polygons):
        raise UserError(
            'expected a list of polygons, [[x, y, x, y, ...], ...], of at least three corners '
            f'each, received {_said(segmentation)}'
        )
    limits = np.array([width, height])
    corners = [polygon.reshape(-1, 2) for polygon in polygons]
    for points in corners:
        # The rasteriser follows every edge, no matter how far it extends.
        if not np.all((points >= -limits) & (points <= 2 * limits)):
            raise UserError('a polygon reaches farther beyond the image than its size')
    # Edges are only measured where they could be too long.
    if 3 * max(height, width) * sum(map(len, corners)) > _MAX_OUTLINE:
        outline = sum(map(_outline, corners))
        if outline > _MAX_OUTLINE:
            text = f'its edges are {outline:.0f} pixels long; expected at most {_MAX_OUTLINE}'
            raise UserError(text)
    return polygons


def _outline(points: np.ndarray) -> float:
    """Returns the pixels along the edges of a polygon, corners [n, 2]."""
    return np.abs(points - np.roll(points, 1, axis=0)).max(axis=1).sum()


def _nested(segmentation: Any) -> list[Any]:
    """Returns the polygons of a segmentation; one that is no list of polygons is one polygon."""
    if not isinstance(segmentation, list):
        return []
    are_numbers = all(isinstance(item, int | float) for item in segmentation)
    are_points = len(segmentation) > 2 and all(
        isinstance(item, list) and len(item) == 2 for item in segmentation
    )
    return [segmentation] if segmentation and (are_numbers or are_points) else segmentation


def _said(segmentation: Any) -> str:
    """Describes what is no list of polygons."""
    is_box = isinstance(segmentation, list) and [*map(np.size, segmentation)] == [4]
    text = str(segmentation)[:100]
    return f'the four numbers of a box: {text}' if is_box else text


def _check_size(height: int, width: int) -> None:
    if not 0 < height * width <= _MAX_PIXELS:
        raise UserError(f'the image has {height} x {width} pixels')


def _decompress(counts: str | bytes) -> np.ndarray:
    """Returns the numbers in COCO's string of run lengths, int64 [n].

    A number consists of one or more characters, each five bits plus 48, lowest bits first; 32 means
    that more follow, and 16 in the last one that the number is negative. From the fourth number on,
    numbers are differences to the second last one. (`rleFrString` of
    https://github.com/cocodataset/cocoapi does the same, but its Python binding warns under NumPy
    2.)
    """
    text = counts.encode() if isinstance(counts, str) else counts
    if len(text) <= _SHORT:
        return np.array(_decompress_short(text), np.int64)
    bits = np.frombuffer(text, np.uint8).astype(np.int64) - 48
    ends = np.flatnonzero((bits & 32) == 0)
    if not len(ends):
        return np.zeros(0, np.int64)
    bits = bits[: ends[-1] + 1]
    starts = np.concatenate([[0], ends[:-1] + 1])
    places = np.arange(len(bits)) - np.repeat(starts, ends - starts + 1)
    if places.max() >= _MAX_LETTERS:
        raise UserError('a run length is far too long')
    numbers = np.add.reduceat((bits & 31) << (5 * places), starts)
    is_negative = (bits[ends] & 16) >> 4
    numbers -= is_negative << (5 * (places[ends] + 1))
    for parity in (1, 2):
        numbers[parity::2] = np.cumsum(numbers[parity::2])
    return numbers


def _decompress_short(text: bytes) -> list[int]:
    """Returns the numbers of a short text, see `_decompress`."""
    numbers: list[int] = []
    number = place = 0
    for letter in text:
        bits = letter - 48
        number |= (bits & 31) << (5 * place)
        place += 1
        if bits & 32:
            continue
        if place > _MAX_LETTERS:
            raise UserError('a run length is far too long')
        if bits & 16:
            number -= 1 << (5 * place)
        numbers.append(number + (numbers[-2] if len(numbers) > 2 else 0))
        number = place = 0
    return numbers
