"""Folders that cannot be written: told in a sentence, at best before the work starts."""

import contextlib
import errno
import os
import re
import shutil
import tempfile
from collections.abc import Iterator

import tensorflow as tf

from object_detection.errors import CheckpointError

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG)
_WILDCARDS = '*?[]\\'


def check_writable(directory: str, needed_bytes: int = 0) -> None:
    """Makes a folder, if there is none, writes a small file into it and looks for free space.

    Args:
      directory: on this machine.
      needed_bytes: that will be written at least.

    Raises:
      CheckpointError: naming the folder and what is the matter.
    """
    if any(letter in directory for letter in _WILDCARDS):
        raise CheckpointError(
            f'{directory}: expected a path without {" ".join(_WILDCARDS)}, which TensorFlow takes '
            'for patterns when it reads checkpoints. Received one of them.'
        )
    try:
        os.makedirs(directory, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory) as file:
            file.write(b'x')
    except OSError as error:
        raise CheckpointError(
            f'{directory}: expected a folder that can be written. Received: {error.strerror}.'
        ) from error
    free = free_bytes(directory)
    if free is not None and free < needed_bytes:
        raise CheckpointError(
            f'{directory}: a checkpoint needs {in_words(needed_bytes)} of disk space. '
            f'Received: {in_words(free)} free.'
        )


def free_bytes(directory: str) -> int | None:
    """Returns the free space; None where the file system does not tell."""
    try:
        usage = shutil.disk_usage(directory)
    except OSError:
        return None
    return usage.free if usage.total else None


@contextlib.contextmanager
def writing(directory: str, what: str, needed_bytes: int | None = None) -> Iterator[None]:
    """A context in which a failure to write into a folder becomes a CheckpointError.

    Args:
      directory: on this machine.
      what: that is written, the beginning of a sentence.
      needed_bytes: its size, if known.
    """
    try:
        yield
    except (OSError, tf.errors.OpError) as error:
        raise _unwritten(directory, what, error, needed_bytes) from error


@contextlib.contextmanager
def full_disk_named(directory: str) -> Iterator[None]:
    """A context in which a disk that is full or read-only, and nothing else, becomes a
    CheckpointError; for the logs and events that are written everywhere in a training.
    """
    try:
        yield
    except (OSError, tf.errors.OpError) as error:
        if not any(os.strerror(number) in str(error) for number in _FULL):
            raise
        raise _unwritten(directory, 'Results', error) from error


def in_words(size: int) -> str:
    """Returns a number of bytes in words: '1.5 MB'."""
    for unit, factor in (('GB', 1e9), ('MB', 1e6)):
        if size >= factor:
            return f'{size / factor:.1f} {unit}'
    return f'{size / 1e3:.1f} kB'


def _unwritten(
    directory: str, what: str, error: Exception, needed_bytes: int | None = None
) -> CheckpointError:
    # TensorFlow: '{{node}} path; reason [Op:name]'.
    text = error.strerror if isinstance(error, OSError) else error.message
    text = re.sub(r'\{\{.*?\}\}|\[Op:.*', '', text or type(error).__name__).strip()
    reason = text.splitlines()[0].split('; ')[-1].strip()
    free = free_bytes(directory)
    space = '' if free is None else f'; {in_words(free)} free there'
    if space and needed_bytes is not None:
        space += f', {in_words(needed_bytes)} needed'
    return CheckpointError(f'{what} could not be written to {directory}: {reason}{space}.')
