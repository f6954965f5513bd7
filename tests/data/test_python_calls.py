import subprocess
import sys
import textwrap
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


def test_a_program_ends_although_its_iterator_reads_on():
    """Without an end of the calls, the program waits for its iterator for ever."""
    program = """
        import time
        import tensorflow as tf
        from object_detection.data.python_calls import PythonCalls

        calls = PythonCalls()

        def read(number):
            calls.begin()
            time.sleep(0.01)
            return number

        data = tf.data.Dataset.range(1 << 40)
        data = data.map(
            lambda number: tf.numpy_function(read, [number], tf.int64, stateful=False),
            num_parallel_calls=8,
        )
        iterator = iter(data.batch(1000).prefetch(4))
        time.sleep(0.5)
        """
    done = subprocess.run(
        [sys.executable, '-c', textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0
    assert 'StopIteration' not in done.stderr
