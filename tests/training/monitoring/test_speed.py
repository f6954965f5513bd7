"""Percentiles of single times, and the speed of steps."""

import numpy as np
import pytest

from object_detection.training.monitoring.speed import PERCENTILES, Latencies, Speed


@pytest.mark.parametrize('shape', ['lognormal', 'few', 'two_peaks'])
def test_percentiles_are_those_of_the_times(shape):
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
        assert latencies.percentile(percent) == expected
    described = latencies.describe()
    assert described['count'] == len(times)
    assert described['mean'] == pytest.approx(times.mean())
    assert described['max'] == times.max()
    assert latencies.total == pytest.approx(times.sum())


def test_a_percentile_is_no_confidence_limit_of_the_mean():
    latencies = Latencies()
    latencies.add([0.01] * 98 + [1.0] * 2)
    assert latencies.describe()['p95'] == 0.01
    assert latencies.describe()['p99'] == 1.0


def test_without_times():
    latencies = Latencies()
    latencies.add([])
    assert latencies.describe() == {}
    with pytest.raises(ValueError, match='expected at least one time'):
        latencies.percentile(50)
    latencies.add(1.0)
    latencies.clear()
    assert latencies.count == 0


def test_speed_of_nothing():
    speed = Speed()
    assert speed.describe(4) == {
        'timed_steps': 0,
        'steps_per_second': None,
        'images_per_second': None,
        'waiting_share': None,
        'latencies': {},
    }
