"""Logs warnings about a config, each only once in a process."""

import logging
from collections.abc import Iterable, Mapping

_logger = logging.getLogger(__name__)
_warned: set[str] = set()


def warn_once(warnings: Mapping[str, Iterable[str]]) -> None:
    """Logs fields without effect, reason -> their paths: a line a reason, each field once."""
    for reason, paths in warnings.items():
        fresh = [path for path in paths if path not in _warned]
        if fresh:
            _logger.warning('no effect: %s (%s).', ', '.join(fresh), reason)
        _warned.update(fresh)


def log_once(message: str) -> None:
    """Logs a warning, but the same warning only once."""
    if message not in _warned:
        _logger.warning('%s', message)
    _warned.add(message)
