"""Python functions that tf.data calls from threads of its own."""

import atexit
import time

# Seconds without a call after which none comes any more, and the most to wait for that.
_QUIET, _MOST = 0.2, 5.0


class PythonCalls:
    """Ends the calls of Python from tf.data before the interpreter ends.

    An iterator that lives as long as the program is destroyed when the interpreter is taken down.
    That waits for its threads; one of them that calls Python then waits for the interpreter, and
    both wait for ever. So from the end of the program on every call raises an error, with which the
    buffers of the iterator are filled at once, and the end waits until no more calls come.
    """

    def __init__(self):
        self._has_ended = False
        self._latest = 0.0
        atexit.register(self.end)

    def begin(self) -> None:
        """Is to be called at the beginning of every call.

        Raises:
          StopIteration: if the program ends. Unlike others, TensorFlow does not log it.
        """
        self._latest = time.monotonic()
        if self._has_ended:
            raise StopIteration

    def end(self) -> None:
        """Refuses further calls and waits until no more come."""
        self._has_ended = True
        limit = time.monotonic() + _MOST
        while time.monotonic() < min(limit, self._latest + _QUIET):
            time.sleep(_QUIET / 4)
