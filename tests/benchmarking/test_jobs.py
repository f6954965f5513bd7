"""The process of a measurement, and what becomes of its errors."""

import json
import pathlib
import subprocess

import pytest

from object_detection.benchmarking import jobs
from object_detection.benchmarking.jobs import BenchmarkJob
from object_detection.errors import UserError

JOB = BenchmarkJob(task=jobs.INFERENCE, source='x', image_size=(4, 6), settings=('a=1',))


@pytest.fixture
def end(monkeypatch):
    """Makes the process write a result, if any, and end with a status."""

    def ends(status, result=None):
        def run(command, **options):
            assert jobs.read(command[-2]) == JOB
            if result is not None:
                pathlib.Path(command[-1]).write_text(json.dumps(result))
            return subprocess.CompletedProcess(command, status, stderr=b'Traceback: broken')

        monkeypatch.setattr(subprocess, 'run', run)

    return ends


def test_the_result_is_returned(end):
    end(0, {'mean': 2.0})
    assert jobs.run_alone(JOB) == {'mean': 2.0}


def test_a_killed_process_names_the_signal(end):
    end(-9)
    with pytest.raises(jobs.JobError, match='killed by SIGKILL, most likely for lack of memory'):
        jobs.run_alone(JOB)


@pytest.mark.parametrize(('is_of_memory', 'kind'), [(True, jobs.JobError), (False, UserError)])
def test_errors_of_users_and_of_memory_are_told_apart(end, is_of_memory, kind):
    end(1, {'error': 'said why', 'is_of_memory': is_of_memory})
    with pytest.raises(UserError, match='said why') as raised:
        jobs.run_alone(JOB)
    assert type(raised.value) is kind


def test_other_errors_show_their_traceback(end):
    end(1)
    with pytest.raises(RuntimeError, match='Traceback: broken'):
        jobs.run_alone(JOB)
