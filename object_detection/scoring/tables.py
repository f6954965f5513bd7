"""What is read of a file of ground truth and of a file of detections, for all formats.

Checks of values in files of strangers; errors name the file, the record and the field.
"""

import contextlib
import dataclasses
import itertools
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from object_detection.data import shard_names
from object_detection.data.label_map import LabelMap
from object_detection.errors import DataError, UnusableError, format_list
from object_detection.metrics.instances import Instances

# Annotation files of whole data sets have gigabytes.
MAX_BYTES = 4 << 30
_MAX_SHOWN = 100  # characters


class FieldError(Exception):
    """A field of a record cannot be used; `record` makes it the `DataError` of a file.

    Attributes:
      field: name of the field.
      expected: what it should be.
      received: its value, or `ABSENT`.
    """

    def __init__(self, field: str, expected: str, received: Any):
        super().__init__(field)
        self.field, self.expected, self.received = field, expected, received


ABSENT = object()


@contextlib.contextmanager
def record(path: str, where: str | Callable[[], str] = '') -> Iterator[None]:
    """A context in which errors of fields become `DataError`s that name their file and record.

    Args:
      path: path of the file.
      where: the record, such as 'entry 3'; a function of a block with several records says it of
        the present one.
    """
    try:
        yield
    except (FieldError, UnusableError, RecursionError) as error:
        name = where() if callable(where) else where
        text = str(error)
        if isinstance(error, FieldError):
            shown = 'nothing' if error.received is ABSENT else repr(error.received)
            shown = shown if len(shown) <= _MAX_SHOWN else f'{shown[:_MAX_SHOWN]}...'
            text = f'{error.field}: expected {error.expected}. Received: {shown}'
        raise DataError(f'{", ".join(filter(None, (path, name)))}: {text}.') from error


def number(value: Any, field: str) -> float:
    """Returns a JSON number as float."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            as_float = float(value)
        except OverflowError:
            as_float = math.inf
        if math.isfinite(as_float):
            return as_float
    raise FieldError(field, 'a finite number', value)


def text_number(value: str, field: str) -> float:
    """Returns the number that a text says."""
    try:
        as_float = float(value)
    except ValueError:
        as_float = math.nan
    if math.isfinite(as_float):
        return as_float
    raise FieldError(field, 'a finite number', value)


def box(value: Any, field: str = 'bbox') -> tuple[float, float, float, float]:
    """Returns COCO's box [x, y, width, height]; width and height may be 0."""
    expected = 'four finite numbers, [x, y, width, height], the last two at least 0'
    with contextlib.suppress(FieldError, TypeError, ValueError):
        x, y, width, height = [number(side, field) for side in value]
        if width >= 0 and height >= 0 and math.isfinite(width * height):
            return x, y, width, height
    raise FieldError(field, expected, value)


def corners(values: Mapping[str, str], names: Sequence[str]) -> tuple[float, float, float, float]:
    """Returns (ymin, xmin, ymax, xmax) of the texts of the fields `names`, in this order."""
    ymin, xmin, ymax, xmax = [text_number(values[name], name) for name in names]
    low_y, low_x, *highs = names
    if ymax < ymin:
        raise FieldError(highs[0], f'at least {low_y}, {ymin:g}', ymax)
    if xmax < xmin:
        raise FieldError(highs[1], f'at least {low_x}, {xmin:g}', xmax)
    return ymin, xmin, ymax, xmax


class Parts(NamedTuple):
    """What of the objects is read besides their boxes."""

    masks: bool = False
    keypoints: bool = False


_BOXES_ALONE = Parts()


class UnknownImageError(FieldError):
    """The ground truth has no image of this id or name."""


class TruthImage(NamedTuple):
    """An image of the ground truth.

    Attributes:
      size: (height, width) in pixels; (0, 0) if the file does not say it.
      classes: int64 [n], 1-based ids of the classes of which it was verified whether the image
        contains them, beside those of its objects; None if there are no image-level labels.
      not_exhaustive: the same, of the classes not all of whose objects are annotated.
    """

    size: tuple[int, int]
    classes: np.ndarray | None = None
    not_exhaustive: np.ndarray | None = None


