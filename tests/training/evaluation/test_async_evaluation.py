"""The training's side of the evaluation beside it, with a stand-in for the process."""

import logging
import os
import pathlib
import subprocess
import time

import pytest

import object_detection
from object_detection.errors import CheckpointError, ConfigError
from object_detection.training.checkpoints.following import Snapshots
from object_detection.training.evaluation import async_evaluation
from object_detection.training.evaluation.async_evaluation import AsyncEvaluation
from object_detection.training.evaluation.worker import Job
from tests.training.evaluation import fake_evaluation_process


@pytest.fixture(autouse=True)
def _stand_in(monkeypatch, caplog):
    monkeypatch.setattr(async_evaluation, '_MODULE', fake_evaluation_process.__name__)
    # Steps are what the fake checkpoints hold.
    monkeypatch.setattr(
        'object_detection.weights.checkpoint_contents.read_step',
        lambda prefix: int(pathlib.Path(f'{prefix}.index').read_text()),
    )
    caplog.set_level(logging.INFO)


@pytest.fixture
def make(tmp_path):
    made = []

    def make(*orders, max_waiting=4):
        (tmp_path / 'orders').write_text('\n'.join(orders))
        made.append(AsyncEvaluation(Job(b'', str(tmp_path)), max_waiting=max_waiting))
        return made[-1]

    yield make
    for evaluation in made:
        evaluation.close()


def _save(directory, number, step):
    (directory / f'ckpt-{number}.data-00000-of-00001').write_text('weights')
    (directory / f'ckpt-{number}.index').write_text(str(step))
    return str(directory / f'ckpt-{number}')


def _delete(prefix):
    os.remove(f'{prefix}.index')
    os.remove(f'{prefix}.data-00000-of-00001')


def _kept(directory):
    return sorted(path.name for path in (directory / 'snapshots').glob('*.index'))


def _wait_until(is_true):
    ends = time.monotonic() + 60
    while not is_true():
        assert time.monotonic() < ends
        time.sleep(0.01)


def test_results_arrive_in_order_although_the_training_deletes_its_checkpoints(
    make, tmp_path, caplog
):
    evaluation = make()
    for number in (1, 2, 3):
        prefix = _save(tmp_path, number, 10 * number)
        evaluation.add(prefix, 10 * number)
        _delete(prefix)
    assert len(_kept(tmp_path)) == 3
    assert [result.step for result in evaluation.wait()] == [10, 20, 30]
    assert evaluation.is_idle
    assert _kept(tmp_path) == []
    assert '[evaluation] at step 20' in caplog.text
    assert caplog.text.count('is started') == 1


def test_a_poll_does_not_wait(make, tmp_path):
    evaluation = make('wait')
    evaluation.add(_save(tmp_path, 1, 10), 10)
    started = time.perf_counter()
    for _ in range(100):
        assert evaluation.poll() == []
    assert time.perf_counter() - started < 1.0


def test_no_result_is_lost_where_another_snapshot_is_added(make, tmp_path):
    evaluation = make()
    evaluation.add(_save(tmp_path, 1, 10), 10)
    assert evaluation._process.connection.poll(60)
    time.sleep(0.5)  # For the result, after the log.
    evaluation.add(_save(tmp_path, 2, 20), 20)
    assert [result.step for result in evaluation.wait()] == [10, 20]


def test_a_process_that_dies_is_replaced_and_nothing_is_lost(make, tmp_path, caplog):
    evaluation = make('done', 'die', 'fail', 'done', 'done')
    for step in (1, 2, 3):
        evaluation.add(_save(tmp_path, step, step), step)
    assert [result.step for result in evaluation.wait()] == [1, 2, 3]
    assert 'has ended (SIGKILL), step 2 is not evaluated yet: it is started again' in caplog.text
    assert 'has failed: ValueError: expected more' in caplog.text
    assert caplog.text.count('is started again') == 2


def test_one_that_always_dies_is_given_up_and_its_work_waits_for_the_next_start(
    make, tmp_path, caplog
):
    evaluation = make(*['die'] * 3)
    for step in (1, 2):
        evaluation.add(_save(tmp_path, step, step), step)
    assert list(evaluation.wait()) == []
    assert evaluation.is_idle
    assert 'given up after 3 starts' in caplog.text
    assert 'steps [1, 2] are not evaluated' in caplog.text
    # Further ones wait, too.
    assert evaluation.add(_save(tmp_path, 3, 3), 3)
    assert list(evaluation.wait()) == []
    again = make()
    assert again.recover(3) == [1, 2, 3]
    assert [result.step for result in again.wait()] == [1, 2, 3]


def test_one_that_hangs_is_killed_and_started_again(make, tmp_path, monkeypatch, caplog):
    evaluation = make('wait', 'done')
    evaluation.add(_save(tmp_path, 1, 1), 1)
    # It has taken its order.
    _wait_until(lambda: (tmp_path / 'orders').read_text() == 'done')
    assert evaluation.poll() == []
    with monkeypatch.context() as patched:
        patched.setattr(async_evaluation, '_SILENCE_TIMEOUT', -1.0, raising=False)
        patched.setattr(async_evaluation, '_SECONDS_TO_END', 0.0)
        assert evaluation.poll() == []
    assert 'it has said nothing for' in caplog.text
    assert [result.step for result in evaluation.wait()] == [1]


def test_the_oldest_is_left_out_when_too_many_wait(make, tmp_path, caplog):
    evaluation = make('wait', max_waiting=2)
    for step in (1, 2, 3, 4):
        evaluation.add(_save(tmp_path, step, step), step)
    assert _kept(tmp_path) == ['ckpt-1.index', 'ckpt-3.index', 'ckpt-4.index']
    assert 'step 2 is not evaluated: more than 2 snapshots wait' in caplog.text


