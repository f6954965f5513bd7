"""A file that says which job writes to a prefix, and is locked while the job runs."""

import contextlib
import os
from collections.abc import Iterator

from apache_beam.io.filesystems import FileSystems

from object_detection.errors import UserError
from object_detection.system import folder_lock


def path_of(prefix: str) -> str:
    """Returns the path of the file; its content is the id of the job that began last."""
    return f'{prefix}.tmp-lock'


def read(path: str) -> str:
    """Returns the content of a file that says whose something is; '' if there is none."""
    if not FileSystems.exists(path):
        return ''
    with FileSystems.open(path) as file:
        return file.read().decode()


def check_free(prefix: str) -> None:
    """Raises UserError if another job of this machine is known to write to a prefix."""
    path = path_of(prefix)
    if os.path.exists(path):
        with _locked(path, prefix):
            pass


@contextlib.contextmanager
def held(prefix: str, job: str) -> Iterator[bool]:
    """Makes a job that of a prefix, to the end of the block, or of the process if it is killed.

    Yields:
      Whether no other job can run meanwhile; false in object stores and on file systems without
      locks, where a job that begins later takes the prefix over.

    Raises:
      UserError: if another job runs.
    """
    path = path_of(prefix)
    with _locked(path, prefix) as is_locked:
        with FileSystems.create(path) as file:
            file.write(job.encode())
        try:
            yield is_locked
        finally:
            if read(path) == job:
                FileSystems.delete([path])


@contextlib.contextmanager
def _locked(path: str, prefix: str) -> Iterator[bool]:
    """Locks a file, which is created; yields whether that is possible."""
    if not folder_lock.has_locks() or '://' in path:
        yield False
        return
    taken = UserError(f'{prefix}: another job writes to this output; wait, or choose another.')
    while True:
        # This mode does not empty the file of another job.
        with open(path, 'ab') as file:
            if not folder_lock.lock(file, taken=taken):
                yield False
                return
            # The job that held the file may have removed it between its opening and its lock.
            if os.path.exists(path) and os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
                yield True
                return
