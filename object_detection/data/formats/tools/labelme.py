"""Data sets of LabelMe: a JSON file beside each image, with shapes drawn on it."""

import base64
import contextlib
import dataclasses
import itertools
import os
from collections.abc import Collection, Iterator
from typing import Any

import numpy as np

from object_detection.data import annotated_image, file_access, image_files
from object_detection.data.annotated_image import (
    AnnotatedObject,
    ImageAnnotations,
    Provided,
    not_converted,
)
from object_detection.data.file_access import Files
from object_detection.data.formats import shapes
from object_detection.data.formats import source as formats_source
from object_detection.data.formats.source import (
    DataSet,
    Found,
    ImageEntry,
    Source,
    SourceReader,
    option,
)
from object_detection.data.image_files import ImageFile
from object_detection.data.label_map import LabelMap
from object_detection.errors import DataError, UnusableError, UserError

_RECTANGLE, _ORIENTED, _MASK, _CIRCLE, _POLYGON = (
    *('rectangle', 'oriented_rectangle', 'mask', 'circle', 'polygon'),
)
_AREAS = (_RECTANGLE, _ORIENTED, _MASK, _CIRCLE, _POLYGON)
_POINT = 'point'
_MAX_TRIED = 5  # files


@dataclasses.dataclass(frozen=True)
class LabelMeSource(Source):
    """A data set of LabelMe.

    Attributes:
      data_dir: folder of the JSON files, and of the images that they name.
      image_dir: folder of the images; '' is `data_dir`.
      masks: whether polygons are written as masks.
      groups: which shapes of one label and `group_id` are one object, see `shapes.groups_option`.
    """

    data_dir: str = option('', 'Folder of the JSON files and the images.', required=True)
    image_dir: str = option(
        '', 'Folder of the images; by default that of the JSON files.', flag='images'
    )
    masks: bool = option(False, 'Write the shapes as masks.')
    groups: str = shapes.groups_option()

    def open(self, files: Files, label_map: LabelMap | None) -> DataSet:
        shapes.check_groups(self.groups)
        entries = list(self.entries(files))
        if not entries:
            raise UserError(f'{self.data_dir}: expected JSON files of LabelMe. Received: none.')
        names = set(label_map.text_to_id) if label_map else set()
        for entry in [] if label_map else entries:
            names |= _class_names(entry.image['path'], files)
        labels = formats_source.number_classes(names, label_map, sort=True)
        # LabelMe names a file as its image.
        images = (entry.image['file_name'] for entry in entries)
        unlisted = file_access.unlisted(self.image_dir or self.data_dir, images, files)
        return DataSet(LabelMeReader(self, labels), len(entries), labels, unlisted=unlisted)

    def entries(self, files: Files) -> Iterator[ImageEntry]:
        for name in files.list(self.data_dir, recursive=True):
            if file_access.has_suffix(name, '.json'):
                path = file_access.join(self.data_dir, name)
                yield ImageEntry({'id': name, 'file_name': name, 'path': path}, [])

    @classmethod
    def detect(cls, folder: str, files: Files) -> list[Found]:
        # Other files, such as one of the classes, may come before.
        for entry in itertools.islice(cls(folder).entries(files), _MAX_TRIED):
            path = entry.image['path']
            with contextlib.suppress(OSError, DataError):
                if not shapes.may_have(files.read(path, shapes.MAX_JSON), 'imagePath'):
                    continue
                document = _document(path, files)
                if 'imagePath' in document:
                    masks = any(_kind(item) == _POLYGON for item in document['shapes'])
                    return [Found('', cls(folder, masks=masks), f'{entry.image["id"]} with shapes')]
        return []


@dataclasses.dataclass(frozen=True)
class LabelMeReader(SourceReader[LabelMeSource]):
    """Reads images, see `SourceReader`; labels by the name of a class."""

    @property
    def provided(self) -> Provided:
        return Provided(masks=self.source.masks)

    def annotations(self, entry: ImageEntry, files: Files) -> ImageAnnotations:
        path = entry.image['path']
        document = _document(path, files)
        name = document.get('imagePath')
        name = name.replace('\\', '/') if isinstance(name, str) else ''
        below, base = os.path.split(entry.image['file_name'])
        stem = file_access.without_suffix(base)
        image_dir = self.source.image_dir or self.source.data_dir
        places = [
            file_access.image_paths(image_dir, name, stem, below=each, key='imagePath')
            for each in dict.fromkeys((below, '' if self.source.image_dir else below))
        ]
        grouped = {_group_of(item) for item in document['shapes']} - {None}
        groups = {group for _, group in grouped}
        is_part = [_is_keypoint(item, groups) for item in document['shapes']]
        items = [each for each in enumerate(document['shapes']) if not is_part[each[0]]]
        found = shapes.grouped(items, _group_of, _is_box, self.source.groups)
        others = [*_flags(document), *[_POINT] * sum(is_part)]
        return ImageAnnotations(
            file_name=os.path.basename(name) or entry.image['file_name'],
            source_id=entry.image['id'],
            annotations=found.annotations,
            paths=tuple(path for each in places for path in each.paths),
            path_note=places[0].note,
            stated_size=annotated_image.stated_size(document, 'imageHeight', 'imageWidth'),
            embedded=_embedded_image(document),
            notes={**found.notes, **not_converted(others)},
        )

    def read_object(
        self, annotation: list[Any], file: ImageFile, *, rasterize: bool = True
    ) -> AnnotatedObject:
        kinds = [*map(_kind, annotation)]
        label = formats_source.label_of(annotation[0].get('label'), self.labels)
        parts = [_part(*each, file) for each in zip(annotation, kinds, strict=True)]
        return shapes.of_parts(label, parts, file, masks=self.source.masks, rasterize=rasterize)


