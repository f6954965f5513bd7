"""`tfod launch`: what it starts, and how it ends."""

import sys

import pytest
from click.testing import CliRunner

from object_detection.cli.main import main
from object_detection.training import jobs
from object_detection.training.distribution import launcher
from object_detection.training.distribution.launcher import Launch


@pytest.fixture
def launched(monkeypatch):
    """What was to be started; each launch ends with status 75."""
    launches = []
    monkeypatch.setattr(jobs, 'show_log', lambda: None)
    monkeypatch.setattr(launcher, 'run', lambda launch: launches.append(launch) or 75)
    return launches


def _launch(*arguments):
    return CliRunner().invoke(main, ['launch', '--num_processes', '2', *arguments])


def test_a_command_of_tfod_runs_in_this_python(launched):
    result = _launch('--', 'train', '--config', 'a.config', '--model_dir', 'm', '--seed=1')
    assert result.exit_code == 75
    (launch,) = launched
    assert launch == Launch(
        (
            *(sys.executable, '-m', 'object_detection.cli.main'),
            *('train', '--config', 'a.config', '--model_dir', 'm', '--seed=1'),
        ),
        num_processes=2,
        hosts=[],
    )


def test_any_other_program_is_started_as_it_is(launched):
    _launch(
        *('--hosts', 'a, b', '--host_index', '1', '--port', '7', '--max_restarts', '0'),
        *('--grace', '2', 'python3', 'main.py', '--port', '8', '--help'),
    )
    command = ('python3', 'main.py', '--port', '8', '--help')
    assert launched == [Launch(command, 2, ['a', 'b'], 1, 7, max_restarts=0, grace=2.0)]


def test_mistakes_are_reported_in_a_line(launched):
    result = _launch('--host_index', '5', 'train')
    assert (result.exit_code, launched) == (1, [])
    assert result.output.startswith('Error: --host_index: expected 0 to 0')
    result = _launch('--max_restart', '5', 'train')
    assert (result.exit_code, launched) == (2, [])
