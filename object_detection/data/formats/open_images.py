"""Data sets in the format of Open Images: CSV files of boxes, masks and image labels, by MIDs."""

import collections
import dataclasses
import itertools
import operator
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from object_detection.core import tf_example_keys as keys
from object_detection.data import file_access, image_files
from object_detection.data.annotated_image import (
    NO_ANNOTATIONS,
    AnnotatedObject,
    ClassLabel,
    ImageAnnotations,
    Provided,
    not_converted,
)
from object_detection.data.coco.annotations import EntryProblem, clean
from object_detection.data.file_access import Files
from object_detection.data.formats import csv_files, shapes
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
from object_detection.errors import UnusableError, UserError, expected, format_list
from object_detection.system.grouping import Groups, given

_SIDES = ('XMin', 'XMax', 'YMin', 'YMax')
_BOX_COLUMNS = ('ImageID', 'LabelName', *_SIDES)
_SEGMENT_COLUMNS = ('ImageID', 'LabelName', *(f'Box{side}' for side in _SIDES), 'MaskPath')
_LABEL_COLUMNS = ('ImageID', 'LabelName', 'Confidence')
_FLAGS = {
    'IsGroupOf': keys.GROUP_OF,
    'IsOccluded': keys.OCCLUDED,
    'IsTruncated': keys.TRUNCATED,
    'IsDepiction': keys.DEPICTION,
    'IsInside': keys.INSIDE,
}
_SPLITS = ('train', 'validation', 'test')
_WITHOUT_SEGMENT = 'box without a segmentation'
_MID = re.compile(r'/[a-z]/\w+')


