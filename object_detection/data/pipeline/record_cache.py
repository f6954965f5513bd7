"""Copies of record files in memory or on a local disk, made while the files are read.

A copy is complete or not there, and each reading of a file takes its copy if there is one, so that
neither the records nor their order depend on how far the copying is. Everything that readers need
to know is a path, so that they may be in other processes.
"""

import atexit
import contextlib
import errno
import functools
import hashlib
import logging
import os
import pathlib
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from typing import BinaryIO, NamedTuple, Protocol

import tensorflow as tf

from object_detection.system import cpu, folder_lock

try:
    import resource
except ImportError:  # Windows
    resource = None

_logger = logging.getLogger(__name__)

_CHUNK = 8 << 20
# Of a memory store's folder, in that for temporary files, which its process locks after making it.
_FOLDER_PREFIX = 'record_cache_'
_SECONDS_TO_LOCK = 60.0
# Part of all memory, or of the disk, that copies leave free; and the least, in bytes.
_RESERVED_MEMORY = 0.25
_RESERVED_DISK = 0.05
_MIN_RESERVED = 1 << 30


class File(NamedTuple):
    """A file of records as it was when the program looked at it."""

    path: str
    size: int
    modified: int

    @property
    def copy_name(self) -> str:
        """A name that another file, or a changed one, does not have; those of one path begin with
        the same digits."""
        state = hashlib.sha256(f'{self.size} {self.modified}'.encode()).hexdigest()[:16]
        return f'{_path_digits(self.path)}-{state}'


def file_state(path: str) -> File:
    """Returns the state of a file."""
    status = tf.io.gfile.stat(path)
    return File(path, status.length, status.mtime_nsec)


class Store(Protocol):
    """Where copies are kept.

    Attributes:
      folder: in which each copy appears under its `File.copy_name` when it is complete.
      name: in words.
    """

    folder: str
    name: str

    def room(self) -> int:
        """Bytes that copies may still take; 0 or less if none."""

    def write(self, file: File) -> contextlib.AbstractContextManager[BinaryIO | None]:
        """Opens the copy of a file, which is complete when the context ends without an error; None
        if another process is making it."""


class DiskStore:
    """Copies in a folder, which processes share and later runs find again."""

    def __init__(self, folder: str):
        os.makedirs(folder, exist_ok=True)
        self.folder = folder
        self.name = folder

    def room(self) -> int:
        usage = shutil.disk_usage(self.folder)
        return usage.free - max(int(usage.total * _RESERVED_DISK), _MIN_RESERVED)

    @contextlib.contextmanager
    def write(self, file: File) -> Iterator[BinaryIO | None]:
        target = pathlib.Path(self.folder, file.copy_name)
        part = target.with_name(f'.{target.name}.part')
        with part.open('ab') as opened:
            try:
                # Of a process that was killed, the lock is gone and its part is written again.
                _lock(opened.fileno(), part)
            except BlockingIOError:
                yield None
                return
            if target.exists():
                # Another process has renamed what was opened here as a part.
                with contextlib.suppress(FileNotFoundError):
                    part.unlink()
                yield None
                return
            try:
                opened.truncate(0)
                opened.seek(0)
                yield opened
                opened.flush()
                # After a power failure, a name without its content would be taken for a copy.
                os.fsync(opened.fileno())
            except BaseException:
                part.unlink()
                raise
            part.rename(target)
        self._remove_others(target, file)

    def _remove_others(self, target: pathlib.Path, file: File) -> None:
        """Removes the copies of what the file was before it changed."""
        for other in target.parent.glob(f'{_path_digits(file.path)}-*'):
            if other != target:
                other.unlink(missing_ok=True)


class MemoryStore:
    """Copies in files without a disk, which end with the process.

    The folder has links to them, so that they have names. If the process is killed, the next one
    removes it.
    """

    def __init__(self):
        _remove_folders_of_killed_processes()
        self.folder = tempfile.mkdtemp(prefix=_FOLDER_PREFIX)
        # Open, and so locked, until the process ends, however it ends.
        self._lock = os.open(self.folder, os.O_RDONLY)
        _lock(self._lock, self.folder)
        self.name = 'memory'
        self._names: set[str] = set()
        atexit.register(shutil.rmtree, self.folder, ignore_errors=True)

    def room(self) -> int:
        # Each copy takes one of the files that the process may have open.
        if len(os.listdir(self.folder)) >= resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2:
            return 0
        reserved = max(int(cpu.total() * _RESERVED_MEMORY), _MIN_RESERVED)
        return cpu.available() - reserved

    @contextlib.contextmanager
    def write(self, file: File) -> Iterator[BinaryIO | None]:
        if file.copy_name in self._names:
            yield None
            return
        self._names.add(file.copy_name)
        descriptor = os.memfd_create(file.copy_name)
        try:
            with os.fdopen(descriptor, 'wb', closefd=False) as opened:
                yield opened
        except BaseException:
            os.close(descriptor)
            self._names.remove(file.copy_name)
            raise
        # It stays open as long as the process. Readers open it by this path as any other file, each
        # from its beginning.
        link = os.path.join(self.folder, file.copy_name)
        os.symlink(f'/proc/{os.getpid()}/fd/{descriptor}', link)


