"""Reads TFRecord files, reports the position of corrupt data and finds the records after it.

TensorFlow's reader does not report the position, allocates a GPU that a training may use, and ends
the process where a header announces more bytes than there is memory.
"""

import os
import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import BinaryIO, NamedTuple

import google_crc32c
import numpy as np

from object_detection.errors import DataError

# A record is its length (8 bytes), a checksum of that (4), the content and its checksum (4).
_HEADER = struct.Struct('<QI')
_CHECKSUM = struct.Struct('<I')
# Bytes before the content of a record, and those before and after it.
HEADER_SIZE = _HEADER.size
FRAME_SIZE = HEADER_SIZE + _CHECKSUM.size
# A longer record cannot be a tf.Example: protocol buffers end at twice this size.
_MAX_RECORD = 1 << 30
# Bytes that are read at a time to find the record after corrupt bytes, and in all per file.
_SEARCH_BLOCK, _MAX_SEARCH = 1 << 20, 256 << 20
# Reason of the error about a file of another kind, and what such files begin with.
OTHER_FILE = 'no_tfrecord_file'
_DECOMPRESS = 'read it with compression_type {} and write its records without'
_OTHER_FILES = {
    b'\x1f\x8b': 'is compressed with GZIP: ' + _DECOMPRESS.format('GZIP') + ', or use `gzip -d`',
    **dict.fromkeys(
        (b'x\x01', b'x\x5e', b'x\x9c', b'x\xda'),
        'is compressed with ZLIB: ' + _DECOMPRESS.format('ZLIB'),
    ),
    b'PK\x03\x04': 'is a ZIP archive',
    b'\x89HDF\r\n': 'is an HDF5 file',
    b'version https://git-lfs': 'is a pointer of Git LFS: fetch the file with `git lfs pull`',
    **dict.fromkeys(
        (b'<!doctype', b'<html'), 'is an HTML page, such as a download that failed leaves'
    ),
}
_TAR, _TAR_PLACE = b'ustar', 257


class CorruptFileError(DataError):
    """A corrupt file, or not a TFRecord file; the message is a sentence without a full stop.

    Attributes:
      reason: what is corrupt, in one or two words with underscores.
      end: byte at which the intact part of the file ends.
    """

    def __init__(self, message: str, reason: str = 'corrupt_file', end: int = 0):
        super().__init__(message)
        self.reason = reason
        self.end = end


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


class FileIndex(NamedTuple):
    """Where the records of a file are, including those that cannot be read.

    Attributes:
      offsets: int64 [n], offset of the content of each record, and of each corrupt part.
      corrupt: offset of a corrupt part -> its error; {} for a file whose headers are intact.
    """

    offsets: np.ndarray
    corrupt: Mapping[int, CorruptFileError]


def index(name: str) -> FileIndex:
    """Finds the records of a file, those after corrupt headers too; reads only the headers.

    The search for the next record ends after `_MAX_SEARCH` bytes of a file.
    """
    offsets: list[int] = []
    corrupt: dict[int, CorruptFileError] = {}
    start, searched = 0, 0
    size, file = _open(name)
    with file:
        while start is not None:
            try:
                for position in _positions(name, file, size, start, len(offsets)):
                    offsets.append(position.offset)
                break
            except CorruptFileError as error:
                offsets.append(error.end + _HEADER.size)
                corrupt[offsets[-1]] = error
                if error.reason == OTHER_FILE:
                    break
                start = _next_record(file, error.end + 1, size, _MAX_SEARCH - searched)
                searched += 0 if start is None else start - error.end
    return FileIndex(np.asarray(offsets, np.int64), corrupt)


def read_record(name: str, offset: int) -> bytes:
    """Reads the record whose content begins at an offset, and verifies its checksums.

    Raises:
      CorruptFileError: if it is corrupt.
      OSError: if the file cannot be read.
    """
    size, file = _open(name)
    start = offset - _HEADER.size
    with file:
        for position in _positions(name, file, size, start, None):
            return _content(name, file, position)
    raise CorruptFileError(f'{name} is cut off: it ends at byte {size}', 'truncated_file', size)


def read_records(
    name: str, offsets: Iterable[int]
) -> Iterator[tuple[int, bytes | CorruptFileError]]:
    """Yields the offset and the content, or what is wrong with it, of records; as `read_record`."""
    size, file = _open(name)
    with file:
        for offset in offsets:
            try:
                position = next(_positions(name, file, size, offset - _HEADER.size, None))
                yield offset, _content(name, file, position)
            except CorruptFileError as error:
                yield offset, error
            except StopIteration:
                problem = f'{name} is cut off: it ends at byte {size}'
                yield offset, CorruptFileError(problem, 'truncated_file', size)


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
            yield _content(name, file, position)


