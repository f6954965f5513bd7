"""Counts the records of TFRecord files without reading their content."""

import os
import struct
from collections.abc import Iterable
from typing import BinaryIO

import tensorflow as tf

# A record is its length (8 bytes), a checksum of that (4), the content and its checksum (4).
_LENGTH = struct.Struct('<Q')
_HEADER_SIZE, _FOOTER_SIZE = 12, 4


def count(patterns: Iterable[str]) -> int:
    """Returns the number of records in all files that match `patterns`.

    Raises:
      ValueError: naming a file that is cut off or no TFRecord file.
    """
    return sum(
        _count_file(name) for pattern in patterns for name in sorted(tf.io.gfile.glob(pattern))
    )


def _count_file(name: str) -> int:
    size, position, records = tf.io.gfile.stat(name).length, 0, 0
    with _open(name) as file:
        while position < size:
            file.seek(position)
            header = file.read(_HEADER_SIZE)
            if len(header) == _HEADER_SIZE:
                position += _HEADER_SIZE + _LENGTH.unpack(header[: _LENGTH.size])[0] + _FOOTER_SIZE
            if len(header) < _HEADER_SIZE or position > size:
                raise ValueError(f'{name} is no TFRecord file, or its end is missing.')
            records += 1
    return records


def _open(name: str) -> BinaryIO:
    # Unbuffered where it can be: a buffer would read what lies between the headers.
    return open(name, 'rb', 0) if os.path.exists(name) else tf.io.gfile.GFile(name, 'rb')
