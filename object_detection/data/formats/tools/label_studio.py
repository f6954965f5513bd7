"""Data sets of Label Studio: its exports "JSON" and "JSON-MIN", one file with all tasks."""

import collections
import dataclasses
import os
import re
import urllib.parse
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from object_detection.data import annotated_image, file_access
from object_detection.data.annotated_image import (
    AnnotatedObject,
    ImageAnnotations,
    Provided,
    not_converted,
)
from object_detection.data.file_access import Files
from object_detection.data.formats import outlines, shapes
from object_detection.data.formats import source as formats_source
from object_detection.data.formats.source import (
    DataSet,
    FileSource,
    Found,
    ImageEntry,
    SourceReader,
    option,
)
from object_detection.data.image_files import ImageFile
from object_detection.data.label_map import LabelMap
from object_detection.errors import UnusableError, UserError

_MAX_BYTES = 1 << 30
# Kinds of labels of regions: the value of a region has a list under this key.
_RECTANGLE, _POLYGON, _ELLIPSE = 'rectanglelabels', 'polygonlabels', 'ellipselabels'
_BRUSH, _KEYPOINT = 'brushlabels', 'keypointlabels'
_PREDICTED = 'predictions'
_AREAS = (_RECTANGLE, _POLYGON, _ELLIPSE, _BRUSH)
# Keys of values that are said of a region, and do not draw it.
_NOT_DRAWN = {'choices', 'text', 'rating', 'number', 'datetime', 'taxonomy'}
# What Label Studio puts before the names of uploaded files.
_UPLOAD = re.compile(r'[0-9a-f]{8}-')


@dataclasses.dataclass(frozen=True)
class LabelStudioSource(FileSource):
    """A data set of Label Studio.

    A task with several annotations is read with the one that is marked as ground truth, or the
    first that was not cancelled and has regions.

    Attributes:
      annotations_file: JSON file.
      image_dir: folder of the images; '' is the folder of the JSON file.
      masks: whether shapes are written as masks.
      keep_not_annotated: whether tasks that nobody has finished are images without objects.
      predictions: whether the predictions of such tasks are read, the pre-labels of a model.
    """

    masks: bool = option(False, 'Write the shapes as masks.')
    keep_not_annotated: bool = option(False, 'Keep tasks without annotations, as empty images.')
    predictions: bool = option(False, 'Read the predictions of tasks without annotations.')

    def open(self, files: Files, label_map: LabelMap | None) -> DataSet:
        entries = list(self.entries(files))
        if not entries:
            raise UserError(f'{self.annotations_file}: expected tasks. Received: none.')
        names = {
            name for entry in entries for item in entry.annotations if (name := _class_of(item)[1])
        }
        labels = formats_source.number_classes(names, label_map, sort=True)
        images = [entry.image['file_name'] for entry in entries]
        reader = LabelStudioReader(self, labels, file_access.are_alone(images))
        images += [_UPLOAD.sub('', os.path.basename(name), count=1) for name in images]
        unlisted = file_access.unlisted(self.folder, images, files)
        return DataSet(reader, len(entries), labels, unlisted=unlisted)

    def entries(self, files: Files) -> Iterator[ImageEntry]:
        tasks = self._tasks(files)
        numbers = [str(task.get('id', index)) for index, task in enumerate(tasks)]
        counts = collections.Counter(numbers)
        for number, task in zip(numbers, tasks, strict=True):
            data = task.get('data', task)
            name = _image_name(data) if isinstance(data, dict) else ''
            # Exports of several projects in one file may number their tasks alike.
            image_id = f'{number}/{name}' if counts[number] > 1 else number
            annotation, problem = _annotation_of(task, predictions=self.predictions), ()
            if annotation is None and not self.keep_not_annotated:
                text = 'its task has no annotation, or was skipped'
                problem = (formats_source.NOT_ANNOTATED, text)
            image = {'id': image_id, 'file_name': name, 'others': _others(annotation or {})}
            yield ImageEntry(image, [] if annotation is None else _regions(annotation), problem)

    @classmethod
    def detect(cls, folder: str, files: Files) -> list[Found]:
        for _, name, path in formats_source.listed(folder, [''], '.json', files):
            # A list of tasks; other JSON files take long to parse.
            if files.head(path, 1) == b'{':
                continue
            try:
                entries = list(cls(path).entries(files))
            except (OSError, ValueError):
                continue
            kinds = {_class_of(item)[0] for entry in entries for item in entry.annotations}
            if not kinds.isdisjoint(_AREAS):
                images = file_access.join(folder, 'images')
                images = images if files.exists(images) else ''
                made = cls(path, images, masks=not kinds.isdisjoint((_POLYGON, _BRUSH)))
                return [Found('', made, f'{name} with regions')]
        return []

    def _tasks(self, files: Files) -> list[dict[str, Any]]:
        path = self.annotations_file
        file_access.check_exists(path, 'annotation file', files)
        document = file_access.parse_json(files.read(path, _MAX_BYTES), path)
        if not isinstance(document, list) or not all(isinstance(task, dict) for task in document):
            raise UserError(f'{path}: expected a list of tasks, as Label Studio exports it.')
        return document


