"""Draws records as `tfod data check` shows them: with boxes, masks and class names."""

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from PIL import Image

from object_detection.core import tf_example_keys as keys
from object_detection.data import image_files, tf_record_files
from object_detection.dataset_tools.inspection.check_job import RecordSet
from object_detection.dataset_tools.inspection.summary import Place
from object_detection.protos.tf_example_pb2 import TfExample
from object_detection.visualization import drawing
from object_detection.visualization.drawing import Instance

if TYPE_CHECKING:
    from object_detection.dataset_tools.inspection.label_errors import Suspect

_SIDE = 480
_JPEG_QUALITY = 80
_MAX_OBJECTS = 100
_THIN, _THICK = 1, 3
_WHOLE = np.array([0.0, 0.0, 1.0, 1.0])
# Of the part that is shown of an image: its least side, and its side in those of the object.
_MIN_WINDOW, _SURROUNDINGS = 0.25, 2.5


class RecordPicture(NamedTuple):
    """A picture of a record.

    Attributes:
      name: file name of the image, or its source id; '' without both.
      jpeg: a JPEG file.
    """

    name: str
    jpeg: bytes


class _View(NamedTuple):
    """The image of a record, or a part of it, with all objects.

    Attributes:
      name: as in `RecordPicture`.
      picture: uint8 [H, W, 3].
      window: the part, normalized.
      boxes: float64 [n, 4], in pixels of the picture.
      classes: of each box, an id where it is known; None without classes.
      names: id -> name.
      masks: bool [H, W] of each box; None if there are none, or they are damaged.
    """

    name: str
    picture: np.ndarray
    window: np.ndarray
    boxes: np.ndarray
    classes: list[int | str] | None
    names: Mapping[int, str]
    masks: list[np.ndarray] | None


def draw(records: RecordSet, place: Place) -> RecordPicture | None:
    """Returns the picture of a record; None if its image cannot be decoded."""
    view = _view(records, place)
    return None if view is None else RecordPicture(view.name, _jpeg(_drawn(view)))


def draw_pair(
    records: RecordSet, place: Place, others: RecordSet, other: Place
) -> RecordPicture | None:
    """Returns two records beside each other, of which the second may be of another set."""
    left, right = _view(records, place), _view(others, other)
    if left is None or right is None:
        return None
    drawn = drawing.row([_drawn(left), _drawn(right)], _SIDE)
    return RecordPicture(f'{left.name} and {right.name}', _jpeg(drawn))


def draw_suspect(records: RecordSet, suspect: 'Suspect') -> RecordPicture | None:
    """Returns a doubted label in its surroundings and, beside it, what the detector finds there.

    The outlines of other labels are thin, without names.
    """
    boxes = np.array([box for box in (suspect.box, suspect.found_box) if box is not None])
    view = _view(records, suspect.place, _window(boxes))
    if view is None:
        return None
    left, right = view.picture, view.picture
    if view.classes is not None:
        masks = view.masks or [None] * len(view.boxes)
        labels = [
            Instance(tuple(box), drawing.class_color(value), mask=mask)
            for box, value, mask in zip(view.boxes, view.classes, masks, strict=True)
        ]
        others = [
            each
            for row, each in enumerate(labels)
            if row != suspect.label and np.isfinite(each.box).all()
        ]
        left = drawing.paint(left, others, _THIN)
        if suspect.label >= 0:
            text = str(view.names.get(suspect.class_id, suspect.class_id))
            left = drawing.paint(left, [labels[suspect.label]._replace(label=text)], _THICK)
    if suspect.found_box is not None:
        class_name = view.names.get(suspect.found_class, suspect.found_class)
        text = f'{class_name} {suspect.found_score:.0%}'
        mask = suspect.found_mask if suspect.found_mask is None else suspect.found_mask * 1.0
        (box,) = _in_pixels(np.array([suspect.found_box]), view.window, view.picture.shape)
        color = drawing.class_color(suspect.found_class)
        right = drawing.paint(right, [Instance(tuple(box), color, text, mask)], _THICK)
    return RecordPicture(view.name, _jpeg(drawing.side_by_side(left, right, ('label', 'model'))))


def name(records: RecordSet, place: Place) -> str:
    """Returns the file name of the image of a record, or its source id; '' without both."""
    content = tf_record_files.read_record(records.files[place.file], place.offset)
    return image_name(TfExample.FromString(content).features.feature)


def image_name(features) -> str:
    """Returns the file name of the image of a tf.Example, or its source id; '' without both."""
    texts = [features[key].bytes_list.value[:1] for key in (keys.FILENAME, keys.SOURCE_ID)]
    name = next((text[0] for text in texts if text and text[0]), b'')
    return name.decode(errors='replace')


def _drawn(view: _View) -> np.ndarray:
    return drawing.draw_instances(
        view.picture,
        view.boxes,
        view.classes,
        masks=view.masks,
        names=view.names,
        max_boxes=_MAX_OBJECTS,
    )


