"""Where the time of a run goes."""

import contextlib

import pytest

from object_detection.training.monitoring import run_clock
from object_detection.training.monitoring.run_clock import RunClock


@pytest.fixture
def time(monkeypatch):
    """A clock that goes on when it is told to."""
    now = [100.0]
    monkeypatch.setattr(run_clock.time, 'monotonic', lambda: now[0])

    def pass_by(seconds):
        now[0] += seconds

    return pass_by


def test_inner_times_are_not_those_of_the_outer_ones(time):
    clock = RunClock()
    time(3.0)
    clock.begin()
    time(0.5)
    with clock.spent('steps'):
        time(2.0)
        with clock.spent('saves'):
            time(1.0)
        time(4.0)
    with contextlib.suppress(ValueError), clock.spent('saves'):
        time(8.0)
        raise ValueError
    time(0.25)
    assert clock.describe() == {
        'all': 18.75,
        'start': 3.0,
        'other': 0.75,
        'steps': 6.0,
        'saves': 9.0,
    }
