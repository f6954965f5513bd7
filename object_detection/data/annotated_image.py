"""An image with its objects, which every reader of an annotation format produces.

`tf_examples.to_example` writes it as a tf.Example. This module does not import TensorFlow, so that
Beam workers start without it.
"""

import collections
import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from object_detection.core import tf_example_keys as keys
from object_detection.errors import UnusableError, expected

if TYPE_CHECKING:
    # Evaluation imports this module, and needs no PIL.
    from object_detection.data.image_files import ImageFile

# Reasons of annotations that are left out on purpose: the label map has no such class, or an option
# says so. They are counted, and are no problems.
NOT_IN_LABEL_MAP, NOT_WANTED = 'not_in_label_map', 'not_wanted'
# Begins the notes of annotations that are not converted, see `not_converted`.
NOT_CONVERTED = 'not_converted: '
# Note of an image that no annotation names, in formats in which it may be one without objects.
NO_ANNOTATIONS = 'images_without_annotations'
# Boxes that many of a set are only if its coordinates have another meaning than the format's, see
# `notes_of_boxes` and `annotation_checks.doubt`.
FIRST_PIXEL, CLIPPED_START, CLIPPED_SHORT_END, CLIPPED_OTHER_END = (
    'boxes_in_first_pixel',
    'boxes_clipped_left_or_above',
    'boxes_clipped_at_end_of_short_side',
    'boxes_clipped_right_or_below',
)
_ROUNDING = 1e-6


@dataclasses.dataclass(frozen=True)
class AnnotatedImage:
    """An image and its N objects; a field is None if the format or the caller does not provide it.

    Attributes:
      encoded: the image file, upright, in a format that TensorFlow decodes.
      format: format of the file: 'jpeg', 'png', 'gif' or 'bmp'.
      height, width: size of the image in pixels.
      file_name: file name in the annotations.
      source_id: text that identifies the image in its data set.
      boxes: float64 [N, 4], (ymin, xmin, ymax, xmax), normalized to the image, within [0, 1].
      class_texts: N names of classes.
      class_labels: int64 [N], the ids of the classes in a label map, 1-based; 0 if classes are
        identified by name only.
      is_crowd: bool [N], whether a box is one of a group of objects.
      areas: float64 [N], square pixels.
      masks: None, or N PNG files of the image's size: 0 is background, all else the object.
      keypoint_names: names of the K keypoints of each object.
      keypoints: None, or float64 [N, K, 2], (y, x) normalized to the image.
      keypoint_visibilities: None, or int64 [N, K]: 0 not labelled, 1 covered, 2 visible.
      num_keypoints: None, or int64 [N], number of labelled keypoints of each object.
      densepose: None, or N arrays float64 [n, 5], rows (part from 0, x, y, u, v), x and y
        normalized to the image.
      object_details: key of `tf_example_keys.OBJECT_DETAILS` -> array [N] of integers, floats or
        texts (difficult, truncated, view, ...).
      image_details: key of `tf_example_keys.IMAGE_DETAILS` -> array of values of the image itself
        (image-level labels, ...).

    Raises:
      ValueError: if a field does not have one entry for each box, or a key is unknown.
    """

    encoded: bytes
    format: str
    height: int
    width: int
    file_name: str
    source_id: str
    boxes: np.ndarray
    class_texts: tuple[str, ...]
    class_labels: np.ndarray
    is_crowd: np.ndarray
    areas: np.ndarray
    masks: tuple[bytes, ...] | None = None
    keypoint_names: tuple[str, ...] = ()
    keypoints: np.ndarray | None = None
    keypoint_visibilities: np.ndarray | None = None
    num_keypoints: np.ndarray | None = None
    densepose: tuple[np.ndarray, ...] | None = None
    object_details: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    image_details: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        fields = {name: getattr(self, name) for name in _OBJECT_FIELDS} | self.object_details
        for name, values in fields.items():
            if values is not None and len(values) != len(self):
                raise expected(
                    'AnnotatedImage', f'{len(self)} entries of `{name}`, one a box', len(values)
                )
        unknown = {*self.object_details} - {*keys.OBJECT_DETAILS}
        unknown |= {*self.image_details} - {*keys.IMAGE_DETAILS}
        if unknown:
            raise expected('AnnotatedImage', 'details of core/tf_example_keys.py', unknown)

    def __len__(self) -> int:
        """The number of objects."""
        return len(self.boxes)


_OBJECT_FIELDS = (
    *('class_texts', 'class_labels', 'is_crowd', 'areas', 'masks', 'keypoints'),
    *('keypoint_visibilities', 'num_keypoints', 'densepose'),
)


