"""The steps of a training in a window of time: means, speed, waiting, and single times.

Measures how long each step waits for its batch, and how long it computes.

Many steps run in one call, of which Python only sees the end, and devices compute asynchronously.
So the graph itself takes two times of each step: when its batch was ready, and when its result was
on the host. They give the time in which the devices had nothing to do:

    waited = ready - max(end of the previous step, request of the batch)
    computed = ended - max(ready, end of the previous step)

There is no waiting for a batch that is ready while the previous step is still being computed.
"""

import time
from collections.abc import Mapping, Sequence
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
    """Collects the times of calls, and converts them to those of the steps on request.

    Attributes:
      last: when the last step that was taken requested its batch, when that was ready, and when the
        result was on the host, seconds since 1970.
    """

    def __init__(self):
        self.last = (0.0, 0.0, 0.0)
        self._calls: list[tuple[CallTimes, bool]] = []
        self._last_end = 0.0

    def add(self, times: CallTimes, *, timed: bool = True) -> None:
        """Adds a call without waiting for it; the result leaves out calls that are not `timed`."""
        self._calls.append((times, timed))

    def take(self) -> np.ndarray:
        """Returns how long each step of the calls since the last `take` waited, and computed.

        It waits for the steps to end.

        Returns:
          Seconds, float64 [2, steps].
        """
        before, ready, ended = [], [], []
        for times, timed in self._calls:
            # Lists of numbers: most calls have one step, for which arrays are slow.
            readies, ends = (np.asarray(part).tolist() for part in times[1:])
            if not isinstance(ends, list):
                readies, ends = [readies], [ends]
            self.last = ([times.requested, *ends][-2], readies[-1], ends[-1])
            if timed:
                before += [max(times.requested, self._last_end), *ends[:-1]]
                ready += readies
                ended += ends
            self._last_end = ends[-1]
        self._calls.clear()
        before, ready, ended = (np.array(times, np.float64) for times in (before, ready, ended))
        # The clock of the machine may have been set back meanwhile.
        times = np.stack([ready - before, ended - np.maximum(ready, before)])
        return np.maximum(times, 0.0)


def now() -> float:
    """Returns the time of the clock that graphs read, seconds since 1970."""
    return time.time()


PERCENTILES = (50, 90, 95, 99)


def describe(seconds: np.ndarray | Sequence[float]) -> dict[str, float]:
    """Returns 'count', 'mean', 'p50', 'p90', 'p95', 'p99' and 'max' of times; {} of none.

    Percentiles are exact, by the nearest rank: so many percent of the times do not exceed them.
    """
    times = np.asarray(seconds, np.float64)
    if not times.size:
        return {}
    values = np.percentile(times, PERCENTILES, method='inverted_cdf').tolist()
    return {
        'count': times.size,
        'mean': float(times.mean()),
        **{f'p{percent}': value for percent, value in zip(PERCENTILES, values, strict=True)},
        'max': float(times.max()),
    }


def latencies(
    waited: np.ndarray | Sequence[float], computed: np.ndarray | Sequence[float]
) -> dict[str, dict[str, float]]:
    """Returns `describe` of 'input', the waiting for batches, and 'step', the steps themselves.

    {} if nothing was computed.
    """
    return {'input': describe(waited), 'step': describe(computed)} if len(computed) else {}


class Window:
    """Steps since the last `clear`: the means of what they returned, their speed and times.

    Calls that build graphs count for the means only. Each step takes 16 bytes: 16 MB for a million.

    Attributes:
      steps: number of steps.
    """

    def __init__(self):
        self.clear()

    def clear(self) -> None:
        """Forgets all steps."""
        self.steps = self._timed_steps = 0
        self._sums: dict[str, tf.Tensor] = {}
        self._seconds = 0.0
        self._times = [np.empty([2, 0])]

    def add(
        self, values: Mapping[str, tf.Tensor], steps: int, seconds: float, *, timed: bool = True
    ) -> None:
        """Adds a call of `steps` steps and their mean values; `timed` unless it built a graph."""
        # Sums stay on the device, so that nothing waits for it here.
        self._sums = {
            name: value * steps + self._sums.get(name, 0.0) for name, value in values.items()
        }
        self.steps += steps
        if timed:
            self._timed_steps += steps
            self._seconds += seconds

    def add_times(self, times: np.ndarray, seconds: float = 0.0) -> None:
        """Adds the times of single steps, and how long the host waited for the devices meanwhile.

        Args:
          times: float64 [2, steps], see `Stopwatch.take`.
          seconds: time that is no part of a call.
        """
        self._times.append(times)
        if self._timed_steps:
            self._seconds += seconds

    def means(self) -> dict[str, float]:
        """Returns the means of the values over the steps; waits for the devices."""
        return {name: float(value) / self.steps for name, value in self._sums.items()}

    def steps_per_second(self) -> float | None:
        """None while nothing was timed."""
        return self._timed_steps / self._seconds if self._timed_steps and self._seconds else None

    def describe(self, batch_size: int) -> dict[str, Any]:
        """Returns speed and times for JSON; `batch_size` is that of all replicas together.

        'waiting_share' is the share of the steps' time that was spent waiting for batches, 0 to 1.
        """
        # Kept as one array, so that nothing is concatenated twice.
        self._times = [np.concatenate(self._times, axis=1)]
        waited, computed = self._times[0]
        total, rate = float(waited.sum()) + float(computed.sum()), self.steps_per_second()
        return {
            'timed_steps': self._timed_steps,
            'steps_per_second': rate,
            'images_per_second': None if rate is None else rate * batch_size,
            'waiting_share': float(waited.sum()) / total if total else None,
            'latencies': latencies(waited, computed),
        }
