"""Replicas and workers share an evaluation, and all workers end when a result says so."""

import json
import os
import pathlib
import socket
import subprocess
import sys

import pytest

from object_detection.training.monitoring import history
from tests import forks
from tests.training import evaluation_runs, fakes

ROOT = pathlib.Path(__file__).resolve().parents[3]
TIME_LIMIT = 240  # seconds, on a busy machine


def _start(output, **environment):
    return subprocess.Popen(
        [sys.executable, '-m', 'tests.training.evaluation_runs', str(output)],
        cwd=ROOT,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _results(*programs):
    """What each of them prints at the end; none outlives this."""
    try:
        printed = [program.communicate(timeout=TIME_LIMIT) for program in programs]
    finally:
        for program in programs:
            program.kill()
            program.wait()
    for program, (_, errors) in zip(programs, printed, strict=True):
        assert program.returncode == 0, errors
    return [json.loads(text.splitlines()[-1]) for text, _ in printed]


def test_two_replicas_find_what_one_does():
    results = forks.call(evaluation_runs.compare_replicas)
    assert results['images of two'] == results['images of one']
    assert results['one']['images'] == evaluation_runs.NUM_IMAGES
    assert results['two'] == pytest.approx(results['one'], rel=1e-6)


@pytest.mark.slow
def test_two_workers_share_the_images_and_end_together(tmp_path):
    fakes.write_label_map(tmp_path / 'labels.pbtxt')
    (tmp_path / 'beside').mkdir()
    (tmp_path / 'beside' / 'orders').write_text('done 2\ndone 4\nwait')
    with socket.create_server(('127.0.0.1', 0)) as one, socket.create_server(('', 0)) as other:
        addresses = [f'127.0.0.1:{each.getsockname()[1]}' for each in (one, other)]
    chief, worker = _results(
        *(
            _start(
                tmp_path,
                TF_CONFIG=json.dumps(
                    {
                        'cluster': {'worker': addresses},
                        'task': {'type': 'worker', 'index': index},
                    }
                ),
            )
            for index in range(2)
        )
    )
    # Each image once, by the one or the other.
    assert chief['metrics']['']['images'] == 5
    assert worker['metrics'] is None
    written = history.read(tmp_path / 'shared' / 'eval' / 'metrics.jsonl')
    assert [entry['step'] for entry in written] == [2, 3]
    # The number of images is the same in both, and all workers know it.
    assert chief['factors'][:2] == [[2, 1.0], [3, 0.5]]
    assert worker['factors'] == chief['factors']
    # The evaluation beside the training has reached the target at step 4.
    assert chief['reason'].startswith('all targets are reached')
    assert worker['reason'] == chief['reason']
    assert 4 < chief['step'] == worker['step'] < 1000
