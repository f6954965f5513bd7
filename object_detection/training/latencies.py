"""Percentiles of how long single things took."""

import math
from collections.abc import Sequence

import numpy as np

# Two neighbouring bins; the middle of one is at most 1 % away from what lies in it.
_RATIO = 1.02
_SHORTEST = 1e-6
_LONGEST = 1e5
_NUM_BINS = math.ceil(math.log(_LONGEST / _SHORTEST) / math.log(_RATIO)) + 1

PERCENTILES = (50, 90, 95, 99)


class Latencies:
    """Counts every single time in bins of logarithmic width: 10 KB, however many are added.

    Percentiles are of the times themselves, by the nearest rank, to within 1 % of the value
    between a microsecond and a day; shorter times count as 0. Count, mean and maximum are exact.
    """

    def __init__(self):
        # The first bin is for times below the shortest.
        self._counts = np.zeros(_NUM_BINS + 1, np.int64)
        self._sum = 0.0
        self._longest = 0.0

    def add(self, seconds: np.ndarray | float) -> None:
        """Adds times, seconds, float64 [...]."""
        seconds = np.asarray(seconds, np.float64).ravel()
        if not seconds.size:
            return
        bins = np.floor(np.log(np.maximum(seconds, 1e-12) / _SHORTEST) / math.log(_RATIO)) + 1
        bins = np.clip(bins, 0, _NUM_BINS).astype(np.int64)
        self._counts += np.bincount(bins, minlength=_NUM_BINS + 1)
        self._sum += float(seconds.sum())
        self._longest = max(self._longest, float(seconds.max()))

    def clear(self) -> None:
        """Forgets all that was added."""
        self.__init__()

    @property
    def count(self) -> int:
        return int(self._counts.sum())

    @property
    def total(self) -> float:
        """Of all times, seconds."""
        return self._sum

    def percentile(self, percent: float) -> float:
        """Returns the time, seconds, that `percent` of all are not longer than.

        Raises:
          ValueError: if there are no times.
        """
        if not self.count:
            raise ValueError('Latencies.percentile: expected at least one time. Received: none.')
        return self._percentiles([percent])[0]

    def describe(self) -> dict[str, float]:
        """Returns 'count', 'mean', 'p50', 'p90', 'p95', 'p99' and 'max', seconds; {} of none."""
        if not self.count:
            return {}
        values = self._percentiles(PERCENTILES)
        return {
            'count': self.count,
            'mean': self._sum / self.count,
            **{f'p{percent}': value for percent, value in zip(PERCENTILES, values, strict=True)},
            'max': self._longest,
        }

    def _percentiles(self, percents: Sequence[float]) -> list[float]:
        ranks = [max(1, math.ceil(self.count * percent / 100)) for percent in percents]
        indices = np.searchsorted(np.cumsum(self._counts), ranks).tolist()
        return [
            min(_SHORTEST * _RATIO ** (index - 0.5), self._longest) if index else 0.0
            for index in indices
        ]
