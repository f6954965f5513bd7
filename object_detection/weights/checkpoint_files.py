"""The files of checkpoints, and the state file that names the complete ones.

A checkpoint `ckpt-N` consists of the files `ckpt-N.index` and `ckpt-N.data-xxxxx-of-xxxxx`. It is
valid as soon as the state file `checkpoint` of its folder, which is written last, names it.
"""

import contextlib
import dataclasses
import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf

from object_detection.errors import (
    CheckpointError,
    CorruptCheckpointError,
    UnreadableCheckpointError,
)
from object_detection.system import files

STATE_FILE = 'checkpoint'
# Suffix of the key of a variable's value in object-based checkpoints.
VALUE_SUFFIX = '/.ATTRIBUTES/VARIABLE_VALUE'
_PAUSES = (0.0, 0.05, 0.25)  # seconds before each attempt to read a state file
_FILE = re.compile(r'(?P<name>ckpt-(?P<number>\d+))\.(index|data-\d{5}-of-\d{5})')
_DATA = re.compile(r'\.data-\d{5}-of-(?P<count>\d{5})$')
# Errors of TensorFlow's readers, both for corrupt files and for files that cannot be read now.
READ_ERRORS = (tf.errors.OpError, ValueError, LookupError, RuntimeError)
# Errors of reading bytes that are due to the file itself, not to the access to it.
_DAMAGES = (tf.errors.DataLossError, tf.errors.NotFoundError, tf.errors.OutOfRangeError)
_READ_AT_ONCE = 2**24  # bytes


@dataclasses.dataclass(frozen=True)
class State:
    """The content of the state file.

    Attributes:
      newest: prefix of the newest checkpoint.
      saved_at: prefix -> time of saving in seconds since 1970; oldest first, including the newest.
      preserved_at: time of the last checkpoint that is never deleted.
    """

    newest: str
    saved_at: Mapping[str, float]
    preserved_at: float


def read_state(directory: str) -> State | None:
    """Reads the state file of a folder; None if there is none.

    Raises:
      CorruptCheckpointError: if it is damaged, or names nothing.
      UnreadableCheckpointError: if it cannot be read for another reason.
    """
    path = os.path.join(directory, STATE_FILE)
    # `gfile.exists` is also False for a file that cannot be reached.
    if STATE_FILE not in _list(directory):
        return None
    proto = _read_proto(directory)
    if proto is None:
        _check_readable(path)
        raise CorruptCheckpointError.expected(path, 'the names of checkpoints', 'a damaged file')
    prefixes = list(proto.all_model_checkpoint_paths) or [proto.model_checkpoint_path]
    times = list(proto.all_model_checkpoint_timestamps)
    if len(times) != len(prefixes):
        times = [proto.last_preserved_timestamp + 1.0] * len(prefixes)
    saved_at = dict(zip(prefixes, times, strict=True))
    saved_at.setdefault(proto.model_checkpoint_path, proto.last_preserved_timestamp + 1.0)
    return State(proto.model_checkpoint_path, saved_at, proto.last_preserved_timestamp)


def _read_proto(directory: str) -> Any:
    """Returns the content of the state file; None if it is corrupt."""
    for pause in _PAUSES:
        # TensorFlow reads the size before the content, and so truncates a file that is replaced by
        # a longer one meanwhile.
        time.sleep(pause)
        with contextlib.suppress(ValueError):
            proto = tf.train.get_checkpoint_state(directory)
            if proto is not None:
                return proto
    return None


def write_state(directory: str, state: State) -> None:
    """Replaces the state file atomically; its names are relative, so the folder can be moved."""

    def relative(prefix: str) -> str:
        inside = os.path.dirname(os.path.abspath(prefix)) == os.path.abspath(directory)
        return json.dumps(os.path.basename(prefix) if inside else prefix)

    lines = [f'model_checkpoint_path: {relative(state.newest)}']
    lines += [f'all_model_checkpoint_paths: {relative(prefix)}' for prefix in state.saved_at]
    lines += [f'all_model_checkpoint_timestamps: {time!r}' for time in state.saved_at.values()]
    lines += [f'last_preserved_timestamp: {state.preserved_at!r}']
    files.write_text(os.path.join(directory, STATE_FILE), '\n'.join(lines) + '\n')


def number_of(name: str) -> int | None:
    """Returns N of a prefix 'ckpt-N' or of one of its files; None for other names."""
    match = _FILE.fullmatch(f'{name}.index') or _FILE.fullmatch(name)
    return int(match['number']) if match else None


