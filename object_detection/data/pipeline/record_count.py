"""Counts the records of TFRecord files without reading their content."""

from collections.abc import Iterable

import tensorflow as tf

from object_detection.data import tf_record_files


def count(patterns: Iterable[str]) -> int:
    """Returns the number of records in all files that match `patterns`.

    Raises:
      ValueError: if a file is truncated or not a TFRecord file; the message names it.
    """
    return sum(
        1
        for pattern in patterns
        for name in sorted(tf.io.gfile.glob(pattern))
        for _ in tf_record_files.positions(name)
    )