@dataclasses.dataclass(frozen=True)
class LabelStudioReader(SourceReader[LabelStudioSource]):
    """Reads images, see `SourceReader`; labels by the name of a class."""

    @property
    def provided(self) -> Provided:
        return Provided(masks=self.source.masks)

    def annotations(self, entry: ImageEntry, files: Files) -> ImageAnnotations:
        del files
        folder, name = self.source.folder, entry.image['file_name']
        base = os.path.basename(name)
        places = [
            file_access.image_paths(folder, each, key='the image', is_alone=self.names_are_alone)
            for each in (name, _UPLOAD.sub('', base, count=1))
        ]
        # A region has an entry for each of several controls of the labelling interface.
        found = shapes.grouped(
            (
                (item.get('id', index) if isinstance(item, dict) else index, item)
                for index, item in enumerate(entry.annotations)
            ),
            _region_of,
            lambda item: _class_of(item)[0] == _RECTANGLE,
        )
        return ImageAnnotations(
            file_name=base,
            source_id=entry.image['id'],
            annotations=found.annotations,
            paths=tuple(path for each in places for path in each.paths),
            path_note=places[0].note,
            stated_size=_stated_size(entry.annotations),
            notes={**found.notes, **not_converted(entry.image['others'])},
        )

    def read_object(
        self, annotation: list[Any], file: ImageFile, *, rasterize: bool = True
    ) -> AnnotatedObject:
        kind, name = _class_of(annotation[0])
        if not kind and isinstance(annotation[0], dict):
            raise UnusableError('unknown_category', 'the region has no label')
        if kind not in _AREAS:
            raise UnusableError(
                'unknown_shape',
                f'a region of the type {kind or "unknown"} is not read; expected rectangles, '
                'polygons, ellipses or brush labels',
            )
        label = formats_source.label_of(name, self.labels)
        parts = [_part(item, file) for item in annotation]
        return shapes.of_parts(label, parts, file, masks=self.source.masks, rasterize=rasterize)


def _region_of(item: Any) -> tuple[str, str] | None:
    """Returns what the entries of one region have in common; None for an entry without an id."""
    kind, name = _class_of(item)
    region = item.get('id') if isinstance(item, dict) else None
    is_area = kind in _AREAS and name
    return (name, region) if is_area and isinstance(region, str) and region else None


def _part(item: Any, file: ImageFile) -> np.ndarray:
    """Returns a region as a polygon or a mask, see `shapes.of_parts`."""
    kind, value = _class_of(item)[0], _value(item)
    if kind == _BRUSH:
        return _mask(value.get('rle'), file)
    scale = np.array([file.width, file.height]) / 100  # Percent of the image.
    if kind == _POLYGON:
        return shapes.points(value.get('points'), 'points') * scale
    degrees = shapes.number(value.get('rotation') or 0, 'rotation')
    start = np.array([shapes.number(value.get(key), key) for key in ('x', 'y')]) * scale
    sides = ('width', 'height') if kind == _RECTANGLE else ('radiusX', 'radiusY')
    size = np.array([shapes.number(value.get(key), key) for key in sides]) * scale
    is_box = kind == _RECTANGLE
    points = shapes.rectangle(0, 0, *size.tolist()) if is_box else shapes.ellipse((0, 0), size)
    # Around the first corner of a rectangle, or the middle of an ellipse.
    return shapes.rotated(points, degrees, (0, 0)) + start


def _mask(rle: Any, file: ImageFile) -> np.ndarray:
    """Returns a brush label, bool [H, W]: the opaque pixels of a picture of four channels."""
    try:
        packed = bytes(rle if isinstance(rle, list) else [])
    except (TypeError, ValueError) as error:
        raise UnusableError('bad_mask', f'rle must be a list of bytes: {error}') from error
    pixels = outlines.unpack_rle(packed, file.height * file.width * 4)
    return pixels[3::4].reshape(file.height, file.width) > 0


