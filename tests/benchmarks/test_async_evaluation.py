"""What is computed from the times of steps."""

import importlib
import pathlib

import pytest

FOLDER = pathlib.Path(__file__).resolve().parents[2] / 'benchmarks'


@pytest.fixture
def program(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    return importlib.import_module('async_evaluation')


def test_the_mean_is_that_of_whole_intervals(program):
    # Saved after steps 4, 8 and 12, which is part of steps 5, 9 and 13.
    rows = [(step, False, 1.0 + 3.0 * (step % 4 == 1), 2.0) for step in range(3, 15)]
    assert program.mean_of_intervals(rows, 4) == {
        'intervals': 2,
        'mean_seconds': pytest.approx(1.75),
        'mean_cpu_seconds': 2.0,
    }
    with pytest.raises(SystemExit, match='at least two saves'):
        program.mean_of_intervals(rows[:5], 4)


def test_steps_during_an_evaluation_are_compared_with_those_without(program):
    rows = [(1, True, 9.0, 5.0), (2, False, 1.0, 1.0), (3, True, 1.5, 1.1), (4, False, 1.0, 1.0)]
    result = program.compare(rows, 10)
    assert result['cost_seconds'] == pytest.approx(0.5)
    assert result['cost_cpu_seconds'] == pytest.approx(0.1)
    assert result['hand_over'] == pytest.approx(7.5)