def write_record(file: BinaryIO, content: bytes) -> None:
    """Appends a record to a file: length, its checksum, the content, its checksum."""
    length = struct.pack('<Q', len(content))
    file.write(length + _CHECKSUM.pack(_masked_checksum(length)))
    file.write(content)
    file.write(_CHECKSUM.pack(_masked_checksum(content)))


def _content(name: str, file: BinaryIO, position: RecordPosition) -> bytes:
    content = file.read(position.length)
    if _CHECKSUM.unpack(file.read(_CHECKSUM.size))[0] != _masked_checksum(content):
        raise CorruptFileError(
            f'{name} is damaged: the content of {_record(position.number)} (from byte '
            f'{position.offset} on) has another checksum than when it was written',
            'corrupt_checksum',
            position.offset - _HEADER.size,
        )
    return content


def _record(number: int | None) -> str:
    return 'a record' if number is None else f'record {number}'


def _positions(
    name: str, file: BinaryIO, size: int, start: int = 0, number: int | None = 0
) -> Iterator[RecordPosition]:
    """Yields positions, with the file positioned at the beginning of each record's content.

    Args:
      name: name of the file, for errors.
      file: the open file.
      size: its size in bytes.
      start: byte at which a record begins.
      number: number of this record; None if it is not known.
    """
    end = start
    while end < size:
        file.seek(end)
        header = file.read(_HEADER.size)
        position = RecordPosition(number, end + _HEADER.size, 0)
        if len(header) == _HEADER.size:
            length, checksum = _HEADER.unpack(header)
            if checksum != _masked_checksum(header[:8]):
                if number == 0:
                    _refuse_other_files(name, file)
                what = 'is no TFRecord file' if number == 0 else 'is damaged'
                raise CorruptFileError(
                    f'{name} {what}: no record begins at byte {end}', 'corrupt_length', end
                )
            if length > _MAX_RECORD:
                raise CorruptFileError(
                    f'{name} is damaged: {_record(number)} at byte {end} has {length} bytes',
                    'corrupt_length',
                    end,
                )
            position = position._replace(length=length)
        if len(header) < _HEADER.size or position.offset + position.length + _CHECKSUM.size > size:
            what = 'is no TFRecord file, or cut off' if number == 0 else 'is cut off'
            raise CorruptFileError(
                f'{name} {what}: {_record(number)} at byte {end} has no end', 'truncated_file', end
            )
        yield position
        end = position.offset + position.length + _CHECKSUM.size
        number = None if number is None else number + 1


def _refuse_other_files(name: str, file: BinaryIO) -> None:
    """Raises CorruptFileError for a file whose beginning shows what it is."""
    file.seek(0)
    content = file.read(_TAR_PLACE + len(_TAR))
    lower = content.lower()
    found = [text for magic, text in _OTHER_FILES.items() if lower.startswith(magic.lower())]
    if content[_TAR_PLACE:] == _TAR:
        found.append('is a tar archive')
    if found:
        raise CorruptFileError(f'{name} is no TFRecord file: it {found[0]}', OTHER_FILE)


def _next_record(file: BinaryIO, start: int, size: int, limit: int) -> int | None:
    """Returns the first byte from `start` on where a header is intact; None if there is none."""
    for block_start in range(start, min(size, start + limit), _SEARCH_BLOCK):
        file.seek(block_start)
        block = file.read(_SEARCH_BLOCK + _HEADER.size - 1)
        if len(block) < _HEADER.size:
            break
        # [number of places, 12]: the bytes of the header that would begin at each place.
        headers = np.lib.stride_tricks.sliding_window_view(
            np.frombuffer(block, np.uint8), _HEADER.size
        )
        # A record is shorter than 4 GiB, so that only few places need a checksum.
        for place in np.flatnonzero(~headers[:, 4:8].any(axis=1)):
            header = block[place : place + _HEADER.size]
            length, checksum = _HEADER.unpack(header)
            fits = block_start + place + _HEADER.size + length + _CHECKSUM.size <= size
            if fits and length <= _MAX_RECORD and checksum == _masked_checksum(header[:8]):
                return block_start + int(place)
    return None


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
