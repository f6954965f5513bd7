"""The tables of the fields of an example, with one row per field.

The decoder, augmentations, resizers, batches, evaluators' ground truth and `Groundtruth` process
each field as its row specifies.
"""

import dataclasses
import enum

import tensorflow as tf

from object_detection.core import tf_example_keys as keys
from object_detection.core.fields import InputFields as F


class Geometry(enum.Enum):
    """The kind of geometry of a field, which determines how it follows changes of the image.

    Augmentations and resizers define what they do with each kind, not with each field.

    Attributes:
      NONE: the field does not depend on positions in the image.
      BOX: float32 [n, 4], (ymin, xmin, ymax, xmax), normalized to the image.
      POINTS: float32 [n, P, 2], (y, x), normalized to the image; P points per object.
      IMAGE_MASK: [n, H, W], masks over the pixels of the image.
      BOX_MASK: [n, S, S], samples of the object's box.
    """

    NONE = enum.auto()
    BOX = enum.auto()
    POINTS = enum.auto()
    IMAGE_MASK = enum.auto()
    BOX_MASK = enum.auto()


@dataclasses.dataclass(frozen=True)
class Stored:
    """Values in a tf.Example.

    Attributes:
      key: key of the tf.Example.
      dtype: dtype of the stored list.
      default: value of the image, or of each object, in records without the key.
    """

    key: str
    dtype: tf.DType
    default: float | bool | str


@dataclasses.dataclass(frozen=True)
class ObjectField:
    """A field of a decoded example with one entry per object.

    Attributes:
      dtype: dtype of the decoded tensor.
      geometry: how the field follows changes of the image.
      padding: value of the padding in a batch; None for a field that batches do not have.
      is_by_keypoint: whether axis 1 is the axis of keypoints, which flips permute.
      stored: the list in a tf.Example, for a field with one value per object or per keypoint; the
        decoder has separate code for the others.
      evaluation: name in batches for evaluators, which contain the field as annotated, neither
        clipped nor resized; None for a field that evaluators do not need.
      is_optional: whether decoders read it only where they are asked to.
    """

    dtype: tf.DType
    geometry: Geometry = Geometry.NONE
    padding: float | None = None
    is_by_keypoint: bool = False
    stored: Stored | None = None
    evaluation: str | None = None
    is_optional: bool = False


