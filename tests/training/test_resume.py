"""A training that is killed and started again ends with bitwise what it would have ended with."""

import multiprocessing
import os
import random
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import tensorflow as tf

from object_detection.data.pipeline.record_order import EPOCH
from tests import forks
from tests.training import lost_workers, resumed_training

_TIMEOUT = 600.0
_KILLS = 3
_VARIANTS = sorted(resumed_training.VARIANTS.keys() - {'plain'})


class Jobs:
    """Trainings in processes of their own, of which none outlives the module."""

    def __init__(self, folder):
        self._folder = folder
        self._records = resumed_training.write_images(folder)

    def log(self, name):
        return self._folder / f'{name}.log'

    def start(self, name, variant, num_steps, call=0):
        process = forks.context().Process(
            target=resumed_training.run, args=self._arguments(name, variant, num_steps, call)
        )
        process.start()
        return process

    def finish(self, name, variant, num_steps):
        self.wait_for(name, self.start(name, variant, num_steps))

    def wait_for(self, name, process):
        process.join(_TIMEOUT)
        assert process.exitcode == 0, self.log(name).read_text()[-3000:]

    def finish_with_kills(self, name, variant, num_steps, least, most):
        """Kills a training several times, after `least` to `most` steps more, and finishes it."""
        seed = random.SystemRandom().randrange(2**32)
        print(f'seed of the moments: {seed}')
        moments, step = random.Random(seed), 0
        for _ in range(_KILLS):
            step += moments.randint(least, most)
            process = self.start(name, variant, num_steps, call=1)
            step = self.wait_for_step(step, name, process.is_alive)
            process.kill()
            process.join(_TIMEOUT)
            assert process.exitcode == -9
        self.finish(name, variant, num_steps)

    def wait_for_step(self, step, name, is_alive):
        """Waits until a training is at `step` or a little later; returns its step."""
        history = self._folder / name / 'train' / 'history.jsonl'
        deadline = time.monotonic() + _TIMEOUT
        while not history.exists() or _last_step(history) < step:
            assert is_alive(), self.log(name).read_text()[-3000:]
            assert time.monotonic() < deadline
            time.sleep(0.002)
        return _last_step(history)

    def launch(self, name, num_steps):
        """Starts two workers by the launcher, which ends with the context."""
        words = map(str, self._arguments(name, 'plain', num_steps, 1))
        return subprocess.Popen(
            [
                *(sys.executable, '-m', 'object_detection.cli.main'),
                *('launch', '--num_processes', '2'),
                *('--', sys.executable, '-m', 'tests.training.resumed_training', *words),
            ],
            cwd=lost_workers.ROOT,
            stderr=subprocess.PIPE,
            text=True,
        )

    def _arguments(self, name, variant, num_steps, call):
        directory, log = str(self._folder / name), str(self.log(name))
        return directory, self._records, variant, num_steps, log, call

    def end_of(self, name):
        """Name -> array of all that the newest checkpoint of a training holds."""
        directory = str(self._folder / name)
        reader = tf.train.load_checkpoint(tf.train.latest_checkpoint(directory))
        names = reader.get_variable_to_shape_map()
        return {each: reader.get_tensor(each) for each in names if not each.startswith('_')}


def _last_step(history):
    steps = re.findall(r'"step": (\d+)', history.read_text())
    return int(steps[-1]) if steps else 0


@pytest.fixture(scope='module')
def jobs(tmp_path_factory):
    yield Jobs(tmp_path_factory.mktemp('resumed'))
    for process in multiprocessing.active_children():
        process.kill()


def _assert_same_end(jobs, name, other):
    end, expected = jobs.end_of(name), jobs.end_of(other)
    assert end.keys() == expected.keys()
    for key, value in expected.items():
        np.testing.assert_array_equal(end[key], value, err_msg=key)


