"""Warns, once, that a training waits for its input, and what can be done."""

import logging

from object_detection.system import cpu
from object_detection.system.cpu import CpuUse

_logger = logging.getLogger(__name__)

# The part of a log interval that must have gone by waiting.
_MUCH = 0.1
_MIN_STEPS = 10
# Part of the cores' time above which there is nothing left of them.
_BUSY = 0.8


class BottleneckReport:
    """Checks each log interval; the first that spent much time waiting is logged.

    Args:
      is_served: whether a data service makes the batches.
    """

    def __init__(self, *, is_served: bool = False):
        self._is_served = is_served
        self._has_warned = False
        self._use = CpuUse()

    def update(self, share: float | None, steps: int) -> None:
        """Takes in an interval.

        Args:
          share: part of the steps' time that was spent waiting, 0 to 1.
          steps: number of steps that were timed.
        """
        busy = self._use.take()
        if not self._has_warned and share is not None and share >= _MUCH and steps >= _MIN_STEPS:
            self._has_warned = True
            text = describe(share, busy, cpu.num_cores(), is_served=self._is_served)
            _logger.warning('%s', text)


def describe(share: float, busy: float, cores: float, *, is_served: bool = False) -> str:
    """Returns the warning for a training that waits.

    Args:
      share: part of the time, 0 to 1.
      busy: part of the cores' time that was in use, by this process or others.
      cores: how many it may use.
      is_served: whether a data service makes the batches.
    """
    found = f'the training waited for its input in {share:.0%} of the time of these steps'
    state = f'of {cores:g} CPU cores {busy:.0%} were in use'
    if is_served:
        return (
            f'{found}; the data service makes batches too slowly, or the network is too slow: more '
            f'serving processes (tfod data_service --dispatcher) make more. Here, {state}'
        )
    if busy >= _BUSY:
        return (
            f'{found}; {state}, by this process and others, so that decoding and augmentation need '
            'more of them, smaller images in the files, or other machines that make batches'
        )
    return (
        f'{found}; {state}, so that files are slow: record_cache of train_input_reader keeps them '
        'in memory or on a local disk, and more num_prefetch_batches bridge single slow ones'
    )
