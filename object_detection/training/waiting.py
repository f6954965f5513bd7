"""Tells, once, that a training waits for its input, and what can be done."""

import logging
import time

from object_detection.training import cpu

_logger = logging.getLogger(__name__)

# The part of a log interval that must have gone by waiting.
_MUCH = 0.1
_FEWEST_STEPS = 10
# Part of the cores' time above which there is nothing left of them.
_BUSY = 0.8


class BottleneckReport:
    """Looks at each log interval; the first that spent much time waiting is told of."""

    def __init__(self):
        self._is_told = False
        self._start()

    def _start(self) -> None:
        self._cpu_seconds, self._started = time.process_time(), time.monotonic()

    def update(self, share: float | None, steps: int) -> None:
        """Takes in an interval.

        Args:
          share: part of the steps' time that was spent waiting, 0 to 1.
          steps: number of steps that were timed.
        """
        cores = cpu.num_cores()
        seconds = max(time.monotonic() - self._started, 1e-9)
        busy = min(1.0, (time.process_time() - self._cpu_seconds) / seconds / cores)
        self._start()
        if not self._is_told and share is not None and share >= _MUCH and steps >= _FEWEST_STEPS:
            self._is_told = True
            _logger.warning('%s', describe(share, busy, cores))


def describe(share: float, busy: float, cores: float) -> str:
    """Returns what is told of a training that waits.

    Args:
      share: part of the time, 0 to 1.
      busy: part of the cores' time that this process used.
      cores: how many it may use.
    """
    found = f'the training waited for its input in {share:.0%} of the time of these steps'
    state = f'of {cores:g} CPU cores {busy:.0%} were in use'
    if busy >= _BUSY:
        return (
            f'{found}; {state}, so that decoding and augmentation need more of them, smaller '
            'images in the files, or other machines that make batches'
        )
    return (
        f'{found}; {state}, so that files are slow: record_cache of train_input_reader keeps them '
        'in memory or on a local disk, and more num_prefetch_batches bridge single slow ones'
    )
