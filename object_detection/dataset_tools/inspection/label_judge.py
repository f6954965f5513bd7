"""Runs a detector on the images of records and ranks their labels."""

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError

from object_detection.core import tf_example_keys as keys
from object_detection.core.detections import Detections, boxes_to_absolute
from object_detection.data import image_decoding, image_files, record_checks, tf_record_files
from object_detection.data.record_checks import Objects
from object_detection.dataset_tools.inspection import label_errors, record_pictures
from object_detection.dataset_tools.inspection.check_job import RecordSet
from object_detection.dataset_tools.inspection.label_errors import MISSING, Case, Ranking, Suspect
from object_detection.dataset_tools.inspection.summary import Place
from object_detection.errors import UnusableError, expected
from object_detection.metrics.analysis.images import ImageBoxes
from object_detection.metrics.mask_pasting import MASK_THRESHOLD
from object_detection.protos.tf_example_pb2 import TfExample
from object_detection.runtime.runtime import Runtime

# Disagreements of less strength are not kept, and of many only the first ones.
_MIN_STRENGTH, _MAX_SUSPECTS = 0.1, 50_000
_MAX_DETECTIONS = 300
# Scores of detections that count as objects of their class.
_SURE = 0.5
_UNKNOWN = -1


class _Image(NamedTuple):
    """A record that a detector can look at.

    Attributes:
      place, name: see `Suspect`.
      objects: its labels.
      searched: the classes all of whose objects should have labels, as LVIS has it; None: all.
      pixels: [H, W, 3].
    """

    place: Place
    name: str
    objects: Objects
    searched: set[int] | None
    pixels: np.ndarray


def rank(
    records: RecordSet,
    detector: Runtime,
    num_first: int,
    progress: Callable[[int], None] = lambda done: None,
) -> Ranking:
    """Ranks the labels of a set by how much a detector disagrees, see `label_errors.ranked`.

    Args:
      records: the set; what a training skips is left out.
      detector: its classes are found by their names, and by their ids if it has no names.
      num_first: how many labels are shown.
      progress: called with the number of images that are done.

    Raises:
      UserError: if the detector does not classify, or knows none of the classes of the labels.
    """
    names, texts = detector.class_names, records.expected.text_to_id
    if names and texts is None:
        texts = detector.labels.text_to_id
        of_detector = records.expected._replace(text_to_id=texts)
        records = records._replace(expected=of_detector, class_names=names)
    # Ids of the detector -> ids of the records.
    ids = (
        {number: texts[name] for number, name in names.items() if name in texts} if names else None
    )
    suspects: list[Suspect] = []
    labels: Counter[int] = Counter()
    sure: Counter[int] = Counter()
    num_unknown = 0
    for done, image in enumerate(_images(records, detector), start=1):
        (found,) = detector.run([image.pixels])
        if found.classes is None:
            raise expected('--model', 'a detector that classifies', detector.source)
        found = _in_ids_of_records(found, ids).best(_MAX_DETECTIONS)
        boxes = _boxes(image, found, ids)
        num_unknown += int(boxes.is_crowd.sum())
        labels.update(boxes.classes[~boxes.is_crowd].tolist())
        sure.update(boxes.found_classes[boxes.scores >= _SURE].tolist())
        for case in label_errors.cases(boxes):
            if case.strength >= _MIN_STRENGTH and _is_sought(case, image, boxes):
                suspects.append(_suspect(case, image, found, boxes))
        if len(suspects) > 2 * _MAX_SUSPECTS:
            suspects = label_errors.ranked(suspects, labels | sure)[:_MAX_SUSPECTS]
        progress(done)
    if num_unknown and not labels:
        known = ', '.join(list(names.values())[:20]) or 'by their ids'
        raise expected('--model', f'labels of its classes ({known})', 'labels of other classes')
    first = label_errors.ranked(suspects, labels | sure)[:_MAX_SUSPECTS]
    return Ranking(first, num_first, labels.total(), num_unknown, records, detector.source)


def _images(records: RecordSet, detector: Runtime) -> Iterator[_Image]:
    """Yields the readable records in their order; the check names the others."""
    for number, name in enumerate(records.files):
        try:
            offsets = tf_record_files.index(name).offsets.tolist()
        except OSError:
            continue
        for offset, content in tf_record_files.read_records(name, offsets):
            if isinstance(content, bytes):
                image = _image(Place(number, offset), content, records, detector)
                if image is not None:
                    yield image


def _image(place: Place, content: bytes, records: RecordSet, detector: Runtime) -> _Image | None:
    """Reads a record; None if a training skips it."""
    max_pixels = records.expected.max_pixels or image_files.MAX_PIXELS
    decode = image_decoding.decode_values if detector.value_range else image_decoding.decode_image
    try:
        features = TfExample.FromString(content).features.feature
        encoded = features[keys.ENCODED].bytes_list.value[0]
        height, width = image_files.stored_size(encoded)
        pixels = (
            decode(encoded, detector.channels).numpy() if height * width <= max_pixels else None
        )
    except (DecodeError, IndexError, UnusableError, tf.errors.InvalidArgumentError):
        return None
    objects = record_checks.objects(features, records.expected)
    if pixels is None or objects is None:
        return None
    searched = None
    if keys.NEGATIVE_CLASSES in features or keys.NOT_EXHAUSTIVE_CLASSES in features:
        searched = {*features[keys.NEGATIVE_CLASSES].int64_list.value, *objects.classes}
        searched -= {*features[keys.NOT_EXHAUSTIVE_CLASSES].int64_list.value}
    return _Image(place, record_pictures.image_name(features), objects, searched, pixels)


def _in_ids_of_records(found: Detections, ids: Mapping[int, int] | None) -> Detections:
    if ids is None:
        return found
    classes = np.array([ids.get(value, _UNKNOWN) for value in found.classes.tolist()], np.int64)
    return dataclasses.replace(found, classes=classes).take(classes != _UNKNOWN)


def _boxes(image: _Image, found: Detections, ids: Mapping[int, int] | None) -> ImageBoxes:
    """Returns labels and detections; labels that cannot be judged are crowds."""
    objects, size = image.objects, image.pixels.shape[:2]
    classes = np.array(
        [
            value if isinstance(value, int) and (ids is None or value in ids.values()) else _UNKNOWN
            for value in objects.classes
        ],
        np.int64,
    )
    is_crowd = classes == _UNKNOWN
    for key in (keys.IS_CROWD, keys.GROUP_OF):
        if key in objects.flags:
            is_crowd |= objects.flags[key] > 0
    labels = boxes_to_absolute(objects.boxes, *size), classes, is_crowd
    return ImageBoxes(image.name, *size, *labels, found.boxes, found.classes, found.scores)


def _is_sought(case: Case, image: _Image, boxes: ImageBoxes) -> bool:
    if case.kind != MISSING or image.searched is None:
        return True
    return int(boxes.found_classes[case.found]) in image.searched


def _suspect(case: Case, image: _Image, found: Detections, boxes: ImageBoxes) -> Suspect:
    suspect = Suspect(image.place, image.name, case.kind, -1, float(case.strength))
    if case.label >= 0:
        suspect = suspect._replace(
            label=int(image.objects.rows[case.label]),
            class_id=int(boxes.classes[case.label]),
            box=image.objects.boxes[case.label].tolist(),
        )
    if case.found < 0:
        return suspect
    return suspect._replace(
        found_class=int(boxes.found_classes[case.found]),
        found_box=found.shares()[case.found].tolist(),
        found_score=float(found.scores[case.found]),
        found_mask=None if found.masks is None else found.masks[case.found] > MASK_THRESHOLD,
    )
