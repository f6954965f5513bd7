"""Turns SIGTERM and SIGINT into a request to stop at a good moment."""

import logging
import signal
import threading
from types import FrameType, TracebackType

_logger = logging.getLogger(__name__)
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Interrupts:
    """A context in which the first signal is remembered; a second one acts as it did before.

    Outside the main thread, where Python allows no handlers, it remembers nothing.

    Attributes:
      received: the signal, or None.
    """

    def __init__(self):
        self.received: signal.Signals | None = None
        self._previous: dict[int, object] = {}

    def __enter__(self) -> 'Interrupts':
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                self._previous[number] = signal.signal(number, self._remember)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._restore()

    def _remember(self, number: int, frame: FrameType | None) -> None:
        self.received = signal.Signals(number)
        _logger.warning('%s received: stopping after this step.', self.received.name)
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous = {}
