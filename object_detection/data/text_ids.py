"""Looks up the ids of texts in constant tensors."""

from collections.abc import Mapping

import tensorflow as tf


class TextIds:
    """The ids of texts, such as the names of a label map's classes.

    TensorFlow treats a hash table as state: with deterministic operations, records would be decoded
    sequentially because of it.

    Args:
      ids: text -> id.
    """

    def __init__(self, ids: Mapping[str, int]):
        texts, numbers = zip(*ids.items(), strict=True)
        with tf.init_scope():
            hashes = _hashes(tf.constant(texts, tf.string))
            order = tf.argsort(hashes)
            self._hashes = tf.gather(hashes, order).numpy()
            self._texts = tf.gather(texts, order).numpy()
            self._ids = tf.gather(tf.constant(numbers, tf.int64), order).numpy()

    def look_up(self, texts: tf.Tensor) -> tf.Tensor:
        """Returns the ids int64 [n] of texts, string [n]; -1 for unknown texts."""
        positions = tf.searchsorted(self._hashes, _hashes(texts))
        positions = tf.minimum(positions, len(self._hashes) - 1)
        is_known = tf.gather(tf.constant(self._texts, tf.string), positions) == texts
        return tf.where(is_known, tf.gather(self._ids, positions), -1)

    def unknown(self, texts: tf.Tensor) -> tf.Tensor:
        """Returns the unknown ones of texts, string [n], each once, with line breaks between."""
        unknown, _ = tf.unique(tf.boolean_mask(texts, self.look_up(texts) < 0))
        return tf.strings.reduce_join(unknown, separator='\n')


def _hashes(texts: tf.Tensor) -> tf.Tensor:
    return tf.strings.to_hash_bucket_fast(texts, 2**62)
