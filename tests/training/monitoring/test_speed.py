"""Percentiles of single times, and the speed of steps."""

import numpy as np
import pytest
import tensorflow as tf

from object_detection.training.monitoring.speed import PERCENTILES, Window, describe, latencies
from tests import rows


@rows.parametrize('shape', ['lognormal', 'few', 'two_peaks'])
def test_percentiles_are_those_of_the_times(shape):
    random = np.random.default_rng(0)
    times = {
        'lognormal': random.lognormal(-5, 2, 10_000),
        'few': np.array([0.5, 0.001, 0.02]),
        'two_peaks': np.repeat([0.1, 3.0], [95, 5]),
    }[shape]
    window = Window()
    for part in np.array_split(np.stack([times, 2 * times]), 3, axis=1):
        window.add_times(part)
    described = window.describe(1)
    assert described['latencies'] == latencies(times, 2 * times)
    assert described['waiting_share'] == pytest.approx(1 / 3)
    described = described['latencies']['input']
    for percent in PERCENTILES:
        expected = np.percentile(times, percent, method='inverted_cdf')
        assert described[f'p{percent}'] == expected
    assert described['count'] == len(times)
    assert described['mean'] == pytest.approx(times.mean())
    assert described['max'] == times.max()


def test_a_percentile_is_no_confidence_limit_of_the_mean():
    described = describe([0.01] * 98 + [1.0] * 2)
    assert described['p95'] == 0.01
    assert described['p99'] == 1.0


def test_without_times():
    assert describe([]) == {}
    assert latencies([], []) == latencies([1.0], []) == {}


def test_speed_of_nothing():
    window = Window()
    window.add({}, 1, 1.0)
    window.add_times(np.ones([2, 1]))
    window.clear()
    assert window.describe(4) == {
        'timed_steps': 0,
        'steps_per_second': None,
        'images_per_second': None,
        'waiting_share': None,
        'latencies': {},
    }


def test_means_are_over_steps_and_the_speed_leaves_out_calls_that_build_graphs():
    window = Window()
    assert not window.steps
    window.add({'a': tf.constant(1.0)}, 1, 0.0, timed=False)
    window.add_times(np.empty([2, 0]), 7.0)
    assert window.steps_per_second() is None
    window.add({'a': tf.constant(4.0)}, 2, 0.5)
    window.add_times(np.empty([2, 0]), 0.5)
    assert window.means() == {'a': 3.0}
    assert window.steps_per_second() == 2.0
    window.clear()
    assert not window.steps
