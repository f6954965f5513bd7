"""Reads an image and its COCO annotations as an `AnnotatedImage`.

The file's bytes are not changed, except for images that TensorFlow would decode differently from
other programs, see `image_files`.

An annotation that cannot be used is left out and reported.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from object_detection.core import tf_example_keys as keys
from object_detection.data import annotation_checks, image_files, shard_names
from object_detection.data.annotated_image import (
    AnnotatedObject,
    ImageAnnotations,
    Provided,
    not_converted,
)
from object_detection.data.coco import annotations as coco_annotations
from object_detection.data.coco import keypoints as coco_keypoints
from object_detection.data.coco import masks as coco_masks
from object_detection.data.coco.annotations import Classes
from object_detection.data.coco.keypoints import KeypointLayout
from object_detection.data.image_files import ImageFile
from object_detection.errors import UnusableError

# Lists of categories of an image of LVIS, in which it was searched for some only -> their keys.
CLASS_LISTS = {
    'neg_category_ids': keys.NEGATIVE_CLASSES,
    'not_exhaustive_category_ids': keys.NOT_EXHAUSTIVE_CLASSES,
}
# Other parts of the same object are kept; an object without other parts cannot be used.
_IGNORED_PART = 'part of a mask with less than three corners'


class Contents(NamedTuple):
    """What is read of images and annotations.

    Attributes:
      classes: the classes of objects.
      masks: whether instance masks are read, as PNG of the image's size.
      keypoints: the layout of the keypoints; None reads no keypoints.
      densepose: whether DensePose points are read.
      max_pixels: maximum number of pixels of an image.
      class_ids: category id -> id in the label map, for lists of classes of images.
    """

    classes: Classes
    masks: bool = False
    keypoints: KeypointLayout | None = None
    densepose: bool = False
    max_pixels: int = image_files.MAX_PIXELS
    class_ids: Mapping[Any, int] = {}


def image_annotations(
    image: dict[str, Any], annotations: list[dict[str, Any]], contents: Contents
) -> ImageAnnotations:
    """Returns the annotations of an image.

    Args:
      image: its entry.
      annotations: the entries of its annotations.
      contents: what is read.

    Raises:
      UnusableError: if the entry states a size that is not a whole number, or lists of classes that
        are no lists.
    """
    return ImageAnnotations(
        file_name=image['file_name'],
        source_id=shard_names.to_text(image['id']),
        annotations=[(item['id'], item) for item in annotations],
        stated_size=coco_annotations.stated_size(image),
        details={
            key: _class_list(image[name], name, contents)
            for name, key in CLASS_LISTS.items()
            if image.get(name) is not None
        },
    )


def _class_list(listed: Any, name: str, contents: Contents) -> np.ndarray:
    """Returns the ids in the label map of a list of categories, int64 [n]; those without are not.

    Raises:
      UnusableError: if it is no list of ids.
    """
    if not isinstance(listed, list) or not all(map(coco_annotations.is_id, listed)):
        text = f'{name} must be a list of category ids, is {str(listed)[:100]}'
        raise UnusableError('bad_annotations', text)
    ids = [contents.class_ids[each] for each in listed if each in contents.class_ids]
    return np.array(ids, np.int64)


def provided(contents: Contents) -> Provided:
    """Returns the optional fields of the examples."""
    names = contents.keypoints.names if contents.keypoints else None
    return Provided(contents.masks, names, contents.densepose)


def check_object(
    annotation: dict[str, Any], file: ImageFile, contents: Contents
) -> AnnotatedObject:
    """Checks an annotation like `read`, without decoding its mask, which is b'' in the result.

    Raises:
      UnusableError: if the annotation cannot be used.
    """
    if contents.masks:
        coco_masks.check(annotation.get('segmentation'), file.height, file.width)
    return read_object(annotation, file, contents._replace(masks=False))


def read_object(annotation: dict[str, Any], file: ImageFile, contents: Contents) -> AnnotatedObject:
    """Reads an annotation.

    Raises:
      UnusableError: if it cannot be used.
    """
    label = contents.classes.label_of(annotation.get('category_id'))
    x, y, width, height = bbox = coco_annotations.box_of(annotation)
    said = f'bbox [x, y, width, height] is {list(bbox)}'
    box, is_clipped = annotation_checks.check_box(y, x, y + height, x + width, file, said)
    size = (file.height, file.width)
    mask, keypoints, densepose = b'', np.zeros((0, 3)), np.zeros((0, 5))
    notes: Mapping[str, int] = {}
    if contents.masks:
        segmentation = annotation.get('segmentation')
        counts = coco_masks.run_lengths(segmentation, *size)
        notes = not_converted([_IGNORED_PART] * coco_masks.num_ignored(segmentation))
        mask = coco_masks.runs_to_png(counts, *size)
    if contents.keypoints:
        keypoints = coco_keypoints.read_keypoints(annotation, contents.keypoints)
    if contents.densepose:
        densepose = coco_keypoints.read_densepose(annotation, box, size)
    return AnnotatedObject(
        label=label,
        box=box,
        is_clipped=is_clipped,
        is_crowd=coco_annotations.is_crowd(annotation),
        area=coco_annotations.area_of(annotation, width * height),
        mask=mask,
        keypoints=keypoints,
        num_keypoints=_num_keypoints(annotation, keypoints) if contents.keypoints else 0,
        densepose=densepose,
        notes=notes,
    )


def _num_keypoints(annotation: dict[str, Any], keypoints: np.ndarray) -> int:
    """Returns the stated number of keypoints of an object; counts them if it is not stated."""
    stated = annotation.get('num_keypoints')
    if stated is None:
        return int(np.count_nonzero(keypoints[:, 2]))
    is_number = isinstance(stated, int | float) and 0 <= stated < 2**31
    if not is_number or stated != int(stated):
        raise UnusableError('bad_keypoints', f'num_keypoints must be a whole number, is {stated}')
    return int(stated)
