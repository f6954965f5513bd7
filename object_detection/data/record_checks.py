"""Checks a record as training would read it, without TensorFlow.

The kinds of problems are those of `data/pipeline/bad_records.py` and `data/objects.py`, which count
what a training skips; further kinds name what trains, but not as was probably meant.
"""

import hashlib
import io
import math
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet
from PIL import Image

from object_detection.core import tf_example_keys as keys
from object_detection.data import annotated_image, annotation_checks, image_files
from object_detection.errors import UnusableError
from object_detection.protos.tf_example_pb2 import TfExample
from object_detection.resizers.value_range import ValueRange

# Kind -> what it means. A training skips such a record.
RECORD_KINDS = {
    'truncated_file': 'the file ends within the record',
    'corrupt_length': 'no record begins where the one before ends',
    'no_tfrecord_file': 'the file is of another kind, such as compressed records',
    'corrupt_checksum': 'the content has another checksum than when it was written',
    'unreadable_file': 'the system could not read the file',
    'not_an_example': 'the record is no tf.Example, or a key has values of another type',
    'image': 'the image does not decode, or has a format that is not supported',
    'image_too_large': 'the image has more pixels than max_image_pixels',
    'mask': 'an instance mask does not decode, or has another size than the image',
    'number_of_values': 'a key does not have one value for each box',
    'class_above_num_classes': 'a class id is greater than num_classes of the model',
}
# A training leaves out such an object.
OBJECT_KINDS = {
    'nan_box': 'a coordinate is NaN or infinite',
    'inverted_box': 'a maximum is less than its minimum',
    'box_without_area': 'a maximum equals its minimum',
    'box_outside_image': 'nothing of the box is inside the image',
    'unknown_class': 'the class is not in the label map, or several share its display_name',
}
# A training uses these records and objects; each count is a number of records.
WARNING_KINDS = {
    'no_objects': 'the image has no usable object',
    'box_beyond_image': 'a box extends beyond the image, where it is clipped',
    'tiny_box': 'an object is less than a pixel high or wide',
    'duplicate_box': 'two objects of one class have the same box',
    'stated_size': f'{keys.HEIGHT} and {keys.WIDTH} are not the size of the image',
    'no_source_id': f'{keys.SOURCE_ID} is missing or empty',
    'too_many_objects': 'the image has more objects than max_number_of_boxes',
    'upper_8_bits': 'the upper 8 of 16 bits are used; image_resizer.value_range uses all',
}
# Annotators draw a little beyond the edge.
_TOLERANCE = 0.01
# Of a pixel, in the numbers of records, which have 24 bits.
_ROUNDING = 1e-3
_MAX_LETTERS = 300
_PER_OBJECT = (
    *(keys.CLASS_TEXT, keys.CLASS_LABEL, keys.AREA, keys.IS_CROWD, keys.DIFFICULT),
    *(keys.GROUP_OF, keys.WEIGHT),
)
_TYPES = {
    **dict.fromkeys((*keys.BOX_SIDES, keys.AREA, keys.WEIGHT), 'float_list'),
    **dict.fromkeys((keys.ENCODED, keys.CLASS_TEXT, keys.SOURCE_ID, keys.FILENAME), 'bytes_list'),
    **dict.fromkeys((keys.CLASS_LABEL, keys.HEIGHT, keys.WIDTH), 'int64_list'),
    **dict.fromkeys((keys.IS_CROWD, keys.DIFFICULT, keys.GROUP_OF), 'int64_list'),
}


class Expectations(NamedTuple):
    """What the records are compared with.

    Attributes:
      text_to_id: valid class texts -> ids; None: there is no label map, and all classes are known.
      num_classes: largest class id; 0: any.
      mask_type: 'png' or 'numerical' where masks are read, '' otherwise.
      max_pixels: most pixels of an image; 0: any.
      max_objects: number of objects of an image that a training takes; 0: any.
      decodes: whether images and masks are decoded; else only their headers are read.
      value_range: the range of the values of images that the model declares, if it does.
    """

    text_to_id: Mapping[str, int] | None = None
    num_classes: int = 0
    mask_type: str = ''
    max_pixels: int = image_files.MAX_PIXELS
    max_objects: int = 0
    decodes: bool = True
    value_range: ValueRange | None = None


