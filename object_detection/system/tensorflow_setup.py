"""Keeps programs that XLA has compiled on disk, for the next start."""

import logging
import os
import pathlib
import sys

from object_detection.errors import ConfigError

_logger = logging.getLogger(__name__)

_VARIABLE = 'TF_XLA_FLAGS'
_FLAG = '--tf_xla_persistent_cache_directory'


def use(directory: str) -> None:
    """Makes this process read and write compiled programs there; to be called before TensorFlow.

    It is TensorFlow's own cache: a program is found again by its operations, its shapes and the
    device, so that a change of any of them compiles anew.

    Raises:
      ConfigError: if the folder cannot be made or written.
    """
    if 'tensorflow' in sys.modules:
        _logger.warning('TensorFlow has started already: --compilation_cache has no effect.')
        return
    flags = os.environ.get(_VARIABLE, '')
    if _FLAG in flags:
        raise ConfigError(
            f'--compilation_cache: expected {_VARIABLE} without {_FLAG}, which says the same. '
            f'Received: {flags!r}.'
        )
    path = pathlib.Path(directory).absolute()
    if ' ' in str(path):
        raise ConfigError(
            '--compilation_cache: expected a folder without spaces in its name, which divide the '
            f'flags in {_VARIABLE}. Received: {str(path)!r}.'
        )
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f'--compilation_cache: expected a folder that can be written. Received: {error}.'
        ) from error
    if not os.access(path, os.W_OK):
        raise ConfigError(
            f'--compilation_cache: expected a folder that can be written. Received: {str(path)!r}.'
        )
    os.environ[_VARIABLE] = f'{flags} {_FLAG}={path}'.strip()
