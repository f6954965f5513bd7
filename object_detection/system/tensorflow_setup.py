"""Settings that must be made before TensorFlow is imported, and an import without its messages.

The module itself does not import TensorFlow.
"""

import contextlib
import ctypes
import logging
import os
import pathlib
import sys
import tempfile
from collections.abc import Iterator

from object_detection.errors import ConfigError
from object_detection.system import console

_logger = logging.getLogger(__name__)

_VARIABLE = 'TF_XLA_FLAGS'
_FLAG = '--tf_xla_persistent_cache_directory'
# Parameters of mallopt, from glibc's malloc.h.
_TRIM_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -4, -8


def import_tensorflow(*, keras_pictures: bool = True, shows_progress: bool = True) -> None:
    """Imports TensorFlow; its output to stderr is shown only if the import fails.

    The C++ code reports oneDNN and missing GPU libraries before it reads the log level. Call this
    before the first import of a module that needs TensorFlow. If TF_CPP_MIN_LOG_LEVEL is set to a
    value below 3, all output is shown.

    Args:
      keras_pictures: whether `keras.visualization` can draw in this process. It imports matplotlib,
        which takes a fifth of the time of TensorFlow's import; without, it takes matplotlib for not
        installed. Others can import matplotlib later.
      shows_progress: whether a line on stderr says that TensorFlow is being loaded.
    """
    if 'tensorflow' in sys.modules:
        return
    if os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3') < '3':
        import tensorflow

        return
    pictures = contextlib.nullcontext() if keras_pictures else _without('matplotlib')
    progress = console.phase('loading TensorFlow') if shows_progress else contextlib.nullcontext()
    with progress, _stderr_on_failure(), pictures:
        import tensorflow  # noqa: F401


def use_compilation_cache(directory: str) -> None:
    """Makes this process store the programs that XLA compiles in a folder, for later starts.

    It must be called before TensorFlow is imported. This is TensorFlow's own persistent cache: a
    program is identified by its operations, its shapes and the device, so that a change of any of
    them compiles again.

    Raises:
      ConfigError: if the folder cannot be created or written.
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
        tempfile.TemporaryFile(dir=path).close()
    except OSError as error:
        raise ConfigError(
            f'--compilation_cache: expected a folder that can be written. Received: {error}.'
        ) from error
    os.environ[_VARIABLE] = f'{flags} {_FLAG}={path}'.strip()


def assume_constant_weights() -> None:
    """Lets oneDNN lay out weights for its kernels once, not in each run of a graph.

    For processes in which no variable is assigned between two runs of a graph that reads it, as
    with a model that only predicts: assigned values would not count. It must be called before
    TensorFlow is imported. The environment takes precedence.
    """
    if 'tensorflow' not in sys.modules:
        os.environ.setdefault('TF_ONEDNN_ASSUME_FROZEN_WEIGHTS', '1')


def keep_freed_memory() -> None:
    """Makes the C library keep freed memory for later allocations of the process.

    By default it returns large blocks to the system and requests them again, and the system clears
    each of their pages: on CPUs this takes some 6 % of a training step, and a third of a step with
    two replicas. It must be called before other threads start. Options of malloc in the environment
    take precedence.
    """
    if 'tensorflow' in sys.modules:  # Its threads already have arenas.
        return
    if any(name.startswith(('MALLOC_', 'GLIBC_TUNABLES', 'LD_PRELOAD')) for name in os.environ):
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):  # The C library is not glibc.
        return
    mallopt(_MMAP_MAX, 0)
    mallopt(_TRIM_THRESHOLD, -1)
    # All arenas except the first consist of 64 MB heaps and return them regardless of the
    # settings.
    mallopt(_ARENA_MAX, 1)


def release_freed_memory() -> None:
    """Returns what the process has freed, and the C library keeps, to the system."""
    with contextlib.suppress(AttributeError, OSError):  # The C library is not glibc.
        ctypes.CDLL(None).malloc_trim(0)


@contextlib.contextmanager
def _without(module: str) -> Iterator[None]:
    """Makes imports of a module fail in the block, unless it has been imported before."""
    if module in sys.modules:
        yield
        return
    sys.modules[module] = None
    try:
        yield
    finally:
        del sys.modules[module]


@contextlib.contextmanager
def _stderr_on_failure() -> Iterator[None]:
    """Hides the output of the process, including C++ code, to stderr, unless the block raises."""
    try:
        terminal = os.dup(2)
    except OSError:  # Stderr is closed: there is nothing to hide.
        yield
        return
    with tempfile.TemporaryFile() as kept:
        _flush()
        os.dup2(kept.fileno(), 2)
        try:
            yield
        except BaseException:
            _flush()
            kept.seek(0)
            os.write(terminal, kept.read())
            raise
        finally:
            _flush()
            os.dup2(terminal, 2)
            os.close(terminal)


def _flush() -> None:
    """Writes out Python's buffers before the descriptor changes."""
    if sys.stderr is not None:
        sys.stderr.flush()
