"""An image with its objects, which every reader of an annotation format produces.

`tf_examples.to_example` writes it as a tf.Example. This module does not import TensorFlow, so that
Beam workers start without it.
"""

import dataclasses
from typing import Any, NamedTuple

import numpy as np

from object_detection.errors import UnusableError, UserError

# Reason of an annotation that is left out because the label map has no such class.
NOT_IN_LABEL_MAP = 'not_in_label_map'


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

    Raises:
      ValueError: if a field does not have one entry for each box.
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

    def __post_init__(self):
        for name in _OBJECT_FIELDS:
            values = getattr(self, name)
            if values is not None and len(values) != len(self):
                raise UserError(
                    f'AnnotatedImage: expected {len(self)} entries of `{name}`, one for each box. '
                    f'Received: {len(values)}.'
                )

    def __len__(self) -> int:
        """The number of objects."""
        return len(self.boxes)


_OBJECT_FIELDS = (
    *('class_texts', 'class_labels', 'is_crowd', 'areas', 'masks', 'keypoints'),
    *('keypoint_visibilities', 'num_keypoints', 'densepose'),
)


class ReadResult(NamedTuple):
    """The result of reading an image and its annotations.

    Attributes:
      image: the image with its usable objects.
      problems: (annotation id, error) of each annotation that cannot be used.
      num_clipped: number of boxes that were clipped to the image.
      image_changes: reasons for encoding the image file again, see `image_files.ImageFile`.
    """

    image: AnnotatedImage
    problems: list[tuple[Any, UnusableError]]
    num_clipped: int
    image_changes: tuple[str, ...]
