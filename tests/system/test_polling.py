"""Attempts until success, a stop request or a timeout."""

import math

import pytest

from object_detection.system import files


class _Clock:
    """Time that passes in sleep only."""

    def __init__(self):
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    clock = _Clock()
    monkeypatch.setattr(files, 'time', clock)
    return clock


def test_attempts_are_made_until_the_timeout(clock):
    assert list(files.attempts(2.0, timeout=5.0)) == [5.0, 3.0, 1.0, 0.0]
    assert clock.now == 105.0


@pytest.mark.parametrize('timeout', [0.0, -1.0])
def test_without_time_one_attempt_is_made(clock, timeout):
    assert list(files.attempts(2.0, timeout=timeout)) == [0.0]
    assert clock.now == 100.0


def test_a_stop_request_ends_the_attempts(clock):
    lefts = list(files.attempts(1.0, should_stop=lambda: clock.now >= 103.0))
    assert lefts == [math.inf] * 3


def test_a_stop_request_before_the_first_attempt_leaves_no_attempt():
    assert list(files.attempts(1.0, should_stop=lambda: True)) == []
