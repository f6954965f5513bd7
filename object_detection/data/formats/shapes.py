"""What formats share that draw objects: masks in image files, polygons, groups, and JSON files."""

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from object_detection.data import annotation_checks
from object_detection.data.annotated_image import AnnotatedObject, ClassLabel
from object_detection.data.annotation_notes import JOINED_OBJECTS, JOINED_SHAPES, SEPARATE_SHAPES
from object_detection.data.coco import masks as coco_masks
from object_detection.data.formats import outlines
from object_detection.data.formats.source import option
from object_detection.data.image_files import ImageFile
from object_detection.errors import UnusableError, UserError

# Limits of the files of one image.
MAX_JSON = 64 << 20
MAX_MASK_FILE = 256 << 20
MAX_POINTS = 100_000
_ELLIPSE_CORNERS = 64
# Which groups of shapes are objects, see `groups_option`.
OUTLINES, ALL, NONE = 'outlines', 'all', 'none'


def of_box(
    label: ClassLabel,
    corners: Sequence[float],
    file: ImageFile,
    said: str = '',
    details: Mapping[str, Any] | None = None,
) -> AnnotatedObject:
    """Returns the object in a box, (ymin, xmin, ymax, xmax) in pixels.

    Raises:
      UnusableError: as `annotation_checks.check_box`, which says what `said` is.
    """
    ymin, xmin, ymax, xmax = corners
    box, is_clipped = annotation_checks.check_box(*corners, file, said)
    area = (ymax - ymin) * (xmax - xmin)
    return AnnotatedObject(label, box, area, is_clipped, details=details or {})


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
            f'the mask is {mask.shape} (height, width); the image is {(file.height, file.width)}',
        )
    rows, columns = (np.flatnonzero(mask.any(axis)) for axis in (1, 0))
    if not len(rows):
        raise UnusableError('bad_mask', 'the mask has no pixel')
    box = rows[0] / file.height, columns[0] / file.width
    box += (rows[-1] + 1) / file.height, (columns[-1] + 1) / file.width
    encoded = coco_masks.to_png(mask) if rasterize else b''
    area = float(np.count_nonzero(mask))
    return AnnotatedObject(label, tuple(map(float, box)), area, is_crowd=is_crowd, mask=encoded)


def resized(mask: np.ndarray, file: ImageFile) -> np.ndarray:
    """Returns a mask [h, w] in the size of its image, by the nearest pixels."""
    rows, columns = (
        (2 * np.arange(side) + 1) * old // (2 * side)
        for side, old in zip((file.height, file.width), mask.shape, strict=True)
    )
    return mask[rows[:, None], columns]


def of_parts(
    label: ClassLabel, parts: Sequence[np.ndarray], file: ImageFile, *, masks: bool, rasterize: bool
) -> AnnotatedObject:
    """Returns the object that parts are: polygons as of `of_polygons`, or masks, bool [H, W].

    Raises:
      UnusableError: as `of_polygons` and `of_mask`.
    """
    drawn = [part for part in parts if part.dtype == bool]
    polygons = [part for part in parts if part.dtype != bool]
    if not drawn:
        return of_polygons(label, polygons, file, masks=masks, rasterize=rasterize)
    if polygons:
        _check_corners(polygons)
        flat = [polygon.ravel().tolist() for polygon in polygons]
        drawn.append(coco_masks.decode(flat, file.height, file.width) > 0)
    whole = np.logical_or.reduce(drawn)
    return of_mask(label, whole, file, rasterize=masks and rasterize)


def of_polygons(
    label: ClassLabel,
    polygons: Sequence[np.ndarray],
    file: ImageFile,
    *,
    masks: bool = False,
    rasterize: bool = True,
    said: str = '',
) -> AnnotatedObject:
    """Returns the object within polygons, float64 [n, 2] of (x, y) in pixels.

    Args:
      label: label of its class.
      polygons: its parts.
      file: the image's size.
      masks: whether it gets a mask.
      rasterize: false checks the mask without making it.
      said: what the annotations say, for errors.

    Raises:
      UnusableError: if a polygon has less than three corners, or the box cannot be used.
    """
    _check_corners(polygons)
    corners = np.concatenate(polygons)
    (xmin, ymin), (xmax, ymax) = corners.min(0).tolist(), corners.max(0).tolist()
    box, is_clipped = annotation_checks.check_box(ymin, xmin, ymax, xmax, file, said)
    mask = b''
    if masks:
        flat = [polygon.ravel().tolist() for polygon in polygons]
        coco_masks.check(flat, file.height, file.width)
        if rasterize:
            counts = coco_masks.run_lengths(flat, file.height, file.width)
            mask = coco_masks.runs_to_png(counts, file.height, file.width)
    area = sum(abs(outlines.signed_area(polygon)) for polygon in polygons)
    return AnnotatedObject(label, box, area, is_clipped, mask=mask)


