"""Repeats records of images with rare classes within an epoch; see `image_counts`."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf

from object_detection.core.fields import InputFields
from object_detection.data.pipeline import bad_records, record_files
from object_detection.data.pipeline.left_out import UsableObjects
from object_detection.data.pipeline.record_files import Record

# Records of which the classes are counted at a time.
_COUNTED = 1024
# In place of a class, in rows of images with fewer, and of a record that cannot be read.
_NO_CLASS, _NO_RECORD = -1, -2


def times(factors: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Draws how often images are read in an epoch: `factors` on average.

    Args:
      factors: float32 [...], at least 1.
      seed: int64 [2].

    Returns:
      int64 [...], `factors` rounded down or up.
    """
    whole = tf.floor(factors)
    is_up = tf.random.stateless_uniform(tf.shape(factors), seed) < factors - whole
    return tf.cast(whole, tf.int64) + tf.cast(is_up, tf.int64)


class RecordRepeats:
    """Repeats each record of an epoch by the largest factor of its classes.

    Args:
      usable: decoder of the objects that count.
      factors: class id -> repeat factor; 1 for classes that are missing, and for bad records.
    """

    def __init__(self, usable: UsableObjects, factors: Mapping[int, float]):
        self._usable = usable
        self._factors = np.ones([max(factors, default=0) + 2], np.float32)
        self._factors[list(factors)] = list(factors.values())

    def __call__(self, records: tf.data.Dataset, seed: tf.Tensor) -> tf.data.Dataset:
        """Repeats the records of an epoch, `record_files.Record`; `seed` int64 scalar is its."""

        def factor(number: tf.Tensor, record: Record) -> tf.Tensor:
            del number
            return self._factor(record_files.fetch(record)['serialized'])

        def counted(
            element: tuple[tf.Tensor, Record], factor: tf.Tensor
        ) -> tuple[Record, tf.Tensor]:
            number, record = element
            return record, times(factor, tf.stack([seed, number]))

        def copies(record: Record, count: tf.Tensor) -> tf.data.Dataset:
            return tf.data.Dataset.from_tensors(record).repeat(count)

        factors = bad_records.map_guarded(
            records.enumerate(),
            factor,
            lambda *_: tf.constant(1.0),
            chunk=bad_records.READ_IN_TURN,
            parallel=True,
        )
        return factors.map(counted).flat_map(copies)

    def _factor(self, serialized: tf.Tensor) -> tf.Tensor:
        classes = self._usable(serialized)[InputFields.GROUNDTRUTH_CLASSES]
        # The last entry is 1.
        rows = tf.minimum(classes, len(self._factors) - 1)
        return tf.reduce_max(tf.concat([tf.gather(self._factors, rows), [1.0]], axis=0))


def classes_of_records(files: Sequence[str], usable: UsableObjects) -> Iterator[set[int]]:
    """Yields the ids of the classes of each record that can be read, in any order."""

    def ids(record: Record) -> tf.Tensor:
        serialized = record_files.fetch(record)['serialized']
        return tf.unique(usable(serialized)[InputFields.GROUNDTRUTH_CLASSES])[0]

    names = tf.data.Dataset.from_tensor_slices(list(files))
    records = names.interleave(record_files.read, num_parallel_calls=tf.data.AUTOTUNE)
    rows = bad_records.map_guarded(
        records.map(lambda record: (record,)),
        ids,
        lambda _: tf.constant([_NO_RECORD], tf.int64),
        chunk=bad_records.READ_IN_TURN,
        parallel=True,
    ).map(lambda _, unique: unique)
    padding = tf.constant(_NO_CLASS, tf.int64)
    for batch in rows.padded_batch(_COUNTED, padding_values=padding).as_numpy_iterator():
        for row in batch.tolist():
            if _NO_RECORD not in row:
                yield {*row} - {_NO_CLASS}
