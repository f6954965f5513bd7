"""Leaves images without a usable object out of the training data, and tells how many there are."""

import logging

import numpy as np
import tensorflow as tf

from object_detection.core.fields import InputFields as F
from object_detection.data import objects
from object_detection.data.decoder import ExampleDecoder

_log = logging.getLogger(__name__)

# Places of what follows the last record: of a whole pass, and of one that began later.
_END, _END_OF_A_PART = -1, -2


class EmptyImageFilter:
    """Drops serialized examples in which nothing is annotated that training could use.

    Images are not decoded for that. Augmentation comes later: an image whose objects a random crop
    cuts away stays.

    Args:
      decoder: of the annotations.
      skip_crowd: whether an image with nothing but crowds is empty.
      where: the reader's path in the config, for the log.
    """

    def __init__(self, decoder: ExampleDecoder, *, skip_crowd: bool, where: str):
        self._decoder = decoder
        self._skip_crowd = skip_crowd
        self._where = where

    def __call__(self, records: tf.data.Dataset, is_whole: tf.Tensor) -> tf.data.Dataset:
        """Takes (place, record) of one pass over a data set; see `record_order.epochs`."""
        counter = _Counter(self._where)

        def keep(place: tf.Tensor, serialized: tf.Tensor) -> tf.Tensor:
            is_kept = tf.cond(place < 0, lambda: False, lambda: self.is_usable(serialized))
            # Python is called for the few records only that are left out.
            tf.cond(
                is_kept,
                lambda: tf.constant(0),
                lambda: tf.numpy_function(counter.update, [place], tf.int32),
            )
            return is_kept

        place = tf.where(is_whole, tf.constant(_END, tf.int64), _END_OF_A_PART)
        end = tf.data.Dataset.from_tensors((place, tf.constant('')))
        return records.concatenate(end).filter(keep)

    def is_usable(self, serialized: tf.Tensor) -> tf.Tensor:
        """Whether training could use an example, bool scalar."""
        example = objects.clip_boxes(objects.keep_known(self._decoder.annotations(serialized)))
        if self._skip_crowd:
            example = objects.drop_crowds(example)
        return tf.reduce_any(example[F.GROUNDTRUTH_WEIGHTS] > 0)


class _Counter:
    """Counts the images that are left out, and tells their number after the first whole pass."""

    def __init__(self, where: str):
        self._where = where
        self._count = 0
        self._has_told = False

    def update(self, place: np.ndarray) -> np.int32:
        if place >= 0:
            self._count += 1
        elif place == _END_OF_A_PART:
            self._count = 0
        elif not self._has_told:
            self._has_told = True
            _log.info(
                '%s.filter_empty_images: %d images without a usable object are left out of each '
                'pass over the data',
                self._where,
                self._count,
            )
        return np.int32(0)
