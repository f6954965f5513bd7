"""Kills of a training, or of the evaluation beside it, at any moment lose no result."""

import collections
import contextlib
import json
import os
import random
import time

import psutil
import pytest

from object_detection.errors import CheckpointError
from object_detection.training.monitoring import history
from object_detection.weights import checkpoint_files, checkpoints
from tests import forks
from tests.training.evaluation import killed_evaluation

_KILLS = int(os.environ.get('KILLS', '12'))
_MANY_STEPS = 10**6
_TIMEOUT = 300.0
# After three starts without a result the training gives the evaluation up.
_MOST_WITHOUT_RESULT = 2
_MOMENTS = ('time', 'eval', 'snapshots')


class _Run:
    def __init__(self, folder):
        self.directory, self.log_path = folder / 'model', folder / 'log'
        self.directory.mkdir()
        self.start(_MANY_STEPS)

    def start(self, num_steps):
        arguments = (str(self.directory), num_steps, str(self.log_path))
        self.process = forks.context().Process(target=killed_evaluation.run, args=arguments)
        self.process.start()

    def others(self):
        """The nursery and the process that it has made."""
        return psutil.Process(self.process.pid).children(recursive=True)

    def evaluations(self):
        with contextlib.suppress(psutil.NoSuchProcess):
            nurseries = psutil.Process(self.process.pid).children()
            return [child for nursery in nurseries for child in nursery.children()]
        return []

    def results(self):
        return history.read(self.directory / 'eval' / 'metrics.jsonl')

    def wait(self, is_there):
        ends = time.monotonic() + _TIMEOUT
        while not is_there():
            assert self.process.is_alive(), self.log_path.read_text()[-3000:]
            assert time.monotonic() < ends, 'nothing happens'
            time.sleep(0.0005)

    def wait_for(self, moment, moments):
        self.wait(self.evaluations)
        if moment == 'time':
            time.sleep(moments.uniform(0.0, 3.0))
            return
        folder = self.directory / moment
        before = _state(folder)
        self.wait(lambda: _state(folder) != before)
        time.sleep(moments.choice([0.0, 0.0, moments.uniform(0.0, 0.02)]))

    def kill_training(self):
        others = self.others()
        self.process.kill()
        self.process.join(_TIMEOUT)
        assert not psutil.wait_procs(others, timeout=10)[1], 'processes are left'

    def kill_evaluation(self):
        killed = self.evaluations()
        for each in killed:
            each.kill()
        self.wait(lambda: [each for each in self.evaluations() if each not in killed])


def _state(folder):
    """What changes when a file of a folder is made, written or removed."""
    found = set()
    for path in folder.glob('*'):
        try:
            status = path.stat()
        except FileNotFoundError:
            continue
        if '.tfevents.' not in path.name:
            found.add((path.name, status.st_size, status.st_mtime_ns))
    return found


def _check_files(directory):
    """Reads all that has its final name, while an evaluation may still work."""
    for folder in (directory, directory / 'best'):
        state = checkpoint_files.read_state(str(folder))
        for prefix in state.saved_at if state else ():
            _check_checkpoint(prefix)
    for index in directory.glob('snapshots/*.index'):
        _check_checkpoint(str(index).removesuffix('.index'))
    for path in directory.rglob('*.json'):
        assert json.loads(path.read_text()), path


def _check_checkpoint(prefix):
    try:
        checkpoint_files.read_through(prefix)
    except CheckpointError:
        # One that is being removed loses its index first.
        if checkpoint_files.exists(prefix):
            raise


@pytest.fixture
def run(tmp_path):
    run = _Run(tmp_path)
    yield run
    run.process.kill()
    run.process.join(_TIMEOUT)


@pytest.mark.slow
def test_each_step_that_is_due_is_evaluated_once(run):
    seed = random.SystemRandom().randrange(2**32)
    print(f'seed of the moments: {seed}')
    moments = random.Random(seed)
    kills, without_result, count = collections.Counter(), 0, 0
    for number in range(_KILLS):
        moment = moments.choice(_MOMENTS)
        run.wait_for(moment, moments)
        newest = len(run.results())
        without_result, count = (0 if newest > count else without_result), newest
        hits_evaluation = moments.random() < 0.5 and without_result < _MOST_WITHOUT_RESULT
        if hits_evaluation:
            run.kill_evaluation()
            without_result += 1
        else:
            run.kill_training()
            without_result = 0
        _check_files(run.directory)
        if not hits_evaluation:
            run.start(_MANY_STEPS)
        kills['evaluation' if hits_evaluation else 'training', moment] += 1
        print(f'kill {number + 1} by {moment}: {"evaluation" if hits_evaluation else "training"}')

    run.wait(run.evaluations)
    run.kill_training()
    num_steps = checkpoints.read_step(checkpoint_files.read_state(str(run.directory)).newest) + 2
    run.start(num_steps)
    run.process.join(_TIMEOUT)
    log = run.log_path.read_text()
    assert run.process.exitcode == 0, log[-3000:]
    _check_files(run.directory)
    steps = collections.Counter(result['step'] for result in run.results())
    every = killed_evaluation.EVALUATE_EVERY
    assert steps == collections.Counter({*range(every, num_steps + 1, every), num_steps})
    assert {result['metrics']['images'] for result in run.results()} == {5.0}
    assert not list(run.directory.glob('snapshots/*'))
    assert not [path for path in run.directory.rglob('*') if path.name.endswith('.tmp')]
    cut_off = 'cannot be read and is left out' in log
    print(f'{dict(kills)}; {num_steps} steps, {len(steps)} evaluated; lines cut off: {cut_off}')
