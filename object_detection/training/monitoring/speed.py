"""The speed of steps, the share of waiting, and percentiles of the latencies."""

from typing import Any

import numpy as np

from object_detection.errors import UserError
from object_detection.training.monitoring.step_times import StepTimes

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
        """Starts anew."""
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
