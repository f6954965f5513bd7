"""Warns once if a training waits for its input, and suggests what to do."""

import logging

from object_detection.system import cpu
from object_detection.system.cpu import CpuUse

_logger = logging.getLogger(__name__)

# The share of a log interval spent waiting above which a warning is logged.
_MIN_WAITING_SHARE = 0.1
_MIN_STEPS = 10
# The share of the cores' time above which they count as fully used.
_BUSY_SHARE = 0.8


class BottleneckReport:
    """Checks each log interval; the first one with much waiting is logged.

    Args:
      is_served: whether a data service makes the batches.
    """

    def __init__(self, *, is_served: bool = False):
        self._is_served = is_served
        self._has_warned = False
        self._use = CpuUse()

    def update(self, share: float | None, steps: int) -> None:
        """Checks an interval.

        Args:
          share: share of the steps' time that was spent waiting, 0 to 1.
          steps: number of steps that were timed.
        """
        busy = self._use.take()
        if self._has_warned or share is None:
            return
        if share >= _MIN_WAITING_SHARE and steps >= _MIN_STEPS:
            self._has_warned = True
            text = describe(share, busy, cpu.num_cores(), is_served=self._is_served)
            _logger.warning('%s', text)


def describe(share: float, busy: float, cores: float, *, is_served: bool = False) -> str:
    """Returns the warning for a training that waits.

    Args:
      share: share of the time that was spent waiting, 0 to 1.
      busy: share of the cores' time that was in use, by this process or others.
      cores: number of cores that the process may use.
      is_served: whether a data service makes the batches.
    """
    found = f'the training waited for its input in {share:.0%} of the time of these steps'
    state = f'of {cores:g} CPU cores {busy:.0%} were in use'
    if is_served:
        return (
            f'{found}; the data service makes batches too slowly, or the network is too slow: more '
            f'serving processes (tfod data_service --dispatcher) make more. Here, {state}'
        )
    if busy >= _BUSY_SHARE:
        return (
            f'{found}; {state}, by this process and others, so that decoding and augmentation need '
            'more of them, smaller images in the files, or other machines that make batches'
        )
    return (
        f'{found}; {state}, so that files are slow: record_cache of train_input_reader keeps them '
        'in memory or on a local disk, and more num_prefetch_batches bridge single slow ones'
    )
