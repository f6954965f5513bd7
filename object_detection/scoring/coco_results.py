"""Detections as COCO's results (https://cocodataset.org/#format-results)."""

import os
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from pycocotools import mask as mask_api

from object_detection.data import file_access
from object_detection.data.coco import annotations as coco_annotations
from object_detection.data.coco import masks as coco_masks
from object_detection.data.file_access import Files
from object_detection.errors import DataError
from object_detection.metrics.coco.annotations import corners
from object_detection.metrics.instances import Instances, mask_areas
from object_detection.scoring import coco_files, tables
from object_detection.scoring.tables import ABSENT, DetectionTable, FieldError, GroundTruth, Parts
from object_detection.system import json_lists

_BOXES, _MASKS, _KEYPOINTS = 'bbox', 'segmentation', 'keypoints'
_ID, _FILE = 'image_id', 'file_name'


def read_detections(path: str, files: Files, truth: GroundTruth) -> DetectionTable:
    """Reads a results file: a list of objects with `image_id`, `category_id`, `score` and more.

    As in pycocotools, the first entry says what the size of detections is: that of `bbox` if it has
    one, else of `segmentation`, else of the box around its `keypoints`; and entries without `bbox`
    have the box of what they have. If `images.json` of `tfod predict` lies in the same folder, and
    has names of files, images are found by these, since the numbers are those of that command.
    Otherwise they are found as by `GroundTruth.image_of`; an entry may have `file_name` for one.

    Raises:
      OSError: if it cannot be read, or is too long.
      DataError: if it is no results file, or a value of it cannot be used or is unknown.
    """
    entries = coco_files.parse(path, files)
    if not isinstance(entries, list):
        hint = ' An annotation file is for --groundtruth.' if isinstance(entries, dict) else ''
        raise DataError(
            f'{path}: expected a list of detections. Received: {type(entries).__name__}.{hint}'
        )
    found = _Results(path, entries, truth)
    found.check(_predicted_files(path, files))
    return found.table()


