"""Data sets of the VGG Image Annotator, version 1 or 2: its JSON file, project or CSV file.

A region has the numbers of a shape, and attributes that the annotator has defined; one of them is
the class. (https://www.robots.ox.ac.uk/~vgg/software/via/)
"""

import collections
import dataclasses
import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from object_detection.data import file_access
from object_detection.data.annotated_image import (
    AnnotatedObject,
    ImageAnnotations,
    Provided,
    not_converted,
)
from object_detection.data.file_access import Files
from object_detection.data.formats import csv_files, shapes
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
from object_detection.errors import UnusableError, UserError, expected, format_list

_MAX_BYTES = 1 << 30
_SHAPE, _ATTRIBUTES = 'region_shape_attributes', 'region_attributes'
# The first name begins with # in files of version 1.
_COLUMNS = ('filename', 'file_attributes', _SHAPE, _ATTRIBUTES)
# What an attribute that is the class is usually called.
_CLASS_NAMES = ('class', 'label', 'name', 'category', 'type', 'object')
_POLYGON = 'polygon'
_AREAS = ('rect', 'circle', 'ellipse', _POLYGON)


@dataclasses.dataclass(frozen=True)
class ViaSource(FileSource):
    """A data set of the VGG Image Annotator.

    Attributes:
      annotations_file: JSON or CSV file.
      image_dir: folder of the images; '' is that of the file.
      attribute: name of the attribute of regions that is the class; '' is the only one, or one of
        `_CLASS_NAMES`.
      class_name: the class of all regions, if they have no attributes.
      masks: whether shapes are written as masks.
    """

    attribute: str = option('', 'The attribute of regions that is the class, if there are several.')
    class_name: str = option('object', 'Name of the class, if regions have no attributes.')
    masks: bool = option(False, 'Write the shapes as masks.')

    def open(self, files: Files, label_map: LabelMap | None) -> DataSet:
        entries = list(self.entries(files))
        if not entries:
            raise expected(self.annotations_file, 'images', 'none')
        attribute = self._attribute(entries)
        regions = [region for entry in entries for region in entry.annotations]
        names = {name for region in regions for name in _classes(region, attribute)}
        names = names if attribute else {self.class_name}
        labels = formats_source.number_classes(names, label_map, sort=True)
        images = [entry.image['file_name'] for entry in entries]
        alone = file_access.are_alone(images)
        others = collections.Counter(
            f'attribute {key}'
            for region in regions
            for key, value in _dict(region, _ATTRIBUTES).items()
            if key != attribute and value
        )
        return DataSet(
            ViaReader(self, labels, alone, attribute=attribute),
            len(entries),
            labels,
            unlisted=file_access.unlisted(self.folder, images, files),
            notes=not_converted(others.elements()),
        )

    def entries(self, files: Files) -> Iterator[ImageEntry]:
        file_access.check_exists(self.annotations_file, 'annotation file', files)
        is_csv = file_access.has_suffix(self.annotations_file, '.csv')
        # Projects may have images of one name and several sizes.
        images: dict[str, ImageEntry] = {}
        for name, attributes, regions in (self._of_csv if is_csv else self._of_json)(files):
            image = {'id': name, 'file_name': name, 'others': []}
            entry = images.setdefault(name, ImageEntry(image, []))
            entry.annotations.extend(regions)
            if isinstance(attributes, dict):
                entry.image['others'] += [
                    f'attribute {key} of an image' for key, value in attributes.items() if value
                ]
        yield from images.values()

    @classmethod
    def detect(cls, folder: str, files: Files) -> list[Found]:
        found, errors = [], []
        listed = [*formats_source.listed(folder, [''], '.json', files)]
        listed += formats_source.listed(folder, [''], '.csv', files)
        for _, name, path in listed:
            try:
                if name.lower().endswith('.csv'):
                    is_via = _SHAPE in csv_files.header_of(path, files)
                else:
                    is_via = shapes.may_have(files.read(path, _MAX_BYTES), 'shape_attributes')
                entries = list(cls(path).entries(files)) if is_via else []
            except (OSError, UserError):
                continue
            if not entries:
                continue
            regions = [region for entry in entries for region in entry.annotations]
            masks = any(_dict(region, _SHAPE).get('name') == _POLYGON for region in regions)
            image = entries[0].image['file_name']
            places = (folder, file_access.join(folder, 'images'))
            if where := formats_source.first_with(places, image, files):
                images = '' if where == folder else where
                found.append(Found(os.path.splitext(name)[0], cls(path, images, masks=masks), name))
            else:
                title = 'the VGG Image Annotator'
                errors.append(formats_source.without_images(path, title, image))
        found = formats_source.found_or_raise(found, errors)
        return [found[0]._replace(name='')] if len(found) == 1 else found

    def _of_json(self, files: Files) -> Iterator[tuple[str, Any, list[Any]]]:
        """Yields (name, attributes, regions) of images."""
        path = self.annotations_file
        document = file_access.parse_json(files.read(path, _MAX_BYTES), path)
        document = document if isinstance(document, dict) else {}
        # A project, or its annotations alone.
        images = document.get('_via_img_metadata', document)
        values = images.values() if isinstance(images, dict) else []
        for item in values:
            regions = item.get('regions') if isinstance(item, dict) else None
            name = item.get('filename') if isinstance(item, dict) else None
            # Regions of version 1 have numbers as keys.
            regions = [*regions.values()] if isinstance(regions, dict) else regions
            if not isinstance(name, str) or not isinstance(regions, list):
                what = 'images with `filename` and a list `regions`'
                raise expected(path, what, str(item)[:100])
            found = [
                {_SHAPE: each.get('shape_attributes'), _ATTRIBUTES: each.get(_ATTRIBUTES)}
                for each in (region if isinstance(region, dict) else {} for region in regions)
            ]
            yield name, item.get('file_attributes'), found

    def _of_csv(self, files: Files) -> Iterator[tuple[str, Any, list[Any]]]:
        """The same of a CSV file with a region in each line; shapes and attributes are JSON."""
        path = self.annotations_file
        header = [name.removeprefix('#') for name in csv_files.header_of(path, files)]
        if missing := [name for name in _COLUMNS if name not in header]:
            raise expected(path, f'the columns {", ".join(_COLUMNS)}', f'none {missing[0]}')
        indices = [header.index(name) for name in _COLUMNS]
        rows = csv_files.rows(path, files)
        next(rows)
        for line, fields in csv_files.of_equal_length(path, rows, len(header)):
            name, *values = (fields[index] for index in indices)
            try:
                of_image, shape, attributes = (json.loads(value or '{}') for value in values)
            except (ValueError, RecursionError) as error:
                raise expected(f'{path}, line {line}', 'shapes as JSON', error) from error
            yield name, of_image, [{_SHAPE: shape, _ATTRIBUTES: attributes}] if shape else []

    def _attribute(self, entries: list[ImageEntry]) -> str:
        """Returns the name of the attribute that is the class; '' if there is none.

        Raises:
          UserError: if `attribute` is no attribute, or several could be meant.
        """
        regions = (region for entry in entries for region in entry.annotations)
        names = {key for region in regions for key in _dict(region, _ATTRIBUTES)}
        if self.attribute in names or not (names or self.attribute):
            return self.attribute
        usual = [name for name in sorted(names) if name.lower() in _CLASS_NAMES]
        if not self.attribute and 1 in (len(names), len(usual)):
            return (usual if len(usual) == 1 else sorted(names))[0]
        what = 'the one of the attributes of regions that is the class'
        received = f'{self.attribute or "none"}, of {format_list(sorted(names)) or "none"}'
        raise expected('--attribute', what, received)


