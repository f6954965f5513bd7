"""The objects of one example: the table of the fields that have a row for each, and their rows."""

import dataclasses
import enum

import tensorflow as tf

from object_detection.core.fields import InputFields as F
from object_detection.data import tf_example_keys as keys


class Geometry(enum.Enum):
    """What part of the image a field describes, and so how it follows the image.

    Augmentations and resizers say what they do with each kind, not with each field.

    Attributes:
      NONE: nothing that moves with the image.
      BOX: float32 [n, 4], (ymin, xmin, ymax, xmax), normalized to the image.
      POINTS: float32 [n, P, 2], (y, x), normalized to the image; P points an object.
      IMAGE_MASK: [n, H, W], the pixels of the image.
      BOX_MASK: [n, S, S], samples of the object's box.
    """

    NONE = enum.auto()
    BOX = enum.auto()
    POINTS = enum.auto()
    IMAGE_MASK = enum.auto()
    BOX_MASK = enum.auto()


@dataclasses.dataclass(frozen=True)
class Stored:
    """One value an object in a tf.Example.

    Attributes:
      key: key of the tf.Example.
      dtype: that of the stored list.
      default: default of objects whose record does not have the key.
    """

    key: str
    dtype: tf.DType
    default: float | bool


@dataclasses.dataclass(frozen=True)
class ObjectField:
    """A field of a decoded example with one row an object.

    Attributes:
      dtype: dtype of the decoded tensor.
      geometry: how it follows the image.
      padding: what the rows of a batch hold that are no objects; None for a field that batches do
        not have.
      is_by_keypoint: whether its axis 1 is that of keypoints, which flips permute.
      stored: where the decoder finds it, for a field that is one value an object; the decoder has
        code for the others.
    """

    dtype: tf.DType
    geometry: Geometry = Geometry.NONE
    padding: float | None = None
    is_by_keypoint: bool = False
    stored: Stored | None = None


# All fields with one row an object: n objects, P keypoints, masks of H x W pixels, crops of S x S.
# What drops or orders objects acts on all of them, so that rows stay together.
OBJECT_FIELDS: dict[str, ObjectField] = {
    # [n, 4]
    F.GROUNDTRUTH_BOXES: ObjectField(tf.float32, Geometry.BOX, padding=0),
    # [n], ids; later [n, K], one-hot
    F.GROUNDTRUTH_CLASSES: ObjectField(tf.int64, padding=0),
    # [n, C]
    F.MULTICLASS_SCORES: ObjectField(tf.float32),
    # [n]
    F.GROUNDTRUTH_WEIGHTS: ObjectField(
        tf.float32, padding=0, stored=Stored(keys.WEIGHT, tf.float32, 1.0)
    ),
    F.GROUNDTRUTH_IS_CROWD: ObjectField(
        tf.bool, padding=0, stored=Stored(keys.IS_CROWD, tf.int64, False)
    ),
    F.GROUNDTRUTH_AREA: ObjectField(
        tf.float32, padding=0, stored=Stored(keys.AREA, tf.float32, -1.0)
    ),
    F.GROUNDTRUTH_DIFFICULT: ObjectField(tf.bool, stored=Stored(keys.DIFFICULT, tf.int64, False)),
    F.GROUNDTRUTH_GROUP_OF: ObjectField(tf.bool, stored=Stored(keys.GROUP_OF, tf.int64, False)),
    # [n, P, 2]
    F.GROUNDTRUTH_KEYPOINTS: ObjectField(
        tf.float32, Geometry.POINTS, padding=float('nan'), is_by_keypoint=True
    ),
    # [n, P]
    F.GROUNDTRUTH_KEYPOINT_VISIBILITIES: ObjectField(tf.bool, padding=0, is_by_keypoint=True),
    # [n, H, W]
    F.GROUNDTRUTH_INSTANCE_MASKS: ObjectField(tf.uint8, Geometry.IMAGE_MASK, padding=0),
    # [n, S, S]
    F.GROUNDTRUTH_INSTANCE_MASK_CROPS: ObjectField(tf.uint8, Geometry.BOX_MASK, padding=0),
    # [n], PNG files; decoded or cropped before the image changes
    F.GROUNDTRUTH_ENCODED_MASKS: ObjectField(tf.string),
}

Example = dict[str, tf.Tensor]


def select(example: Example, rows: tf.Tensor) -> Example:
    """Keeps some of an example's objects.

    Args:
      example: fields of one image; those of `OBJECT_FIELDS` are [n, ...].
      rows: bool [n], which objects to keep; or int [k], their indices, in the order wanted.
    """
    if rows.dtype == tf.bool:
        rows = tf.where(rows)[:, 0]
    return {
        name: tf.gather(value, rows) if name in OBJECT_FIELDS else value
        for name, value in example.items()
    }


def names_of(*geometries: Geometry) -> tuple[str, ...]:
    """Returns the names of the fields of some kinds of geometry."""
    return tuple(name for name, field in OBJECT_FIELDS.items() if field.geometry in geometries)


def keep_known(example: Example) -> Example:
    """Drops objects whose class is unknown (id below 1) or whose box is NaN or inverted."""
    boxes = example[F.GROUNDTRUTH_BOXES]
    # Comparisons with NaN are false, so they drop NaN boxes too.
    is_box = tf.reduce_all(boxes[:, 2:] >= boxes[:, :2], axis=1)
    return select(example, is_box & (example[F.GROUNDTRUTH_CLASSES] >= 1))


def clip_boxes(example: Example) -> Example:
    """Clips boxes to the image and drops the objects of which no area is left.

    A box without area would be encoded as the logarithm of nearly nothing, which makes the loss
    explode.
    """
    boxes = tf.clip_by_value(example[F.GROUNDTRUTH_BOXES], 0.0, 1.0)
    has_area = tf.reduce_all(boxes[:, 2:] > boxes[:, :2], axis=1)
    return select({**example, F.GROUNDTRUTH_BOXES: boxes}, has_area)


def drop_crowds(example: Example, seed: tf.Tensor | None = None) -> Example:
    """Drops the objects that stand for several; `seed` is unused."""
    del seed
    return select(example, ~example[F.GROUNDTRUTH_IS_CROWD])


def merge_same_boxes(example: Example) -> Example:
    """Makes one object of objects with the same box: k-hot classes, the first one's other fields.

    Args:
      example: with GROUNDTRUTH_CLASSES float32 [n, K], one-hot.
    """
    boxes = example[F.GROUNDTRUTH_BOXES]
    is_same = tf.reduce_all(boxes[:, tf.newaxis] == boxes[tf.newaxis], axis=-1)  # [n, n]
    classes = tf.cast(is_same, tf.float32) @ example[F.GROUNDTRUTH_CLASSES]
    first = tf.argmax(is_same, axis=1, output_type=tf.int32)
    merged = {**example, F.GROUNDTRUTH_CLASSES: tf.minimum(classes, 1.0)}
    return select(merged, first == tf.range(tf.shape(boxes)[0]))
