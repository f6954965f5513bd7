import time

import pytest

from object_detection.data import python_calls
from object_detection.data.python_calls import PythonCalls


def test_no_call_begins_after_the_end(monkeypatch):
    monkeypatch.setattr(python_calls, '_QUIET', 0.01)
    calls = PythonCalls()
    calls.begin()
    calls.end()
    with pytest.raises(StopIteration):
        calls.begin()


def test_the_end_waits_until_no_more_calls_come(monkeypatch):
    monkeypatch.setattr(python_calls, '_QUIET', 0.05)
    calls = PythonCalls()
    calls.begin()
    begun = time.monotonic()
    calls.end()
    assert time.monotonic() - begun > 0.03
