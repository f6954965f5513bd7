"""Ground truth in COCO's format (https://cocodataset.org/#format-data)."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from object_detection.data import shard_names
from object_detection.data.coco import annotations as coco_annotations
from object_detection.data.coco import keypoints as coco_keypoints
from object_detection.data.coco import masks as coco_masks
from object_detection.data.coco.keypoints import KeypointLayout
from object_detection.data.file_access import Files
from object_detection.data.image_files import MAX_PIXELS
from object_detection.errors import DataError
from object_detection.metrics.coco.annotations import REQUIRED, objects
from object_detection.metrics.instances import Instances, mask_areas
from object_detection.scoring import tables
from object_detection.scoring.tables import FieldError, GroundTruth, Parts, TruthImage, file_names
from object_detection.system import texts

_HEAD = 4096  # bytes, in which the first character of a JSON file is
_MAX_KEYPOINTS = 1000
_BOXES, _MASKS, _KEYPOINTS = 'bbox', 'segmentation', 'keypoints'
# Lists of categories of an image of a federated data set, as in LVIS: those that it does not
# contain, and those not all of whose objects are annotated.
_ABSENT, _NOT_EXHAUSTIVE = 'neg_category_ids', 'not_exhaustive_category_ids'


class _Image(NamedTuple):
    truth: TruthImage
    rows: list[int]


def read_truth(path: str, files: Files) -> GroundTruth:
    """Reads an annotation file of objects, with masks and keypoints where it has them.

    As in pycocotools, classes are in the order of their ids, a crowd is an object whose `iscrowd`
    is 1, and the size of an object is its `area`; if that is absent, the area of its mask where
    masks are compared, and else of its box.

    Raises:
      OSError: if it cannot be read, or is too long.
      DataError: if it is no annotation file, or a value of it cannot be used.
    """
    document = parse(path, files, object_hook=_pack_segmentation)
    if isinstance(document, dict):
        document.setdefault('annotations', [])
    coco_annotations.check_document(document, path, REQUIRED)
    return _Truth(path, document).table()


def _pack_segmentation(entry: dict[str, Any]) -> dict[str, Any]:
    """Returns an entry with its `segmentation` as JSON text, in place."""
    if 'segmentation' in entry:
        entry['segmentation'] = json.dumps(entry['segmentation'])
    return entry


class _Truth:
    """An annotation file whose lists are objects with the required keys."""

    def __init__(self, path: str, document: dict[str, Any]):
        self._path = path
        self._annotations = document['annotations']
        self._categories = sorted(document['categories'], key=_sort_key)
        self._names = coco_annotations.texts(self._categories)
        self._labels = {key: label for label, key in enumerate(self._names, start=1)}
        self._images: dict[Any, _Image] = {}
        self._files: dict[str, str] = {}
        for index, image in enumerate(document['images']):
            with tables.record(path, f'images[{index}] (id {image["id"]!r})'):
                self._add_image(image)
        row = 0
        with tables.record(path, lambda: self._where(row)):
            for row, annotation in enumerate(self._annotations):
                self._check(annotation)
                self._images[annotation['image_id']].rows.append(row)
        self._ids = {shard_names.to_text(image_id): image_id for image_id in self._images}
        self._layout = self._keypoint_layout()

    def table(self) -> GroundTruth:
        categories = []
        for category in self._categories:
            names = category.get(_KEYPOINTS) or (self._layout and self._layout.names)
            entry = {'id': self._labels[category['id']], 'name': self._names[category['id']]}
            if 'frequency' in category:
                entry['frequency'] = category['frequency']
            if self._layout and names:
                position = {name: slot for slot, name in enumerate(self._layout.names)}
                entry['keypoints'] = {name: position[name] for name in names}
            categories.append(entry)
        # Where there is no object, none lacks a mask.
        has_masks = not self._annotations or any(each.get(_MASKS) for each in self._annotations)
        return GroundTruth(
            self._path,
            categories,
            {text: self._images[image_id].truth for text, image_id in self._ids.items()},
            self._objects,
            {image_id: text for text, image_id in self._ids.items()},
            file_names(self._files),
            self._labels,
            {category['name']: category['id'] for category in categories},
            Parts(has_masks, self._layout is not None),
            notes=tuple(self._notes()),
        )

    def _notes(self) -> Iterator[str]:
        """Yields where pycocotools takes annotations for others, by their ids."""
        ids = [annotation.get('id') for annotation in self._annotations]
        if 0 in ids:
            yield (
                f'{self._path}: an annotation has the id 0, so pycocotools takes detections of it '
                'for false; here they count.'
            )
        known = [each for each in ids if coco_annotations.is_id(each)]
        if len(set(known)) < len(known):
            yield (
                f'{self._path}: annotations have the same id, so pycocotools takes one for all of '
                'them; here each counts.'
            )

    def _add_image(self, image: Mapping[str, Any]) -> None:
        image_id = image['id']
        if image_id in self._images:
            raise FieldError('id', 'an id of its own', image_id)
        height, width = coco_annotations.stated_size(image)
        if not (height and width) or height * width > MAX_PIXELS:
            expected = f'two numbers above 0, whose product is at most {MAX_PIXELS}'
            raise FieldError('height, width', expected, (height, width))
        lists = [self._class_list(image, key) for key in (_ABSENT, _NOT_EXHAUSTIVE)]
        self._images[image_id] = _Image(TruthImage((height, width), *lists), [])
        if isinstance(image.get('file_name'), str):
            self._files[shard_names.to_text(image_id)] = image['file_name']

    def _class_list(self, image: Mapping[str, Any], key: str) -> np.ndarray | None:
        """Returns the classes of a list of categories; None if the image has no such list."""
        listed = image.get(key)
        if listed is None:
            return None
        is_known = isinstance(listed, list) and all(
            coco_annotations.is_id(each) and each in self._labels for each in listed
        )
        if not is_known:
            raise FieldError(key, 'a list of ids of `categories`', listed)
        return np.array([self._labels[each] for each in listed], np.int64)

    def _check(self, annotation: Mapping[str, Any]) -> None:
        image_id, category_id = annotation['image_id'], annotation['category_id']
        if image_id not in self._images:
            raise FieldError('image_id', 'the id of one of `images`', image_id)
        if category_id not in self._labels:
            raise FieldError('category_id', 'the id of one of `categories`', category_id)
        tables.box(annotation[_BOXES])
        area = annotation.get('area')
        if area is not None and tables.number(area, 'area') < 0:
            raise FieldError('area', 'a number of at least 0', area)
        coco_annotations.is_crowd(annotation)

    def _keypoint_layout(self) -> KeypointLayout | None:
        if not any(annotation.get(_KEYPOINTS) for annotation in self._annotations):
            return None
        for category in self._categories:
            names = category.get(_KEYPOINTS) or []
            is_list = isinstance(names, list) and all(isinstance(name, str) for name in names)
            if not is_list or len(set(names)) < len(names):
                with tables.record(self._path, f'category {category["id"]!r}'):
                    raise FieldError(_KEYPOINTS, 'a list of different names', names)
        layout = coco_keypoints.keypoint_layout(self._categories)
        if len(layout.names) > _MAX_KEYPOINTS:
            with tables.record(self._path, 'categories'):
                raise FieldError(_KEYPOINTS, f'at most {_MAX_KEYPOINTS} names', len(layout.names))
        return layout

    def _where(self, row: int) -> str:
        return f'annotations[{row}] (id {self._annotations[row].get("id")!r})'

    def _objects(self, image: str, parts: Parts) -> Instances:
        (size, *_), rows = self._images[self._ids[image]]
        annotations = [self._annotations[row] for row in rows]
        sides = np.array([a[_BOXES][2:] for a in annotations], np.float64).reshape(-1, 2)
        masks, own_areas = None, sides[:, 0] * sides[:, 1]
        if parts.masks:
            masks = [self._mask(row, *size) for row in rows]
            own_areas = mask_areas(masks, *size)
        keypoints = is_ignored = None
        if parts.keypoints:
            keypoints = self._read_keypoints(rows)
            is_ignored = ~(keypoints[..., 2] > 0).any(axis=1)
        found = objects(annotations, self._labels, masks, own_areas)
        return found._replace(sides=sides[:, ::-1], is_ignored=is_ignored, keypoints=keypoints)

    def _mask(self, row: int, height: int, width: int) -> bytes:
        text = self._annotations[row].get(_MASKS)
        with tables.record(self._path, self._where(row)):
            return coco_masks.encode(None if text is None else json.loads(text), height, width)

    def _read_keypoints(self, rows: list[int]) -> np.ndarray:
        """Returns keypoints as `Instances` has them."""
        found = np.zeros((len(rows), len(self._layout.names), 3))
        for index, row in enumerate(rows):
            with tables.record(self._path, self._where(row)):
                found[index] = coco_keypoints.read_keypoints(self._annotations[row], self._layout)
        return found[..., [1, 0, 2]]


def is_json(path: str, files: Files) -> bool:
    """Whether a file begins as a JSON list or object."""
    head = files.head(path, _HEAD)
    text = head.decode(texts.encoding_of(head), errors='replace')
    return text.lstrip()[:1] in ('[', '{')


def parse(path: str, files: Files, **options: Any) -> Any:
    """Returns the content of a JSON file; `options` are those of `json.loads`."""
    try:
        return json.loads(files.read(path, tables.MAX_BYTES), **options)
    except (ValueError, RecursionError) as error:
        raise DataError(f'{path} is not a JSON file: {error}.') from error


def _sort_key(category: Mapping[str, Any]) -> tuple[bool, Any]:
    """Sorts categories by id: numbers first, then texts."""
    return isinstance(category['id'], str), category['id']
