"""Reads the segmentations of COCO annotations and writes masks as PNG."""

import io
import zlib
from typing import Any

import numpy as np
from PIL import Image
from pycocotools import mask as coco_mask

from object_detection.dataset_tools.unusable import UnusableError


def decode(segmentation: Any, height: int, width: int) -> np.ndarray:
    """Returns a segmentation as a mask uint8 [height, width] of 0 and 1.

    Args:
      segmentation: polygons, [[x, y, x, y, ...], ...], or run lengths {'size', 'counts'},
        compressed or not. Polygons of less than three corners enclose nothing and are passed over.
      height: the image's height in pixels.
      width: the image's width in pixels.

    Raises:
      UnusableError: if it is anything else, or does not fit the image.
    """
    to_counts = _counts_of_run_lengths if isinstance(segmentation, dict) else _counts_of_polygons
    try:
        counts = np.array(to_counts(segmentation, height, width), np.int64)
        if counts.sum() != height * width or np.any(counts < 0):
            raise ValueError(f'run lengths do not add up to {height} x {width} pixels')
    except (TypeError, ValueError, KeyError, OverflowError) as error:
        raise UnusableError('bad_mask', f'segmentation cannot be read: {error}') from error
    # Runs go down the columns; the first is of zeros.
    runs = np.arange(len(counts), dtype=np.uint8) % 2
    return np.repeat(runs, counts).reshape(width, height).T


def to_png(mask: np.ndarray) -> bytes:
    """Returns a mask uint8 [H, W] as a PNG file of one channel, values unchanged."""
    file = io.BytesIO()
    # Masks are runs of equal pixels: more than twice as fast as the default, and no larger.
    Image.fromarray(mask).save(file, 'PNG', compress_type=zlib.Z_RLE)
    return file.getvalue()


def _counts_of_run_lengths(segmentation: dict[str, Any], height: int, width: int) -> list[int]:
    size, counts = list(segmentation['size']), segmentation['counts']
    if size != [height, width]:
        raise ValueError(f'run lengths are for {size}, the image is {[height, width]}')
    return counts if isinstance(counts, list) else _decompress(counts)


def _counts_of_polygons(segmentation: Any, height: int, width: int) -> list[int]:
    polygons = [np.asarray(polygon, np.float64) for polygon in segmentation or []]
    polygons = [polygon for polygon in polygons if polygon.size >= 6]
    if not polygons:
        raise ValueError('there is no polygon')
    limits = np.array([width, height])
    for polygon in polygons:
        points = polygon.reshape(-1, 2)
        # The rasteriser walks along every edge, however far it leads.
        if not np.all((points >= -limits) & (points <= 2 * limits)):
            raise ValueError('a polygon reaches farther beyond the image than its size')
    parts = coco_mask.frPyObjects([polygon.tolist() for polygon in polygons], height, width)
    return _decompress(coco_mask.merge(parts)['counts'])


def _decompress(counts: str | bytes) -> list[int]:
    """Returns the numbers in COCO's string of run lengths.

    A number takes one or more letters of five bits from 48 on, lowest first; 32 says that more
    follow, and 16 in the last one that it is negative. From the fourth on, numbers are differences
    to the last but one. (`rleFrString` of https://github.com/cocodataset/cocoapi does the same, but
    its Python binding warns under NumPy 2.)
    """
    numbers: list[int] = []
    value = shift = 0
    for code in counts.encode() if isinstance(counts, str) else counts:
        bits = code - 48
        value |= (bits & 31) << shift
        shift += 5
        if bits & 32:
            continue
        if bits & 16:
            value -= 1 << shift
        numbers.append(value + numbers[-2] if len(numbers) > 2 else value)
        value = shift = 0
    return numbers
