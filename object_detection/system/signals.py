"""What signals do: a stop request that the program polls at a safe point, or an orderly end.

Imports no TensorFlow.
"""

import contextlib
import ctypes
import logging
import os
import select
import signal
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType

_logger = logging.getLogger(__name__)
_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_ENDINGS = (signal.SIGTERM, signal.SIGHUP)
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG of prctl
# Environment variable of a worker: descriptor and inode of a pipe that is closed when its launcher
# ends. The inode distinguishes the pipe from another file with the same descriptor number.
LAUNCHER_PIPE = 'TFOD_LAUNCHER_PIPE'
# Time from a second signal until the process is ended although Python has run no handler yet.
_SECONDS_TO_END = 5.0
# Time for the current step and a save after the launcher has ended: no one else would end the
# process.
_SECONDS_WITHOUT_LAUNCHER = 120.0
_CLOSE = b'\0'


@contextlib.contextmanager
def unwinding() -> Iterator[None]:
    """A context that SIGTERM and SIGHUP leave by SystemExit, with the status 128 + their number.

    Temporary folders are then removed, and child processes ended, as after ctrl-C. A second signal
    ends the process at once. Signals that something else handles, and contexts outside the main
    thread, are left as they are.
    """

    def leave(number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        sys.exit(128 + number)

    is_main = threading.current_thread() is threading.main_thread()
    signals = [n for n in _ENDINGS if is_main and signal.getsignal(n) is signal.SIG_DFL]
    for number in signals:
        signal.signal(number, leave)
    try:
        yield
    finally:
        for number in signals:
            signal.signal(number, signal.SIG_DFL)


def end_with_parent() -> None:
    """Has the system kill this process at once when its parent ends, however it ends."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)


class Interrupts:
    """A context that records the first SIGTERM or SIGINT; a second one has its usual effect.

    Python runs signal handlers only between two instructions of the main thread. If the main thread
    is inside a call of TensorFlow that does not return, another thread ends the process: 5 seconds
    after the second signal, with the exit status 128 + its number; or 120 seconds after the end of
    the launcher that started the process, with the exit status 143. The end of the launcher counts
    as a first signal.

    Outside the main thread, where Python allows no handlers, it records nothing.

    Attributes:
      received: the first signal, or None.
    """

    def __init__(self):
        self.received: signal.Signals | None = None
        self._previous: dict[int, object] = {}
        self._watch: _Watch | None = None

    def __enter__(self) -> 'Interrupts':
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                self._previous[number] = signal.signal(number, self._remember)
            self._watch = _Watch(self._note, _launcher_pipe())
        return self

    def __exit__(self, *_: object) -> None:
        if self._watch is not None:
            self._watch.close()
            self._watch = None
        self._restore()

    def _remember(self, number: int, frame: FrameType | None) -> None:
        self._note(number)
        _logger.warning('%s received: stopping after this step.', self.received.name)
        self._restore()

    def _note(self, number: int) -> None:
        if self.received is None:
            self.received = signal.Signals(number)

    def _restore(self) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous = {}


class _Watch:
    """A thread that detects signals and the end of the launcher even if the main thread is blocked.

    It must be created and closed in the main thread.

    Args:
      note: called with the number of the first signal.
      launcher_pipe: descriptor of the pipe that is closed when the launcher ends, or None.
    """

    def __init__(self, note: Callable[[int], None], launcher_pipe: int | None):
        self._note = note
        self._launcher_pipe = launcher_pipe
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        # Python's C handler writes the number of each signal to this pipe immediately.
        self._previous = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        self._thread = threading.Thread(target=self._run, name='signals', daemon=True)
        self._thread.start()

    def close(self) -> None:
        signal.set_wakeup_fd(self._previous)
        os.write(self._writer, _CLOSE)
        self._thread.join()
        os.close(self._reader)
        os.close(self._writer)

    def _run(self) -> None:
        # `select` does not support descriptors above 1023.
        sources = select.poll()
        sources.register(self._reader, select.POLLIN)
        if self._launcher_pipe is not None:
            sources.register(self._launcher_pipe, 0)  # reports only that it is closed
        count, deadline, status = 0, None, 0
        while True:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            ready = dict(sources.poll(None if left is None else 1000 * left))
            if not ready:
                _end(status)
            if self._launcher_pipe in ready:
                sources.unregister(self._launcher_pipe)
                self._note(signal.SIGTERM)
                deadline, status = time.monotonic() + _SECONDS_WITHOUT_LAUNCHER, 143
            if self._reader in ready:
                numbers = os.read(self._reader, 64)
                if _CLOSE[0] in numbers:
                    return
                for number in filter(_SIGNALS.__contains__, numbers):
                    self._note(number)
                    count += 1
                    if count == 2:
                        deadline, status = time.monotonic() + _SECONDS_TO_END, 128 + number


def _end(status: int) -> None:
    # Logging could block: the main thread may hold the lock of the log.
    os.write(2, b'The process does not stop by itself, and is ended.\n')
    os._exit(status)


def _launcher_pipe() -> int | None:
    """Returns the descriptor of the pipe that `LAUNCHER_PIPE` describes; None if it is not open."""
    descriptor, _, inode = os.environ.get(LAUNCHER_PIPE, '').partition(':')
    try:
        found = os.fstat(int(descriptor))
        is_pipe = stat.S_ISFIFO(found.st_mode) and found.st_ino == int(inode)
    except (OSError, ValueError):
        return None
    return int(descriptor) if is_pipe else None
