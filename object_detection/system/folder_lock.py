"""Locks that keep several processes from writing into the same file or folder.

Imports no TensorFlow.
"""

import contextlib
import logging
import os
import secrets
import threading
import time
from collections.abc import Iterator
from typing import IO

from object_detection.errors import CheckpointError, UserError
from object_detection.system import files

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

_logger = logging.getLogger(__name__)

TRAINING_LOCK = '.training.lock'
_BETWEEN_ATTEMPTS = 0.1
# On file systems without locks: seconds between two heartbeats, and without a heartbeat until the
# holder counts as ended. Network file systems may show a change up to 60 seconds late.
_HEARTBEAT = 10.0
_HOLDER_TIMEOUT = 75.0
# Time until two processes that start at the same moment see which of them wrote last.
_SECONDS_TO_SETTLE = 1.0


def has_locks() -> bool:
    """Whether this system has locks of files; some of its file systems may still have none."""
    return fcntl is not None


def lock(
    file: IO | int,
    *,
    wait: bool = False,
    taken: Exception | None = None,
    named_in_warning: str | os.PathLike | None = None,
) -> bool:
    """Locks an open file or folder until it is closed, or the process ends, however it ends.

    Args:
      file: the file, or its descriptor.
      wait: whether to wait for another process that has the lock.
      taken: raised if another process has the lock; None raises BlockingIOError.
      named_in_warning: what a warning names if the file system has no locks; None logs none.

    Returns:
      False if the system, or the file system, has no locks.
    """
    if fcntl is None:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError as error:
        if taken is None:
            raise
        raise taken from error
    except OSError as error:
        if named_in_warning is not None:
            _logger.warning(
                '%s: its file system has no locks (%s)', named_in_warning, error.strerror
            )
        return False
    return True


@contextlib.contextmanager
def occupied(directory: str) -> Iterator[None]:
    """A context in which no other process can train into the same folder.

    The lock is released when the process ends, however it ends. If the file system has no locks,
    the file contains a name of the process and a counter that changes every 10 seconds; a process
    that finds a name watches the file for 75 seconds before it replaces the name by its own.

    Raises:
      CheckpointError: if another process trains in the folder.
    """
    taken = CheckpointError(
        f'{directory}: another training is running in this model_dir; end it first, or '
        'choose another model_dir.'
    )
    # Mode 'a+' neither truncates the file of another process nor requires that the file exists.
    with open(os.path.join(directory, TRAINING_LOCK), 'a+', encoding='utf-8') as file:
        if lock(file, taken=taken, named_in_warning=directory):
            yield
            return
        _logger.warning(
            '%s is rewritten every %g seconds, which keeps other trainings out',
            file.name,
            _HEARTBEAT,
        )
        with _heartbeat(file.name, taken):
            yield


@contextlib.contextmanager
def sole_writer(directory: str | os.PathLike) -> Iterator[None]:
    """A context in which no other process has this context of the same folder.

    The folder itself is locked, so that no file is left in it; without effect if the file system
    has no locks.

    Raises:
      UserError: if another process writes into the folder.
    """
    taken = UserError(
        f'{os.fspath(directory)}: another command is writing into this folder. Wait for its end, '
        'or choose another folder.'
    )
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        lock(descriptor, taken=taken, named_in_warning=directory)
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def exclusive(path: str | os.PathLike, timeout: float) -> Iterator[None]:
    """A mutual exclusion of processes; without effect if the file system has no locks.

    Args:
      path: path of the lock file, created if it does not exist; it is not deleted.
      timeout: seconds to wait for the other process.

    Raises:
      TimeoutError: if the other process did not leave the context in time.
      OSError: if the file cannot be created.
    """
    taken = TimeoutError(f'another process has held {os.fspath(path)} for {timeout:g} seconds')
    with open(path, 'a', encoding='utf-8') as file:
        for left in files.attempts(_BETWEEN_ATTEMPTS, timeout=timeout):
            try:
                lock(file, taken=None if left else taken, named_in_warning=path)
                break
            except BlockingIOError:
                continue
        yield


@contextlib.contextmanager
def _heartbeat(path: str, taken: CheckpointError) -> Iterator[None]:
    """Holds a file by rewriting it regularly; raises `taken` if another process does so."""
    _watch(path, taken)
    name = secrets.token_hex(8)
    _write(path, name)
    time.sleep(_SECONDS_TO_SETTLE)
    if not _read(path).startswith(name):
        raise taken
    ended = threading.Event()

    def beat() -> None:
        count = 0
        while True:
            count += 1
            # A write that fails now may succeed the next time.
            with contextlib.suppress(OSError):
                _write(path, f'{name} {count}')
            if ended.wait(_HEARTBEAT):
                return

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        with contextlib.suppress(OSError):
            _write(path, '')


def _watch(path: str, taken: CheckpointError) -> None:
    """Raises `taken` if the file names a holder and its content changes."""
    found = _read(path)
    if not found:
        return
    _logger.warning('%s names another training; watching it for %g seconds', path, _HOLDER_TIMEOUT)
    for _ in files.attempts(_BETWEEN_ATTEMPTS, timeout=_HOLDER_TIMEOUT):
        now = _read(path)
        if not now:
            return
        if now != found:
            raise taken


def _read(path: str) -> str:
    with open(path, encoding='utf-8') as file:
        return file.read()


def _write(path: str, text: str) -> None:
    """Replaces the content of a file; it is never empty meanwhile, since that means no holder."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o666)
    try:
        os.pwrite(descriptor, text.encode(), 0)
        os.ftruncate(descriptor, len(text.encode()))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
