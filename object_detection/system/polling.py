"""Waiting for what another process, machine or file system does.

Imports no TensorFlow.
"""

import math
import time
from collections.abc import Callable, Iterator


def attempts(
    interval: float,
    *,
    timeout: float = math.inf,
    should_stop: Callable[[], bool] = lambda: False,
) -> Iterator[float]:
    """Yields whenever it is time to try again: at once, and then every `interval` seconds.

    It ends when `should_stop` returns true, or after a last attempt at the timeout.

    Args:
      interval: seconds between two attempts.
      timeout: seconds from the first attempt to the last one; 0 makes one attempt.
      should_stop: called before each attempt.

    Yields:
      Seconds until the timeout; 0.0 at the last attempt, infinity without a timeout.
    """
    deadline = time.monotonic() + timeout
    while not should_stop():
        left = max(0.0, deadline - time.monotonic())
        yield left
        if not left:
            return
        time.sleep(min(interval, left))