class CheckedRecord(NamedTuple):
    """What is known of a record.

    Attributes:
      source_id: its source id, or file name; '' if there is none.
      content: digest of the image file, 64 bits; 0 without an image.
      size: (height, width) of the image in pixels; (0, 0) if it cannot be read.
      num_objects: number of objects, also those that a training leaves out.
      boxes: float32 [n, 4], normalized and clipped (ymin, xmin, ymax, xmax) of the usable ones.
      classes: their classes: ids, or texts without a label map.
      problems: kind -> number of records (1) or objects, of all kinds above.
      reason: a sentence about the first problem.
      notes: see `annotated_image.notes_of_boxes`.
      ignored: see `annotation_checks.ignored`; of the usable objects.
      picture: hash of the picture, see `image_files.picture_hash`; 0 where it is not decoded.
    """

    source_id: str
    content: int
    size: tuple[int, int]
    num_objects: int
    boxes: np.ndarray
    classes: list[int | str]
    problems: dict[str, int]
    reason: str
    notes: Mapping[str, int] = {}
    ignored: Mapping[tuple[str, int | str], int] = {}
    picture: int = 0


class Objects(NamedTuple):
    """The objects of a record whose boxes can be used.

    Attributes:
      rows: int64 [n], their places in the lists of the record.
      boxes: float32 [n, 4], normalized and clipped (ymin, xmin, ymax, xmax).
      classes: ids, or texts without a label map; None where the label map lacks the class.
      flags: name -> values, of those that `annotation_checks.IGNORED` names.
    """

    rows: np.ndarray
    boxes: np.ndarray
    classes: list[int | str | None]
    flags: Mapping[str, np.ndarray]


class _BadRecordError(Exception):
    def __init__(self, kind: str, reason: str):
        super().__init__(reason)
        self.kind = kind


def digest(content: bytes) -> int:
    """Returns a digest of 64 bits, the same in every process."""
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), 'little')


def bad_record(kind: str, reason: str) -> CheckedRecord:
    """Returns the entry of a record that cannot be read."""
    nothing = np.zeros((0, 4), np.float32)
    return CheckedRecord('', 0, (0, 0), 0, nothing, [], {kind: 1}, reason[:_MAX_LETTERS])


def check(serialized: bytes, expected: Expectations) -> CheckedRecord:
    """Checks a serialized tf.Example; never raises for what the record holds."""
    try:
        example = TfExample.FromString(serialized)
    except DecodeError:
        return bad_record('not_an_example', 'the record is no tf.Example')
    features = example.features.feature
    if keys.ENCODED not in features and _has_feature_lists(example):
        text = 'the record is a tf.SequenceExample, which is not checked'
        return bad_record('not_an_example', text)
    record = bad_record('', '')._replace(problems={})
    encoded = _bytes(features, keys.ENCODED)
    record = record._replace(
        source_id=_bytes(features, keys.SOURCE_ID).decode(errors='replace')[:_MAX_LETTERS],
        content=digest(encoded) if encoded else 0,
    )
    try:
        _check_types(features)
        size, picture = _check_image(encoded, expected)
        record = record._replace(size=size, picture=picture)
        num_objects = _check_counts(features)
        record = record._replace(num_objects=num_objects)
        _check_masks(features, num_objects, size, expected)
        return _with_objects(record, features, expected)
    except _BadRecordError as error:
        text = str(error)[:_MAX_LETTERS]
        return record._replace(problems={error.kind: 1}, reason=text)


def _has_feature_lists(example: TfExample) -> bool:
    """Whether a message was a tf.SequenceExample; its context is read as the features."""
    return any(field.field_number == 2 for field in UnknownFieldSet(example))


def _bytes(features, key: str) -> bytes:
    values = features[key].bytes_list.value
    return values[0] if values else b''


def _values(features, key: str):
    feature = features[key]
    kind = feature.WhichOneof('kind')
    return getattr(feature, kind).value if kind else ()


def _check_types(features) -> None:
    for key, expected in _TYPES.items():
        kind = features[key].WhichOneof('kind') if key in features else None
        if kind not in (None, expected) and len(_values(features, key)):
            raise _BadRecordError('not_an_example', f'{key} is a {kind}; expected a {expected}')