@dataclasses.dataclass(frozen=True)
class GroundTruth:
    """The images, classes and objects of a data set.

    Attributes:
      path: the file or folder.
      categories: the classes, {'id': 1-based, 'name': ...}; with 'keypoints', name -> position,
        and 'frequency' where the file has them.
      images: source id -> image.
      objects: reads the objects of an image, by its source id.
      image_ids: what detections call an image -> its source id.
      file_names: names of image files -> images, see the function below.
      category_ids: numbers that detections may call a class by -> its 1-based id.
      names: names of the classes -> 1-based id.
      parts: what the objects have besides boxes.
      are_normalized: whether boxes are relative to the size of their image, which is not known.
      notes: what a user should know of the reading.
    """

    path: str
    categories: Sequence[Mapping[str, Any]]
    images: Mapping[str, TruthImage]
    objects: Callable[[str, Parts], Instances]
    image_ids: Mapping[Any, str]
    file_names: Mapping[str, Sequence[tuple[str, str]]]
    category_ids: Mapping[Any, int]
    names: Mapping[str, int]
    parts: Parts = _BOXES_ALONE
    are_normalized: bool = False
    notes: tuple[str, ...] = ()

    def size_of(self, image: str) -> tuple[int, int]:
        """Returns (height, width) of an image in pixels.

        Raises:
          FieldError: if the file does not say it.
        """
        height, width = self.images[image].size
        if not (height and width):
            expected = f'an image whose size {self.path} states'
            raise FieldError('image', expected, image)
        return height, width

    def image_of(self, image_id: Any, field: str) -> str:
        """Returns the source id of the image that a detection names, a number or text.

        The name is the id of the image; or, if no image has it, the id as a number in place of a
        text or the other way round, or the path of the image file, with or without suffix.

        Raises:
          FieldError: if there is no such image, or the name is the number of one image and the file
            of another.
        """
        if image_id in self.image_ids:
            return self.image_ids[image_id]
        text = str(image_id)
        other = shard_names.from_text(text) if isinstance(image_id, str) else text
        found = {self.image_ids.get(other), self._of_file(text)} - {None}
        if len(found) > 1:
            expected = 'an id, or the name of a file with its suffix'
            why = 'one image has this id, and the file of another has this name'
            raise FieldError(field, f'{expected} ({why})', image_id)
        if not found:
            known = format_list(map(repr, self.image_ids))
            expected = f'an image of {self.path}: {known}; or the name of its file'
            raise UnknownImageError(field, expected, image_id)
        return found.pop()

    def image_of_file(self, name: str, field: str) -> str:
        """Returns the source id of an image by the path of its file, of which the end suffices.

        Raises:
          FieldError: if no image has this name, or several have it.
        """
        found = self._of_file(name)
        if found is not None:
            return found
        is_known = _split(name)[1] in self.file_names
        what = 'several images have it' if is_known else 'no image has it'
        expected = f'the name of one image file of {self.path} ({what})'
        raise (FieldError if is_known else UnknownImageError)(field, expected, name)

    def _of_file(self, path: str) -> str | None:
        """Returns the image of this name; of several, that whose folders end as those of `path`."""
        folder, base = _split(path)
        for name in (base, os.path.splitext(base)[0]):
            candidates = self.file_names.get(name, ())
            shared = [_shared(folder, other) for other, _ in candidates]
            if shared.count(max(shared, default=0)) == 1:
                return candidates[shared.index(max(shared))][1]
        return None

    def class_of_name(self, name: str, field: str) -> int:
        """Returns the 1-based id of a class by its name.

        Raises:
          FieldError: if there is no such class.
        """
        if name not in self.names:
            raise FieldError(field, f'a class of {self.path}: {format_list(self.names)}', name)
        return self.names[name]

    def class_of_id(self, category_id: Any, field: str) -> int:
        """Returns the 1-based id of a class by its number in a file.

        Raises:
          FieldError: if there is no such class, or the classes have no numbers.
        """
        if not self.category_ids:
            expected = f'the name of a class, as {self.path} has no numbers; or give a --label_map'
            raise FieldError(field, expected, category_id)
        try:
            return self.category_ids[category_id]
        except (KeyError, TypeError):
            known = format_list(self.category_ids)
            raise FieldError(field, f'a category of {self.path}: {known}', category_id) from None

    def with_classes(self, label_map: LabelMap) -> 'GroundTruth':
        """Returns the same with the names and ids of a label map in place of the file's own ids.

        Classes of the label map that the file lacks are added, if it has no list of its own.

        Raises:
          DataError: if the label map and the file have no class in common.
        """
        found = {text: self.names[text] for text in label_map.text_to_id if text in self.names}
        if not found:
            raise DataError(
                f'The label map has none of the classes of {self.path}, {format_list(self.names)}. '
                f'Received: {format_list(label_map.text_to_id)}.'
            )
        names, categories = dict(self.names), list(self.categories)
        ids = {label_map.text_to_id[text]: number for text, number in found.items()}
        if not self.category_ids:
            for category in label_map.categories:
                if category['id'] not in ids:
                    number = len(categories) + 1
                    categories.append({'id': number, 'name': category['name']})
                    names[category['name']] = ids[category['id']] = number
        return dataclasses.replace(self, category_ids=ids, names=names, categories=categories)


