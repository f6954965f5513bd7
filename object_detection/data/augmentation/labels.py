"""Steps that change labels of objects, or drop objects by their label.

They need neither image nor masks. Classes are 1-based ids [n], as in records.
"""

import dataclasses

import tensorflow as tf

from object_detection.core.fields import InputFields as F
from object_detection.data import objects
from object_detection.data.objects import Example
from object_detection.errors import UserError, expected


@dataclasses.dataclass(frozen=True)
class RemapLabels:
    """Gives the objects of several classes one id.

    Raises:
      ValueError: if no ids are given.
    """

    original_labels: tuple[int, ...]
    new_label: int

    def __post_init__(self):
        if not self.original_labels:
            raise expected('remap_labels.original_labels', 'at least one id')

    def __call__(self, example: Example, seed: tf.Tensor) -> Example:
        """Changes the classes, int [n], of `example`; `seed` is unused."""
        del seed
        classes = example[F.GROUNDTRUTH_CLASSES]
        originals = tf.constant(self.original_labels, classes.dtype)
        is_original = tf.reduce_any(classes[:, tf.newaxis] == originals, axis=1)
        new = tf.constant(self.new_label, classes.dtype)
        return {**example, F.GROUNDTRUTH_CLASSES: tf.where(is_original, new, classes)}


@dataclasses.dataclass(frozen=True)
class DropLabelProbabilistically:
    """Drops objects of one class, each independently with a probability."""

    label: int
    drop_probability: float = 1.0

    def __call__(self, example: Example, seed: tf.Tensor) -> Example:
        """Drops rows of all fields of `OBJECT_FIELDS`; classes are int [n]."""
        classes = example[F.GROUNDTRUTH_CLASSES]
        draws = tf.random.stateless_uniform(tf.shape(classes), seed)  # in [0, 1)
        is_kept = (classes != self.label) | (draws >= self.drop_probability)
        return objects.select(example, is_kept)


@dataclasses.dataclass(frozen=True)
class ConvertClassLogitsToSoftmax:
    """Converts the stored logits of all classes to scores that sum to 1."""

    temperature: float = 1.0

    def __call__(self, example: Example, seed: tf.Tensor) -> Example:
        """Changes the multiclass scores, float32 [n, C], of `example`; `seed` is unused.

        Raises:
          ValueError: if the example has none.
        """
        del seed
        if F.MULTICLASS_SCORES not in example:
            raise UserError(
                'convert_class_logits_to_softmax: expected stored scores; set '
                'train_input_reader.load_multiclass_scores: true. Received: none.'
            )
        logits = example[F.MULTICLASS_SCORES]
        return {**example, F.MULTICLASS_SCORES: tf.nn.softmax(logits / self.temperature)}