def _check_corners(polygons: Sequence[np.ndarray]) -> None:
    if min(map(len, polygons), default=0) < 3:
        raise UnusableError('bad_mask', 'a polygon has less than three corners')


def widened(item: AnnotatedObject, other: AnnotatedObject) -> AnnotatedObject:
    """Returns an object with a box around its own and that of another."""
    sides = np.array([item.box, other.box])
    box = (*sides[:, :2].min(0).tolist(), *sides[:, 2:].max(0).tolist())
    return item._replace(box=box, is_clipped=item.is_clipped or other.is_clipped)


def rectangle(xmin: float, ymin: float, xmax: float, ymax: float) -> np.ndarray:
    """Returns the corners of a box, float64 [4, 2].

    Raises:
      UnusableError: if a maximum is not above its minimum.
    """
    if xmax <= xmin or ymax <= ymin:
        raise UnusableError(
            'box_without_area', f'(ymin, xmin, ymax, xmax) is {(ymin, xmin, ymax, xmax)}'
        )
    return np.array([(xmin, ymin), (xmax, ymin), (xmax, ymax), (xmin, ymax)])


def ellipse(center: Sequence[float], radii: Sequence[float]) -> np.ndarray:
    """Returns corners on an ellipse, float64 [64, 2]; `center` and `radii` are (x, y)."""
    angles = np.arange(_ELLIPSE_CORNERS) * (2 * np.pi / _ELLIPSE_CORNERS)
    return center + radii * np.stack([np.cos(angles), np.sin(angles)], -1)


def rotated(points: np.ndarray, degrees: float, center: Sequence[float]) -> np.ndarray:
    """Turns points [n, 2], (x, y), clockwise around another."""
    if not degrees:
        return points
    cosine, sine = np.cos(np.radians(degrees)), np.sin(np.radians(degrees))
    return (points - center) @ np.array([[cosine, sine], [-sine, cosine]]) + center


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
        raise UnusableError('bad_points', f'{name}: not pairs: {str(value)[:100]}') from error
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


class Grouped(NamedTuple):
    """The annotations of an image.

    Attributes:
      annotations: (id of the first shape, its shapes) of each object.
      notes: number of shapes, by the keys above.
    """

    annotations: list[tuple[Any, list[Any]]]
    notes: dict[str, int]


def groups_option() -> Any:
    """Returns the option of a source that says which groups are joined."""
    return option(
        OUTLINES,
        'Shapes of one class and group that become one object: of groups with an outline '
        f'({OUTLINES}), also of groups of boxes ({ALL}), or none ({NONE}).',
    )


def check_groups(how: str) -> None:
    """Checks the value of the option.

    Raises:
      UserError: if it is unknown.
    """
    if how not in (OUTLINES, ALL, NONE):
        raise UserError(f'--groups: expected {OUTLINES}, {ALL} or {NONE}. Received: {how}.')


def grouped(
    found: Iterable[tuple[Any, Any]],
    key_of: Callable[[Any], Hashable | None],
    is_box: Callable[[Any], bool],
    how: str = ALL,
) -> Grouped:
    """Returns the objects that shapes are, in the order of their first shapes.

    Annotators group the parts of an object that something hides, and also boxes that only belong
    together, such as the persons of a family.

    Args:
      found: (id, shape) of each.
      key_of: returns what shapes of one object have in common, or None for a shape of no group.
      is_box: whether a shape is a box, and no outline.
      how: which groups are joined, see `groups_option`.
    """
    keyed = [(shape_id, shape, key_of(shape)) for shape_id, shape in found]
    members: dict[Hashable, list[Any]] = {}
    for _, shape, key in keyed:
        members.setdefault(key, []).append(shape)
    several = {key for key, parts in members.items() if key is not None and len(parts) > 1}
    joined = {
        key
        for key in several
        if how == ALL or (how == OUTLINES and not all(map(is_box, members[key])))
    }
    annotations, seen = [], set()
    for shape_id, shape, key in keyed:
        if key not in joined:
            annotations.append((shape_id, [shape]))
        elif key not in seen:
            seen.add(key)
            annotations.append((shape_id, members[key]))
    notes = {
        JOINED_SHAPES: sum(len(members[key]) for key in joined),
        JOINED_OBJECTS: len(joined),
        SEPARATE_SHAPES: sum(len(members[key]) for key in several - joined),
    }
    return Grouped(annotations, {name: count for name, count in notes.items() if count})


def may_have(content: bytes, key: str) -> bool:
    """Whether a JSON file may have a key; this takes far less time than to parse it."""
    is_utf_16 = b'\0' in content[:4]
    return is_utf_16 or f'"{key}"'.encode() in content