def test_what_was_given_up_is_reported_by_its_reason(make, tmp_path, caplog):
    evaluation = make(*['die'] * 3, max_waiting=1)
    evaluation.add(_save(tmp_path, 1, 1), 1)
    list(evaluation.wait())
    for step in (2, 3):
        evaluation.add(_save(tmp_path, step, step), step)
    assert 'step 1 is not evaluated: more than 1 snapshots wait, as the evaluation process was' in (
        caplog.text
    )
    assert 'take longer' not in caplog.text


@pytest.mark.parametrize('kind', ['ConfigError', 'CheckpointError'])
def test_a_mistake_of_the_user_ends_the_training_at_once(make, tmp_path, kind):
    evaluation = make('done', f'fail {kind}')
    for step in (1, 2):
        evaluation.add(_save(tmp_path, step, step), step)
    error = {'ConfigError': ConfigError, 'CheckpointError': CheckpointError}[kind]
    with pytest.raises(error, match=r'asynchronous evaluation has failed\. expected more'):
        list(evaluation.wait())
    evaluation.close()
    assert make().recover(2) == [2]


def test_one_that_fails_each_time_ends_the_training(make, tmp_path):
    evaluation = make(*['fail'] * 3)
    evaluation.add(_save(tmp_path, 1, 1), 1)
    with pytest.raises(ConfigError, match='from each of 3 starts of it: ValueError: expected more'):
        list(evaluation.wait())


def test_one_that_has_worked_before_is_given_up(make, tmp_path, caplog):
    evaluation = make('done', *['fail'] * 4)
    for step in (1, 2):
        evaluation.add(_save(tmp_path, step, step), step)
    assert [result.step for result in evaluation.wait()] == [1]
    assert 'given up after 3 starts' in caplog.text


def test_it_ends_quickly_in_the_middle_of_an_evaluation(make, tmp_path):
    evaluation = make('wait')
    evaluation.add(_save(tmp_path, 1, 5), 5)
    process = evaluation._process._program
    started = time.monotonic()
    assert list(evaluation.wait(should_stop=lambda: True)) == []
    evaluation.close()
    assert process.poll() is not None
    assert time.monotonic() - started < 5
    assert make().recover(5) == [5]


def test_it_continues_after_it_was_closed(make, tmp_path):
    evaluation = make('wait', 'done', 'done')
    for step in (1, 2):
        evaluation.add(_save(tmp_path, step, step), step)
    evaluation.close()
    assert [result.step for result in evaluation.wait()] == [1, 2]


def test_what_a_result_has_made_needless_is_left_out(make, tmp_path, caplog):
    evaluation = make('done', 'wait')
    for step in (1, 2, 3):
        evaluation.add(_save(tmp_path, step, step), step)
    _wait_until(evaluation.poll)
    evaluation.drop()
    assert _kept(tmp_path) == []
    assert evaluation.is_idle
    assert 'steps [2, 3], which waited to be evaluated, are left out' in caplog.text


def test_steps_that_are_done_again_are_not_recovered(make, tmp_path):
    snapshots = Snapshots(tmp_path)
    for step in (1, 2, 3):
        snapshots.add(_save(tmp_path, step, step), step)
    # A kill in the middle of adding or removing.
    os.remove(tmp_path / 'snapshots' / 'ckpt-1.index')
    assert make().recover(2) == [2]
    assert sorted(os.listdir(tmp_path / 'snapshots')) == [
        'ckpt-2.data-00000-of-00001',
        'ckpt-2.index',
    ]


def test_file_systems_without_hard_links_have_copies(make, tmp_path, monkeypatch):
    def link(*_):
        raise PermissionError('no hard links')

    monkeypatch.setattr(os, 'link', link)
    evaluation = make()
    evaluation.add(_save(tmp_path, 1, 7), 7)
    assert [result.step for result in evaluation.wait()] == [7]


def test_no_room_for_a_copy_is_reported_and_the_training_continues(
    make, tmp_path, monkeypatch, caplog
):
    def fail(*_):
        raise OSError('no space left')

    monkeypatch.setattr(os, 'link', fail)
    copied = []

    def copy(path, kept):
        # A part, and then no more.
        pathlib.Path(kept).write_text('w')
        copied.append(kept)
        raise OSError('no space left')

    monkeypatch.setattr('shutil.copyfile', copy)
    evaluation = make()
    assert not evaluation.add(_save(tmp_path, 1, 7), 7)
    assert 'step 7 is not evaluated: no space left' in caplog.text
    assert copied
    assert not list((tmp_path / 'snapshots').iterdir())
    assert evaluation.is_idle


def test_a_machine_that_starts_no_process_is_reported(make, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr('sys.executable', str(tmp_path / 'none'))
    evaluation = make()
    evaluation.add(_save(tmp_path, 1, 7), 7)
    assert list(evaluation.wait()) == []
    assert 'No such file or directory' in caplog.text


def test_the_process_finds_this_package_wherever_the_training_was_started(
    make, tmp_path, monkeypatch
):
    started, start = [], subprocess.Popen

    def popen(*args, env, **options):
        started.append(env['PYTHONPATH'])
        return start(*args, env=env, **options)

    monkeypatch.setattr(async_evaluation.subprocess, 'Popen', popen)
    make('wait').add(_save(tmp_path, 1, 10), 10)
    root, *_ = started[0].split(os.pathsep)
    assert pathlib.Path(root, 'object_detection').samefile(
        pathlib.Path(object_detection.__file__).parent
    )