def _group_of(item: Any) -> tuple[str, Any] | None:
    """Returns what the shapes of one object have in common; None for a shape without a group."""
    group, label = (item.get('group_id'), item.get('label')) if isinstance(item, dict) else (0, 0)
    is_grouped = isinstance(group, int | str) and isinstance(label, str)
    return (label, group) if is_grouped and _kind(item) in _AREAS else None


def _is_keypoint(item: Any, groups: Collection[Any]) -> bool:
    """Whether a shape is a point of an object, with which it shares a group."""
    is_point = isinstance(item, dict) and item.get('shape_type') == _POINT
    group = item.get('group_id') if is_point else None
    return isinstance(group, int | str) and group in groups


def _is_box(item: dict[str, Any]) -> bool:
    return _kind(item) in (_RECTANGLE, _ORIENTED)


def _part(item: dict[str, Any], kind: str, file: ImageFile) -> np.ndarray:
    """Returns a shape, see `shapes.of_parts`."""
    points = shapes.points(item.get('points'), 'points')
    if kind == _RECTANGLE and len(points) in (2, 4):
        # The corners may be drawn in any order.
        return shapes.rectangle(*points.min(0).tolist(), *points.max(0).tolist())
    if kind == _MASK and len(points) == 2:
        return _mask(item.get('mask'), points, file)
    if kind == _CIRCLE and len(points) == 2:
        center, edge = points
        return shapes.ellipse(center, np.hypot(*(edge - center)))
    if kind == _POLYGON or (kind == _ORIENTED and len(points) == 4):
        return points
    raise UnusableError(
        'unknown_shape', f'{kind!r} of {len(points)} points: expected {", ".join(_AREAS)}'
    )


def _document(path: str, files: Files) -> dict[str, Any]:
    """Returns the content of a file of LabelMe.

    Raises:
      OSError, DataError: if it cannot be read, or has no list `shapes`.
    """
    document = file_access.parse_json(files.read(path, shapes.MAX_JSON), path)
    if not isinstance(document, dict) or not isinstance(document.get('shapes'), list):
        raise UnusableError('bad_annotations', f'{path}: expected an object with a list `shapes`')
    return document


def _flags(document: dict[str, Any]) -> Iterator[str]:
    """Yields 'flag' for each flag that is set, of the image or of a shape."""
    for item in (document, *document['shapes']):
        flags = item.get('flags') if isinstance(item, dict) else None
        yield from (
            ('flag' for is_set in flags.values() if is_set) if isinstance(flags, dict) else ()
        )


def _class_names(path: str, files: Files) -> set[str]:
    """Returns the classes of a file; none if it cannot be read, which the conversion counts."""
    try:
        items = _document(path, files)['shapes']
    except (OSError, DataError):
        return set()
    names = (item.get('label') for item in items if isinstance(item, dict))
    return {name for name in names if isinstance(name, str)}


def _kind(item: Any) -> str:
    """Returns the type of a shape; the first versions of LabelMe had polygons only."""
    if not isinstance(item, dict):
        raise UnusableError('bad_annotation', f'a shape must be an object, is {str(item)[:100]}')
    return str(item.get('shape_type') or _POLYGON)[:100]


def _embedded_image(document: dict[str, Any]) -> bytes:
    """Returns the image that a file of LabelMe holds; b'' if it holds none that can be read."""
    try:
        return base64.b64decode(document.get('imageData') or '')
    except (TypeError, ValueError):
        return b''


def _mask(encoded: Any, points: np.ndarray, file: ImageFile) -> np.ndarray:
    """Returns a mask, bool [H, W], of an image file in base 64 that fills a window."""
    try:
        content = base64.b64decode(encoded, validate=True)
    except (TypeError, ValueError) as error:
        raise UnusableError('bad_mask', f'mask must be an image in base 64: {error}') from error
    window = image_files.decode(content, file.height * file.width) > 0
    height, width = window.shape[:2]
    left, top = (int(value) for value in points[0].round())
    is_inside = 0 <= top <= file.height - height and 0 <= left <= file.width - width
    if window.ndim != 2 or not is_inside:
        text = f'the mask, {window.shape} at {points[0].tolist()}, leaves the image'
        raise UnusableError('bad_mask', text)
    mask = np.zeros((file.height, file.width), bool)
    mask[top : top + height, left : left + width] = window
    return mask
