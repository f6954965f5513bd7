"""The speed of steps, the share of waiting, and percentiles of the latencies.

Measures how long each step waits for its batch, and how long it computes.

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
from object_detection.errors import UserError

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

    def take(self) -> StepTimes:
        """Returns the steps of all calls since the last `take`; waits for them to end."""
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
        return StepTimes(
            np.maximum(ready - before, 0.0), np.maximum(ended - np.maximum(ready, before), 0.0)
        )


def now() -> float:
    """Returns the time of the clock that graphs read, seconds since 1970."""
    return time.time()


PERCENTILES = (50, 90, 95, 99)


class Latencies:
    """Collects every single time, 8 bytes each: 8 MB for a million steps.

    Percentiles are exact, by the nearest rank.
    """

    def __init__(self):
        self._times: list[np.ndarray] = []

    def add(self, seconds: np.ndarray | float) -> None:
        """Adds times, seconds, float64 [...]."""
        self._times.append(np.array(seconds, np.float64).ravel())

    def clear(self) -> None:
        """Removes all times."""
        self._times = []

    @property
    def count(self) -> int:
        return self._all().size

    @property
    def total(self) -> float:
        """The sum of all times, seconds."""
        return float(self._all().sum())

    def percentile(self, percent: float) -> float:
        """Returns the time, seconds, that `percent` percent of the times do not exceed.

        Raises:
          ValueError: if there are no times.
        """
        if not self.count:
            raise UserError('Latencies.percentile: expected at least one time. Received: none.')
        return float(np.percentile(self._all(), percent, method='inverted_cdf'))

    def describe(self) -> dict[str, float]:
        """Returns 'count', 'mean', 'p50', 'p90', 'p95', 'p99' and 'max', seconds; {} of none."""
        times = self._all()
        if not times.size:
            return {}
        values = np.percentile(times, PERCENTILES, method='inverted_cdf').tolist()
        return {
            'count': times.size,
            'mean': float(times.mean()),
            **{f'p{percent}': value for percent, value in zip(PERCENTILES, values, strict=True)},
            'max': float(times.max()),
        }

    def _all(self) -> np.ndarray:
        # Kept as one array, so that nothing is concatenated twice.
        self._times = [np.concatenate([*self._times, np.empty(0)])]
        return self._times[0]


class Speed:
    """Steps, their time and its share of waiting for batches; without calls that build graphs."""

    def __init__(self):
        self.clear()

    def clear(self) -> None:
        """Starts again."""
        self.steps = 0
        self.seconds = 0.0
        self._waited = Latencies()
        self._computed = Latencies()

    def add(self, steps: int, seconds: float) -> None:
        """Adds a call of `steps` steps."""
        self.steps += steps
        self.seconds += seconds

    def add_seconds(self, seconds: float) -> None:
        """Adds time that was spent waiting for the device to finish the steps."""
        if self.steps:
            self.seconds += seconds

    def add_times(self, times: StepTimes) -> None:
        """Adds the single times of steps."""
        self._waited.add(times.waited)
        self._computed.add(times.computed)

    def steps_per_second(self) -> float | None:
        """None while nothing was timed."""
        return self.steps / self.seconds if self.steps and self.seconds else None

    def waiting_share(self) -> float | None:
        """Returns the share of the steps' time that was spent waiting for batches, 0 to 1."""
        total = self._waited.total + self._computed.total
        return self._waited.total / total if total else None

    def latencies(self) -> dict[str, dict[str, float]]:
        """Returns `Latencies.describe` of 'input', the waiting for batches, and 'step', the steps
        themselves; {} while nothing was timed."""
        if not self._computed.count:
            return {}
        return {'input': self._waited.describe(), 'step': self._computed.describe()}

    def describe(self, batch_size: int) -> dict[str, Any]:
        """Returns all values for JSON; `batch_size` is that of all replicas together."""
        rate = self.steps_per_second()
        return {
            'timed_steps': self.steps,
            'steps_per_second': rate,
            'images_per_second': None if rate is None else rate * batch_size,
            'waiting_share': self.waiting_share(),
            'latencies': self.latencies(),
        }
