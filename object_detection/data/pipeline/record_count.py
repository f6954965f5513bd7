"""Counts the records of TFRecord files without reading their content."""

from collections.abc import Iterable

import tensorflow as tf

from object_detection.data import tf_record_files


def count(patterns: Iterable[str]) -> int:
    """Returns the number of records in all files that match `patterns`.

    A corrupt part of a file counts as one record.

    Raises:
      ValueError: if a file has no intact record; the message names it.
    """
    return sum(_count(name) for pattern in patterns for name in sorted(tf.io.gfile.glob(pattern)))


def _count(name: str) -> int:
    index = tf_record_files.index(name)
    if len(index.offsets) and len(index.corrupt) == len(index.offsets):
        raise next(iter(index.corrupt.values()))
    return len(index.offsets)
