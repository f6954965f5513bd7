"""Reads an image and its COCO annotations as an `AnnotatedImage`.

The file's bytes are not changed, except for images that TensorFlow would decode differently from
other programs, see `image_files`.

An annotation that cannot be used is left out and reported. A box that extends beyond the image is
clipped; it is left out if less than a pixel of its height or width remains.
"""

import json
import math
import os
import posixpath
from typing import Any, NamedTuple

import numpy as np

from object_detection.data import image_files, source_ids
from object_detection.data.annotated_image import NOT_IN_LABEL_MAP, AnnotatedImage, ReadResult
from object_detection.data.coco import annotations as coco_annotations
from object_detection.data.coco import keypoints as coco_keypoints
from object_detection.data.coco import masks as coco_masks
from object_detection.data.coco.annotations import CocoImage
from object_detection.data.coco.categories import CategoryLabel
from object_detection.data.coco.keypoints import KeypointLayout
from object_detection.data.image_files import ImageFile
from object_detection.errors import UnusableError

# Minimum height and width of a clipped box, in pixels.
MIN_REMAINDER = 1.0


class Contents(NamedTuple):
    """What is read of images and annotations.

    Attributes:
      labels: category id -> label.
      masks: whether instance masks are read, as PNG of the image's size.
      keypoints: the layout of the keypoints; None reads no keypoints.
      densepose: whether DensePose points are read.
      small_masks: whether masks have one bit per pixel, which is faster to write and is decoded as
        0 and 255; masks in files for other programs have the values 0 and 1.
      max_pixels: maximum number of pixels of an image.
      left_out: (category id, name) of the categories that are not in `labels`.
    """

    labels: dict[Any, CategoryLabel]
    masks: bool = False
    keypoints: KeypointLayout | None = None
    densepose: bool = False
    small_masks: bool = False
    max_pixels: int = image_files.MAX_PIXELS
    left_out: tuple[tuple[Any, str], ...] = ()


class CocoObject(NamedTuple):
    """A usable annotation.

    Attributes:
      label: label of its category.
      box: (ymin, xmin, ymax, xmax), normalized to the image.
      is_clipped: whether the box was cut at the image's edge.
      is_crowd: 1 for a group of objects, 0 for one.
      area: in square pixels.
      mask: PNG file, 1 where the object is; b'' if masks are not wanted.
      keypoints: float64 [K, 3], rows (x, y, visibility), in pixels.
      num_keypoints: number of annotated keypoints.
      densepose: float64 [n, 5], rows (part, x, y, u, v), normalized to the image.
    """

    label: CategoryLabel
    box: tuple[float, float, float, float]
    is_clipped: bool
    is_crowd: int
    area: float
    mask: bytes
    keypoints: np.ndarray
    num_keypoints: int
    densepose: np.ndarray


def read(coco_image: CocoImage, encoded: bytes, contents: Contents) -> ReadResult:
    """Reads one image.

    Args:
      coco_image: the image's entry and its annotations.
      encoded: the bytes of the image file.
      contents: what is read.

    Raises:
      UnusableError: if the image cannot be used; unusable annotations are listed in the result.
    """
    file = check_image(coco_image.image, encoded, contents.max_pixels)
    return annotate(coco_image, file, contents)


def annotate(coco_image: CocoImage, file: ImageFile, contents: Contents) -> ReadResult:
    """Reads the annotations of an image whose file has been checked; see `read`."""
    objects, problems = [], []
    for annotation in coco_image.annotations:
        try:
            objects.append(_read_object(annotation, file, contents))
        except UnusableError as error:
            problems.append((annotation['id'], error))
        # An entry of unexpected form affects this object only.
        except Exception as error:
            text = f'cannot be read: {type(error).__name__}: {error}'
            problems.append((annotation['id'], UnusableError('bad_annotation', text)))
    image = AnnotatedImage(
        encoded=file.encoded,
        format=file.format,
        height=file.height,
        width=file.width,
        file_name=coco_image.image['file_name'],
        source_id=source_ids.to_text(coco_image.image['id']),
        boxes=np.array([item.box for item in objects], np.float64).reshape(-1, 4),
        class_texts=tuple(item.label.text for item in objects),
        class_labels=np.array([item.label.label for item in objects], np.int64),
        is_crowd=np.array([item.is_crowd for item in objects], bool),
        areas=np.array([item.area for item in objects], np.float64),
        masks=tuple(item.mask for item in objects) if contents.masks else None,
        densepose=tuple(item.densepose for item in objects) if contents.densepose else None,
        **(_keypoints(objects, file, contents.keypoints) if contents.keypoints else {}),
    )
    num_clipped = sum(item.is_clipped for item in objects)
    return ReadResult(image, problems, num_clipped, file.changes)


