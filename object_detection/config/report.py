"""The warnings of a job, each of which is logged once."""

import contextlib
import contextvars
import logging
from collections.abc import Iterable, Iterator, Mapping

_logger = logging.getLogger(__name__)


class Report:
    """What a job was warned of."""

    def __init__(self) -> None:
        self._logged: set[str] = set()

    def warn(self, sentence: str) -> None:
        """Logs a sentence unless it was logged before."""
        if sentence not in self._logged:
            _logger.warning('%s', sentence)
        self._logged.add(sentence)

    def warn_unused(self, fields: Mapping[str, Iterable[str]]) -> None:
        """Logs fields without effect, reason -> their paths: a line a reason, each field once."""
        for reason, paths in fields.items():
            fresh = [path for path in paths if path not in self._logged]
            if fresh:
                _logger.warning('no effect: %s (%s).', ', '.join(fresh), reason)
            self._logged.update(fresh)


# The default serves programs that use the package without a job of it.
_current = contextvars.ContextVar('report', default=Report())  # noqa: B039


def current() -> Report:
    """Returns the report of the job that runs."""
    return _current.get()


@contextlib.contextmanager
def job() -> Iterator[Report]:
    """Gives what runs within it, or the decorated function, a report of its own."""
    token = _current.set(Report())
    try:
        yield current()
    finally:
        _current.reset(token)
