"""What formats share that draw objects: masks in image files, polygons, and JSON files."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from object_detection.data import annotation_checks
from object_detection.data.annotated_image import AnnotatedObject, ClassLabel
from object_detection.data.coco import masks as coco_masks
from object_detection.data.file_access import Files
from object_detection.data.image_files import ImageFile
from object_detection.errors import UnusableError

# Limits of the files of one image.
MAX_JSON = 64 << 20
MAX_MASK_FILE = 256 << 20
MAX_POINTS = 100_000


def of_mask(
    label: ClassLabel, mask: np.ndarray, file: ImageFile, *, is_crowd: int = 0, rasterize: bool
) -> AnnotatedObject:
    """Returns the object that a mask, bool [H, W], shows; its box encloses it.

    Raises:
      UnusableError: if the mask has another size than the image, or no pixel.
    """
    if mask.shape != (file.height, file.width):
        raise UnusableError(
            'bad_mask',
            f'the mask is {mask.shape[0]} pixels high and {mask.shape[1]} wide; '
            f'the image is {file.height} and {file.width}',
        )
    rows, columns = (np.flatnonzero(mask.any(axis)) for axis in (1, 0))
    if not len(rows):
        raise UnusableError('bad_mask', 'the mask has no pixel')
    box = rows[0] / file.height, columns[0] / file.width
    box += (rows[-1] + 1) / file.height, (columns[-1] + 1) / file.width
    encoded = coco_masks.to_png(mask.astype(np.uint8)) if rasterize else b''
    area = float(np.count_nonzero(mask))
    return AnnotatedObject(label, tuple(map(float, box)), area, is_crowd=is_crowd, mask=encoded)


def of_polygons(
    label: ClassLabel,
    polygons: Sequence[np.ndarray],
    file: ImageFile,
    *,
    masks: bool,
    rasterize: bool,
    details: Mapping[str, Any] | None = None,
) -> AnnotatedObject:
    """Returns the object within polygons, float64 [n, 2] of (x, y) in pixels.

    Args:
      label: label of its class.
      polygons: its parts.
      file: the image's size.
      masks: whether it gets a mask.
      rasterize: false checks the mask without making it.
      details: see `AnnotatedObject`.

    Raises:
      UnusableError: if a polygon has less than three corners, or the box cannot be used.
    """
    if not polygons or min(len(polygon) for polygon in polygons) < 3:
        raise UnusableError('bad_mask', 'a polygon has less than three corners')
    corners = np.concatenate(polygons)
    (xmin, ymin), (xmax, ymax) = corners.min(0).tolist(), corners.max(0).tolist()
    checked = annotation_checks.check_box(ymin, xmin, ymax, xmax, file)
    mask = b''
    if masks:
        flat = [polygon.ravel().tolist() for polygon in polygons]
        coco_masks.check(flat, file.height, file.width)
        if rasterize:
            counts = coco_masks.run_lengths(flat, file.height, file.width)
            mask = coco_masks.runs_to_png(counts, file.height, file.width)
    return AnnotatedObject(
        label,
        checked.box,
        sum(map(_area, polygons)),
        checked.is_clipped,
        mask=mask,
        details=details or {},
    )


def of_box(
    label: ClassLabel,
    corners: Sequence[float],
    file: ImageFile,
    *,
    masks: bool = False,
    rasterize: bool = True,
    details: Mapping[str, Any] | None = None,
) -> AnnotatedObject:
    """Returns the object in a box (xmin, ymin, xmax, ymax), in pixels; its mask is the box.

    Raises:
      UnusableError: if the box cannot be used.
    """
    xmin, ymin, xmax, ymax = corners
    if masks:
        rectangle = np.array([(xmin, ymin), (xmax, ymin), (xmax, ymax), (xmin, ymax)])
        annotation_checks.check_box(ymin, xmin, ymax, xmax, file)
        return of_polygons(
            label, [rectangle], file, masks=True, rasterize=rasterize, details=details
        )
    checked = annotation_checks.check_box(ymin, xmin, ymax, xmax, file)
    area = (ymax - ymin) * (xmax - xmin)
    return AnnotatedObject(label, checked.box, area, checked.is_clipped, details=details or {})


def points(value: Any, name: str) -> np.ndarray:
    """Returns a list of points of JSON, [[x, y], ...], as float64 [n, 2].

    Raises:
      UnusableError: if it is no such list, has infinite numbers or too many points.
    """
    if not isinstance(value, list) or len(value) > MAX_POINTS:
        raise UnusableError('bad_points', f'{name} must be at most {MAX_POINTS} points')
    try:
        found = np.array([(float(x), float(y)) for x, y in value]).reshape(-1, 2)
    except (TypeError, ValueError, OverflowError) as error:
        raise UnusableError(
            'bad_points', f'{name} must be pairs of numbers, is {str(value)[:100]}'
        ) from error
    if not np.isfinite(found).all():
        raise UnusableError('bad_points', f'{name} must be finite, is {str(value)[:100]}')
    return found


def number(value: Any, name: str) -> float:
    """Returns a number of JSON or of text.

    Raises:
      UnusableError: if it is none, or not finite.
    """
    try:
        found = float(value)
    except (TypeError, ValueError, OverflowError):
        found = math.nan
    if isinstance(value, bool) or not math.isfinite(found):
        raise UnusableError('bad_box', f'{name} must be a finite number, is {str(value)[:100]!r}')
    return found


def side(value: Any, name: str) -> int | None:
    """Returns a stated side of an image; None if it is absent or 0.

    Raises:
      UnusableError: if it is not a whole number.
    """
    found = number(value or 0, name)
    if found != int(found) or found < 0:
        raise UnusableError('bad_annotations', f'{name} must be a whole number, is {found}')
    return int(found) or None


def read_json(path: str, files: Files, limit: int = MAX_JSON) -> Any:
    """Returns the content of a JSON file.

    Raises:
      OSError: if it cannot be read, or has more bytes than the limit.
      UnusableError: if it is not JSON, or too deeply nested.
    """
    try:
        return json.loads(files.read(path, limit))
    except (ValueError, RecursionError) as error:
        raise UnusableError('bad_annotations', f'{path} is not a JSON file: {error}') from error


def _area(polygon: np.ndarray) -> float:
    """Returns the area of a polygon, [n, 2], in square pixels."""
    following = np.roll(polygon, -1, axis=0)
    cross = polygon[:, 0] * following[:, 1] - following[:, 0] * polygon[:, 1]
    return float(abs(cross.sum()) / 2)
