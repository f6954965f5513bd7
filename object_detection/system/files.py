"""Reads the files a config names: local ones without TensorFlow, URLs (gs://, ...) through it.

Writes local files.
"""

import glob
import os

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
    """Returns the files that a glob pattern, or a plain path, names."""
    return sorted(_gfile().glob(pattern) if _is_url(pattern) else glob.glob(pattern))


def write_text(path: str | os.PathLike, text: str) -> None:
    """Writes a file whole: a kill leaves the old one or the new one, never a part of either.

    Args:
      path: the file, replaced if there is one; its folder is made if there is none.
      text: written as UTF-8.
    """
    path = os.fspath(path)
    folder = os.path.dirname(path)
    if folder:
        os.makedirs(folder, exist_ok=True)
    draft = f'{path}.{os.getpid()}.tmp'
    try:
        with open(draft, 'w', encoding='utf-8') as file:
            file.write(text)
        os.replace(draft, path)
    except BaseException as error:
        if isinstance(error, OSError) and error.errno is not None and error.filename is None:
            # Of a full disk, which the system does not say of which file.
            error.filename = path
        if os.path.exists(draft):
            os.remove(draft)
        raise


def check_is_local(path: str | os.PathLike, name: str) -> str:
    """Returns the path as text.

    Args:
      path: of a folder that a run writes into.
      name: what the user knows it as, for the error.

    Raises:
      ConfigError: if it is the address of another machine, where only some of the files would go.
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
    # Takes seconds to import, and most configs name local files only.
    import tensorflow as tf

    return tf.io.gfile