@dataclasses.dataclass(frozen=True)
class OpenImagesSource(Source):
    """A data set in the format of Open Images.

    All images below the folder are read, also those that no CSV file names; rows of images that are
    not there are counted.

    Attributes:
      image_dir: folder of the images, which are named by their ids.
      boxes_file: CSV file of boxes; '' reads none.
      image_labels_file: CSV file of image-level labels with confidences; '' reads none.
      class_descriptions_file: CSV file of MIDs and names of the classes; '' names them by MID.
      segmentations_file: CSV file of segmentations, which are the objects then; `boxes_file` only
        says which are groups, occluded, ... '' reads none.
      masks_dir: folder of the mask files, or of folders of those with one first letter.
    """

    image_dir: str = option('', 'Folder of the images.', flag='images', required=True)
    boxes_file: str = option('', 'CSV file of boxes.', flag='boxes')
    image_labels_file: str = option(
        '', 'CSV file of image-level labels with confidences.', flag='image_labels'
    )
    class_descriptions_file: str = option(
        '', 'CSV file of MIDs and names of classes.', flag='class_descriptions'
    )
    segmentations_file: str = option(
        '',
        'CSV file of segmentations: its rows are the objects, with masks; boxes without one are '
        'left out.',
        flag='segmentations',
    )
    masks_dir: str = option('', 'Folder of the mask files of --segmentations.')

    def open(self, files: Files, label_map: LabelMap | None) -> DataSet:
        if not self._paths():
            raise UserError(
                'Open Images: expected --boxes, --segmentations or --image_labels. Received: none.'
            )
        if bool(self.segmentations_file) != bool(self.masks_dir):
            raise UserError('Open Images: expected --segmentations and --masks_dir. Received: one.')
        file_access.check_exists(self.image_dir, 'image folder', files)
        scan = self._scan(files)
        num_images = scan.groups.number('SELECT COUNT(DISTINCT id) FROM images')
        if not num_images:
            raise UserError(f'{self.image_dir}: expected images below it. Received: none.')
        labels = _labels(scan.mids, self._names(files), label_map)
        error = UnusableError(formats_source.DUPLICATE, 'another image has the same id')
        alike = (
            EntryProblem(error, name, key, None) for key, name in scan.groups.repeated_images()
        )
        if self.boxes_file and self.segmentations_file:
            for _, tables in scan.groups:
                boxes, segments, _ = _by_table(tables)
                drawn = {*map(_box_key, segments)}
                lost = (_WITHOUT_SEGMENT for row in boxes if _box_key(row) not in drawn)
                scan.notes.update(not_converted(lost))
        return DataSet(
            OpenImagesReader(self, labels, flags=tuple(scan.flags)),
            num_images,
            labels,
            (*scan.problems, *alike),
            notes=scan.notes,
        )

    def entries(self, files: Files) -> Iterator[ImageEntry]:
        scan = self._scan(files)
        for name, tables in scan.groups:
            boxes, segments, labels = _by_table(tables)
            if self.segmentations_file:
                boxes = _with_flags(segments, boxes, len(scan.flags))
            yield ImageEntry({'id': _stem(name), 'file_name': name, 'labels': labels}, boxes)

    @classmethod
    def detect(cls, folder: str, files: Files) -> list[Found]:
        tables: dict[str, tuple[str, ...]] = {}
        for name in files.list(folder, recursive=True):
            if file_access.has_suffix(name, '.csv'):
                path = file_access.join(folder, name)
                tables[name] = tuple(csv_files.header_of(path, files))
        boxes = [name for name, header in tables.items() if {*_BOX_COLUMNS} <= {*header}]
        if boxes:
            return [_found(cls, folder, name, tables, files) for name in boxes]
        segments = [name for name, header in tables.items() if {*_SEGMENT_COLUMNS} <= {*header}]
        return [_found(cls, folder, name, tables, files) for name in segments]

    def _paths(self) -> list[str]:
        paths = (self.boxes_file, self.segmentations_file, self.image_labels_file)
        return [path for path in paths if path]

    def _scan(self, files: Files) -> '_Scan':
        scan = _Scan(Groups(), set(), [], [], collections.Counter())
        for name in self._images(files):
            scan.groups.add_image(_stem(name), name, name)
        tables = (
            (self.boxes_file, _BOX_COLUMNS),
            (self.segmentations_file, _SEGMENT_COLUMNS),
            (self.image_labels_file, _LABEL_COLUMNS),
        )
        for number, (path, needed) in enumerate(tables):
            if path:
                self._read(path, needed, number, scan, files)
        return scan

    def _images(self, files: Files) -> Iterator[str]:
        """Yields the paths of the images below their folder."""
        masks = self.masks_dir and file_access.join(self.masks_dir, '')
        for name in filter(file_access.is_image, files.list(self.image_dir, recursive=True)):
            if not (masks and file_access.join(self.image_dir, name).startswith(masks)):
                yield name

    def _read(
        self, path: str, needed: tuple[str, ...], number: int, scan: '_Scan', files: Files
    ) -> None:
        """Adds the rows of a file, as [`number`, [[line, MID, values ...], ...]]."""
        table = csv_files.table(path, files, needed)
        flags = tuple(name for name in _FLAGS if needed == _BOX_COLUMNS and name in table.columns)
        indices = [table.columns[name] for name in (*needed[1:], *flags)]
        unread = csv_files.UnreadColumns(table.columns, (*needed, *flags))
        [[start]] = scan.groups.query('SELECT COUNT(*) FROM rows')
        # The rows of an image follow each other, as a rule.
        by_image = operator.itemgetter(table.columns['ImageID'])
        for image_id, group in itertools.groupby(table.rows, lambda row: by_image(row[1])):
            rows = []
            for line, fields in group:
                unread.add(fields)
                scan.mids.add(fields[indices[0]])
                rows.append([line, *(fields[i] for i in indices)])
            content = [number, rows] if scan.groups.has_image(image_id) else None
            scan.groups.add(image_id, content, len(rows))
        scan.flags.extend(flags)
        scan.notes.update(unread.notes())
        others = scan.groups.query(
            'SELECT image_id, SUM(id) FROM rows WHERE place > ? AND NOT EXISTS '
            '(SELECT 1 FROM images WHERE images.id = image_id) GROUP BY image_id ORDER BY place',
            start,
        )
        counts = {given(image_id): count for image_id, count in others}
        if counts:
            text = (
                f'{sum(counts.values())} rows of {path} are of {len(counts)} images that are not '
                f'in {self.image_dir}: {format_list(counts)}'
            )
            error = UnusableError('unknown_image', text)
            scan.problems.append(EntryProblem(error, None, None, None))

    def _names(self, files: Files) -> dict[str, str]:
        """Returns MID -> name of the described classes, in the order of the file."""
        path = self.class_descriptions_file
        if not path:
            return {}
        file_access.check_exists(path, 'file', files)
        names = {}
        for line, fields in csv_files.rows(path, files):
            if len(fields) != 2:
                raise expected(f'{path}, line {line}', 'a MID and a name', f'{len(fields)} fields')
            if fields[0] != 'LabelName':
                names[fields[0]] = clean(fields[1]) or fields[0]
        return names