def _remove_folders_of_killed_processes() -> None:
    """Removes the folders of this user's memory stores whose locks are free."""
    for folder in pathlib.Path(tempfile.gettempdir()).glob(f'{_FOLDER_PREFIX}*'):
        with contextlib.suppress(OSError):
            status = folder.lstat()
            # Another user's, or one that may not be locked yet.
            if status.st_uid != os.getuid() or time.time() - status.st_mtime < _SECONDS_TO_LOCK:
                continue
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                _lock(descriptor, folder)
                shutil.rmtree(folder)
            finally:
                os.close(descriptor)


def _lock(descriptor: int, path: str | os.PathLike) -> None:
    """Locks a file; raises OSError if another process has it, or its file system has no locks."""
    if not folder_lock.lock(descriptor):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK), os.fspath(path))


class _NoRoomError(Exception):
    """A copy that has no room any more."""


class RecordCache:
    """Copies files into a store, one after the other, in a thread.

    The room is looked at again while a file is copied: other processes fill it too, the other
    workers of a training on the machine among them.

    Args:
      files: in the order in which they are copied.
      store: where to.
    """

    def __init__(self, files: Sequence[str], store: Store):
        self._files = [file_state(path) for path in files]
        self._store = store
        self._thread = threading.Thread(target=self._run, name='record_cache', daemon=True)

    def start(self) -> None:
        """Begins to copy what the store does not have yet."""
        missing = [file for file in self._files if not self._has(file)]
        size = sum(file.size for file in missing)
        _logger.info(
            'record_cache: of %d files, %d (%.3g GB) are copied to %s, which has room for %.3g GB',
            len(self._files),
            len(missing),
            size / 1e9,
            self._store.name,
            max(0, self._store.room()) / 1e9,
        )
        if missing:
            self._thread.start()

    def wait(self) -> None:
        """Waits until nothing more is copied."""
        if self._thread.ident is not None:
            self._thread.join()

    def copies(self) -> list[str]:
        """Returns where the copy of each file is, or will be."""
        return [self._copy(file) for file in self._files]

    def _has(self, file: File) -> bool:
        return os.path.exists(self._copy(file))

    def _copy(self, file: File) -> str:
        return os.path.join(self._store.folder, file.copy_name)

    def _run(self) -> None:
        done = 0
        try:
            for file in self._files:
                if not self._has(file):
                    self._check_room(file.size)
                    self._make(file)
                done += 1
        except _NoRoomError:
            _logger.warning(
                'record_cache: %s has no room for more; %d of %d files are read from where they '
                'are',
                self._store.name,
                len(self._files) - done,
                len(self._files),
            )
        except (OSError, tf.errors.OpError) as error:
            _logger.warning('record_cache: the other files are read from where they are: %s', error)

    def _check_room(self, size: int) -> None:
        if size > self._store.room():
            raise _NoRoomError

    def _make(self, file: File) -> None:
        with self._store.write(file) as target:
            if target is None:
                return
            with tf.io.gfile.GFile(file.path, 'rb') as source:
                while chunk := source.read(_CHUNK):
                    self._check_room(file.size - target.tell())
                    target.write(chunk)
            if file_state(file.path) != file or target.tell() != file.size:
                raise OSError(f'{file.path} has changed while it was copied')


def choose(path: tf.Tensor, copy: tf.Tensor) -> tf.Tensor:
    """Returns the copy if it is there, or else the path; string scalars, in a graph."""
    is_there = tf.size(tf.io.matching_files(copy)) > 0
    return tf.where(is_there, copy, path)


@functools.cache
def _memory_store() -> MemoryStore:
    return MemoryStore()


def is_available() -> bool:
    """Whether this system has the locks of files that copies need."""
    return folder_lock.has_locks()


def build_cache(files: Sequence[str], directory: str) -> RecordCache:
    """Makes a cache on disk, or, if `directory` is '', in the one memory that a process has."""
    return RecordCache(files, DiskStore(directory) if directory else _memory_store())


def _path_digits(path: str) -> str:
    return hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