def check_image(
    entry: dict[str, Any], encoded: bytes, max_pixels: int = image_files.MAX_PIXELS
) -> ImageFile:
    """Decodes an image file and compares its size with the annotation file's.

    Raises:
      UnusableError: if the file is corrupt, has a format that TensorFlow does not decode, has too
        many pixels, or another size than `entry` says.
    """
    image_files.check(encoded, max_pixels)
    return read_image(entry, encoded, max_pixels)


def read_image(
    entry: dict[str, Any], encoded: bytes, max_pixels: int = image_files.MAX_PIXELS
) -> ImageFile:
    """Makes an image file upright and compares its size; decodes it only if it must be changed.

    Raises:
      UnusableError: as `check_image`, but corrupt image data may not be detected.
    """
    stated = coco_annotations.stated_size(entry)
    file = image_files.read_upright(encoded, stated_size=stated, max_pixels=max_pixels)
    size = file.height, file.width
    if any(said not in (None, own) for said, own in zip(stated, size, strict=True)):
        raise UnusableError(
            'bad_image',
            f'is {file.height} pixels high and {file.width} wide; '
            f'the annotation file says {stated[0]} and {stated[1]}',
        )
    return file


def image_path(image_dir: str, file_name: str) -> str:
    """Returns the path of an image.

    Args:
      image_dir: folder of the images, local or of an object store (`gs://...`).
      file_name: file name in the annotation file.

    Raises:
      UnusableError: if it leads out of the folder.
    """
    is_url = '://' in image_dir
    join, normalize = (posixpath.join, str) if is_url else (os.path.join, os.path.abspath)
    path = join(image_dir, file_name)
    root = join(normalize(image_dir), '')
    has_parents = is_url and '..' in file_name.split('/')
    if has_parents or '\0' in file_name or not normalize(path).startswith(root):
        raise UnusableError(
            'bad_image', f'file_name leads out of the folder of the images: {file_name!r}'
        )
    return path


def check_object(annotation: dict[str, Any], file: ImageFile, contents: Contents) -> CocoObject:
    """Checks an annotation like `read`, without decoding its mask, which is b'' in the result.

    Raises:
      UnusableError: if the annotation cannot be used.
    """
    if contents.masks:
        coco_masks.check(_segmentation(annotation), file.height, file.width)
    return _read_object(annotation, file, contents._replace(masks=False))


def _read_object(annotation: dict[str, Any], file: ImageFile, contents: Contents) -> CocoObject:
    label = _label(annotation.get('category_id'), contents)
    bbox = _finite_numbers(annotation.get('bbox'))
    box = _normalized_box(bbox, file)
    size = (file.height, file.width)
    mask, keypoints, densepose = b'', np.zeros((0, 3)), np.zeros((0, 5))
    if contents.masks:
        counts = coco_masks.run_lengths(_segmentation(annotation), *size)
        if contents.small_masks:
            mask = coco_masks.to_small_png(counts, *size)
        else:
            mask = coco_masks.to_png(coco_masks.fill(counts, size[0]))
    if contents.keypoints:
        keypoints = coco_keypoints.read_keypoints(annotation, contents.keypoints)
    if contents.densepose:
        densepose = coco_keypoints.read_densepose(annotation, box, size)
    return CocoObject(
        label=label,
        box=box,
        is_clipped=_overhang(bbox, file) > 0,
        is_crowd=coco_annotations.is_crowd(annotation),
        area=_area(annotation, bbox),
        mask=mask,
        keypoints=keypoints,
        num_keypoints=_num_keypoints(annotation, keypoints) if contents.keypoints else 0,
        densepose=densepose,
    )