@dataclasses.dataclass(frozen=True)
class ViaReader(SourceReader[ViaSource]):
    """Reads images, see `SourceReader`; labels by the name of a class.

    Attributes:
      attribute: the attribute that is the class; '' if all objects have the same.
    """

    attribute: str = ''

    @property
    def provided(self) -> Provided:
        return Provided(masks=self.source.masks)

    def annotations(self, entry: ImageEntry, files: Files) -> ImageAnnotations:
        del files
        name = entry.image['file_name']
        found = file_access.image_paths(
            self.source.folder, name, key='filename', is_alone=self.names_are_alone
        )
        # A region with several marks of a checkbox is an object of each class.
        annotations = [
            (index, (region, of_class))
            for index, region in enumerate(entry.annotations)
            for of_class in _classes(region, self.attribute) or ['']
        ]
        return ImageAnnotations(
            file_name=name,
            source_id=name,
            annotations=annotations,
            paths=found.paths,
            path_note=found.note,
            notes=not_converted(entry.image['others']),
        )

    def read_object(
        self, annotation: tuple[Any, str], file: ImageFile, *, rasterize: bool = True
    ) -> AnnotatedObject:
        region, name = annotation
        name = name if self.attribute else self.source.class_name
        label = formats_source.label_of(name, self.labels)
        points = _points(_dict(region, _SHAPE))
        return shapes.of_polygons(
            label, [points], file, masks=self.source.masks, rasterize=rasterize
        )


def _dict(region: Any, key: str) -> Mapping[str, Any]:
    value = region.get(key) if isinstance(region, dict) else None
    return value if isinstance(value, dict) else {}


def _classes(region: Any, attribute: str) -> list[str]:
    """Returns the classes of a region: a text, or the keys of a checkbox that are set."""
    value = _dict(region, _ATTRIBUTES).get(attribute)
    if isinstance(value, dict):
        return [key for key, is_set in value.items() if is_set]
    return [value] if isinstance(value, str) and value else []


def _points(shape: Mapping[str, Any]) -> np.ndarray:
    """Returns the corners of a shape, float64 [n, 2]."""
    kind = str(shape.get('name'))[:100]

    def numbers(*keys: str) -> list[float]:
        return [shapes.number(shape.get(key), key) for key in keys]

    if kind == 'rect':
        x, y, width, height = numbers('x', 'y', 'width', 'height')
        return shapes.rectangle(x, y, x + width, y + height)
    if kind == 'circle':
        x, y, radius = numbers('cx', 'cy', 'r')
        return shapes.ellipse((x, y), (radius, radius))
    if kind == 'ellipse':
        x, y, *radii = numbers('cx', 'cy', 'rx', 'ry')
        turn = shapes.number(shape.get('theta') or 0, 'theta')  # Radians.
        return shapes.rotated(shapes.ellipse((x, y), radii), float(np.degrees(turn)), (x, y))
    if kind == _POLYGON:
        xs, ys = (shape.get(f'all_points_{axis}') for axis in 'xy')
        if not isinstance(xs, list) or not isinstance(ys, list) or len(xs) != len(ys):
            raise UnusableError('bad_points', 'all_points_x and all_points_y must be equally long')
        return shapes.points([*map(list, zip(xs, ys, strict=True))], 'all_points')
    raise UnusableError('unknown_shape', f'{kind}: expected {", ".join(_AREAS)}')
