"""Checks free disk space and write access, if possible before the work starts.

Imports no TensorFlow.
"""

import contextlib
import errno
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from object_detection.errors import CheckpointError, DownloadError

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG)
_WILDCARDS = '*?[]\\'


class ArchiveSpace(NamedTuple):
    """Sizes in bytes of an archive, of its part that is already present, and of its contents."""

    size: int
    present: int
    unpacked: int


def check_writable(directory: str, needed_bytes: int = 0) -> None:
    """Creates a folder if it does not exist, writes a test file into it and checks the free space.

    Args:
      directory: folder on this machine.
      needed_bytes: minimum number of bytes that will be written.

    Raises:
      CheckpointError: if the folder cannot be written; the message names it and the reason.
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
            f'{directory}: a checkpoint needs {format_bytes(needed_bytes)} of disk space. '
            f'Received: {format_bytes(free)} free.'
        )


def free_bytes(directory: str) -> int | None:
    """Returns the free space in bytes; None if the file system does not report it."""
    try:
        usage = shutil.disk_usage(directory)
    except OSError:
        return None
    return usage.free if usage.total else None


@contextlib.contextmanager
def writing(directory: str, what: str, needed_bytes: int | None = None) -> Iterator[None]:
    """A context in which a failure to write into a folder becomes a CheckpointError.

    Args:
      directory: folder on this machine.
      what: name of the written data, with which the error message begins.
      needed_bytes: its size, if known.
    """
    try:
        yield
    except _write_errors() as error:
        raise _unwritten(directory, what, error, needed_bytes) from error


@contextlib.contextmanager
def full_disk_named(directory: str) -> Iterator[None]:
    """A context in which an error of a full or read-only disk becomes a CheckpointError.

    It covers the logs and events that are written in many places of a training. Other errors pass.
    """
    try:
        yield
    except _write_errors() as error:
        if not any(os.strerror(number) in str(error) for number in _FULL):
            raise
        raise _unwritten(directory, 'Results', error) from error


def format_bytes(size: int) -> str:
    """Formats a number of bytes with a unit: '1.5 MB'."""
    for unit, factor in (('GB', 1e9), ('MB', 1e6)):
        if size >= factor:
            return f'{size / factor:.1f} {unit}'
    return f'{size / 1e3:.1f} kB'


def require_space(folder: str, needed: int, purpose: str) -> None:
    """Checks that `needed` bytes are free on the disk of `folder`, which need not exist yet.

    Raises:
      DownloadError: if there is less free space.
    """
    existing = os.path.abspath(folder)
    while not os.path.exists(existing):
        existing = os.path.dirname(existing)
    free = shutil.disk_usage(existing).free
    if free < needed:
        raise DownloadError(
            f'{folder}: {purpose} needs {format_bytes(needed)} of free disk space. Received: '
            f'{format_bytes(free)}.'
        )


def peak_bytes(archives: Iterable[ArchiveSpace], keep_archives: bool) -> int:
    """Returns the peak of additional disk space while archives are downloaded and unpacked.

    Archives are processed one by one: each is downloaded, unpacked and, unless `keep_archives` is
    set, deleted.
    """
    highest = held = 0
    for archive in archives:
        held += archive.size - archive.present + archive.unpacked
        highest = max(highest, held)
        if not keep_archives:
            held -= archive.size
    return highest


def _write_errors() -> tuple[type[Exception], ...]:
    """Returns the error classes of failed writes; TensorFlow's only if it is imported."""
    tf = sys.modules.get('tensorflow')
    return (OSError,) if tf is None else (OSError, tf.errors.OpError)


def _unwritten(
    directory: str, what: str, error: Exception, needed_bytes: int | None = None
) -> CheckpointError:
    # TensorFlow's messages have the form '{{node}} path; reason [Op:name]'.
    text = error.strerror if isinstance(error, OSError) else error.message
    text = re.sub(r'\{\{.*?\}\}|\[Op:.*', '', text or type(error).__name__).strip()
    reason = text.splitlines()[0].split('; ')[-1].strip()
    free = free_bytes(directory)
    space = '' if free is None else f'; {format_bytes(free)} free there'
    if space and needed_bytes is not None:
        space += f', {format_bytes(needed_bytes)} needed'
    return CheckpointError(f'{what} could not be written to {directory}: {reason}{space}.')