@dataclasses.dataclass(frozen=True)
class DetectionTable:
    """The detections of all images, sorted by image; within one, in the order of the file.

    Attributes:
      path: the file or folder.
      count: their number.
      objects: reads the detections of an image, by its source id.
      parts: what they have besides boxes.
      has_boxes: whether the file has boxes of its own.
      notes: what a user should know of the reading.
    """

    path: str
    count: int
    objects: Callable[[str, Parts], Instances]
    parts: Parts = _BOXES_ALONE
    has_boxes: bool = True
    notes: tuple[str, ...] = ()


class Columns:
    """Collects boxes of many images in the order of a file, and gives those of one image.

    Args:
      are_scored: whether they are detections, and have scores.
    """

    def __init__(self, *, are_scored: bool):
        self._are_scored = are_scored
        self._rows: dict[str, list[tuple[float, ...]]] = {}
        self.count = 0

    def add(
        self,
        image: str,
        label: int,
        corners: Sequence[float],
        score: float = 0.0,
        *,
        is_difficult: bool = False,
        is_group_of: bool = False,
    ) -> None:
        """Adds a box (ymin, xmin, ymax, xmax) of a class, given by its 1-based id."""
        row = (*corners, score, label, is_difficult, is_group_of)
        self._rows.setdefault(image, []).append(row)
        self.count += 1

    def objects(self, image: str, parts: Parts) -> Instances:
        """Returns the boxes of an image."""
        del parts
        rows = np.array(self._rows.get(image, ()), np.float64).reshape(-1, 8)
        boxes, labels = rows[:, :4], rows[:, 5].astype(np.int64)
        areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
        if self._are_scored:
            return Instances(boxes, labels, areas, scores=rows[:, 4])
        return Instances(
            boxes,
            labels,
            areas,
            is_crowd=np.zeros(len(rows), bool),
            is_difficult=rows[:, 6].astype(bool),
            is_group_of=rows[:, 7].astype(bool),
        )


def file_names(names: Mapping[str, str]) -> dict[str, list[tuple[str, str]]]:
    """Returns names of files, with suffix and without -> (folder, source id) of each.

    Args:
      names: source id -> path of the image file.
    """
    found: dict[str, list[tuple[str, str]]] = {}
    for source_id, path in names.items():
        folder, base = _split(path)
        for name in {base, os.path.splitext(base)[0]}:
            found.setdefault(name, []).append((folder, source_id))
    return found


def _split(path: str) -> tuple[str, str]:
    """Returns the folder and the name of a file; Windows writes paths with backslashes."""
    folder, _, name = path.replace('\\', '/').rpartition('/')
    return folder, name


def _shared(folder: str, other: str) -> float:
    """Returns how many folders two paths have in common at their ends, infinity if all."""
    sides = (folder.split('/'), other.split('/'))
    pairs = zip(*(reversed(side) for side in sides), strict=False)
    same = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
    return math.inf if folder == other else same
