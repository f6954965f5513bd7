"""A training that is killed and started again ends with bitwise what it would have ended with."""

import multiprocessing
import random
import re
import time

import numpy as np
import pytest
import tensorflow as tf

from tests.training import resumed_training

_PATIENCE = 600.0
_VARIANTS = sorted(resumed_training.VARIANTS.keys() - {'plain'})


class Jobs:
    """Trainings in processes of their own, of which none outlives the module."""

    def __init__(self, folder):
        self._folder = folder
        self._records = resumed_training.write_images(folder)
        self._context = multiprocessing.get_context('forkserver')
        self._context.set_forkserver_preload(['tests.training.resumed_training'])

    def log(self, name):
        return self._folder / f'{name}.log'

    def start(self, name, variant, num_steps, call=0):
        process = self._context.Process(
            target=resumed_training.run,
            args=(
                str(self._folder / name),
                self._records,
                variant,
                num_steps,
                str(self.log(name)),
                call,
            ),
        )
        process.start()
        return process

    def finish(self, *arguments, **options):
        process = self.start(*arguments, **options)
        process.join(_PATIENCE)
        assert process.exitcode == 0, self.log(arguments[0]).read_text()[-3000:]

    def kill_at(self, step, name, variant, num_steps):
        """Kills a training that is at `step` or a little later, and has not ended."""
        process = self.start(name, variant, num_steps, call=1)
        history = self._folder / name / 'train' / 'history.jsonl'
        deadline = time.monotonic() + _PATIENCE
        while not history.exists() or _last_step(history) < step:
            assert process.is_alive(), self.log(name).read_text()[-3000:]
            assert time.monotonic() < deadline
            time.sleep(0.002)
        process.kill()
        process.join(_PATIENCE)
        assert process.exitcode == -9
        return _last_step(history)

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


def test_killed_at_random_steps_it_ends_bitwise_the_same(jobs):
    """With augmentation, sampling noise, momentum, moving averages, images that are left out."""
    seed = random.SystemRandom().randrange(2**32)
    print(f'seed of the moments: {seed}')
    moments, num_steps = random.Random(seed), 200
    # Many steps in a call, one in the killed runs.
    jobs.finish('whole', 'fake', num_steps)
    expected = jobs.end_of('whole')
    killed_at = []
    for _ in range(3):
        start = killed_at[-1] if killed_at else 0
        killed_at.append(jobs.kill_at(start + moments.randint(1, 25), 'killed', 'fake', num_steps))
    jobs.finish('killed', 'fake', num_steps)
    assert jobs.log('killed').read_text().count('going on from') >= 2, killed_at
    _assert_same_end(jobs, 'killed', 'whole')
    assert expected['step/.ATTRIBUTES/VARIABLE_VALUE'] == num_steps
    assert any(key.startswith('optimizer/average/') for key in expected)
    # The same seed once more: whatever was computed, nothing was left to chance.
    jobs.finish('again', 'fake', num_steps)
    _assert_same_end(jobs, 'again', 'whole')


@pytest.mark.slow
@pytest.mark.parametrize('variant', _VARIANTS)
def test_a_mask_rcnn_ends_bitwise_the_same(jobs, variant):
    num_steps = 10
    jobs.finish(f'{variant} whole', variant, num_steps)
    # Behind the first checkpoint.
    jobs.kill_at(random.randint(5, 8), f'{variant} killed', variant, num_steps)
    jobs.finish(f'{variant} killed', variant, num_steps)
    assert 'going on from' in jobs.log(f'{variant} killed').read_text()
    _assert_same_end(jobs, f'{variant} killed', f'{variant} whole')
    end = jobs.end_of(f'{variant} killed')
    if variant == 'float16':
        assert any('loss_scale' in key for key in end)
    if variant == 'buckets':
        assert end['input/places/.ATTRIBUTES/VARIABLE_VALUE'].shape[1] == 5