def not_converted(kinds: Iterable[str]) -> dict[str, int]:
    """Returns the notes, see `ImageAnnotations`, of annotations that records have no place for.

    Args:
      kinds: what the format calls the kind of each.
    """
    counts = collections.Counter(f'{NOT_CONVERTED}{kind[:100]}' for kind in kinds)
    return dict(counts)


class ReadResult(NamedTuple):
    """The result of reading an image and its annotations.

    Attributes:
      image: the image with its usable objects.
      problems: (annotation id, error) of each annotation that cannot be used.
      num_clipped: number of boxes that were clipped to the image.
      image_changes: reasons for encoding the image file again, see `image_files.ImageFile`.
      notes: see `ImageAnnotations`.
    """

    image: AnnotatedImage
    problems: list[tuple[Any, UnusableError]]
    num_clipped: int
    image_changes: tuple[str, ...]
    notes: Mapping[str, int] = {}


class ClassLabel(NamedTuple):
    """Label and text of a class in examples.

    Attributes:
      label: integer >= 1; 0 if classes are identified by their texts only.
      text: name, unique among the classes of the data set.
    """

    label: int
    text: str


class AnnotatedObject(NamedTuple):
    """A usable annotation.

    Attributes:
      label: label of its class.
      box: (ymin, xmin, ymax, xmax), normalized to the image, within [0, 1].
      is_clipped: whether the box was cut at the image's edge.
      is_crowd: 1 for a group of objects, 0 for one.
      area: in square pixels.
      mask: PNG file of the image's size; b'' if masks are not wanted.
      keypoints: float64 [K, 3], rows (x, y, visibility), in pixels.
      num_keypoints: number of annotated keypoints.
      densepose: float64 [n, 5], rows (part, x, y, u, v), normalized to the image.
      details: key of `tf_example_keys.OBJECT_DETAILS` -> value.
      notes: what of the annotation is not read, see `ImageAnnotations`.
    """

    label: ClassLabel
    box: tuple[float, float, float, float]
    area: float
    is_clipped: bool = False
    is_crowd: int = 0
    mask: bytes = b''
    keypoints: np.ndarray = np.zeros((0, 3))
    num_keypoints: int = 0
    densepose: np.ndarray = np.zeros((0, 5))
    details: Mapping[str, Any] = {}
    notes: Mapping[str, int] = {}


class Provided(NamedTuple):
    """The optional fields that a reader gives, also to images without objects.

    Attributes:
      masks: whether objects have masks.
      keypoint_names: names of the K keypoints; None without keypoints.
      densepose: whether objects have DensePose points.
      details: key of `AnnotatedObject.details` -> int, float or str.
      clips: whether an entry is a clip of several images, and its record a tf.SequenceExample.
    """

    masks: bool = False
    keypoint_names: tuple[str, ...] | None = None
    densepose: bool = False
    details: Mapping[str, type] = {}
    clips: bool = False


class ImageAnnotations(NamedTuple):
    """What the annotations say of an image, before its file is read.

    Attributes:
      file_name: file name for the example.
      source_id: text that identifies the image in its data set.
      annotations: (id, annotation) of each, in the form of the format.
      paths: where the image file may be; the first that can be read is taken.
      stated_size: (height, width) in pixels; None for a value that is not stated.
      details: key of `tf_example_keys.IMAGE_DETAILS` -> array of values.
      embedded: the image file itself, which is used if no path can be read; b'' if there is none.
      notes: what the report counts, besides what is left out -> number.
      path_note: what the error adds if no path can be read.
    """

    file_name: str
    source_id: str
    annotations: list[tuple[Any, Any]]
    paths: tuple[str, ...] = ()
    stated_size: tuple[int | None, int | None] = (None, None)
    details: Mapping[str, np.ndarray] = {}
    embedded: bytes = b''
    notes: Mapping[str, int] = {}
    path_note: str = ''


def stated_size(
    values: Mapping[str, Any],
    height: str = 'height',
    width: str = 'width',
    reason: str = 'bad_annotations',
) -> tuple[int | None, int | None]:
    """Returns `ImageAnnotations.stated_size` of numbers or texts; None for 0, '' and absent ones.

    Args:
      values: has them, by the keys `height` and `width`.
      height, width: the keys.
      reason: of the error.

    Raises:
      UnusableError: if a value is not a whole number.
    """
    return (
        _stated_side(values.get(height), height, reason),
        _stated_side(values.get(width), width, reason),
    )


def _stated_side(value: Any, name: str, reason: str) -> int | None:
    try:
        side = float(value or 0)
    except (TypeError, ValueError, OverflowError):
        side = math.nan
    if isinstance(value, bool) or not side.is_integer() or side < 0:  # Neither are NaN, infinity.
        raise UnusableError(reason, f'{name} must be a whole number, is {str(value)[:100]!r}')
    return int(side) or None