def _jpeg(picture: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(picture).save(file, 'JPEG', quality=_JPEG_QUALITY)
    return file.getvalue()


def _window(boxes: np.ndarray) -> np.ndarray:
    """Returns the part of an image, normalized, around boxes [n, 4]."""
    lowest, highest = boxes[:, :2].min(axis=0), boxes[:, 2:].max(axis=0)
    sides = np.clip(_SURROUNDINGS * (highest - lowest), _MIN_WINDOW, 1)
    corner = np.clip((lowest + highest - sides) / 2, 0, 1 - sides)
    return np.concatenate([corner, corner + sides])


def _view(records: RecordSet, place: Place, window: np.ndarray = _WHOLE) -> _View | None:
    """Reads a record; parts of an image are enlarged, whole ones only made smaller."""
    try:
        content = tf_record_files.read_record(records.files[place.file], place.offset)
        features = TfExample.FromString(content).features.feature
        encoded = features[keys.ENCODED].bytes_list.value[0]
        stored = image_files.stored_size(encoded)
        part = (window[2:] - window[:2]) * stored
        scale = _SIDE / part.max()
        longest = round(max(stored) * min(scale, 1.0))
        image = image_files.thumbnail(encoded, longest, records.expected.value_range)
        if window is not _WHOLE:
            height, width = np.maximum(np.rint(part * scale), 1).astype(int).tolist()
            image = image.resize((width, height), box=_region(window, image.size))
    except Exception:  # The tables say what is wrong with the record.
        return None
    picture = np.asarray(image)
    boxes = _boxes(features, window, picture.shape)
    classes, names = _classes(records, features, len(boxes))
    masks = _masks(features, image.size, stored, window, len(boxes))
    return _View(image_name(features), picture, window, boxes, classes, names, masks)


def _region(window: np.ndarray, size: tuple[int, int]) -> tuple[float, ...]:
    """Returns a part of an image of (width, height) as PIL has it: left, top, right, bottom."""
    ymin, xmin, ymax, xmax = window.tolist()
    return xmin * size[0], ymin * size[1], xmax * size[0], ymax * size[1]


def _boxes(features, window: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """Returns boxes in pixels to draw, [n, 4]; inverted ones are turned round."""
    sides = [np.array(features[side].float_list.value, np.float64) for side in keys.BOX_SIDES]
    if len({len(side) for side in sides}) > 1:
        return np.zeros((0, 4))
    corners = np.clip(np.stack(sides, axis=1), -0.1, 1.1)
    lowest = np.minimum(corners[:, :2], corners[:, 2:])
    highest = np.maximum(corners[:, :2], corners[:, 2:])
    return _in_pixels(np.concatenate([lowest, highest], axis=1), window, shape)


def _in_pixels(boxes: np.ndarray, window: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """Returns boxes, normalized to the image [n, 4], in pixels of a picture of its part."""
    shares = (boxes - np.tile(window[:2], 2)) / np.tile(window[2:] - window[:2], 2)
    return shares * np.tile(shape[:2], 2)


def _classes(
    records: RecordSet, features, count: int
) -> tuple[list[int | str] | None, Mapping[int, str]]:
    """Returns the class of each box, an id where it is known, and names of ids.

    Colours depend on the id, as in all other pictures.
    """
    texts = [text.decode(errors='replace') for text in features[keys.CLASS_TEXT].bytes_list.value]
    labels = list(features[keys.CLASS_LABEL].int64_list.value)
    known = records.expected.text_to_id
    if known is not None and len(texts) == count:
        ids = [known.get(text, 0) for text in texts]
        classes = [value if value > 0 else text for value, text in zip(ids, texts, strict=True)]
        return classes, records.class_names
    if len(labels) == count:
        return labels, {**dict(zip(labels, texts, strict=False)), **records.class_names}
    return (texts if len(texts) == count else None), {}


def _masks(
    features, shown: tuple[int, int], stored: tuple[int, int], window: np.ndarray, count: int
) -> list[np.ndarray] | None:
    """Returns the masks in the size of the picture; None if there are none, or they are damaged."""
    encoded = features[keys.MASK].bytes_list.value
    numbers = features[keys.MASK].float_list.value
    try:
        if count and len(encoded) == count:
            pixels = (image_files.decode(mask, stored[0] * stored[1]) for mask in encoded)
            masks = (each.reshape(*stored, -1).any(axis=-1) for each in pixels)
        elif count and len(numbers) == count * stored[0] * stored[1]:
            masks = iter(np.array(numbers, np.float32).reshape(count, *stored) > 0)
        else:
            return None
        region = _region(window, stored[::-1])
        resized = (
            Image.fromarray(mask).resize(shown, Image.Resampling.NEAREST, box=region)
            for mask in masks
        )
        return [np.asarray(each) for each in resized]
    except ValueError:
        return None
