"""CSV files: those of Open Images, and the table that `tfod predict` writes."""

import collections
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from object_detection.data.coco.annotations import clean
from object_detection.data.file_access import Files
from object_detection.data.formats import csv_files
from object_detection.dataset_tools.oid_hierarchical_labels_expansion import read_hierarchy
from object_detection.scoring import tables
from object_detection.scoring.tables import (
    Columns,
    DetectionTable,
    FieldError,
    GroundTruth,
    TruthImage,
)

_SIDES = ('YMin', 'XMin', 'YMax', 'XMax')
_BOXES = ('ImageID', 'LabelName', *_SIDES)
_LABELS = ('ImageID', 'LabelName', 'Confidence')
_GROUP = 'IsGroupOf'
_SCORES = ('Conf', 'Score', 'Confidence')
# Of `tfod predict --output_format csv`.
_PREDICTED = ('filename', 'width', 'height', 'class', 'score', 'ymin', 'xmin', 'ymax', 'xmax')


@dataclasses.dataclass(frozen=True)
class OpenImagesOptions:
    """Further files of ground truth of Open Images; '' for none.

    Attributes:
      image_labels: CSV file of image-level labels with confidences.
      class_descriptions: CSV file of MIDs and names of classes.
      class_hierarchy: JSON file of the classes above each class, to which its boxes and labels also
        belong; without it, they belong to their own class alone.
    """

    image_labels: str = ''
    class_descriptions: str = ''
    class_hierarchy: str = ''


def is_truth(header: list[str]) -> bool:
    """Whether the columns of a file are those of boxes of Open Images, without scores."""
    return {*_BOXES} <= {*header} and not is_open_images_detections(header)


def is_open_images_detections(header: list[str]) -> bool:
    """Whether the columns of a file are those of detections of Open Images.

    The boxes of Open Images have a column Confidence, too, which is 1, and flags.
    """
    is_scored = 'Conf' in header or 'Score' in header
    is_scored = is_scored or ('Confidence' in header and _GROUP not in header)
    return {*_BOXES} <= {*header} and is_scored


def is_predicted(header: list[str]) -> bool:
    """Whether the columns of a file are those that `tfod predict` writes."""
    return {*_PREDICTED} <= {*header}


def read_truth(path: str, files: Files, options: OpenImagesOptions) -> GroundTruth:
    """Reads boxes, and image-level labels, of Open Images; boxes are relative to their image.

    The images are those of both files. Classes are those of the descriptions in their order, or
    else of both files in the order of the alphabet.

    Raises:
      OSError: if a file cannot be read, or is too long.
      DataError: if a value of a file cannot be used.
    """
    above: Mapping[str, set[str]] = {}
    below: Mapping[str, set[str]] = {}
    if options.class_hierarchy:
        above, below = read_hierarchy(options.class_hierarchy)
    rows = []
    for line, values in _rows(path, files, _BOXES, _GROUP):
        with tables.record(path, f'line {line}'):
            rows.append((values, _checked_box(values)))
    labels = _read_labels(options.image_labels, files) if options.image_labels else []
    described = _read_names(options.class_descriptions, files) if options.class_descriptions else {}
    mids = {values['LabelName'] for values, _ in rows} | {mid for _, mid, _ in labels}
    mids |= {other for mid in mids for other in above.get(mid, ())}
    mids |= {other for mid in mids for other in below.get(mid, ()) if labels}
    numbers = {mid: i for i, mid in enumerate(dict.fromkeys((*described, *sorted(mids))), start=1)}
    columns = Columns(are_scored=False)
    verified: dict[str, set[int]] = {}
    for values, box in rows:
        image, mid = values['ImageID'], values['LabelName']
        verified.setdefault(image, set())
        for name in (mid, *sorted(above.get(mid, ()))):
            columns.add(image, numbers[name], box, is_group_of=values[_GROUP] == '1')
    for image, mid, confidence in labels:
        related = (above if confidence > 0 else below).get(mid, ())
        verified.setdefault(image, set()).update(numbers[name] for name in (mid, *related))
    return GroundTruth(
        path,
        _categories(numbers, described),
        {
            image: TruthImage((0, 0), np.array(sorted(found), np.int64) if labels else None)
            for image, found in verified.items()
        },
        columns.objects,
        {image: image for image in verified},
        tables.file_names({image: image for image in verified}),
        {},
        {described[mid]: numbers[mid] for mid in reversed(described)} | numbers,
        are_normalized=True,
    )


