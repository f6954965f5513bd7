"""Reads local files, and URLs (gs://, ...) through TensorFlow; writes local files atomically.

Waiting for what another process, machine or file system does.

Imports no TensorFlow.
"""

import contextlib
import glob
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence

from object_detection.errors import ConfigError


def read_bytes(path: str) -> bytes:
    """Returns the content of a file.

    Raises:
      OSError: if a local file cannot be read; tf.errors.OpError for a URL.
    """
    if _is_url(path):
        with _gfile().GFile(path, 'rb') as file:
            return file.read()
    with open(path, 'rb') as file:
        return file.read()


def exists(path: str) -> bool:
    return _gfile().exists(path) if _is_url(path) else os.path.exists(path)


def matches(pattern: str) -> list[str]:
    """Returns the sorted files that match a glob pattern or a plain path."""
    return sorted(_gfile().glob(pattern) if _is_url(pattern) else glob.glob(pattern))


def write_text(path: str | os.PathLike, text: str) -> None:
    """Writes a file atomically: a kill leaves either the old file or the complete new one.

    Args:
      path: the file, replaced if it exists; its folder is created if it does not exist.
      text: written as UTF-8.
    """
    folder = os.path.dirname(path)
    if folder:
        os.makedirs(folder, exist_ok=True)
    with replacing(path) as draft, open(draft, 'w', encoding='utf-8') as file:
        file.write(text)


@contextlib.contextmanager
def replacing(path: str | os.PathLike, *, keeps_partial: bool = False) -> Iterator[str]:
    """Yields the name of a draft, which takes the place of `path` at the end of the block.

    A kill leaves the old file or the new one, never a part of either.

    Args:
      path: the file.
      keeps_partial: whether the draft is `path`.partial, and stays if the block is left by an
        error or a kill; otherwise an error removes it.
    """
    path = os.fspath(path)
    draft = f'{path}.partial' if keeps_partial else f'{path}.{os.getpid()}.tmp'
    try:
        yield draft
        os.replace(draft, path)
    except BaseException as error:
        if isinstance(error, OSError) and error.errno is not None and error.filename is None:
            # For a full disk, the system's error does not name the file.
            error.filename = path
        if not keeps_partial:
            with contextlib.suppress(FileNotFoundError):
                os.remove(draft)
        raise


def move_all(moves: Sequence[tuple[os.PathLike, os.PathLike]]) -> None:
    """Moves each source to its target in order; if a move fails, the earlier ones are undone."""
    done = []
    try:
        for source, target in moves:
            os.replace(source, target)
            done.append((source, target))
    except BaseException:
        for source, target in reversed(done):
            os.replace(target, source)
        raise


def check_is_local(path: str | os.PathLike, name: str) -> str:
    """Returns the path as text.

    Args:
      path: path of a folder that a run writes into.
      name: the user's name of this folder, such as a flag, for the error.

    Raises:
      ConfigError: if it is a URL, to which only some of the files could be written.
    """
    path = os.fspath(path)
    if _is_url(path):
        raise ConfigError(
            f'{name}: expected a folder on this machine, such as a mounted bucket. '
            f'Received: {path}.'
        )
    return path


def _is_url(path: str) -> bool:
    return '://' in path


def _gfile():
    # TensorFlow takes seconds to import, and most configs name local files only.
    import tensorflow as tf

    return tf.io.gfile


def attempts(
    interval: float, *, timeout: float = math.inf, should_stop: Callable[[], bool] = lambda: False
) -> Iterator[float]:
    """Yields whenever it is time to try again: at once, and then every `interval` seconds.

    It ends when `should_stop` returns true, or after a last attempt at the timeout.

    Args:
      interval: seconds between two attempts.
      timeout: seconds from the first attempt to the last one; 0 makes one attempt.
      should_stop: called before each attempt.

    Yields:
      Seconds until the timeout; 0.0 at the last attempt, infinity without a timeout.
    """
    deadline = time.monotonic() + timeout
    while not should_stop():
        left = max(0.0, deadline - time.monotonic())
        yield left
        if not left:
            return
        time.sleep(min(interval, left))
