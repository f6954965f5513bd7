"""Says what is worth saying of annotations, see `ImageAnnotations.notes`; and what is left out."""

import collections
import logging
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from object_detection.data.annotated_image import (
    NO_ANNOTATIONS,
    NOT_CONVERTED,
    NOT_IN_LABEL_MAP,
    NOT_WANTED,
)
from object_detection.errors import UnusableError, format_list

_log = logging.getLogger(__name__)
# Notes of shapes that are one object, or could be, see `formats.shapes.grouped`.
JOINED_SHAPES, JOINED_OBJECTS, SEPARATE_SHAPES = (
    'joined_shapes',
    'objects_of_several_shapes',
    'separate_shapes_of_groups',
)
# Note of annotations whose id an annotation before has.
REPEATED_IDS = 'repeated_annotation_ids'
# Note of images that name the file of another one in the same words.
REPEATED_FILES = 'repeated_file_names'
# Images that a count names.
MAX_NAMED = 3
_MAX_WARNINGS = 10
ON_PURPOSE = (NOT_IN_LABEL_MAP, NOT_WANTED)


def sentences(
    notes: Mapping[str, int], named: Mapping[str, Sequence[str]] | None = None
) -> list[str]:
    """Returns what notes say, as sentences without a full stop.

    Args:
      notes: see `ImageAnnotations.notes`.
      named: note -> the first few images that it counts.
    """
    lines = []
    if objects := notes.get(JOINED_OBJECTS):
        lines.append(
            f'objects of several shapes, which share a class and a group: {objects}, of '
            f'{notes[JOINED_SHAPES]} shapes'
        )
    if separate := notes.get(SEPARATE_SHAPES):
        lines.append(
            f'shapes that share a class and a group, and stay separate objects: {separate}; '
            '--groups all joins them'
        )
    if repeated := notes.get(REPEATED_IDS):
        lines.append(
            f'annotations whose id another one has, and that are read all the same: {repeated}'
        )
    if count := notes.get(NO_ANNOTATIONS):
        lines.append(
            f'images that no annotation names, and that are read as images without objects: {count}'
            f'{such_as((named or {}).get(NO_ANNOTATIONS, ()))}'
        )
    if repeated := notes.get(REPEATED_FILES):
        lines.append(
            f'images whose file another one names too, and that are read all the same: {repeated}'
        )
    others = {
        name.removeprefix(NOT_CONVERTED): count
        for name, count in notes.items()
        if name.startswith(NOT_CONVERTED)
    }
    if others:
        lines.append(
            f'{sum(others.values())} annotations or values that records do not hold, or that no '
            f'option asks for, are not converted: {most_frequent(others)}'
        )
    return lines


def such_as(names: Sequence[str]) -> str:
    """Returns e.g. ', such as a.jpg, b.jpg'; '' without a name."""
    return f', such as {", ".join(names)}' if names else ''


def most_frequent(counts: Mapping[str, int]) -> str:
    """Returns e.g. '3 x tag, 1 x flag'."""
    pairs = collections.Counter(counts).most_common()
    return format_list(f'{count} x {name}' for name, count in pairs)


class LeftOutLog:
    """Logs what is left out of a data set that is read image by image, and each image many times.

    The first few annotations are named, and images that no annotation names. Their number by
    reason, and what the notes say, is logged when each image has been read once, and before that
    whenever ten times as much is left out.

    Args:
      path: names the data set.
      num_images: number of its images.
    """

    def __init__(self, path: str, num_images: int):
        self._path = path
        self._is_read = bytearray(num_images)
        self._num_read = 0
        self._reasons: collections.Counter[str] = collections.Counter()
        self._notes: collections.Counter[str] = collections.Counter()
        self._without_annotations: list[str] = []
        self._next_total = 1
        # Images are read by several threads.
        self._lock = threading.Lock()

    def add(
        self,
        index: int,
        image_id: Any,
        problems: Iterable[tuple[Any, UnusableError]],
        notes: Mapping[str, int],
    ) -> None:
        """Counts the problems and notes of an image, if it has not been read before."""
        with self._lock:
            if self._is_read[index]:
                return
            self._is_read[index] = 1
            self._num_read += 1
            self._count(image_id, problems, notes)

    def _count(
        self, image_id: Any, problems: Iterable[tuple[Any, UnusableError]], notes: Mapping[str, int]
    ) -> None:
        for annotation_id, error in problems:
            if error.reason in ON_PURPOSE:
                continue
            self._reasons[error.reason] += 1
            if self._reasons.total() <= _MAX_WARNINGS:
                text = '%s: annotation %s of image %s is left out: %s.'
                _log.warning(text, self._path, annotation_id, image_id, error)
        # The others are those of whole sets.
        found = {key: count for key, count in notes.items() if sentences({key: count})}
        self._notes.update(found)
        if NO_ANNOTATIONS in notes and len(self._without_annotations) < MAX_NAMED:
            self._without_annotations.append(str(image_id))
        is_end = self._num_read == len(self._is_read)
        # The annotations that are named need no number.
        further = max(0, self._reasons.total() - _MAX_WARNINGS)
        total = further + self._notes.total()
        if total and (is_end or total >= self._next_total):
            self._log(is_end)
            self._next_total = 10 * total

    def _log(self, is_end: bool) -> None:
        found = sentences(self._notes, {NO_ANNOTATIONS: self._without_annotations})
        if self._reasons:
            found.insert(
                0,
                f'{self._reasons.total()} annotations are left out: {most_frequent(self._reasons)}',
            )
        images = 'all' if is_end else f'the first {self._num_read} read of {len(self._is_read)}'
        _log.warning('%s, %s images: %s.', self._path, images, '; '.join(found))