def _label(category_id: Any, contents: Contents) -> CategoryLabel:
    label = contents.labels.get(category_id) if coco_annotations.is_id(category_id) else None
    if label is not None:
        return label
    for left_out, name in contents.left_out:
        if left_out == category_id:
            raise UnusableError(NOT_IN_LABEL_MAP, name)
    raise UnusableError('unknown_category', f'category_id is {category_id}')


def _num_keypoints(annotation: dict[str, Any], keypoints: np.ndarray) -> int:
    """Returns the stated number of keypoints of an object; counts them if it is not stated."""
    stated = annotation.get('num_keypoints')
    if stated is None:
        return int(np.count_nonzero(keypoints[:, 2]))
    is_number = isinstance(stated, int | float) and 0 <= stated < 2**31
    if not is_number or stated != int(stated):
        raise UnusableError('bad_keypoints', f'num_keypoints must be a whole number, is {stated}')
    return int(stated)


def _segmentation(annotation: dict[str, Any]) -> Any:
    return json.loads(annotation.get('segmentation', 'null'))


def _finite_numbers(bbox: Any) -> tuple[float, float, float, float]:
    try:
        x, y, width, height = (float(number) for number in bbox)
    except (TypeError, ValueError, OverflowError) as error:
        raise UnusableError('bad_box', f'bbox must be four numbers, is {bbox}') from error
    if not all(map(math.isfinite, (x, y, width, height))):
        raise UnusableError('bad_box', f'bbox must be finite, is {bbox}')
    return x, y, width, height


def _normalized_box(
    bbox: tuple[float, float, float, float], file: ImageFile
) -> tuple[float, float, float, float]:
    """Returns [x, y, width, height] in pixels as (ymin, xmin, ymax, xmax) normalized, clipped."""
    x, y, width, height = bbox
    if width <= 0 or height <= 0:
        raise UnusableError('box_without_area', f'bbox [x, y, width, height] is {list(bbox)}')
    top, left = max(y, 0.0), max(x, 0.0)
    bottom, right = min(y + height, file.height), min(x + width, file.width)
    remainder = min(bottom - top, right - left)
    if remainder <= 0 or (_overhang(bbox, file) > 0 and remainder < MIN_REMAINDER):
        raise UnusableError(
            'box_outside_image',
            f'bbox [x, y, width, height] is {list(bbox)}; '
            f'the image is {file.width} wide and {file.height} high',
        )
    return top / file.height, left / file.width, bottom / file.height, right / file.width


def _overhang(bbox: tuple[float, float, float, float], file: ImageFile) -> float:
    """Returns by how many pixels a box extends beyond the image; 0 if it does not."""
    x, y, width, height = bbox
    return max(-x, -y, x + width - file.width, y + height - file.height, 0.0)


def _area(annotation: dict[str, Any], bbox: tuple[float, float, float, float]) -> float:
    """Returns the annotated area; the area of the box if there is none."""
    area = annotation.get('area')
    if area is None:
        return bbox[2] * bbox[3]
    try:
        number = float(area)
    except (TypeError, ValueError, OverflowError) as error:
        raise UnusableError('bad_area', f'area must be a number, is {area}') from error
    if not math.isfinite(number):
        raise UnusableError('bad_area', f'area must be finite, is {area}')
    return number


def _keypoints(
    objects: list[CocoObject], file: ImageFile, layout: KeypointLayout
) -> dict[str, Any]:
    """Returns the keypoint fields of an `AnnotatedImage`."""
    shape = (len(objects), len(layout.names), 3)
    rows = np.array([item.keypoints for item in objects], np.float64).reshape(shape)
    return {
        'keypoint_names': layout.names,
        'keypoints': rows[..., 1::-1] / (file.height, file.width),
        'keypoint_visibilities': rows[..., 2].astype(np.int64),
        'num_keypoints': np.array([item.num_keypoints for item in objects], np.int64),
    }
