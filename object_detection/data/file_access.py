"""Access to the files of data sets, on this machine or in an object store.

Readers of annotation formats see files only through a `Files`. Beam jobs use the file systems of
Beam (`dataset_tools/converters/beam_files.py`); everything else uses `LocalFiles`.
"""

import errno
import os
import posixpath
from collections.abc import Iterable
from typing import BinaryIO, Protocol

from object_detection.errors import UnusableError

# Bytes that are read at a time: a limit on the size of a file is no reason to allocate it.
_BLOCK = 1 << 20


class Files(Protocol):
    """How files are read. Paths are local ones or URLs (gs://...)."""

    def read(self, path: str, limit: int | None = None) -> bytes:
        """Returns the content of a file.

        Raises:
          OSError: if it cannot be read, or has more than `limit` bytes.
        """

    def head(self, path: str, length: int) -> bytes:
        """Returns the first bytes of a file, at most `length`.

        Raises:
          OSError: if it cannot be read.
        """

    def list(self, folder: str, *, recursive: bool = False) -> list[str]:
        """Returns the sorted paths, relative to a folder, of the files in it; [] if it is absent.

        Folders are not listed: object stores have none.
        """

    def exists(self, path: str) -> bool:
        """Whether there is a file of this path, or a folder; in object stores one with files."""


class LocalFiles:
    """Files of this machine, and URLs through TensorFlow, which is imported when one is met."""

    def read(self, path: str, limit: int | None = None) -> bytes:
        return checked_length(self.head(path, -1 if limit is None else limit + 1), path, limit)

    def head(self, path: str, length: int) -> bytes:
        if not is_url(path):
            with open(path, 'rb') as file:
                return read_at_most(file, length)
        import tensorflow as tf

        try:
            with tf.io.gfile.GFile(path, 'rb') as file:
                return file.read(length)
        except tf.errors.OpError as error:
            raise OSError(errno.EIO, str(error), path) from error

    def list(self, folder: str, *, recursive: bool = False) -> list[str]:
        if not is_url(folder):
            return list_local(folder, recursive=recursive)
        import tensorflow as tf

        if not tf.io.gfile.isdir(folder):
            return []
        found = tf.io.gfile.walk(folder)
        return _relative(found if recursive else [next(iter(found))], folder)

    def exists(self, path: str) -> bool:
        if not is_url(path):
            return os.path.exists(path)
        import tensorflow as tf

        try:
            return tf.io.gfile.exists(path)
        except tf.errors.OpError as error:  # There is no such kind of URL.
            raise OSError(errno.EIO, str(error), path) from error


def is_url(path: str) -> bool:
    return '://' in path


def join(folder: str, *names: str) -> str:
    """Returns the path of a file below a folder, which may be a URL."""
    return (posixpath if is_url(folder) else os.path).join(folder, *names)


def read_at_most(file: BinaryIO, length: int) -> bytes:
    """Reads at most `length` bytes, all if it is negative, without a buffer of that size."""
    blocks = []
    while length:
        block = file.read(_BLOCK if length < 0 else min(length, _BLOCK))
        if not block:
            break
        blocks.append(block)
        length -= len(block) if length > 0 else 0
    return b''.join(blocks)


def checked_length(content: bytes, path: str, limit: int | None) -> bytes:
    """Returns content that was read up to one byte beyond a limit.

    Raises:
      OSError: if it is longer than the limit.
    """
    if limit is not None and len(content) > limit:
        raise OSError(errno.EFBIG, f'The file has more than {limit} bytes', path)
    return content


def list_local(folder: str, *, recursive: bool) -> list[str]:
    """Returns `Files.list` of a folder of this machine."""
    folder = folder or '.'
    if recursive:
        return _relative(os.walk(folder, followlinks=True), folder)
    if not os.path.isdir(folder):
        return []
    with os.scandir(folder) as found:
        return sorted(item.name for item in found if item.is_file())


def path_within(folder: str, name: str, key: str = 'file_name') -> str:
    """Returns the path of a file that annotations name.

    Args:
      folder: folder of the files, local or of an object store (`gs://...`).
      name: name in the annotations, relative to the folder.
      key: what the annotations call the name, for the error.

    Raises:
      UnusableError: if it leads out of the folder.
    """
    normalize = str if is_url(folder) else os.path.abspath
    path = join(folder, name)
    root = join(normalize(folder), '')
    has_parents = is_url(folder) and '..' in name.split('/')
    if has_parents or '\0' in name or not normalize(path).startswith(root):
        raise UnusableError('bad_image', f'{key} leads out of the folder of the images: {name!r}')
    return path


def _relative(found: Iterable[tuple[str, list[str], list[str]]], folder: str) -> list[str]:
    return sorted(
        join(parent, name)[len(join(folder, '')) :] for parent, _, names in found for name in names
    )
