"""Data sets of a CSV file with a box on each line.

    filename,width,height,class,xmin,ymin,xmax,ymax     names of columns in the first line
    path,x1,y1,x2,y2,class                              RetinaNet: six columns, without names

The columns of the first form may have any order. A line with a name only is an image without
objects.
"""

import dataclasses
import os
from collections.abc import Iterator, Sequence
from typing import Any

from object_detection.data import annotated_image, file_access
from object_detection.data.annotated_image import AnnotatedObject, ImageAnnotations, Provided
from object_detection.data.file_access import Files
from object_detection.data.formats import csv_files, shapes
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
from object_detection.errors import UserError, format_list
from object_detection.system.grouping import Groups

# What a column may be called, in lower case.
_NAMES = {
    'filename': ('filename', 'file_name', 'path', 'image', 'image_path', 'image_name'),
    'class': ('class', 'label', 'class_name', 'label_name', 'category'),
    'xmin': ('xmin', 'x1', 'x_min', 'left'),
    'ymin': ('ymin', 'y1', 'y_min', 'top'),
    'xmax': ('xmax', 'x2', 'x_max', 'right'),
    'ymax': ('ymax', 'y2', 'y_max', 'bottom'),
}
_SIZE = {'width': ('width',), 'height': ('height',)}
_SIDES = ('xmin', 'ymin', 'xmax', 'ymax')
_RETINANET = ('filename', *_SIDES, 'class')


@dataclasses.dataclass(frozen=True)
class CsvSource(FileSource):
    """A data set of a CSV file."""

    def open(self, files: Files, label_map: LabelMap | None) -> DataSet:
        notes: dict[str, int] = {}
        names: set[str] = set()
        groups = self._scan(files, names, notes)
        if not groups.num_images():
            raise UserError(f'{self.annotations_file}: expected boxes. Received: none.')
        labels = formats_source.number_classes(names, label_map, sort=True)
        reader = CsvReader(self, labels, groups.names_are_alone())
        unlisted = file_access.unlisted(self.folder, groups.names(), files)
        return DataSet(reader, groups.num_images(), labels, unlisted=unlisted, notes=notes)

    def entries(self, files: Files) -> Iterator[ImageEntry]:
        for image, rows in self._scan(files, set(), {}):
            yield ImageEntry(image, rows)

    def _scan(self, files: Files, names: set[str], notes: dict[str, int]) -> Groups:
        """Returns the images with their rows; adds names of classes, and notes."""
        groups = Groups()
        for line, row in self._rows(files, notes):
            name = row.pop('filename')
            size = {key: row.pop(key, '') for key in _SIZE}
            if not groups.has_image(name):
                groups.add_image(name, name, {'id': name, 'file_name': name, **size})
            if any(row.values()):
                names.add(row['class'])
                groups.add(name, {'line': line, **row})
        return groups

    @classmethod
    def detect(cls, folder: str, files: Files) -> list[Found]:
        found, errors = [], []
        places = ('', 'annotations', 'data')
        for below, name, path in formats_source.listed(folder, places, '.csv', files):
            header = csv_files.header_of(path, files)
            if not _columns(header) and not _is_retinanet(header):
                continue
            split = file_access.without_suffix(name).removesuffix('_labels')
            try:
                source = cls(path, cls(path)._find_images(folder, split, files))
            except UserError as error:
                errors.append(error)
            else:
                found.append(Found(split, source, os.path.join(below, name)))
        found = formats_source.found_or_raise(found, errors)
        return [found[0]._replace(name='')] if len(found) == 1 else found

    def _rows(self, files: Files, notes: dict[str, int]) -> Iterator[tuple[int, dict[str, str]]]:
        """Yields (line number, column -> text) of each row; adds notes of other columns at last."""
        path = self.annotations_file
        file_access.check_exists(path, 'annotation file', files)
        rows = csv_files.rows(path, files)
        first = next(rows, (1, []))
        columns = _columns(first[1])
        if not columns and not _is_retinanet(first[1]):
            raise UserError(
                f'{path}: expected columns {", ".join(_NAMES)} named in the first line, or lines '
                f'{",".join(_RETINANET)}. Received: {format_list(first[1], 20) or "nothing"}.'
            )
        if not columns:
            columns = {name: index for index, name in enumerate(_RETINANET)}
            yield first[0], {name: first[1][index] for name, index in columns.items()}
        read = {first[1][index] for index in columns.values()}
        unread = csv_files.UnreadColumns({name: i for i, name in enumerate(first[1])}, read)
        for line, fields in csv_files.of_equal_length(path, rows, len(first[1])):
            unread.add(fields)
            yield line, {name: fields[index] for name, index in columns.items()}
        notes.update(unread.notes())

    def _find_images(self, folder: str, split: str, files: Files) -> str:
        """Returns the folder of the first image.

        Raises:
          UserError: if no folder has it.
        """
        parent = os.path.dirname(self.annotations_file)
        try:
            _, row = next(self._rows(files, {}), (0, {}))
        except UserError:
            return parent  # The conversion of the set says what is wrong with the file.
        candidates = [parent, folder]
        for name in (split, 'images', f'images/{split}', 'JPEGImages'):
            candidates += [file_access.join(each, name) for each in (parent, folder)]
        image = row.get('filename', '')
        if not (found := formats_source.first_with(candidates, image, files)):
            raise formats_source.without_images(self.annotations_file, 'CSV', image)
        return found


@dataclasses.dataclass(frozen=True)
class CsvReader(SourceReader[CsvSource]):
    """Reads images, see `SourceReader`; labels by the name of a class."""

    provided = Provided()

    def annotations(self, entry: ImageEntry, files: Files) -> ImageAnnotations:
        del files
        name = entry.image['file_name']
        found = file_access.image_paths(self.source.folder, name, is_alone=self.names_are_alone)
        return ImageAnnotations(
            file_name=name,
            source_id=name,
            annotations=[(f'line {row["line"]}', row) for row in entry.annotations],
            paths=found.paths,
            path_note=found.note,
            stated_size=annotated_image.stated_size(entry.image),
        )

    def object_of(self, annotation: Any, file: ImageFile) -> AnnotatedObject:
        label = formats_source.label_of(annotation['class'], self.labels)
        corners = [shapes.number(annotation[side], side) for side in _SIDES]
        return shapes.of_polygons(label, [shapes.rectangle(*corners)], file)


def _columns(header: Sequence[str]) -> dict[str, int]:
    """Returns the index of each column; {} if a needed one is not named."""
    indices = {name.lower(): index for index, name in reversed([*enumerate(header)])}
    columns = {}
    for column, names in (_NAMES | _SIZE).items():
        index = next((indices[name] for name in names if name in indices), None)
        if index is not None:
            columns[column] = index
    return columns if {*_NAMES} <= {*columns} else {}


def _is_retinanet(fields: Sequence[str]) -> bool:
    """Whether a line has a name of an image, and four numbers and a class, or nothing more."""
    if len(fields) != len(_RETINANET) or not file_access.is_image(fields[0]):
        return False
    return not any(fields[1:]) or all(
        text.replace('.', '', 1).removeprefix('-').isdecimal() for text in fields[1:5]
    )