def _image_name(data: Mapping[str, Any]) -> str:
    """Returns the path of a task's image: the first value that names one."""
    for value in data.values():
        if not isinstance(value, str):
            continue
        try:
            url = urllib.parse.urlsplit(value)
        except ValueError:
            continue
        local = urllib.parse.parse_qs(url.query).get('d')
        name = local[0] if local else urllib.parse.unquote(url.path)
        if file_access.is_image(name):
            return name.replace('\\', '/')
    return ''


def _annotation_of(
    task: Mapping[str, Any], *, predictions: bool = False
) -> Mapping[str, Any] | None:
    """Returns the annotation of a task that is read, with its 'result'; None if there is none."""
    annotations, predicted = task.get('annotations', task.get('completions')), task.get(_PREDICTED)
    if isinstance(annotations, list) or isinstance(predicted, list):
        usable = (item for item in annotations or () if isinstance(item, dict))
        found = min(
            (item for item in usable if not item.get('was_cancelled')),
            key=lambda item: (not item.get('ground_truth'), not _regions(item)),
            default=None,
        )
        if found is None and predictions:
            # The newest is the last one.
            found = next(
                (item for item in reversed(predicted or []) if isinstance(item, dict)), None
            )
        return found
    # JSON-MIN has a list for each tag of the labelling interface.
    lists = [value for value in task.values() if isinstance(value, list)]
    regions = [value for value in lists if any(_class_of(item)[0] for item in value)]
    return {'result': [item for value in regions for item in value]}


def _regions(annotation: Mapping[str, Any]) -> list[Any]:
    """Returns the regions of an annotation, once for each label, also those without one."""
    results = [item for item in _list_of_results(annotation) if not _is_keypoint(item)]
    # The shape and the label of a region may be results of their own with the same id.
    labelled = {str(item.get('id')) for item in results if _class_of(item)[0]} - {'None'}
    regions = [
        item
        for item in results
        if not isinstance(item, dict)
        or _class_of(item)[0]
        or (_is_shape(item) and str(item.get('id')) not in labelled)
    ]
    return [each for item in regions for each in _of_one_class(item)]


def _others(annotation: Mapping[str, Any]) -> list[str]:
    """Returns the types of the results that are no regions, such as choices, also of a region."""
    return [
        str(item.get('type') or 'result')
        for item in _list_of_results(annotation)
        if _is_keypoint(item)
        or (
            isinstance(item, dict)
            and not _class_of(item)[0]
            and not (_is_shape(item) and _NOT_DRAWN.isdisjoint(_value(item)))
        )
    ]


def _is_keypoint(item: Any) -> bool:
    """Whether a result is a keypoint of another region."""
    return isinstance(item, dict) and bool(item.get('parentID')) and _class_of(item)[0] == _KEYPOINT


def _list_of_results(annotation: Mapping[str, Any]) -> list[Any]:
    results = annotation.get('result')
    return results if isinstance(results, list) else [results]


def _is_shape(item: Any) -> bool:
    return not {'x', 'points', 'rle'}.isdisjoint(_value(item))


def _of_one_class(item: Any) -> list[Any]:
    """Returns a region once for each of its labels."""
    value, key = _value(item), _class_of(item)[0]
    if not key or len(value[key]) < 2:
        return [item]
    values = [{**value, key: [label]} for label in value[key]]
    return [{**item, 'value': each} if 'value' in item else each for each in values]


def _value(item: Any) -> Mapping[str, Any]:
    """Returns the values of a region: in JSON-MIN they are the region itself."""
    value = item.get('value', item) if isinstance(item, dict) else None
    return value if isinstance(value, dict) else {}


def _class_of(item: Any) -> tuple[str, str]:
    """Returns the kind of a region's labels and the first of them; '' where there is none."""
    for key, labels in _value(item).items():
        if key.endswith('labels') and isinstance(labels, list):
            name = labels[0] if labels else ''
            return key, name if isinstance(name, str) else ''
    return '', ''


def _stated_size(annotations: list[Any]) -> tuple[int | None, int | None]:
    first = next((item for item in annotations if isinstance(item, dict)), {})
    return annotated_image.stated_size(first, 'original_height', 'original_width')
