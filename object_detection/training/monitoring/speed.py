"""How fast steps are, what they wait for, and percentiles of how long each took."""

from typing import Any

import numpy as np

from object_detection.errors import UserError
from object_detection.training.monitoring.step_times import StepTimes

PERCENTILES = (50, 90, 95, 99)


class Latencies:
    """Keeps every single time, 8 bytes each: 8 MB for a million steps.

    Percentiles are of the times themselves, by the nearest rank.
    """

    def __init__(self):
        self._times: list[np.ndarray] = []

    def add(self, seconds: np.ndarray | float) -> None:
        """Adds times, seconds, float64 [...]."""
        self._times.append(np.array(seconds, np.float64).ravel())

    def clear(self) -> None:
        """Forgets all that was added."""
        self._times = []

    @property
    def count(self) -> int:
        return self._all().size

    @property
    def total(self) -> float:
        """Of all times, seconds."""
        return float(self._all().sum())

    def percentile(self, percent: float) -> float:
        """Returns the time, seconds, that `percent` of all are not longer than.

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
        # One array from now on, so that nothing is joined twice.
        self._times = [np.concatenate([*self._times, np.empty(0)])]
        return self._times[0]


class Speed:
    """Steps, their time and what of it was spent waiting for batches; calls that build graphs are
    not to be added."""

    def __init__(self):
        self.clear()

    def clear(self) -> None:
        """Forgets all that was added."""
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
        """Returns which part of the steps' time went by until their batches had come, 0 to 1."""
        total = self._waited.total + self._computed.total
        return self._waited.total / total if total else None

    def latencies(self) -> dict[str, dict[str, float]]:
        """Returns `Latencies.describe` of the waiting for batches and of the steps after it:
        'input' and 'step'; {} while nothing was timed."""
        if not self._computed.count:
            return {}
        return {'input': self._waited.describe(), 'step': self._computed.describe()}

    def describe(self, batch_size: int) -> dict[str, Any]:
        """Returns all of it as JSON values; `batch_size` is of all replicas together."""
        rate = self.steps_per_second()
        return {
            'timed_steps': self.steps,
            'steps_per_second': rate,
            'images_per_second': None if rate is None else rate * batch_size,
            'waiting_share': self.waiting_share(),
            'latencies': self.latencies(),
        }
