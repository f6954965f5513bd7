"""The objects of one example: dropping, ordering and merging their rows."""

from collections.abc import Mapping, Sequence

import tensorflow as tf

from object_detection.core.example_fields import OBJECT_FIELDS
from object_detection.core.fields import InputFields as F

Example = dict[str, tf.Tensor]


def select(example: Example, rows: tf.Tensor) -> Example:
    """Keeps some of an example's objects.

    Args:
      example: fields of one image; the fields of `OBJECT_FIELDS` are [n, ...].
      rows: bool [n], which objects to keep; or int [k], their indices in the new order.
    """
    if rows.dtype == tf.bool:
        rows = tf.where(rows)[:, 0]
    return {
        name: tf.gather(value, rows) if name in OBJECT_FIELDS else value
        for name, value in example.items()
    }


def concat(examples: Sequence[Example]) -> Example:
    """Returns the objects of several examples, in order: the fields of `OBJECT_FIELDS`.

    Where the examples have different numbers of points or scores for an object, the field is padded
    to the greatest.

    Args:
      examples: with the same fields; full-size masks have the same size.
    """
    return {
        name: _concat([example[name] for example in examples], field.padding or 0)
        for name, field in OBJECT_FIELDS.items()
        if name in examples[0]
    }


def _concat(rows: Sequence[tf.Tensor], padding: float) -> tf.Tensor:
    is_known = rows[0].shape[1:].is_fully_defined()
    if not (is_known and all(each.shape[1:] == rows[0].shape[1:] for each in rows)):
        greatest = tf.reduce_max(tf.stack([tf.shape(each)[1:] for each in rows]), axis=0)
        rows = [_extended(each, greatest, padding) for each in rows]
    return tf.concat(rows, axis=0)


def _extended(rows: tf.Tensor, sizes: tf.Tensor, padding: float) -> tf.Tensor:
    """Pads [n, ...] to the sizes of the axes after the first."""
    after = tf.concat([[0], sizes - tf.shape(rows)[1:]], axis=0)
    paddings = tf.stack([tf.zeros_like(after), after], axis=1)
    return tf.pad(rows, paddings, constant_values=tf.cast(padding, rows.dtype))


# Why `keep_known` and `clip_boxes` drop an object -> what such an object is.
INVALID_KINDS = {
    'unknown_class': 'with an unknown class',
    'nan_box': 'with a box that has a NaN coordinate',
    'inverted_box': 'with a box whose maximum is less than its minimum',
    'box_without_area': 'with a box without area',
    'box_outside_image': 'with a box outside the image',
}


def describe_invalid(counts: Mapping[str, int]) -> str:
    """Returns, e.g., '17 with an unknown class, 2 with a box without area' for kind -> number."""
    return ', '.join(
        f'{counts[kind]} {text}' for kind, text in INVALID_KINDS.items() if counts.get(kind)
    )


def count_invalid(example: Example) -> tf.Tensor:
    """Counts the objects that `keep_known` and `clip_boxes` drop: int32 [kinds], as
    `INVALID_KINDS` says; the first that applies counts."""
    boxes = example[F.GROUNDTRUTH_BOXES]
    clipped = tf.clip_by_value(boxes, 0.0, 1.0)
    is_kind = tf.stack(
        [
            example[F.GROUNDTRUTH_CLASSES] < 1,
            tf.reduce_any(tf.math.is_nan(boxes), axis=1),
            tf.reduce_any(boxes[:, 2:] < boxes[:, :2], axis=1),
            tf.reduce_any(boxes[:, 2:] == boxes[:, :2], axis=1),
            tf.reduce_any(clipped[:, 2:] == clipped[:, :2], axis=1),
        ]
    )
    is_first = is_kind & (tf.cumsum(tf.cast(is_kind, tf.int32), exclusive=True) == 0)
    return tf.reduce_sum(tf.cast(is_first, tf.int32), axis=1)


def keep_known(example: Example) -> Example:
    """Drops objects whose class is unknown (id below 1) or whose box is NaN or inverted."""
    boxes = example[F.GROUNDTRUTH_BOXES]
    # Comparisons with NaN are false, so they drop NaN boxes too.
    is_box = tf.reduce_all(boxes[:, 2:] >= boxes[:, :2], axis=1)
    return select(example, is_box & (example[F.GROUNDTRUTH_CLASSES] >= 1))


def clip_boxes(example: Example) -> Example:
    """Clips boxes to the image and drops the objects without a remaining area.

    A box without area would be encoded as the logarithm of almost 0, which makes the loss explode.
    """
    boxes = tf.clip_by_value(example[F.GROUNDTRUTH_BOXES], 0.0, 1.0)
    has_area = tf.reduce_all(boxes[:, 2:] > boxes[:, :2], axis=1)
    return select({**example, F.GROUNDTRUTH_BOXES: boxes}, has_area)


def drop_crowds(example: Example, seed: tf.Tensor | None = None) -> Example:
    """Drops crowds; `seed` is unused."""
    del seed
    return select(example, ~example[F.GROUNDTRUTH_IS_CROWD])


def merge_same_boxes(example: Example) -> Example:
    """Merges objects with the same box: classes become k-hot, other fields are the first object's.

    Args:
      example: example with GROUNDTRUTH_CLASSES float32 [n, K], one-hot.
    """
    boxes = example[F.GROUNDTRUTH_BOXES]
    is_same = tf.reduce_all(boxes[:, tf.newaxis] == boxes[tf.newaxis], axis=-1)  # [n, n]
    classes = tf.cast(is_same, tf.float32) @ example[F.GROUNDTRUTH_CLASSES]
    first = tf.argmax(is_same, axis=1, output_type=tf.int32)
    merged = {**example, F.GROUNDTRUTH_CLASSES: tf.minimum(classes, 1.0)}
    return select(merged, first == tf.range(tf.shape(boxes)[0]))
