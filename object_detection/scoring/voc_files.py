"""Ground truth of PASCAL VOC, a folder of XML files, and its result files, one for each class."""

import re
from collections.abc import Iterator

from lxml import etree

from object_detection.data import file_access
from object_detection.data.file_access import Files
from object_detection.data.formats import csv_files, voc
from object_detection.errors import DataError, UnusableError
from object_detection.scoring import tables
from object_detection.scoring.tables import (
    Columns,
    DetectionTable,
    FieldError,
    GroundTruth,
    TruthImage,
)
from object_detection.system import texts

_FOLDERS = ('', 'Annotations', 'annotations')
_XML = '.xml'
# comp4_det_test_CLASS.txt: the competition, the set of images, and the class, which may contain _.
_RESULTS = re.compile(r'(?:comp\d+_)?det_[^_]+_(.+)\.txt')
_COLUMNS = ('image', 'score', 'xmin', 'ymin', 'xmax', 'ymax')
_SIDES = ('ymin', 'xmin', 'ymax', 'xmax')


def find_truth(folder: str, files: Files) -> str | None:
    """Returns the folder of XML files, `folder` or its Annotations; None if there is none."""
    for name in _FOLDERS:
        path = file_access.join(folder, name) if name else folder
        if any(item.endswith(_XML) for item in files.list(path)):
            return path
    return None


def read_truth(path: str, files: Files) -> GroundTruth:
    """Reads the XML files of a folder, or of its Annotations, each the name of an image.

    Corners are taken as they are. Classes are those of all files, in the order of the alphabet.

    Raises:
      OSError: if a file cannot be read, or is too long.
      DataError: if there is none, or a value of it cannot be used.
    """
    folder = find_truth(path, files)
    if folder is None:
        raise DataError(f'{path}: expected a folder of XML files, or with a folder Annotations.')
    images, names, classes, found = {}, {}, {}, []
    for file in files.list(folder):
        if not file.endswith(_XML):
            continue
        stem, where = file.removesuffix(_XML), file_access.join(folder, file)
        with tables.record(where):
            annotation = csv_files.read(where, files)
            if annotation.tag != 'annotation':
                raise UnusableError('bad_annotations', f'expected <annotation>: {annotation.tag}')
            height, width = voc.stated_size(annotation)
        images[stem] = TruthImage((height or 0, width or 0))
        names[stem] = csv_files.text(annotation, 'filename', stem)
        for item in annotation.iterfind('object'):
            found.append((stem, item))
            classes[csv_files.text(item, 'name')] = 0
    classes = {name: number for number, name in enumerate(sorted(classes), start=1)}
    columns, counts = Columns(are_scored=False), dict.fromkeys(images, 0)
    for stem, item in found:
        with tables.record(file_access.join(folder, stem + _XML), f'object {counts[stem]}'):
            _add(columns, stem, item, classes)
        counts[stem] += 1
    return GroundTruth(
        path,
        [{'id': number, 'name': name} for name, number in classes.items()],
        images,
        columns.objects,
        {stem: stem for stem in images},
        tables.file_names(names) | tables.file_names({stem: stem for stem in images}),
        {},
        classes,
    )


def _add(columns: Columns, stem: str, item: etree._Element, classes: dict[str, int]) -> None:
    name = csv_files.text(item, 'name')
    if not name:
        raise FieldError('name', 'the name of a class', name)
    if item.find('bndbox') is None:
        raise FieldError('bndbox', 'the corners of a box', tables.ABSENT)
    sides = {side: csv_files.text(item, f'bndbox/{side}') for side in _SIDES}
    is_difficult = bool(voc.details_of(item)[voc.keys.DIFFICULT])
    corners = tables.corners(sides, _SIDES)
    columns.add(stem, classes[name], corners, is_difficult=is_difficult)


def is_results(folder: str, files: Files) -> bool:
    """Whether a folder has result files of classes."""
    return any(_RESULTS.fullmatch(name) for name in files.list(folder))


def read_detections(path: str, files: Files, truth: GroundTruth) -> DetectionTable:
    """Reads the result files of a folder, comp4_det_test_CLASS.txt; other files are left alone.

    Each line is an image, a score and a box in pixels: xmin ymin xmax ymax.

    Raises:
      OSError: if a file cannot be read, or is too long.
      DataError: if there is none, or a value of it cannot be used or is unknown.
    """
    named = {name: _RESULTS.fullmatch(name) for name in files.list(path)}
    named = {name: match[1] for name, match in named.items() if match}
    if not named:
        raise DataError(f'{path}: expected files such as comp4_det_test_CLASS.txt. Received: none.')
    columns = Columns(are_scored=True)
    for name, class_name in named.items():
        file = file_access.join(path, name)
        with tables.record(path, name):
            label = truth.class_of_name(class_name, 'name of the file')
        for line, fields in lines(file, files):
            with tables.record(file, f'line {line}'):
                if len(fields) != len(_COLUMNS):
                    raise FieldError('line', ' '.join(_COLUMNS), ' '.join(fields))
                values = dict(zip(_COLUMNS, fields, strict=True))
                image = truth.image_of(values['image'], 'image')
                score = tables.text_number(values['score'], 'score')
                columns.add(image, label, tables.corners(values, _SIDES), score)
    return DetectionTable(path, columns.count, columns.objects)


def lines(path: str, files: Files) -> Iterator[tuple[int, list[str]]]:
    """Yields the number and the fields of each line that is not empty."""
    text = texts.decode(files.read(path, tables.MAX_BYTES), path)
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip():
            yield number, line.split()