def _categories(numbers: Mapping[str, int], described: Mapping[str, str]) -> list[dict[str, Any]]:
    """Returns the classes, each with a name of its own."""
    names = [described.get(mid, mid) for mid in numbers]
    counts = collections.Counter(names)
    return [
        {'id': number, 'name': f'{name} {mid}' if counts[name] > 1 else name}
        for (mid, number), name in zip(numbers.items(), names, strict=True)
    ]


def _checked_box(values: Mapping[str, str]) -> tuple[float, ...]:
    for key in ('ImageID', 'LabelName'):
        if not values[key]:
            raise FieldError(key, 'text', '')
    if values[_GROUP] not in ('0', '1', '-1', ''):
        raise FieldError(_GROUP, '0, 1 or -1', values[_GROUP])
    return tables.corners(values, _SIDES)


def _read_labels(path: str, files: Files) -> list[tuple[str, str, float]]:
    """Returns (image, MID, confidence) of each image-level label."""
    found = []
    for line, values in _rows(path, files, _LABELS):
        with tables.record(path, f'line {line}'):
            confidence = tables.text_number(values['Confidence'], 'Confidence')
            if not 0 <= confidence <= 1:
                raise FieldError('Confidence', 'a number from 0 to 1', confidence)
            found.append((values['ImageID'], values['LabelName'], confidence))
    return found


def _read_names(path: str, files: Files) -> dict[str, str]:
    """Returns MID -> name, in the order of the file."""
    names = {}
    for line, fields in csv_files.rows(path, files):
        if len(fields) != 2:
            with tables.record(path, f'line {line}'):
                raise FieldError('line', 'a MID and a name', ','.join(fields))
        if fields[0] != 'LabelName':
            names[fields[0]] = clean(fields[1]) or fields[0]
    return names


def read_open_images_detections(path: str, files: Files, truth: GroundTruth) -> DetectionTable:
    """Reads detections: ImageID, LabelName (MID or name), Conf, XMin, XMax, YMin, YMax from 0 to 1.

    Raises:
      OSError: if it cannot be read, or is too long.
      DataError: if a value of it cannot be used or is unknown, or the images have no size.
    """
    header = csv_files.header_of(path, files)
    score_column = next((name for name in _SCORES if name in header), _SCORES[0])
    columns = Columns(are_scored=True)
    for line, values in _rows(path, files, (*_BOXES, score_column)):
        with tables.record(path, f'line {line}'):
            image = truth.image_of(values['ImageID'], 'ImageID')
            label = truth.class_of_name(values['LabelName'], 'LabelName')
            score = tables.text_number(values[score_column], score_column)
            corners = tables.corners(values, _SIDES)
            if not truth.are_normalized:
                corners = _scaled(corners, truth.size_of(image))
            columns.add(image, label, corners, score)
    return DetectionTable(path, columns.count, columns.objects)


def read_predicted(path: str, files: Files, truth: GroundTruth) -> DetectionTable:
    """Reads the table of `tfod predict`: images by the names of their files, classes by name.

    Raises:
      OSError: if it cannot be read, or is too long.
      DataError: if a value of it cannot be used or is unknown.
    """
    columns = Columns(are_scored=True)
    for line, values in _rows(path, files, _PREDICTED):
        with tables.record(path, f'line {line}'):
            image = truth.image_of_file(values['filename'], 'filename')
            if not values['class']:
                continue  # An image without detections.
            label = truth.class_of_name(values['class'], 'class')
            score = tables.text_number(values['score'], 'score')
            corners = tables.corners(values, _PREDICTED[-4:])
            if truth.are_normalized:
                size = [tables.text_number(values[name], name) for name in ('height', 'width')]
                if min(size) <= 0:
                    raise FieldError('height, width', 'numbers above 0', size)
                corners = _scaled(corners, [1 / size[0], 1 / size[1]])
            columns.add(image, label, corners, score)
    note = f'{path} has only detections above a score, rounded; detections.json has all.'
    return DetectionTable(path, columns.count, columns.objects, notes=(note,))


def _scaled(corners: tuple[float, ...], size: Sequence[float]) -> tuple[float, ...]:
    scales = (*size, *size)
    return tuple(side * scale for side, scale in zip(corners, scales, strict=True))


def _rows(
    path: str, files: Files, required: tuple[str, ...], optional: str = ''
) -> Iterator[tuple[int, dict[str, str]]]:
    """Yields the number and the fields of each line; '' for an optional column that is absent."""
    table = csv_files.table(path, files, required)
    for line, fields in table.rows:
        values = {name: fields[table.columns[name]] for name in required}
        if optional:
            column = table.columns.get(optional)
            values[optional] = '' if column is None else fields[column]
        yield line, values
