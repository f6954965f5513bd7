"""Data sets of Create ML: a JSON file with the boxes of all images, by their centers in pixels.

    [{"image": "a.jpg", "annotations": [{"label": "cat", "coordinates":
      {"x": 70, "y": 40, "width": 100, "height": 60}}]}, ...]

(https://developer.apple.com/documentation/createml/building-an-object-detector-data-source)
"""

import dataclasses
import os
from collections.abc import Iterator
from typing import Any

from object_detection.data import file_access
from object_detection.data.annotated_image import AnnotatedObject, ImageAnnotations, Provided
from object_detection.data.file_access import Files
from object_detection.data.formats import shapes
from object_detection.data.formats import source as formats_source
from object_detection.data.formats.source import (
    DataSet,
    FileSource,
    Found,
    ImageEntry,
    SourceReader,
)
from object_detection.data.image_files import ImageFile
from object_detection.data.label_map import LabelMap
from object_detection.errors import UnusableError, UserError, expected

_MAX_BYTES = 1 << 30
# The first forms of the format had other names.
_IMAGE, _ANNOTATIONS = ('image', 'imagefilename'), ('annotations', 'annotation')
_SIDES = ('x', 'y', 'width', 'height')


@dataclasses.dataclass(frozen=True)
class CreateMlSource(FileSource):
    """A data set of Create ML."""

    def open(self, files: Files, label_map: LabelMap | None) -> DataSet:
        entries = list(self.entries(files))
        if not entries:
            raise expected(self.annotations_file, 'images', 'none')
        items = (item for entry in entries for item in entry.annotations if isinstance(item, dict))
        names = {name for item in items if isinstance(name := item.get('label'), str)}
        labels = formats_source.number_classes(names, label_map, sort=True)
        images = [entry.image['file_name'] for entry in entries]
        reader = CreateMlReader(self, labels, file_access.are_alone(images))
        unlisted = file_access.unlisted(self.folder, images, files)
        return DataSet(reader, len(entries), labels, unlisted=unlisted)

    def entries(self, files: Files) -> Iterator[ImageEntry]:
        path = self.annotations_file
        file_access.check_exists(path, 'annotation file', files)
        document = file_access.parse_json(files.read(path, _MAX_BYTES), path)
        for index, item in enumerate(document if isinstance(document, list) else [document]):
            found = item if isinstance(item, dict) else {}
            name = next((found[key] for key in _IMAGE if isinstance(found.get(key), str)), '')
            listed = next((found[key] for key in _ANNOTATIONS if key in found), None)
            if not name or not isinstance(listed, list):
                what = 'a list of objects with `image` and a list `annotations`'
                raise expected(f'{path}: entry {index}', what, str(item)[:100])
            yield ImageEntry({'id': name, 'file_name': name}, listed)

    @classmethod
    def detect(cls, folder: str, files: Files) -> list[Found]:
        found, errors = [], []
        for _, name, path in formats_source.listed(folder, [''], '.json', files):
            try:
                if not shapes.may_have(files.read(path, _MAX_BYTES), 'coordinates'):
                    continue
                entries = list(cls(path).entries(files))
            except (OSError, UserError):
                continue
            if not any(_coordinates(item) for entry in entries for item in entry.annotations):
                continue
            image = entries[0].image['file_name']
            places = (folder, file_access.join(folder, 'images'))
            if not formats_source.first_with(places, image, files):
                errors.append(formats_source.without_images(path, 'Create ML', image))
                continue
            images = places[1] if files.exists(places[1]) else ''
            found.append(Found(os.path.splitext(name)[0], cls(path, images), name))
        found = formats_source.found_or_raise(found, errors)
        return [found[0]._replace(name='')] if len(found) == 1 else found


@dataclasses.dataclass(frozen=True)
class CreateMlReader(SourceReader[CreateMlSource]):
    """Reads images, see `SourceReader`; labels by the name of a class."""

    provided = Provided()

    def annotations(self, entry: ImageEntry, files: Files) -> ImageAnnotations:
        del files
        name = entry.image['file_name']
        found = file_access.image_paths(
            self.source.folder, name, key='image', is_alone=self.names_are_alone
        )
        return ImageAnnotations(
            file_name=name,
            source_id=name,
            annotations=list(enumerate(entry.annotations)),
            paths=found.paths,
            path_note=found.note,
        )

    def object_of(self, annotation: Any, file: ImageFile) -> AnnotatedObject:
        given = _coordinates(annotation)
        if not given:
            raise UnusableError('bad_box', f'it has no coordinates: {str(annotation)[:100]}')
        label = formats_source.label_of(annotation.get('label'), self.labels)
        x, y, width, height = (shapes.number(given.get(side), side) for side in _SIDES)
        corners = (y - height / 2, x - width / 2, y + height / 2, x + width / 2)
        return shapes.of_box(label, corners, file, f'the center and size are {given}')


def _coordinates(annotation: Any) -> dict[str, Any]:
    """Returns the coordinates of an object; {} if it has none."""
    found = annotation.get('coordinates') if isinstance(annotation, dict) else None
    return found if isinstance(found, dict) else {}