class _Scan(NamedTuple):
    """The CSV files, read once as streams.

    Attributes:
      groups: paths of images by their ids, with the rows of all files.
      mids: MIDs of all rows.
      flags: names of the columns of flags.
      problems: rows that belong to no image.
      notes: the columns that are not read, as of `ImageAnnotations`.
    """

    groups: Groups
    mids: set[str]
    flags: list[str]
    problems: list[EntryProblem]
    notes: collections.Counter[str]


def _by_table(found: list[Any]) -> tuple[list[Any], list[Any], list[Any]]:
    """Returns the rows of boxes, segmentations and labels, from those of an image."""
    tables: tuple[list[Any], list[Any], list[Any]] = ([], [], [])
    for number, rows in found:
        tables[number].extend(rows)
    return tables


@dataclasses.dataclass(frozen=True)
class OpenImagesReader(SourceReader[OpenImagesSource]):
    """Reads images, see `SourceReader`; labels by the MID of a class.

    Attributes:
      flags: names of the columns of flags.
    """

    flags: tuple[str, ...] = ()

    @property
    def provided(self) -> Provided:
        return Provided(
            masks=bool(self.source.segmentations_file),
            details={_FLAGS[name]: int for name in self.flags},
        )

    def annotations(self, entry: ImageEntry, files: Files) -> ImageAnnotations:
        name = entry.image['file_name']
        annotations: list[tuple[Any, Any]] = [(f'line {row[0]}', row) for row in entry.annotations]
        if self.source.segmentations_file:
            annotations = [
                (line, (row[:-1], self._mask_file(row[-1], files))) for line, row in annotations
            ]
        labels, confidences = [], []
        for line, *row in entry.image['labels']:
            try:
                label, confidence = self._image_label(*row)
            except UnusableError as error:
                annotations.append((f'image label of line {line}', error))
                continue
            labels.append(label)
            confidences.append(confidence)
        details = {
            keys.IMAGE_CLASS_TEXT: np.array([label.text for label in labels], str),
            keys.IMAGE_CLASS_LABEL: np.array([label.label for label in labels], np.int64),
            keys.IMAGE_CLASS_CONFIDENCE: np.array(confidences, np.float64),
        }
        return ImageAnnotations(
            file_name=os.path.basename(name),
            source_id=entry.image['id'],
            annotations=annotations,
            paths=(file_access.path_within(self.source.image_dir, name),),
            details=details if entry.image['labels'] else {},
            notes={} if entry.annotations or entry.image['labels'] else {NO_ANNOTATIONS: 1},
        )

    def read_object(
        self, annotation: Any, file: ImageFile, *, rasterize: bool = True
    ) -> AnnotatedObject:
        if isinstance(annotation, UnusableError):
            raise annotation
        if not self.source.segmentations_file:
            return self.object_of(annotation, file)
        row, content = annotation
        found = self.object_of(row, file)
        if isinstance(content, UnusableError):
            raise content
        pixels = image_files.decode(content, self.max_pixels)
        # Masks may have another size than their images.
        mask = shapes.resized(pixels if pixels.ndim == 2 else pixels[..., 0], file) > 0
        drawn = shapes.of_mask(found.label, mask, file, rasterize=rasterize)
        return found._replace(mask=drawn.mask, area=drawn.area)

    def _mask_file(self, name: str, files: Files) -> bytes | UnusableError:
        """Returns the content of a mask file, or why there is none."""
        first, folder = name[:1], self.source.masks_dir
        folders = ('', first, first.upper(), *(f'{split}-masks-{first}' for split in _SPLITS))
        try:
            path = file_access.path_within(folder, name, 'MaskPath')
            paths = [path, *(file_access.join(folder, each, name) for each in folders[1:])]
            path = file_access.first_that_exists(paths, files) or path
            return files.read(path, shapes.MAX_MASK_FILE)
        except UnusableError as error:
            return error
        except OSError as error:
            return UnusableError('bad_mask', f'cannot be read: {error}')

    def object_of(self, annotation: Any, file: ImageFile) -> AnnotatedObject:
        _, mid, *values = annotation
        label = formats_source.label_of(mid, self.labels)
        xmin, xmax, ymin, ymax = map(shapes.number, values[:4], _SIDES)
        ymin, ymax = ymin * file.height, ymax * file.height
        xmin, xmax = xmin * file.width, xmax * file.width
        details = {
            _FLAGS[name]: _flag(value, name)
            for name, value in zip(self.flags, values[4:], strict=True)
        }
        return shapes.of_box(label, (ymin, xmin, ymax, xmax), file, details=details)

    def _image_label(self, mid: str, confidence: str) -> tuple[ClassLabel, float]:
        label = formats_source.label_of(mid, self.labels)
        number = shapes.number(confidence, 'Confidence')
        if not 0 <= number <= 1:
            raise UnusableError('bad_confidence', f'Confidence must be in [0, 1], is {number}')
        return label, number


