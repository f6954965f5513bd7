"""Checkpoints are given in turn, as long as a training adds some."""

import os
import shutil
from unittest import mock

import pytest
import tensorflow as tf

from object_detection.system import files
from object_detection.training.checkpoints import following, manager
from object_detection.training.checkpoints.following import mark_finished
from object_detection.weights import checkpoint_files


class _Clock:
    """Time that passes in sleep only; each sleep lets the next event happen."""

    def __init__(self, *events):
        self.now = 0.0
        self._events = list(events)

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        if self._events:
            self._events.pop(0)()


@pytest.fixture
def saver(tmp_path):
    return manager.Checkpoints(
        str(tmp_path),
        model={'weight': tf.Variable(1.0)},
        optimizer={},
        step=tf.Variable(0, dtype=tf.int64),
    )


def _follow(directory, clock, **options):
    with mock.patch.object(files, 'time', clock), mock.patch.object(following, 'time', clock):
        yield from following.follow(directory, **options)


def _numbers(directory, clock, timeout=5.0, **options):
    found = _follow(directory, clock, timeout=timeout, **options)
    return [int(prefix.rpartition('-')[2]) for prefix in found]


def test_the_newest_then_each_new_one(tmp_path, saver):
    saver.save()
    saver.save()

    def save_two():
        saver.save()
        saver.save()

    clock = _Clock(lambda: None, save_two)
    assert _numbers(tmp_path, clock) == [2, 3, 4]
    assert clock.now == 7.0


def test_waiting_is_logged_once_for_each_checkpoint(tmp_path, saver, caplog):
    clock = _Clock(lambda: None, lambda: None, saver.save)
    with caplog.at_level('INFO'):
        assert _numbers(tmp_path, clock) == [1]
    waiting = [message for message in caplog.messages if message.startswith('waiting')]
    assert waiting == [
        f'waiting for a checkpoint in {tmp_path}, at most 5 s',
        f'waiting for the next checkpoint in {tmp_path}, at most 5 s',
    ]


def test_once_and_without_any(tmp_path, saver):
    clock = _Clock()
    assert _numbers(tmp_path, clock, timeout=3.0) == []
    saver.save()
    assert _numbers(tmp_path, clock, timeout=0.0) == [1]
    assert clock.now == 3.0


def test_what_is_deleted_meanwhile_is_reported(tmp_path, saver, caplog):
    saver.save()

    def save_two_and_lose_one():
        lost = saver.save()
        saver.save()
        os.remove(f'{lost}.index')

    assert _numbers(tmp_path, _Clock(save_two_and_lose_one), timeout=90.0) == [1, 3]
    assert f'{tmp_path / "ckpt-2"} was deleted before it could be read' in caplog.text


def test_one_that_the_training_deletes_is_reported_at_once(tmp_path, saver, caplog):
    saver.save()

    def save_one_and_delete_it():
        lost = saver.save()
        for path in checkpoint_files.files_of(lost):
            os.remove(path)

    clock = _Clock(save_one_and_delete_it, lambda: shutil.rmtree(tmp_path))
    assert _numbers(tmp_path, clock, timeout=3.0) == [1]
    assert f'{tmp_path / "ckpt-2"} was deleted before it could be read' in caplog.text


@pytest.mark.parametrize('ending', ['index', 'data-00000-of-00001'])
def test_files_that_are_seen_later_than_the_state_file_are_waited_for(tmp_path, saver, ending):
    saver.save()
    late, hidden = tmp_path / f'ckpt-2.{ending}', tmp_path / 'hidden'

    def save_out_of_sight():
        saver.save()
        late.rename(hidden)
        mark_finished(tmp_path, 2, 'all steps are done')

    clock = _Clock(save_out_of_sight, lambda: None, lambda: hidden.rename(late))
    assert _numbers(tmp_path, clock, timeout=1000.0) == [1, 2]
    assert clock.now == 3.0


def test_a_corrupt_state_file_is_waited_over(tmp_path, saver, caplog):
    saver.save()
    state = (tmp_path / 'checkpoint').read_text()
    (tmp_path / 'checkpoint').write_text('damaged')
    clock = _Clock(lambda: None, lambda: (tmp_path / 'checkpoint').write_text(state))
    assert _numbers(tmp_path, clock, timeout=4.0) == [1]
    assert caplog.text.count('damaged file') == 1


def test_ends_with_the_training_after_its_last_checkpoint(tmp_path, saver, caplog):
    saver.save()

    def end():
        saver.save()
        mark_finished(tmp_path, 30, 'all targets are reached')

    caplog.set_level('INFO', logger='object_detection')
    clock = _Clock(lambda: None, end)
    assert _numbers(tmp_path, clock, timeout=1000.0) == [1, 2]
    assert clock.now == 2.0
    assert 'ended at step 30: all targets are reached' in caplog.text


def test_a_training_that_ends_while_its_checkpoint_is_evaluated(tmp_path, saver):
    saver.save()
    clock = _Clock()
    found = _follow(tmp_path, clock, timeout=1000.0)
    next(found)
    saver.save()
    mark_finished(tmp_path, 30, 'the data ended')
    assert [prefix.rpartition('-')[2] for prefix in found] == ['2']
    assert clock.now == 0.0


def test_stops_waiting_on_request(tmp_path, saver):
    saver.save()
    clock = _Clock()
    assert _numbers(tmp_path, clock, timeout=1000.0, should_stop=lambda: clock.now >= 2.0) == [1]
    assert clock.now == 2.0
