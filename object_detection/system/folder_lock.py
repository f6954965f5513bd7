"""Locks that keep several processes from writing into the same folder.

Imports no TensorFlow.
"""

import contextlib
import fcntl
import logging
import os
import secrets
import threading
import time
from collections.abc import Iterator
from typing import TextIO

from object_detection.errors import CheckpointError, UserError
from object_detection.system import files

_logger = logging.getLogger(__name__)

TRAINING_LOCK = '.training.lock'
_BETWEEN_ATTEMPTS = 0.1
# On file systems without locks: seconds between two heartbeats, and without a heartbeat until the
# holder counts as ended. Network file systems may show a change up to 60 seconds late.
_HEARTBEAT = 10.0
_HOLDER_TIMEOUT = 75.0
# Time until two processes that start at the same moment see which of them wrote last.
_SECONDS_TO_SETTLE = 1.0


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
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise taken from error
        except OSError as error:
            _logger.warning(
                '%s: its file system has no locks (%s); a file that is rewritten every %g seconds '
                'keeps other trainings out',
                directory,
                error.strerror,
                _HEARTBEAT,
            )
            with _heartbeat(file.name, taken):
                yield
            return
        yield


@contextlib.contextmanager
def sole_writer(directory: str | os.PathLike) -> Iterator[None]:
    """A context in which no other process has this context of the same folder.

    The folder itself is locked, so that no file is left in it; without effect if the file system
    has no locks.

    Raises:
      UserError: if another process writes into the folder.
    """
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UserError(
                f'{os.fspath(directory)}: another command is writing into this folder. Wait for '
                'its end, or choose another folder.'
            ) from error
        except OSError as error:
            _logger.warning('%s: its file system has no locks (%s)', directory, error.strerror)
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
    with open(path, 'a', encoding='utf-8') as file:
        _wait_for_lock(file, timeout)
        yield


def _wait_for_lock(file: TextIO, timeout: float) -> None:
    for left in files.attempts(_BETWEEN_ATTEMPTS, timeout=timeout):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError as error:
            if not left:
                raise TimeoutError(
                    f'another process has held {file.name} for {timeout:g} seconds'
                ) from error
        except OSError as error:
            _logger.warning('%s: its file system has no locks (%s)', file.name, error.strerror)
            return


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
