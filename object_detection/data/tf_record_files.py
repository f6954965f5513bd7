"""Reads TFRecord files and reports the position of corrupt data.

TensorFlow's reader does not report the position, and allocates a GPU that a training may use.
"""

import os
import struct
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

import google_crc32c

from object_detection.errors import DataError

# A record is its length (8 bytes), a checksum of that (4), the content and its checksum (4).
_HEADER = struct.Struct('<QI')
_CHECKSUM = struct.Struct('<I')


class CorruptFileError(DataError):
    """A corrupt file, or not a TFRecord file; the message is a sentence without a full stop."""


class RecordPosition(NamedTuple):
    """The position of a record in its file.

    Attributes:
      number: number of the record, from 0 on.
      offset: offset of its content, in bytes.
      length: length of its content, in bytes.
    """

    number: int
    offset: int
    length: int


def positions(name: str) -> Iterator[RecordPosition]:
    """Yields the positions of the records of a file; reads only their headers.

    Raises:
      CorruptFileError: if the file is truncated or not a TFRecord file; the message names the file
        and the position.
    """
    size, file = _open(name)
    with file:
        yield from _positions(name, file, size)


def records(name: str) -> Iterator[bytes]:
    """Yields the records of a file and verifies their checksums.

    Raises:
      CorruptFileError: if a record is corrupt; the message names the file and the position.
    """
    size, file = _open(name)
    with file:
        for position in _positions(name, file, size):
            content = file.read(position.length)
            if _CHECKSUM.unpack(file.read(_CHECKSUM.size))[0] != _masked_checksum(content):
                raise CorruptFileError(
                    f'{name} is damaged: the content of record {position.number} (from byte '
                    f'{position.offset} on) has another checksum than when it was written'
                )
            yield content


def _positions(name: str, file: BinaryIO, size: int) -> Iterator[RecordPosition]:
    """Yields positions, with the file positioned at the beginning of each record's content."""
    end, number = 0, 0
    while end < size:
        file.seek(end)
        header = file.read(_HEADER.size)
        position = RecordPosition(number, end + _HEADER.size, 0)
        if len(header) == _HEADER.size:
            length, checksum = _HEADER.unpack(header)
            if checksum != _masked_checksum(header[:8]):
                what = 'is no TFRecord file' if number == 0 else 'is damaged'
                raise CorruptFileError(f'{name} {what}: no record begins at byte {end}')
            position = position._replace(length=length)
        if len(header) < _HEADER.size or position.offset + position.length + _CHECKSUM.size > size:
            what = 'is no TFRecord file, or cut off' if number == 0 else 'is cut off'
            raise CorruptFileError(
                f'{name} {what}: record {number} begins at byte {end} and has no end'
            )
        yield position
        end, number = position.offset + position.length + _CHECKSUM.size, number + 1


def _masked_checksum(content: bytes) -> int:
    """Returns the masked CRC32C checksum of TFRecord files."""
    value = google_crc32c.value(content)
    return (((value >> 15) | (value << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def _open(name: str) -> tuple[int, BinaryIO]:
    """Opens a file; returns its size and the file."""
    if os.path.exists(name):
        # A buffer would read the contents between the headers.
        return os.path.getsize(name), open(name, 'rb', 0)
    # TensorFlow takes seconds to import, and most files are local.
    import tensorflow as tf

    return tf.io.gfile.stat(name).length, tf.io.gfile.GFile(name, 'rb')