def _box_key(row: list[Any]) -> tuple[str, ...]:
    """Returns the MID and the box of a row, to find it in another file."""
    _, mid, *sides = row[:6]
    try:
        return (mid, *(f'{float(side):.4f}' for side in sides))
    except ValueError:
        return (mid, *sides)


def _with_flags(
    segments: list[list[Any]], boxes: list[list[Any]], num_flags: int
) -> list[list[Any]]:
    """Returns [line, MID, sides ..., flags ..., mask] of each segmentation, flags of its box."""
    flags = {_box_key(row): row[6:] for row in boxes}
    unknown = ['-1'] * num_flags
    return [[*row[:6], *flags.get(_box_key(row), unknown), row[6]] for row in segments]


def _stem(name: str) -> str:
    return os.path.splitext(os.path.basename(name))[0]


def _flag(text: str, column: str) -> int:
    """Returns 0 or 1; 0 for -1, which says that it is unknown."""
    if text not in ('0', '1', '-1', ''):
        raise UnusableError('bad_annotation', f'{column} must be 0, 1 or -1, is {text[:100]!r}')
    return int(text == '1')


def _labels(
    mids: set[str], names: Mapping[str, str], label_map: LabelMap | None
) -> dict[str, ClassLabel]:
    """Returns MID -> label; without a label map, those of the descriptions come first.

    An item of a label map may be named by the MID, as in the reference system, or by the name.
    """
    ordered = [*dict.fromkeys((*names, *sorted(mids)))]
    texts = {mid: names.get(mid, mid) for mid in ordered}
    if label_map:
        texts = {mid: mid if mid in label_map.text_to_id else texts[mid] for mid in ordered}
    else:
        counts = collections.Counter(texts.values())
        texts = {mid: f'{text} {mid}' if counts[text] > 1 else text for mid, text in texts.items()}
    labels = formats_source.number_classes(texts.values(), label_map)
    return {mid: labels[clean(text)] for mid, text in texts.items() if clean(text) in labels}


def _found(
    cls: type[OpenImagesSource],
    folder: str,
    boxes: str,
    tables: Mapping[str, tuple[str, ...]],
    files: Files,
) -> Found:
    """Returns the data set of a file of boxes, or of segmentations."""
    split = next((name for name in _SPLITS if name in os.path.basename(boxes)), '')
    image_labels = [
        name
        for name, header in tables.items()
        if {*_LABEL_COLUMNS} <= {*header} and 'XMin' not in header and split in name
    ]
    described = [
        name
        for name, header in tables.items()
        if len(header) == 2 and (header[0] == 'LabelName' or _MID.fullmatch(header[0]))
    ]
    # The human-verified labels come before those of machines.
    image_labels.sort(key=lambda name: 'human' not in name)
    images = [f'images/{split}', split, 'images'] if split else ['images']
    image_dir = next((name for name in images if name and _has_images(folder, name, files)), '')
    paths = [file_access.join(folder, name) for name in (boxes, *image_labels[:1], *described[:1])]
    source = cls(
        image_dir=file_access.join(folder, image_dir) if image_dir else folder,
        boxes_file=paths[0],
        image_labels_file=paths[1] if image_labels else '',
        class_descriptions_file=paths[-1] if described else '',
    )
    of_masks = [name for name, header in tables.items() if {*_SEGMENT_COLUMNS} <= {*header}]
    if boxes in of_masks:
        places = (f'masks/{split}', 'masks', f'{split}-masks')
        masks = next((name for name in places if _has_images(folder, name, files)), places[1])
        masks_dir = file_access.join(folder, masks)
        return Found(
            split,
            dataclasses.replace(
                source, boxes_file='', segmentations_file=paths[0], masks_dir=masks_dir
            ),
            boxes,
        )
    further = next((name for name in of_masks if split in name), '')
    return Found(split, source, f'{boxes}; {further} has masks' if further else boxes)


def _has_images(folder: str, name: str, files: Files) -> bool:
    names = files.list(file_access.join(folder, name), recursive=True)
    return any(map(file_access.is_image, names))
