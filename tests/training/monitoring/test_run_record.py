"""The record of a run, and the clock of it."""

import contextlib
import json

import pytest

from object_detection.training.monitoring import run_record
from object_detection.training.monitoring.run_record import RunClock


def test_each_start_adds_a_line(tmp_path, monkeypatch):
    monkeypatch.setattr('sys.argv', ['tfod', 'train', '--config', 'a file.config'])
    run_record.write(tmp_path, seed=3, step=0)
    run_record.write(tmp_path, seed=4, step=10)
    lines = (tmp_path / 'train' / run_record.FILE_NAME).read_text().splitlines()
    first, second = map(json.loads, lines)
    assert (first['seed'], first['step']) == (3, 0)
    assert (second['seed'], second['step']) == (4, 10)
    assert first['command'].endswith("tfod train --config 'a file.config'")
    assert first['versions'].keys() >= {'python', 'tensorflow', 'keras', 'numpy'}
    assert any('CPU' in device for device in first['devices'])


def test_the_last_start_records_the_length(tmp_path):
    assert run_record.num_steps(tmp_path) is None
    run_record.write(tmp_path, num_steps=30)
    run_record.write(tmp_path, num_steps=50)
    assert run_record.num_steps(tmp_path) == 50


@pytest.fixture
def time(monkeypatch):
    """A clock that goes on when it is told to."""
    now = [100.0]
    monkeypatch.setattr(run_record.time, 'monotonic', lambda: now[0])

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