def _check_image(encoded: bytes, expected: Expectations) -> tuple[tuple[int, int], int]:
    """Returns (height, width) and the hash of the picture."""
    if not encoded:
        raise _BadRecordError('image', f'{keys.ENCODED} is missing or empty')
    if image_files.is_foreign_tiff(encoded):
        text = f'{keys.ENCODED} is a TIFF file that TensorFlow cannot decode; convert the data anew'
        raise _BadRecordError('image', text)
    try:
        height, width = image_files.stored_size(encoded)
        if expected.max_pixels and height * width > expected.max_pixels:
            raise _BadRecordError(
                'image_too_large',
                f'height {height} x width {width}; expected at most {expected.max_pixels} pixels',
            )
        if not expected.decodes:
            return (height, width), 0
        max_pixels = expected.max_pixels or height * width
        return (height, width), image_files.check(encoded, max_pixels, hashes=True)
    except UnusableError as error:
        raise _BadRecordError('image', f'the image {error}') from None


def _check_counts(features) -> int:
    """Returns the number of objects."""
    counts = [len(features[side].float_list.value) for side in keys.BOX_SIDES]
    count = counts[0]
    for key, found in zip(keys.BOX_SIDES, counts, strict=True):
        if found != count:
            raise _BadRecordError(
                'number_of_values', f'{key} has {found} values; {keys.YMIN} has {count}'
            )
    for key in _PER_OBJECT:
        found = len(_values(features, key)) if key in features else 0
        if found not in (0, count):
            raise _BadRecordError('number_of_values', f'{key} has {found} values for {count} boxes')
    has_class = any(
        key in features and len(_values(features, key))
        for key in (keys.CLASS_TEXT, keys.CLASS_LABEL)
    )
    if count and not has_class:
        raise _BadRecordError('number_of_values', f'{count} boxes have no class')
    return count


def _check_masks(features, count: int, size: tuple[int, int], expected: Expectations) -> None:
    if not expected.mask_type or keys.MASK not in features:
        return
    if expected.mask_type == 'numerical':
        found = len(features[keys.MASK].float_list.value)
        if found not in (0, count * size[0] * size[1]):
            raise _BadRecordError(
                'mask', f'{keys.MASK}: {found} numbers; expected {count} x {size[0]} x {size[1]}'
            )
        return
    masks = features[keys.MASK].bytes_list.value
    if len(masks) not in (0, count):
        raise _BadRecordError('number_of_values', f'{len(masks)} masks for {count} boxes')
    for number, mask in enumerate(masks):
        problem = _mask_problem(mask, size, expected.decodes)
        if problem:
            raise _BadRecordError('mask', f'instance mask {number} {problem}')


def _mask_problem(mask: bytes, size: tuple[int, int], decodes: bool) -> str:
    """Returns what is wrong with a PNG file of a mask; '' if nothing is."""
    try:
        with Image.open(io.BytesIO(mask), formats=('PNG',)) as image:
            width, height = image.size
            if (height, width) != size:
                return f'is {height} x {width} pixels; the image is {size[0]} x {size[1]}'
            if image.mode == 'P':
                return 'has a palette; expected grey values'
            if decodes:
                image.load()
    except Exception as error:  # PIL raises many kinds of errors on a corrupt file.
        return f'does not decode ({error})'
    return ''


def objects(features, expected: Expectations) -> Objects | None:
    """Returns the objects of a tf.Example by its features; None if their lists do not fit."""
    try:
        _check_types(features)
        _check_counts(features)
        boxes, classes, _ = _objects(features, expected)
    except _BadRecordError:
        return None
    has_box = [row for row, box in enumerate(boxes.tolist()) if not _object_kind(box, 0)]
    rows = np.array(has_box, np.int64)
    flags = _flags(features, rows)
    return Objects(rows, np.clip(boxes[rows], 0, 1), [classes[row] for row in rows], flags)


def _objects(
    features, expected: Expectations
) -> tuple[np.ndarray, list[int | str | None], list[str]]:
    """Returns boxes as they are, [n, 4], classes and the kinds of problems, '' for none."""
    sides = [np.asarray(features[side].float_list.value, np.float32) for side in keys.BOX_SIDES]
    boxes, classes = np.stack(sides, axis=1), _classes(features, expected)
    highest = max((value for value in classes if isinstance(value, int)), default=0)
    if expected.num_classes and highest > expected.num_classes:
        raise _BadRecordError(
            'class_above_num_classes', f'class id {highest}; num_classes is {expected.num_classes}'
        )
    kinds = [_object_kind(box, value) for box, value in zip(boxes.tolist(), classes, strict=True)]
    return boxes, classes, kinds


