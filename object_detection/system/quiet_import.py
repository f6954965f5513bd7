"""Imports TensorFlow without the lines that it prints at each start."""

import contextlib
import importlib
import os
import sys
import tempfile
from collections.abc import Iterator


def import_tensorflow() -> None:
    """Imports TensorFlow; what that writes to stderr is shown only if it fails.

    Its C++ code tells of oneDNN and absent GPU libraries before it looks at the log level. Call
    this before the first import of a module that needs TensorFlow. Whoever sets
    TF_CPP_MIN_LOG_LEVEL to something below 3 sees everything.
    """
    if 'tensorflow' in sys.modules:
        return
    if os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3') < '3':
        importlib.import_module('tensorflow')
        return
    with _stderr_on_failure():
        importlib.import_module('tensorflow')


@contextlib.contextmanager
def _stderr_on_failure() -> Iterator[None]:
    """Keeps back what the process, C++ code included, writes to stderr, unless the block raises."""
    try:
        terminal = os.dup(2)
    except OSError:  # Closed: there is nothing to keep back.
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
    """So that what Python has buffered goes where it was meant to."""
    if sys.stderr is not None:
        sys.stderr.flush()
