"""Draws records as `tfod data check` shows them: with boxes, masks and class names."""

import io
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from PIL import Image

from object_detection.core import tf_example_keys as keys
from object_detection.data import image_files, tf_record_files
from object_detection.dataset_tools.inspection.findings import CheckedSet
from object_detection.dataset_tools.inspection.summary import Place
from object_detection.protos.tf_example_pb2 import TfExample
from object_detection.visualization import drawing

_SIDE = 480
_JPEG_QUALITY = 80
_MAX_OBJECTS = 100


class RecordPicture(NamedTuple):
    """A picture of a record.

    Attributes:
      name: file name of the image, or its source id; '' without both.
      jpeg: a JPEG file.
    """

    name: str
    jpeg: bytes


def draw(checked: CheckedSet, place: Place) -> RecordPicture | None:
    """Returns the picture of a record; None if its image cannot be decoded."""
    try:
        content = tf_record_files.read_record(checked.file_name(place), place.offset)
        features = TfExample.FromString(content).features.feature
        encoded = features[keys.ENCODED].bytes_list.value[0]
        image = image_files.thumbnail(encoded, _SIDE, checked.records.expected.value_range)
    except Exception:  # The tables say what is wrong with the record.
        return None
    boxes = _boxes(features, image)
    classes, names = _classes(checked, features, len(boxes))
    drawn = drawing.draw_instances(
        np.asarray(image),
        boxes,
        classes,
        masks=_masks(features, image, image_files.stored_size(encoded), len(boxes)),
        names=names,
        max_boxes=_MAX_OBJECTS,
    )
    file = io.BytesIO()
    Image.fromarray(drawn).save(file, 'JPEG', quality=_JPEG_QUALITY)
    texts = [features[key].bytes_list.value[:1] for key in (keys.FILENAME, keys.SOURCE_ID)]
    name = next((text[0] for text in texts if text and text[0]), b'')
    return RecordPicture(name.decode(errors='replace'), file.getvalue())


def _boxes(features, image: Image.Image) -> np.ndarray:
    """Returns boxes in pixels to draw, [n, 4]; inverted ones are turned round."""
    sides = [np.array(features[side].float_list.value, np.float64) for side in keys.BOX_SIDES]
    if len({len(side) for side in sides}) > 1:
        return np.zeros((0, 4))
    corners = np.clip(np.stack(sides, axis=1), -0.1, 1.1)
    lowest = np.minimum(corners[:, :2], corners[:, 2:])
    highest = np.maximum(corners[:, :2], corners[:, 2:])
    size = [image.height, image.width]
    return np.concatenate([lowest * size, highest * size], axis=1)


def _classes(
    checked: CheckedSet, features, count: int
) -> tuple[list[int | str] | None, Mapping[int, str]]:
    """Returns the class of each box, an id where it is known, and names of ids.

    Colours depend on the id, as in all other pictures.
    """
    texts = [text.decode(errors='replace') for text in features[keys.CLASS_TEXT].bytes_list.value]
    labels = list(features[keys.CLASS_LABEL].int64_list.value)
    known = checked.records.expected.text_to_id
    if known is not None and len(texts) == count:
        ids = [known.get(text, 0) for text in texts]
        classes = [value if value > 0 else text for value, text in zip(ids, texts, strict=True)]
        return classes, checked.records.class_names
    if len(labels) == count:
        return labels, {**dict(zip(labels, texts, strict=False)), **checked.records.class_names}
    return (texts if len(texts) == count else None), {}


def _masks(
    features, image: Image.Image, size: tuple[int, int], count: int
) -> list[np.ndarray] | None:
    """Returns the masks in the size of the picture; None if there are none, or they are damaged."""
    encoded = features[keys.MASK].bytes_list.value
    numbers = features[keys.MASK].float_list.value
    try:
        if count and len(encoded) == count:
            pixels = (image_files.decode(mask, size[0] * size[1]) for mask in encoded)
            masks = (each.reshape(*size, -1).any(axis=-1) for each in pixels)
        elif count and len(numbers) == count * size[0] * size[1]:
            masks = iter(np.array(numbers, np.float32).reshape(count, *size) > 0)
        else:
            return None
        shown = (
            Image.fromarray(mask).resize(image.size, Image.Resampling.NEAREST) for mask in masks
        )
        return [np.asarray(each) for each in shown]
    except ValueError:
        return None
