"""A training killed at any moment goes on from a whole checkpoint and does each step once."""

import contextlib
import multiprocessing
import os
import random
import re
import time

import pytest

from object_detection.errors import CheckpointError
from object_detection.training.monitoring import history
from object_detection.weights import checkpoint_files, checkpoints
from tests import forks
from tests.training import killed_training
from tests.weights.tiny_checkpoints import names_in

_KILLS = 20
_INSIDE_A_SAVE = 10
_MANY_STEPS = 10**6
_TIMEOUT = 60.0
_LEFT_BY_A_SAVE = re.compile(r'ckpt-\d+_temp|.*\.tempstate\d+|checkpoint\.tmp.*')


@pytest.fixture(scope='module')
def fork_server():
    yield forks.context()
    for process in multiprocessing.active_children():
        process.kill()


def _leftovers(directory):
    """What only a save that is not finished leaves."""
    names = set(names_in(directory))
    return {
        name
        for name in names
        if _LEFT_BY_A_SAVE.fullmatch(name)
        or (
            re.fullmatch(r'ckpt-\d+\.data-.*', name)
            and f'{name.partition(".")[0]}.index' not in names
        )
    }


def _kill(process):
    process.kill()
    process.join(_TIMEOUT)
    assert process.exitcode == -9


def _kill_inside_a_save(process, directory, saves, delay):
    """Kills `delay` seconds after a save was seen to begin, `saves` saves after the first.

    Returns:
      Whether the kill left files of an unfinished save.
    """
    deadline = time.monotonic() + _TIMEOUT
    # Those of the killed run before are swept only when the run has started.
    seen = _leftovers(directory)
    first = _newest_number(directory)
    while not _leftovers(directory) - seen or _newest_number(directory) < first + saves:
        assert process.is_alive(), 'the training ended by itself'
        assert time.monotonic() < deadline, 'no save was seen'
    time.sleep(delay)
    _kill(process)
    return bool(_leftovers(directory) - seen)


def _newest_number(directory):
    state = checkpoint_files.read_state(str(directory))
    return checkpoint_files.number_of(os.path.basename(state.newest)) if state else 0


def _committed(directory):
    """Checks what the state file names; returns number and step of the newest (0, 0 for none).

    A kill between the very first checkpoint and the state file leaves a whole checkpoint that no
    file names, and the next start takes it.
    """
    state = checkpoint_files.read_state(str(directory))
    if state is None:
        return _first_if_whole(directory)
    checkpoint_files.read_through(state.newest)
    for prefix in state.saved_at:
        # One that is being deleted loses its index first.
        if checkpoint_files.exists(prefix):
            checkpoint_files.read_through(prefix)
    return _newest_number(directory), checkpoints.read_step(state.newest)


def _first_if_whole(directory):
    """Number and step of the one checkpoint that no state file names yet (0, 0 for none)."""
    for prefix in checkpoint_files.complete(str(directory)):
        with contextlib.suppress(CheckpointError):
            checkpoint_files.read_through(prefix)
            number = checkpoint_files.number_of(os.path.basename(prefix))
            return number, checkpoints.read_step(prefix)
    return 0, 0


def _told(log_path):
    """Number and step of the checkpoint that each start in the log says it goes on from."""
    log = log_path.read_text() if log_path.exists() else ''
    found = re.findall(r'going on from \S*ckpt-(\d+), step (\d+)', log)
    return [(int(number), int(step)) for number, step in found]


@pytest.mark.slow
def test_every_restart_after_a_kill_resumes_from_a_whole_checkpoint(tmp_path, fork_server):
    seed = random.SystemRandom().randrange(2**32)
    print(f'seed of the moments: {seed}')
    moments = random.Random(seed)
    directory, log_path = tmp_path / 'model', tmp_path / 'log'
    directory.mkdir()

    def start(num_steps):
        process = fork_server.Process(
            target=killed_training.run, args=(str(directory), num_steps, str(log_path))
        )
        process.start()
        return process

    last, starts_told, left_inside, usual_start = (0, 0), 0, 0, 1.0
    later = [True] * (_INSIDE_A_SAVE - 1) + [False] * (_KILLS - _INSIDE_A_SAVE)
    moments.shuffle(later)
    # More attempts where too few of those hit a save, as on a busy machine.
    for index, is_inside in enumerate([True, *later, *[True] * _KILLS]):
        if index >= _KILLS and left_inside >= 5:
            break
        process, started = start(_MANY_STEPS), time.monotonic()
        if is_inside:
            delay = moments.choice([0.0, 0.0, moments.uniform(0.0, 0.01)])
            left_inside += _kill_inside_a_save(process, directory, moments.randrange(3), delay)
            usual_start = time.monotonic() - started
        else:
            time.sleep(moments.uniform(0.0, 1.2 * usual_start))
            _kill(process)
        told = _told(log_path)[starts_told:]
        assert told == [last] or (told == [] and (last == (0, 0) or not is_inside))
        starts_told += len(told)
        now = _committed(directory)
        assert now >= last
        last = now
    assert left_inside >= 5

    num_steps = last[1] + 3
    process = start(num_steps)
    process.join(_TIMEOUT)
    assert process.exitcode == 0, log_path.read_text()[-2000:]
    assert _told(log_path)[starts_told:] == [last]
    assert _committed(directory)[1] == num_steps
    assert not _leftovers(directory)
    assert 'removed what a killed save left' in log_path.read_text()
    steps = [entry['step'] for entry in history.read(directory / 'train' / 'history.jsonl')]
    assert steps == list(range(1, num_steps + 1))
