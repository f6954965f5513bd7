"""Reads TFRecord files such that corrupt parts of them are records, too, which cannot be decoded.

TensorFlow's reader ends a file at the first corrupt record. Here the records after it follow, and
each corrupt part keeps a position in the order of records, so that a run resumes exactly. Python is
called once per file, and for each record from a corrupt one of its file on. Files that are not
local are read as they are: to find their records would be to load them twice.

Counts the records of TFRecord files without reading their content.
"""

import functools
from collections.abc import Iterable

import numpy as np
import tensorflow as tf

from object_detection.data import tf_record_files
from object_detection.data.pipeline import bad_records
from object_detection.data.python_calls import PythonCalls

# An element of a dataset of records: 'serialized', the record; 'file', its file; 'offset' int64,
# of its content in the file. '' and -1 where a record is from no file of records.
Record = dict[str, tf.Tensor]

# In place of a record that TensorFlow has not read. No record begins like this.
_NOT_READ = b'\x00not read'
# Bytes of a TFRecord file that are read at a time; each of the open files of an input pipeline has
# a buffer of this size in memory.
_READ_BUFFER = 1 << 20

_calls = PythonCalls()


def read(path: tf.Tensor) -> tf.data.Dataset:
    """Reads the records of a file, string scalar; see `fetch`."""
    offsets, is_intact = tf.numpy_function(_find, [path], [tf.int64, tf.bool], stateful=False)
    offsets.set_shape([None])
    is_intact.set_shape([])
    is_local = ~tf.strings.regex_full_match(path, '.*://.*')

    def records(is_wanted: tf.Tensor) -> tf.data.Dataset:
        paths = tf.boolean_mask(path[tf.newaxis], is_wanted[tf.newaxis])
        return tf.data.TFRecordDataset(paths, buffer_size=_READ_BUFFER)

    def placed(contents: tf.data.Dataset, offsets: tf.data.Dataset) -> tf.data.Dataset:
        name = tf.data.Dataset.from_tensors(path).repeat()
        entries = {'serialized': contents, 'file': name, 'offset': offsets}
        return tf.data.Dataset.zip(entries)

    # After an error, TensorFlow's reader is at its end.
    not_read = tf.data.Dataset.from_tensors(_NOT_READ).repeat()
    contents = records(is_intact & is_local).ignore_errors().concatenate(not_read)
    local = placed(contents, tf.data.Dataset.from_tensor_slices(offsets))
    unknown = tf.data.Dataset.from_tensors(tf.constant(-1, tf.int64)).repeat()
    return local.concatenate(placed(records(~is_local), unknown))


def fetch(record: Record) -> Record:
    """Completes a record of `read`, in a parallel map: reads what TensorFlow has not read."""

    def again() -> tf.Tensor:
        places = [record['file'], record['offset']]
        found = tf.numpy_function(_read_again, places, tf.string, stateful=False)
        return tf.ensure_shape(found, [])

    serialized = record['serialized']
    return {**record, 'serialized': tf.cond(serialized == _NOT_READ, again, lambda: serialized)}


@functools.lru_cache(maxsize=1 << 16)
def _index(name: str, size: int, modified: int) -> tf_record_files.FileIndex:
    del size, modified
    return tf_record_files.index(name)


def _index_of(name: str) -> tf_record_files.FileIndex:
    status = tf.io.gfile.stat(name)
    return _index(name, status.length, status.mtime_nsec)


def _find(path: bytes) -> tuple[np.ndarray, np.bool_]:
    _calls.begin()
    if b'://' in path:
        return np.zeros([0], np.int64), np.bool_(True)
    try:
        index = _index_of(path.decode())
    except (OSError, tf.errors.OpError):
        # One record that cannot be read stands for the file.
        return np.array([-1], np.int64), np.bool_(False)
    return index.offsets, np.bool_(not index.corrupt)


def _read_again(path: bytes, offset: np.int64) -> bytes:
    _calls.begin()
    name = path.decode()
    try:
        if error := _index_of(name).corrupt.get(int(offset)):
            raise error
        return tf_record_files.read_record(name, int(offset))
    except tf_record_files.CorruptFileError as error:
        return bad_records.marker(error.reason, str(error))
    except (OSError, tf.errors.OpError) as error:
        return bad_records.marker('unreadable_file', f'{name} cannot be read ({error})')


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