def annotate(
    file: 'ImageFile',
    said: ImageAnnotations,
    read_object: Callable[[Any, 'ImageFile'], AnnotatedObject],
    provided: Provided,
) -> ReadResult:
    """Reads the annotations of an image whose file has been checked.

    Args:
      file: the image file.
      said: the annotations.
      read_object: reads one of them; raises UnusableError if it cannot be used.
      provided: the optional fields of the result.

    Returns:
      The image with its usable objects; the other annotations are listed as problems.
    """
    objects, problems = read_objects(file, said.annotations, read_object)
    image = AnnotatedImage(
        encoded=file.encoded,
        format=file.format,
        height=file.height,
        width=file.width,
        file_name=said.file_name,
        source_id=said.source_id,
        boxes=np.array([item.box for item in objects], np.float64).reshape(-1, 4),
        class_texts=tuple(item.label.text for item in objects),
        class_labels=np.array([item.label.label for item in objects], np.int64),
        is_crowd=np.array([item.is_crowd for item in objects], bool),
        areas=np.array([item.area for item in objects], np.float64),
        masks=tuple(item.mask for item in objects) if provided.masks else None,
        densepose=tuple(item.densepose for item in objects) if provided.densepose else None,
        object_details={
            key: np.array([item.details[key] for item in objects], kind)
            for key, kind in provided.details.items()
        },
        image_details=said.details,
        **_keypoints(objects, file, provided.keypoint_names),
    )
    is_clipped = np.array([item.is_clipped for item in objects], bool)
    notes = collections.Counter(said.notes)
    for item in objects:
        notes.update(item.notes)
    notes.update(notes_of_boxes(image.boxes, is_clipped, file.height, file.width))
    return ReadResult(image, problems, int(is_clipped.sum()), file.changes, dict(notes))


def read_objects(
    file: 'ImageFile',
    annotations: Iterable[tuple[Any, Any]],
    read_object: Callable[[Any, 'ImageFile'], AnnotatedObject],
) -> tuple[list[AnnotatedObject], list[tuple[Any, UnusableError]]]:
    """Returns the usable annotations, and (id, error) of the others; see `annotate`."""
    objects, problems = [], []
    for annotation_id, annotation in annotations:
        try:
            objects.append(read_object(annotation, file))
        except UnusableError as error:
            problems.append((annotation_id, error))
        # An entry of unexpected form affects this object only.
        except Exception as error:
            text = f'cannot be read: {type(error).__name__}: {error}'
            problems.append((annotation_id, UnusableError('bad_annotation', text)))
    return objects, problems


def notes_of_boxes(
    boxes: np.ndarray, is_clipped: np.ndarray, height: int, width: int
) -> dict[str, int]:
    """Counts boxes of an image, of which a set has few, see `annotation_checks.doubt`.

    Args:
      boxes: [N, 4], (ymin, xmin, ymax, xmax), normalized to the image and clipped.
      is_clipped: bool [N], whether a box was clipped.
      height, width: size of the image in pixels.

    Returns:
      The number of boxes that lie within the first pixel of the image and do not fill it, and of
      those that were clipped: at the left or upper edge alone; at the end of the shorter side of
      the image alone; at another end.
    """
    pixels = boxes * [height, width, height, width]
    is_part = (pixels[:, 2:] - pixels[:, :2]).min(1, initial=1) < 1 - _ROUNDING
    ends = boxes[:, 2:] >= 1
    is_short = (ends == [height < width, width < height]).all(1) & ends.any(1)
    counts = {
        FIRST_PIXEL: is_part & (pixels[:, 2:].max(1, initial=0) <= 1 + _ROUNDING),
        CLIPPED_START: is_clipped & ~ends.any(1),
        CLIPPED_SHORT_END: is_clipped & is_short,
        CLIPPED_OTHER_END: is_clipped & ends.any(1) & ~is_short,
    }
    return {name: int(rows.sum()) for name, rows in counts.items() if rows.any()}


def _keypoints(
    objects: list[AnnotatedObject], file: 'ImageFile', names: tuple[str, ...] | None
) -> dict[str, Any]:
    """Returns the keypoint fields of an `AnnotatedImage`."""
    if names is None:
        return {}
    shape = (len(objects), len(names), 3)
    rows = np.array([item.keypoints for item in objects], np.float64).reshape(shape)
    return {
        'keypoint_names': names,
        'keypoints': rows[..., 1::-1] / (file.height, file.width),
        'keypoint_visibilities': rows[..., 2].astype(np.int64),
        'num_keypoints': np.array([item.num_keypoints for item in objects], np.int64),
    }
