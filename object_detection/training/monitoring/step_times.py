"""Measures how long each step waits for its batch, and how long it computes.

Many steps run in one call, of which Python only sees the end, and devices compute asynchronously.
So the graph itself takes two times of each step: when its batch was ready, and when its result was
on the host. They give the time in which the devices had nothing to do:

    waited = ready - max(end of the previous step, request of the batch)
    computed = ended - max(ready, end of the previous step)

There is no waiting for a batch that is ready while the previous step is still being computed.
"""

import time
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from object_detection.core import determinism

_HOST = 'CPU:0'


class CallTimes(NamedTuple):
    """Times of the steps of one call, seconds since 1970.

    Attributes:
      requested: when the first batch was requested.
      ready: float64 [steps], or a scalar for one step: when each batch was ready.
      ended: likewise, when the result of each step was on the host.
    """

    requested: float
    ready: tf.Tensor | float
    ended: tf.Tensor


class StepTimes(NamedTuple):
    """Seconds, float64 [steps] each: how long each step waited for its batch, and computed."""

    waited: np.ndarray
    computed: np.ndarray


def after_batch(batch: Any) -> tf.Tensor:
    """Returns the time when a batch is ready; float64 scalar, in a graph."""
    tensors = tf.nest.flatten(batch, expand_composites=True)
    with tf.control_dependencies(tensors), tf.device(_HOST):
        return determinism.timestamp()


def after_call(value: tf.Tensor) -> tf.Tensor:
    """Returns the time when a function's call is done; float64 scalar, in a graph.

    Args:
      value: float scalar that the call returned.
    """
    # The dependency is on all that the function changes. If a device computes asynchronously, it is
    # fulfilled as soon as the device has received the work; a condition needs the value itself.
    is_behind = any(each.device_type != 'CPU' for each in tf.config.list_logical_devices())
    now = determinism.timestamp
    with tf.control_dependencies([value]), tf.device(_HOST):
        return tf.cond(value >= 0.0, now, now) if is_behind else now()


class Stopwatch:
    """Collects the times of calls, and converts them to those of the steps on request."""

    def __init__(self):
        self._calls: list[tuple[CallTimes, bool]] = []
        self._last_end = 0.0

    def add(self, times: CallTimes, *, timed: bool = True) -> None:
        """Adds a call without waiting for it; the result leaves out calls that are not `timed`."""
        self._calls.append((times, timed))

    def take(self) -> StepTimes:
        """Returns the steps of all calls since the last `take`; waits for them to end."""
        before, ready, ended = [], [], []
        for times, timed in self._calls:
            # Lists of numbers: most calls have one step, for which arrays are slow.
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
        # The clock of the machine may have been set back meanwhile.
        return StepTimes(
            np.maximum(ready - before, 0.0), np.maximum(ended - np.maximum(ready, before), 0.0)
        )


def now() -> float:
    """Returns the time of the clock that graphs read, seconds since 1970."""
    return time.time()
