"""Percentiles of how long single things took."""

import numpy as np

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
            raise ValueError('Latencies.percentile: expected at least one time. Received: none.')
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
