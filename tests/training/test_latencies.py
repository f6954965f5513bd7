"""Percentiles of single times."""

import numpy as np
import pytest

from object_detection.training.latencies import PERCENTILES, Latencies


@pytest.mark.parametrize('shape', ['lognormal', 'few', 'two_peaks'])
def test_percentiles_are_those_of_the_times_to_within_one_percent(shape):
    random = np.random.default_rng(0)
    times = {
        'lognormal': random.lognormal(-5, 2, 10_000),
        'few': np.array([0.5, 0.001, 0.02]),
        'two_peaks': np.repeat([0.1, 3.0], [95, 5]),
    }[shape]
    latencies = Latencies()
    for part in np.array_split(times, 3):
        latencies.add(part)
    for percent in PERCENTILES:
        expected = np.percentile(times, percent, method='inverted_cdf')
        assert latencies.percentile(percent) == pytest.approx(expected, rel=0.01)
    described = latencies.describe()
    assert described['count'] == len(times)
    assert described['mean'] == pytest.approx(times.mean())
    assert described['max'] == times.max()
    assert latencies.total == pytest.approx(times.sum())


def test_a_percentile_is_no_confidence_limit_of_the_mean():
    latencies = Latencies()
    latencies.add([0.01] * 98 + [1.0] * 2)
    assert latencies.describe()['p95'] == pytest.approx(0.01, rel=0.01)
    assert latencies.describe()['p99'] == pytest.approx(1.0, rel=0.01)


def test_times_outside_of_the_bins():
    latencies = Latencies()
    latencies.add([0.0, 1e-9, 0.0])
    assert latencies.percentile(99) == 0.0
    latencies.add([1e7] * 9)
    assert latencies.percentile(99) > 1e5


def test_without_times():
    latencies = Latencies()
    latencies.add([])
    assert latencies.describe() == {}
    with pytest.raises(ValueError, match='expected at least one time'):
        latencies.percentile(50)
    latencies.add(1.0)
    latencies.clear()
    assert latencies.count == 0