class _Results:
    """A list of detections."""

    def __init__(self, path: str, entries: list[Any], truth: GroundTruth):
        self._path = path
        self._entries = entries
        self._truth = truth
        self._labels = np.zeros(len(entries), np.int64)
        self._rows: dict[str, list[int]] = {}
        self._named: set[str] = set()
        first = entries[0] if entries and isinstance(entries[0], dict) else {}
        self._shape = next((key for key in (_BOXES, _MASKS, _KEYPOINTS) if first.get(key)), _BOXES)
        self._slots = {
            category['id']: sorted(category.get(_KEYPOINTS, {}).values())
            for category in truth.categories
        }

    def check(self, predicted: Mapping[Any, str | None]) -> None:
        """Checks all entries, and finds their images and classes.

        Args:
          predicted: `image_id` -> path of the image, None where the id is that of the ground truth.
        """
        row = 0
        with tables.record(self._path, lambda: self._where(row)):
            for row, entry in enumerate(self._entries):
                self._add(row, entry, predicted)

    def table(self) -> DetectionTable:
        entries = self._entries
        parts = Parts(
            any(entry.get(_MASKS) for entry in entries),
            any(entry.get(_KEYPOINTS) for entry in entries),
        )
        notes = []
        if self._shape == _BOXES and any(parts):
            notes.append(
                f'{self._path}: the size of a detection is that of its bbox, as in pycocotools.'
            )
        if self._named:
            notes.append(
                f'{self._path}: {len(self._named)} images have no such id in {self._truth.path}, '
                'and were found by the names of their files, or by the number that a text is.'
            )
        has_boxes = self._shape == _BOXES
        return DetectionTable(
            self._path, len(entries), self._objects, parts, has_boxes, tuple(notes)
        )

    def _add(self, row: int, entry: Any, predicted: Mapping[Any, str | None]) -> None:
        if not isinstance(entry, dict):
            raise FieldError('entry', 'an object', entry)
        image_key = _FILE if self._is_named(entry, predicted) else _ID
        for key in (image_key, 'category_id', self._shape, 'score'):
            if key not in entry:
                raise FieldError(key, 'a value', ABSENT)
        for key in (image_key, 'category_id'):
            if not coco_annotations.is_id(entry[key]):
                raise FieldError(key, 'a number or text', entry[key])
        image = self._image(entry, image_key, predicted)
        self._labels[row] = self._truth.class_of_id(entry['category_id'], 'category_id')
        tables.number(entry['score'], 'score')
        if self._shape == _BOXES:
            tables.box(entry[_BOXES])
        self._rows.setdefault(image, []).append(row)

    def _is_named(self, entry: Mapping[str, Any], predicted: Mapping[Any, str | None]) -> bool:
        """Whether an entry names its image by `file_name`: it has no id, or one that fits none."""
        if not isinstance(entry.get(_FILE), str) or predicted:
            return False
        image_id = entry.get(_ID)
        return not coco_annotations.is_id(image_id) or image_id not in self._truth.image_ids

    def _image(
        self, entry: Mapping[str, Any], key: str, predicted: Mapping[Any, str | None]
    ) -> str:
        """Returns the source id of the image that an entry names."""
        name = entry[key]
        if predicted and key == _ID and name not in predicted:
            raise FieldError(key, 'an id of images.json in its folder', name)
        if predicted.get(name) is not None:
            return self._truth.image_of_file(predicted[name], key)
        if key == _ID and name in self._truth.image_ids:
            return self._truth.image_ids[name]
        self._named.add(name)
        find = self._truth.image_of_file if key == _FILE else self._truth.image_of
        return find(name, key)

    def _where(self, row: int) -> str:
        entry = self._entries[row]
        image = f' (image_id {entry.get("image_id")!r})' if isinstance(entry, dict) else ''
        return f'entry {row}{image}'

    def _objects(self, image: str, parts: Parts) -> Instances:
        rows = self._rows.get(image, [])
        masks = keypoints = None
        if parts.masks or self._shape == _MASKS:
            with tables.record(self._path, 'masks'):
                size = self._truth.size_of(image)
            masks = [self._mask(row, *size) for row in rows]
        if parts.keypoints or self._shape == _KEYPOINTS:
            keypoints = self._read_keypoints(rows)
        if self._shape == _BOXES:
            boxes = np.array([self._entries[row][_BOXES] for row in rows], np.float64)
        elif self._shape == _MASKS:
            boxes = mask_api.toBbox([{'size': list(size), 'counts': mask} for mask in masks])
        else:
            boxes = _boxes_of_keypoints(self._entries[row][_KEYPOINTS] for row in rows)
        boxes = np.reshape(boxes, (-1, 4))
        return Instances(
            corners(boxes),
            self._labels[rows],
            mask_areas(masks, *size) if self._shape == _MASKS else boxes[:, 2] * boxes[:, 3],
            masks if parts.masks else None,
            scores=np.array([self._entries[row]['score'] for row in rows], np.float64),
            keypoints=keypoints if parts.keypoints else None,
            sides=boxes[:, :1:-1],
        )

    def _mask(self, row: int, height: int, width: int) -> bytes:
        with tables.record(self._path, self._where(row)):
            return coco_masks.encode(self._entries[row].get(_MASKS), height, width)

    def _read_keypoints(self, rows: list[int]) -> np.ndarray:
        """Returns keypoints as `Instances` has them, with scores in place of visibilities.

        An entry has the keypoints of its category, or those of all categories.
        """
        size = max((slots[-1] + 1 for slots in self._slots.values() if slots), default=0)
        found = np.zeros((len(rows), size, 3))
        for index, row in enumerate(rows):
            slots, values = self._slots[self._labels[row]], self._entries[row].get(_KEYPOINTS)
            if isinstance(values, list) and len(values) == 3 * size:
                # `tfod predict` writes the keypoints of all classes, at their positions.
                slots = list(range(size))
            with tables.record(self._path, self._where(row)):
                if not isinstance(values, list) or len(values) != 3 * len(slots):
                    expected = f'{len(slots)} times x, y and a score'
                    raise FieldError(_KEYPOINTS, expected, ABSENT if values is None else values)
                numbers = [tables.number(value, _KEYPOINTS) for value in values]
            found[index, slots] = np.reshape(numbers, (-1, 3))
        return found[..., [1, 0, 2]]


def _predicted_files(path: str, files: Files) -> dict[Any, str | None]:
    """Returns the images that `images.json` of the folder of a file of `tfod predict` lists.

    Those that were predicted from records have no name, and the ids of the records.
    """
    if os.path.basename(path) != json_lists.DETECTIONS:
        return {}
    listed = file_access.join(os.path.dirname(path), json_lists.IMAGES)
    if not files.exists(listed):
        return {}
    entries, found = coco_files.parse(listed, files), {}
    for row, entry in enumerate(entries if isinstance(entries, list) else [entries]):
        values = entry if isinstance(entry, dict) else {}
        name = values.get(_FILE)
        if not coco_annotations.is_id(values.get('id')) or not isinstance(name, str | None):
            with tables.record(listed, f'entry {row}'):
                raise FieldError('id, file_name', 'an id, and the name of a file if any', entry)
        found[values['id']] = name
    return found


def _boxes_of_keypoints(keypoints: Iterable[list[float]]) -> np.ndarray:
    """Returns the boxes [x, y, width, height] around keypoints, as pycocotools does."""
    boxes = []
    for values in keypoints:
        x, y = values[0::3], values[1::3]
        boxes.append([min(x), min(y), max(x) - min(x), max(y) - min(y)])
    return np.array(boxes, np.float64)
