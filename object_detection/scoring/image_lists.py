"""Files that list the images to evaluate."""

from collections.abc import Iterator
from typing import Any

from object_detection.data.coco import annotations as coco_annotations
from object_detection.data.file_access import Files
from object_detection.errors import DataError
from object_detection.scoring import coco_files, tables, voc_files
from object_detection.scoring.tables import FieldError, GroundTruth


def read(path: str, files: Files, truth: GroundTruth) -> list[str]:
    """Returns the source ids of a list of images, each once.

    A text file has an id or the name of a file on each line; those of PASCAL VOC have a flag after
    it, which is ignored. A JSON file has `images` as a COCO file, or is a list of such images, of
    ids or of names. Images of JSON are found by the names of their files, or else by their ids.

    Raises:
      OSError, DataError: if it cannot be read, or names an image that the ground truth lacks.
    """
    is_json = coco_files.is_json(path, files)
    found = [
        _first_found(path, where, names, truth)
        for where, names in (_of_json if is_json else _of_text)(path, files)
    ]
    if not found:
        where = 'in its list' if is_json else 'on each line'
        raise DataError(f'{path}: expected an image {where}. Received: none.')
    return list(dict.fromkeys(found))


def _of_text(path: str, files: Files) -> Iterator[tuple[str, list[Any]]]:
    """Yields the record, and the names that its image may have."""
    for line, fields in voc_files.lines(path, files):
        yield f'line {line}', [' '.join(fields), fields[0]]


def _of_json(path: str, files: Files) -> Iterator[tuple[str, list[Any]]]:
    listed = coco_files.parse(path, files)
    if isinstance(listed, dict):
        listed = listed.get('images')
    if not isinstance(listed, list):
        raise DataError(f'{path}: expected a list of images, or `images` of COCO. Received: none.')
    for index, entry in enumerate(listed):
        names = [entry.get('file_name'), entry.get('id')] if isinstance(entry, dict) else [entry]
        names = [name for name in names if coco_annotations.is_id(name)]
        if not names:
            with tables.record(path, f'images[{index}]'):
                raise FieldError('id, file_name', 'a number or text', entry)
        yield f'images[{index}]', names


def _first_found(path: str, where: str, names: list[Any], truth: GroundTruth) -> str:
    """Returns the image by the first of its names that is known."""
    problems = []
    for name in names:
        try:
            return truth.image_of(name, 'image')
        except FieldError as error:
            problems.append(error)
    with tables.record(path, where):
        raise problems[-1]