@pytest.mark.slow
def test_killed_at_random_steps_it_ends_bitwise_the_same(jobs):
    """With augmentation, sampling noise, momentum, moving averages, images that are left out."""
    num_steps = 60
    # Many steps in a call, one in the killed runs; and the same seed once more: whatever was
    # computed, nothing was left to chance.
    others = {name: jobs.start(name, 'fake', num_steps) for name in ('whole', 'again')}
    # After the second kill there is a checkpoint.
    jobs.finish_with_kills('killed', 'fake', num_steps, least=3, most=10)
    for name, process in others.items():
        jobs.wait_for(name, process)
    assert jobs.log('killed').read_text().count('going on from') >= 2
    _assert_same_end(jobs, 'killed', 'whole')
    _assert_same_end(jobs, 'again', 'whole')
    expected = jobs.end_of('whole')
    assert expected['step/.ATTRIBUTES/VARIABLE_VALUE'] == num_steps
    assert any(key.startswith('optimizer/average/') for key in expected)


@pytest.mark.slow
@pytest.mark.parametrize('variant', _VARIANTS)
def test_a_detector_ends_bitwise_the_same(jobs, variant):
    num_steps = 18
    jobs.finish(f'{variant} whole', variant, num_steps)
    jobs.finish_with_kills(f'{variant} killed', variant, num_steps, least=2, most=4)
    assert 'going on from' in jobs.log(f'{variant} killed').read_text()
    _assert_same_end(jobs, f'{variant} killed', f'{variant} whole')
    end = jobs.end_of(f'{variant} killed')
    if variant == 'float16':
        assert any('loss_scale' in key for key in end)
    if variant == 'buckets':
        assert _places(end).shape[1] == 5
    if variant == 'mixture':
        assert _places(end).shape[2] == 3
    if variant == 'epochs':
        assert end['step/.ATTRIBUTES/VARIABLE_VALUE'] == 15


@pytest.fixture(scope='module')
def workers(jobs):
    """Two workers have done 16 steps, and no one has killed them."""
    with jobs.launch('two workers', 16) as program:
        printed = program.communicate()[1]
    assert program.returncode == 0, printed + jobs.log('two workers').read_text()
    return 'two workers'


@pytest.mark.slow
def test_workers_of_which_one_was_killed_end_bitwise_the_same(jobs, workers):
    seed = random.SystemRandom().randrange(2**32)
    print(f'seed of the moment and the victim: {seed}')
    moments, name = random.Random(seed), 'a worker killed'
    with jobs.launch(name, 16) as program:
        try:
            jobs.wait_for_step(moments.randint(6, 11), name, lambda: program.poll() is None)
            os.kill(moments.choice(_children(program.pid)), signal.SIGKILL)
            printed = program.communicate(timeout=_TIMEOUT)[1]
        finally:
            program.terminate()
    assert program.returncode == 0, printed + jobs.log(name).read_text()
    assert printed.count('starting all workers again from the newest checkpoint') == 1
    assert jobs.log(name).read_text().count('going on from') == 1
    _assert_same_end(jobs, name, workers)
    assert len(_places(jobs.end_of(name))) == 2


@pytest.mark.slow
def test_one_worker_resumes_a_training_of_two(jobs, workers):
    before = _places(jobs.end_of(workers))
    jobs.finish(workers, 'plain', 20)
    end = jobs.end_of(workers)
    assert end['step/.ATTRIBUTES/VARIABLE_VALUE'] == 20
    assert len(_places(end)) == 1
    epoch = before.max() // EPOCH
    log = jobs.log(workers).read_text()
    assert '(2 before, 1 now) have changed since the checkpoint' in log
    assert f'at the same part of epoch {epoch + 1}' in log
    assert _places(end).max() // EPOCH >= epoch


def _places(end):
    return end['input/places/.ATTRIBUTES/VARIABLE_VALUE']


def _children(pid):
    with open(f'/proc/{pid}/task/{pid}/children') as file:
        return [int(text) for text in file.read().split()]