# All fields with one entry per object: n objects, P keypoints, masks of H x W pixels, crops of S x
# S. Functions that drop or reorder objects act on all of them, so that the entries stay consistent.
OBJECT_FIELDS: dict[str, ObjectField] = {
    # [n, 4]
    F.GROUNDTRUTH_BOXES: ObjectField(
        tf.float32, Geometry.BOX, padding=0, evaluation=F.EVALUATION_BOXES
    ),
    # [n], ids; later [n, K], one-hot
    F.GROUNDTRUTH_CLASSES: ObjectField(tf.int64, padding=0, evaluation=F.EVALUATION_CLASSES),
    # [n, C]
    F.MULTICLASS_SCORES: ObjectField(tf.float32, is_optional=True),
    # [n]
    F.GROUNDTRUTH_WEIGHTS: ObjectField(
        tf.float32, padding=0, stored=Stored(keys.WEIGHT, tf.float32, 1.0)
    ),
    F.GROUNDTRUTH_IS_CROWD: ObjectField(
        tf.bool,
        padding=0,
        stored=Stored(keys.IS_CROWD, tf.int64, False),
        evaluation=F.EVALUATION_IS_CROWD,
    ),
    F.GROUNDTRUTH_AREA: ObjectField(
        tf.float32,
        padding=0,
        stored=Stored(keys.AREA, tf.float32, -1.0),
        evaluation=F.EVALUATION_AREA,
    ),
    F.GROUNDTRUTH_DIFFICULT: ObjectField(
        tf.bool,
        padding=0,
        stored=Stored(keys.DIFFICULT, tf.int64, False),
        evaluation=F.EVALUATION_DIFFICULT,
    ),
    F.GROUNDTRUTH_GROUP_OF: ObjectField(
        tf.bool,
        padding=0,
        stored=Stored(keys.GROUP_OF, tf.int64, False),
        evaluation=F.EVALUATION_GROUP_OF,
    ),
    F.GROUNDTRUTH_TRACK_IDS: ObjectField(
        tf.int32, padding=-1, stored=Stored(keys.TRACK_ID, tf.int64, -1), is_optional=True
    ),
    F.GROUNDTRUTH_INSTANCE_MASK_WEIGHTS: ObjectField(
        tf.float32, padding=0, stored=Stored(keys.MASK_WEIGHT, tf.float32, 1.0), is_optional=True
    ),
    # [n, P, 2]
    F.GROUNDTRUTH_KEYPOINTS: ObjectField(
        tf.float32,
        Geometry.POINTS,
        padding=float('nan'),
        is_by_keypoint=True,
        evaluation=F.EVALUATION_KEYPOINTS,
    ),
    # [n, P]
    F.GROUNDTRUTH_KEYPOINT_VISIBILITIES: ObjectField(
        tf.bool, padding=0, is_by_keypoint=True, evaluation=F.EVALUATION_KEYPOINT_VISIBILITIES
    ),
    # Made after the augmentations.
    F.GROUNDTRUTH_KEYPOINT_WEIGHTS: ObjectField(tf.float32, padding=0, is_by_keypoint=True),
    F.GROUNDTRUTH_KEYPOINT_DEPTHS: ObjectField(
        tf.float32, padding=0, is_by_keypoint=True, is_optional=True
    ),
    F.GROUNDTRUTH_KEYPOINT_DEPTH_WEIGHTS: ObjectField(
        tf.float32, padding=0, is_by_keypoint=True, is_optional=True
    ),
    # [n, D, 2], [n, D, 2] (v, u), [n, D], [n]
    F.GROUNDTRUTH_DP_POINTS: ObjectField(tf.float32, Geometry.POINTS, padding=0, is_optional=True),
    F.GROUNDTRUTH_DP_SURFACE: ObjectField(tf.float32, padding=0, is_optional=True),
    F.GROUNDTRUTH_DP_PART_IDS: ObjectField(tf.int32, padding=0, is_optional=True),
    F.GROUNDTRUTH_DP_NUM_POINTS: ObjectField(tf.int32, padding=0, is_optional=True),
    # [n, H, W]
    F.GROUNDTRUTH_INSTANCE_MASKS: ObjectField(tf.uint8, Geometry.IMAGE_MASK, padding=0),
    # [n, S, S]
    F.GROUNDTRUTH_INSTANCE_MASK_CROPS: ObjectField(tf.uint8, Geometry.BOX_MASK, padding=0),
    # [n], PNG files; decoded or cropped before the image changes
    F.GROUNDTRUTH_ENCODED_MASKS: ObjectField(tf.string, evaluation=F.EVALUATION_MASKS),
}


def names_of(*geometries: Geometry) -> tuple[str, ...]:
    """Returns the names of the fields of some kinds of geometry."""
    return tuple(name for name, field in OBJECT_FIELDS.items() if field.geometry in geometries)


@dataclasses.dataclass(frozen=True)
class ImageField:
    """A field of a decoded example that describes the whole image.

    Attributes:
      dtype: dtype of the decoded tensor.
      stored: where the decoder finds it.
      is_list: whether it is a list [n] of any length, which batches pad with zeros to the longest
        among their images; otherwise it is a scalar.
      in_batches: whether batches have it.
      is_optional: whether decoders read it only where they are asked to.
    """

    dtype: tf.DType
    stored: Stored
    is_list: bool = False
    in_batches: bool = True
    is_optional: bool = False


def _class_ids(key: str) -> ImageField:
    stored = Stored(key, tf.int64, 0)
    return ImageField(tf.int64, stored, is_list=True, in_batches=False, is_optional=True)


# All fields that the decoder takes from a record as they are. The image itself is none of them.
IMAGE_FIELDS: dict[str, ImageField] = {
    F.SOURCE_ID: ImageField(tf.string, Stored(keys.SOURCE_ID, tf.string, ''), in_batches=False),
    F.KEY: ImageField(tf.string, Stored(keys.SHA256, tf.string, ''), in_batches=False),
    F.FILENAME: ImageField(tf.string, Stored(keys.FILENAME, tf.string, ''), in_batches=False),
    # Ids of classes.
    F.GROUNDTRUTH_VERIFIED_NEG_CLASSES: _class_ids(keys.NEGATIVE_CLASSES),
    F.GROUNDTRUTH_NOT_EXHAUSTIVE_CLASSES: _class_ids(keys.NOT_EXHAUSTIVE_CLASSES),
    F.CONTEXT_FEATURES_IMAGE_ID_LIST: ImageField(
        tf.string,
        Stored(keys.CONTEXT_IMAGE_IDS, tf.string, ''),
        is_list=True,
        in_batches=False,
        is_optional=True,
    ),
}


def image_fields_of_batches() -> list[str]:
    """Returns the names of the fields of images that batches have."""
    return [name for name, field in IMAGE_FIELDS.items() if field.in_batches]