def complete(directory: str) -> list[str]:
    """Returns the prefixes 'ckpt-N' of the complete checkpoints of a folder, sorted by N."""
    names = {match['name'] for name in _list(directory) if (match := _FILE.fullmatch(name))}
    prefixes = [os.path.join(directory, name) for name in sorted(names, key=number_of)]
    return [prefix for prefix in prefixes if is_complete(prefix)]


def exists(prefix: str) -> bool:
    """Whether `prefix` is a checkpoint, not a folder of checkpoints."""
    return tf.io.gfile.exists(f'{prefix}.index')


def is_complete(prefix: str) -> bool:
    """Whether all files of a checkpoint exist; their contents are not checked."""
    return not _missing_file(prefix)


def files_of(prefix: str) -> list[str]:
    """Returns the paths of the existing files of a checkpoint."""
    folder, name = os.path.split(prefix)
    own = (f'{name}.index', f'{name}.data-')
    return [os.path.join(folder, found) for found in _list(folder or '.') if found.startswith(own)]


def open_reader(prefix: str) -> Any:
    """Opens a checkpoint.

    Returns:
      A `tf.train.CheckpointReader`.

    Raises:
      CorruptCheckpointError: if it is absent or damaged.
      UnreadableCheckpointError: if the system cannot read it now, e.g. for want of permission.
    """
    with reading(prefix, READ_ERRORS):
        missing = _missing_file(prefix)
        if missing:
            raise CorruptCheckpointError(f'{prefix}: cannot be read as a checkpoint: {missing}.')
        return tf.train.load_checkpoint(prefix)


def read_through(prefix: str) -> None:
    """Reads every byte of a checkpoint, which verifies the checksums.

    Raises:
      CorruptCheckpointError: if it is absent or damaged, and was so twice.
      UnreadableCheckpointError: if the system cannot read it now, e.g. for want of permission.
    """
    try:
        _read_tensors(prefix)
    except CorruptCheckpointError:
        # TensorFlow reports errors of the disk or the network like corrupt files.
        _read_tensors(prefix)


def _read_tensors(prefix: str) -> None:
    reader = open_reader(prefix)
    with reading(prefix, READ_ERRORS):
        for key in reader.get_variable_to_shape_map():
            reader.get_tensor(key)


@contextlib.contextmanager
def reading(
    prefix: str, errors: tuple[type[Exception], ...] = (tf.errors.OpError, LookupError)
) -> Iterator[None]:
    """A context in which a failure to read a checkpoint, of `errors`, becomes a CheckpointError."""
    try:
        yield
    except CheckpointError:
        raise
    except errors as error:
        raise _unreadable(prefix, error) from error


def make_durable(prefix: str) -> None:
    """Flushes a checkpoint's files and their folder to the disk."""
    for path in [*files_of(prefix), os.path.dirname(prefix) or '.']:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _missing_file(prefix: str) -> str | None:
    """Describes which file a checkpoint lacks; None if it is complete."""
    if not exists(prefix):
        return f'there is no file {os.path.basename(prefix)}.index'
    data = [match for path in files_of(prefix) if (match := _DATA.search(path))]
    if not data:
        return f'there is no file {os.path.basename(prefix)}.data-00000-of-00001'
    count = int(data[0]['count'])
    if len(data) != count:
        return f'{count - len(data)} of its {count} data files are missing'
    return None


def _unreadable(prefix: str, error: Exception) -> CheckpointError:
    """Distinguishes corrupt files from files that cannot be read now, as TensorFlow does not."""
    try:
        for path in files_of(prefix):
            _check_readable(path)
    except UnreadableCheckpointError as other:
        return other
    reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return CorruptCheckpointError(
        f'{prefix}: cannot be read as a checkpoint: a file of it is damaged or cut off ({reason}).'
    )


def _check_readable(path: str) -> None:
    """Reads the bytes of a file.

    Raises:
      UnreadableCheckpointError: if it exists, but the system cannot read it.
    """
    try:
        with tf.io.gfile.GFile(path, 'rb') as file:
            while file.read(_READ_AT_ONCE):
                pass
    except _DAMAGES:
        return
    except tf.errors.OpError as error:
        raise UnreadableCheckpointError(
            f'{path}: expected a file that can be read. Received: {error.message}. It may be '
            'whole; nothing was changed.'
        ) from error


def _list(directory: str) -> list[str]:
    return sorted(tf.io.gfile.listdir(directory)) if tf.io.gfile.isdir(directory) else []
