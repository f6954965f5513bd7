"""Python functions that tf.data calls from its own threads."""

import atexit
import contextlib
import time
from collections.abc import Iterator

# Seconds without a call after which no further call is expected, and the maximum time to wait.
_QUIET, _MAX_WAIT = 0.2, 20.0


class PythonCalls:
    """Ends the calls of Python from tf.data before the interpreter ends.

    An iterator that lives as long as the program is destroyed when the interpreter shuts down. The
    shutdown waits for the iterator's threads, and a thread that calls Python waits for the
    interpreter: a deadlock. Therefore every call raises an error as soon as the program ends. The
    errors fill the buffers of the iterator quickly, and the exit handler waits until no more calls
    come.
    """

    def __init__(self):
        self._has_ended = False
        self._latest = 0.0
        self._num_running = 0
        atexit.register(self.end)

    def begin(self) -> None:
        """Must be called at the beginning of every call.

        Raises:
          StopIteration: if the program is ending. TensorFlow does not log this class of errors.
        """
        self._latest = time.monotonic()
        if self._has_ended:
            raise StopIteration

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """A context of a whole call, one that may take long; otherwise as `begin`."""
        self.begin()
        self._num_running += 1
        try:
            yield
        finally:
            self._num_running -= 1
            self._latest = time.monotonic()

    def end(self) -> None:
        """Refuses further calls and waits until they stop."""
        self._has_ended = True
        limit = time.monotonic() + _MAX_WAIT
        while time.monotonic() < limit and (
            self._num_running or time.monotonic() < self._latest + _QUIET
        ):
            time.sleep(_QUIET / 4)
