"""When batches came and steps ended, and what a training waited for.

Many steps run in one call, which Python sees the end of alone, and devices work behind the calls
that give them work. So the graph itself notes two times of each step: when its batch had come, and
when its result was there on the host. From these follows how long the devices had nothing to do:

    waited = ready - (end of the step before, or the call for the batch if that was later)
    computed = ended - (ready, or the end of the step before if that was later)

A batch that comes while the step before it is still computed was not waited for.
"""

import time
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from object_detection.core import determinism

_HOST = 'CPU:0'


class CallTimes(NamedTuple):
    """Of the steps of one call, seconds since 1970.

    Attributes:
      requested: when the first batch was requested.
      ready: float64 [steps], or a scalar for one step: when each batch had come.
      ended: likewise, when the result of each step was there.
    """

    requested: float
    ready: tf.Tensor | float
    ended: tf.Tensor


class StepTimes(NamedTuple):
    """Seconds, float64 [steps] each: what each step waited for its batch, and took then."""

    waited: np.ndarray
    computed: np.ndarray


def after_batch(batch: Any) -> tf.Tensor:
    """Returns the time when a batch has come; float64 scalar, in a graph."""
    tensors = tf.nest.flatten(batch, expand_composites=True)
    with tf.control_dependencies(tensors), tf.device(_HOST):
        return determinism.timestamp()


def after_call(value: tf.Tensor) -> tf.Tensor:
    """Returns the time when a function's call is done; float64 scalar, in a graph.

    Args:
      value: float scalar that the call returned.
    """
    # The dependency is on all that the function changes. Where a device computes behind the host,
    # it is fulfilled as soon as the device has been given the work; a condition needs the number.
    is_behind = any(each.device_type != 'CPU' for each in tf.config.list_logical_devices())
    now = determinism.timestamp
    with tf.control_dependencies([value]), tf.device(_HOST):
        return tf.cond(value >= 0.0, now, now) if is_behind else now()


class Stopwatch:
    """Takes the times of calls, and turns them into the steps' when they are requested."""

    def __init__(self):
        self._calls: list[tuple[CallTimes, bool]] = []
        self._last_end = 0.0

    def add(self, times: CallTimes, *, timed: bool = True) -> None:
        """Adds a call; it is not waited for. One that is not `timed` is left out of the result."""
        self._calls.append((times, timed))

    def take(self) -> StepTimes:
        """Returns the steps of all calls since the last `take`; waits for them to end."""
        before, ready, ended = [], [], []
        for times, timed in self._calls:
            # Lists of numbers: most calls have one step, where arrays are slow.
            readies, ends = (np.asarray(part).tolist() for part in times[1:])
            if not isinstance(ends, list):
                readies, ends = [readies], [ends]
            if timed:
                before += [max(times.requested, self._last_end), *ends[:-1]]
                ready += readies
                ended += ends
            self._last_end = ends[-1]
        self._calls.clear()
        before, ready, ended = (np.array(times, np.float64) for times in (before, ready, ended))
        # The clock of the machine may be set back meanwhile.
        return StepTimes(
            np.maximum(ready - before, 0.0), np.maximum(ended - np.maximum(ready, before), 0.0)
        )


def now() -> float:
    """The clock that graphs read, seconds since 1970."""
    return time.time()
