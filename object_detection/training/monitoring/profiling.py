"""A TensorBoard profile of a range of steps."""

import contextlib
import logging
import os
import re
from collections.abc import Callable
from typing import NamedTuple

from object_detection.errors import ConfigError

_logger = logging.getLogger(__name__)

_FLAG = '--profile_steps'
_NOTHING = contextlib.nullcontext()
FOLDER = os.path.join('train', 'profile')


class ProfiledSteps(NamedTuple):
    """The first and the last step that is profiled, counted from 1."""

    first: int
    last: int

    def steps_to_next(self, step: int) -> list[int]:
        """How many steps there are from `step` done ones to where profiling starts and ends."""
        return [edge - step for edge in (self.first - 1, self.last) if edge > step]


def parse(text: str | None) -> ProfiledSteps | None:
    """Parses the flag: '100,110', or one step; returns None if it is not given.

    Raises:
      ConfigError: if it is neither, or ends before it begins.
    """
    if text is None:
        return None
    match = re.fullmatch(r'\s*(\d{1,18})\s*(?:,\s*(\d{1,18})\s*)?', text)
    steps = ProfiledSteps(int(match[1]), int(match[2] or match[1])) if match else None
    if steps is None or not 1 <= steps.first <= steps.last:
        raise ConfigError(
            f'{_FLAG}: expected the first and the last step to profile, counted from 1, as in '
            f"'100,110'. Received: {text!r}."
        )
    return steps


def check(steps: ProfiledSteps | None, num_steps: int) -> None:
    """Checks that the training is long enough.

    Raises:
      ConfigError: if it ends before the last profiled step.
    """
    if steps is not None and steps.last > num_steps:
        raise ConfigError(
            f'{_FLAG}: expected steps of the training, which ends at step {num_steps}. '
            f'Received: {steps.first},{steps.last}.'
        )


class StepProfile:
    """Starts and stops TensorFlow's profiler. Its errors are logged, and the training continues.

    Args:
      steps: the profiled steps; None profiles nothing.
      directory: the model_dir, in whose train/profile the profile is written; None profiles
        nothing.
    """

    def __init__(self, steps: ProfiledSteps | None, directory: str | None):
        self._steps = None if directory is None else steps
        self._folder = None if directory is None else os.path.join(directory, FOLDER)
        self._started: int | None = None

    def call(self, step: int) -> contextlib.AbstractContextManager:
        """Returns a context for a call after `step` steps; starts the profiler if it is due."""
        if self._is_due(step):
            self._started = step + 1 if self._try('start', self._folder) else None
        if self._started is None:
            return _NOTHING
        # Imported here: the flag is checked before TensorFlow is loaded.
        import tensorflow as tf

        return tf.profiler.experimental.Trace('train', step_num=step, _r=1)

    def after(self, step: int, wait: Callable[[], object]) -> None:
        """Stops the profiler if it is due; to be called after each call of steps.

        Args:
          step: number of steps done.
          wait: waits for the devices, which compute asynchronously.
        """
        if self._started is not None and step >= self._steps.last:
            wait()
            self.close(step)

    def close(self, step: int) -> None:
        """Ends a profile that was started, even if its last steps are not done."""
        if self._started is None:
            return
        first, self._started = self._started, None
        if self._try('stop'):
            _logger.info('steps %d to %d are profiled in %s', first, step, self._folder)
        self._steps = None

    def _is_due(self, step: int) -> bool:
        if self._steps is None or self._started is not None or step < self._steps.first - 1:
            return False
        if step < self._steps.last:
            return True
        _logger.warning('%s: nothing is profiled: step %d is done already', _FLAG, self._steps.last)
        self._steps = None
        return False

    def _try(self, action: str, *arguments: str) -> bool:
        import tensorflow as tf

        try:
            getattr(tf.profiler.experimental, action)(*arguments)
        except (tf.errors.OpError, RuntimeError, OSError) as error:
            _logger.warning('%s: the profile cannot be made: %s', _FLAG, error)
            self._steps = None
            return False
        return True
