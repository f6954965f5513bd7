"""Labels of the classes above and below a class in a hierarchy."""

from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from object_detection.core.fields import InputFields as F
from object_detection.data import objects
from object_detection.data.label_map import LabelMap
from object_detection.data.objects import Example


class LabelHierarchy:
    """Adds the classes that the classes of an example imply.

    Args:
      label_map: label map with the classes above and below each class.
    """

    def __init__(self, label_map: LabelMap):
        ids = [*label_map.name_to_id.values()]
        for related in (label_map.ancestors, label_map.descendants):
            ids += [number for others in related.values() for number in others]
        self._ancestors = _table(label_map.ancestors, max(ids) + 1)
        self._descendants = _table(label_map.descendants, max(ids) + 1)

    def expand(self, example: Example) -> Example:
        """Repeats each object for the classes above its own; the order stays, then by id.

        An image of a class (confidence 1) is also one of the classes above it; an image without a
        class (confidence 0) has none of the classes below it either. Other confidences say nothing
        about other classes.
        """
        rows, classes = _related(example[F.GROUNDTRUTH_CLASSES], self._ancestors)
        example = objects.select(example, rows) | {F.GROUNDTRUTH_CLASSES: classes}
        if F.GROUNDTRUTH_IMAGE_CLASSES not in example:
            return example
        for confidence, table in ((1.0, self._ancestors), (0.0, self._descendants)):
            example |= _expand_image(example, confidence, table)
        return example


def _table(related: Mapping[int, frozenset[int]], size: int) -> np.ndarray:
    """Returns bool [size, size]: whether a class (row) implies a class (column)."""
    table = np.eye(size, dtype=bool)
    for number, others in related.items():
        table[number, list(others)] = True
    return table


def _related(classes: tf.Tensor, table: np.ndarray) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the row of each class, or of one that it implies, and the class: both [k].

    An id that the label map lacks implies itself alone.
    """
    is_known = (classes >= 1) & (classes < len(table))
    implied = tf.gather(tf.constant(table), tf.where(is_known, classes, 0))  # [n, size]
    rows, ids = tf.unstack(tf.where(implied), axis=1)
    return rows, tf.where(tf.gather(is_known, rows), ids, tf.gather(classes, rows))


def _expand_image(example: Example, confidence: float, table: np.ndarray) -> Example:
    classes = example[F.GROUNDTRUTH_IMAGE_CLASSES]
    confidences = example[F.GROUNDTRUTH_IMAGE_CONFIDENCES]
    is_meant = confidences == confidence
    _, implied = _related(tf.boolean_mask(classes, is_meant), table)
    implied = tf.sort(tf.unique(implied)[0])
    kept = tf.boolean_mask(classes, ~is_meant), tf.boolean_mask(confidences, ~is_meant)
    return {
        F.GROUNDTRUTH_IMAGE_CLASSES: tf.concat([kept[0], implied], axis=0),
        F.GROUNDTRUTH_IMAGE_CONFIDENCES: tf.concat(
            [kept[1], tf.fill([tf.size(implied)], confidence)], axis=0
        ),
    }