def _with_objects(record: CheckedRecord, features, expected: Expectations) -> CheckedRecord:
    boxes, classes, kinds = _objects(features, expected)
    problems = Counter(kind for kind in kinds if kind)
    reason = next(
        (
            f'object {number}, class {_class_text(features, number)!r}, (ymin, xmin, ymax, xmax) '
            f'{tuple(round(side, 4) for side in boxes[number].tolist())}'
            for number, kind in enumerate(kinds)
            if kind
        ),
        '',
    )
    is_usable = np.array([not kind for kind in kinds], bool)
    usable = boxes[is_usable]
    names = [value for value, kind in zip(classes, kinds, strict=True) if not kind]
    problems.update(_warnings(record, features, usable, names, expected))
    boxes = np.clip(usable, 0, 1)
    return record._replace(
        boxes=boxes,
        classes=names,
        problems=dict(problems),
        reason=reason,
        notes=annotated_image.notes_of_boxes(boxes, _is_beyond(usable), *record.size),
        ignored=annotation_checks.ignored(names, _flags(features, is_usable)),
    )


def _flags(features, is_usable: np.ndarray) -> dict[str, np.ndarray]:
    """Returns the values of the usable objects that `annotation_checks.IGNORED` names."""
    found = {key: _values(features, key) for key in annotation_checks.IGNORED if key in features}
    return {key: np.asarray(values)[is_usable] for key, values in found.items() if len(values)}


def _classes(features, expected: Expectations) -> list[int | str | None]:
    """Returns the class of each object; None for one that is unknown."""
    texts = features[keys.CLASS_TEXT].bytes_list.value
    labels = features[keys.CLASS_LABEL].int64_list.value
    if expected.text_to_id is None:
        if texts:
            return [text.decode(errors='replace') for text in texts]
        return [value if value > 0 else None for value in labels]
    if texts:
        ids = (expected.text_to_id.get(text.decode(errors='replace'), 0) for text in texts)
        return [value if value > 0 else None for value in ids]
    return [value if value > 0 else None for value in labels]


def _class_text(features, number: int) -> str:
    texts = features[keys.CLASS_TEXT].bytes_list.value
    if number < len(texts):
        return texts[number].decode(errors='replace')[:60]
    labels = features[keys.CLASS_LABEL].int64_list.value
    return str(labels[number]) if number < len(labels) else ''


def _object_kind(box: list[float], value: int | str | None) -> str:
    """Returns the first of `OBJECT_KINDS` that applies, in the order in which training asks."""
    if value is None:
        return 'unknown_class'
    if not all(map(math.isfinite, box)):
        return 'nan_box'
    ymin, xmin, ymax, xmax = box
    if ymax < ymin or xmax < xmin:
        return 'inverted_box'
    if ymax == ymin or xmax == xmin:
        return 'box_without_area'
    if ymin >= 1 or xmin >= 1 or ymax <= 0 or xmax <= 0:
        return 'box_outside_image'
    return ''


def _is_beyond(boxes: np.ndarray) -> np.ndarray:
    """Returns which boxes, [n, 4], extend beyond the image, bool [n]."""
    return (boxes < -_TOLERANCE).any(1) | (boxes > 1 + _TOLERANCE).any(1)


def _warnings(
    record: CheckedRecord, features, boxes: np.ndarray, classes: list, expected: Expectations
) -> dict[str, int]:
    stated = tuple(
        next(iter(features[key].int64_list.value), 0) for key in (keys.HEIGHT, keys.WIDTH)
    )
    crowds = features[keys.IS_CROWD].int64_list.value
    rows = [(value, *box) for value, box in zip(classes, boxes.tolist(), strict=True)]
    applies = {
        'no_objects': not len(boxes),
        'box_beyond_image': bool(_is_beyond(boxes).any()),
        'tiny_box': bool(((boxes[:, 2:] - boxes[:, :2]) * record.size < 1 - _ROUNDING).any()),
        'duplicate_box': len(set(rows)) < len(rows) and not any(crowds),
        'stated_size': any(stated) and stated != record.size,
        'no_source_id': not record.source_id,
        'upper_8_bits': expected.value_range is None
        and image_files.has_16_bits(_bytes(features, keys.ENCODED)),
        'too_many_objects': 0 < expected.max_objects < len(boxes),
    }
    return {kind: 1 for kind, holds in applies.items() if holds}
