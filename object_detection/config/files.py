"""Reads the files a config names: local ones without TensorFlow, URLs (gs://, ...) through it."""

import glob
import os


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


def has_match(pattern: str) -> bool:
    """Whether a glob pattern, or a plain path, names at least one file."""
    return bool(_gfile().glob(pattern) if _is_url(pattern) else glob.glob(pattern))


def _is_url(path: str) -> bool:
    return '://' in path


def _gfile():
    # Takes seconds to import, and most configs name local files only.
    import tensorflow as tf

    return tf.io.gfile
