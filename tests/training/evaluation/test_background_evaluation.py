"""Trainings with an evaluation beside them, for which there is a stand-in."""

import dataclasses
import logging
import os
import signal
import time

import pytest
import tensorflow as tf

from object_detection.errors import ConfigError
from object_detection.training.checkpoints import following
from object_detection.training.checkpoints.following import Snapshots
from object_detection.training.evaluation import (
    async_evaluation,
    background_evaluation,
    best_checkpoint,
)
from object_detection.training.evaluation.async_evaluation import AsyncResult
from object_detection.training.evaluation.background_evaluation import BackgroundEvaluation
from object_detection.training.loop import train
from object_detection.training.monitoring import history
from object_detection.training.monitoring.log_files import JobFiles
from object_detection.training.monitoring.run_types import Intervals
from object_detection.training.setup import TrainingRun
from object_detection.training.trainer import Trainer
from tests.training import fakes
from tests.training.evaluation import fake_evaluation_process


@pytest.fixture(autouse=True)
def _fakes(monkeypatch, caplog):
    fakes.patch_builders(monkeypatch.setattr)
    monkeypatch.setattr(async_evaluation, '_MODULE', fake_evaluation_process.__name__)
    caplog.set_level(logging.INFO)


@pytest.fixture
def config(tmp_path):
    config = fakes.pipeline_config()
    config.eval_config.async_evaluation.niceness = 0
    reader = config.eval_input_reader.add()
    reader.label_map_path = fakes.write_label_map(tmp_path / 'labels.pbtxt')
    return config


@dataclasses.dataclass
class _Display:
    """Acts at some steps."""

    actions: dict = dataclasses.field(default_factory=dict)

    def start(self, step, num_steps, batch_size):
        pass

    def update(self, record):
        self.actions.get(record.step, lambda: None)()

    def log(self, record):
        pass

    def close(self):
        pass


def _train(config, directory, orders=None, **options):
    if orders is not None:
        directory.mkdir(exist_ok=True)
        (directory / 'orders').write_text('\n'.join(orders))
    options = {
        'num_steps': 9,
        'intervals': Intervals(log=1, evaluation=2),
        'progress': _Display(),
        **options,
    }
    return train(config, directory, seed=1, record_summaries=False, **options)


def _evaluated(directory):
    return [entry['step'] for entry in history.read(directory / 'eval' / 'metrics.jsonl')]


def _waiting(directory):
    return sorted(path.name for path in (directory / 'snapshots').glob('*.index'))


def _await_results(directory, count):
    def wait():
        ends = time.monotonic() + 60
        while len(_evaluated(directory)) < count:
            assert time.monotonic() < ends
            time.sleep(0.01)
        time.sleep(0.5)  # What is written is sent right afterwards.

    return wait


def test_every_due_step_and_the_last_are_evaluated(config, tmp_path):
    model = tmp_path / 'model'
    orders = [f'done {step}' for step in (2, 4, 6, 8, 9)]
    result = _train(config, model, orders, max_to_keep=1)
    assert (result.step, result.exit_status, result.reason) == (9, 0, None)
    assert result.metrics == {'': {'images': 9.0}}
    assert _evaluated(model) == [2, 4, 6, 8, 9]
    assert _waiting(model) == []
    # Nothing is done again.
    assert _train(config, model).metrics is None
    assert _evaluated(model) == [2, 4, 6, 8, 9]


def test_a_result_that_has_arrived_ends_the_training_as_if_it_had_been_waited_for(
    config, tmp_path, caplog
):
    model = tmp_path / 'model'
    config.eval_config.early_stopping.target.add(metric='images', value=4.0)
    display = _Display({3: _await_results(model, 1), 5: _await_results(model, 2)})
    result = _train(config, model, ['done 2', 'done 4', 'wait'], progress=display)
    # At once, or after the step that it was waited for in.
    assert result.step in (4, 5)
    assert result.reason.startswith('all targets are reached: images is 4')
    assert result.metrics == {'': {'images': 4.0}}
    assert following.read_finished(model) == (result.step, result.reason)
    assert _evaluated(model) == [2, 4]
    assert _waiting(model) == []
    # A restart changes nothing.
    assert _train(config, model).reason == result.reason


def test_a_plateau_takes_what_has_arrived_when_the_next_evaluation_is_due(config, tmp_path):
    model = tmp_path / 'model'
    plateau = config.train_config.optimizer.reduce_on_plateau
    plateau.patience, plateau.factor, plateau.metric = 1, 0.5, 'images'
    plateau.min_delta = 100
    display = _Display({3 + 2 * i: _await_results(model, 1 + i) for i in range(3)})
    orders = [f'done {step}' for step in (2, 4, 6, 8, 9)]
    assert _train(config, model, orders, progress=display).step == 9
    entries = history.read(model / 'train' / 'history.jsonl')
    rates = {entry['step']: entry['learning_rate'] for entry in entries}
    # The first result is the best; those of the steps 4 and 6 arrive before the steps 6 and 8.
    expected = dict.fromkeys(range(1, 7), 0.01) | {7: 0.005, 8: 0.005, 9: 0.0025}
    assert rates == pytest.approx(expected)


@pytest.mark.slow
def test_a_signal_ends_it_and_the_rest_is_done_at_the_next_start(config, tmp_path):
    model = tmp_path / 'model'
    display = _Display({7: lambda: os.kill(os.getpid(), signal.SIGTERM)})
    started = time.monotonic()
    result = _train(config, model, ['done 2', 'wait'], progress=display)
    assert (result.step, result.exit_status) == (7, 143)
    assert time.monotonic() - started < 30
    assert set(_evaluated(model)) <= {2}
    left = [step for step in (2, 4, 6) if step not in _evaluated(model)]
    # That of step 2 may have been written, and not taken any more.
    assert len(left) <= len(_waiting(model)) <= 3
    orders = [f'done {step}' for step in (*left, 8, 9)]
    assert _train(config, model, orders).step == 9
    assert _evaluated(model) == [2, 4, 6, 8, 9]


@pytest.mark.slow
def test_a_signal_in_the_last_wait_leaves_evaluations_that_are_done_alone(
    config, tmp_path, monkeypatch
):
    model = tmp_path / 'model'
    waited = async_evaluation.AsyncEvaluation.wait

    def wait(self, should_stop):
        os.kill(os.getpid(), signal.SIGTERM)
        return waited(self, should_stop)

    with monkeypatch.context() as patch:
        patch.setattr(async_evaluation.AsyncEvaluation, 'wait', wait)
        result = _train(config, model, ['wait'], num_steps=3)
        assert (result.step, result.exit_status) == (3, 143)
    assert len(_waiting(model)) == 2
    result = _train(config, model, ['done 2', 'done 3'], num_steps=3)
    assert (result.exit_status, result.metrics) == (0, {'': {'images': 3.0}})
    assert _evaluated(model) == [2, 3]


def test_a_process_that_always_dies_does_not_end_the_training(config, tmp_path, caplog):
    result = _train(config, tmp_path / 'model', ['die'] * 3, num_steps=4)
    assert (result.step, result.exit_status, result.metrics) == (4, 0, None)
    assert 'given up after 3 starts' in caplog.text
    assert len(_waiting(tmp_path / 'model')) == 2


def test_one_that_cannot_evaluate_ends_the_training(config, tmp_path):
    with pytest.raises(ConfigError, match='expected more'):
        _train(config, tmp_path / 'model', ['fail ConfigError'], num_steps=2000)
    assert following.read_finished(tmp_path / 'model') is None
    # It waits for a start that can.
    assert _waiting(tmp_path / 'model')


def test_a_device_that_there_is_not_is_reported_before_the_first_step(config, tmp_path):
    config.eval_config.async_evaluation.device = 'gpu:77'
    with pytest.raises(ConfigError, match=r'\(--eval_device\): expected devices that TensorFlow'):
        _train(config, tmp_path / 'model')
    assert not (tmp_path / 'model' / 'checkpoint').exists()


def test_a_result_in_the_last_wait_leaves_out_what_comes_after_it(config, tmp_path):
    model = tmp_path / 'model'
    config.eval_config.early_stopping.target.add(metric='images', value=4.0)
    # None arrives before the last step.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BackgroundEvaluation, 'poll', lambda self: None)
        result = _train(config, model, ['done 2', 'done 4'])
    assert (result.step, result.metrics) == (9, {'': {'images': 4.0}})
    assert result.reason.startswith('all targets are reached: images is 4')
    assert following.read_finished(model) == (9, result.reason)
    assert _evaluated(model) == [2, 4]
    assert _waiting(model) == []
    # Nor does a restart evaluate the last step.
    assert _train(config, model).reason == result.reason
    assert _evaluated(model) == [2, 4]


def test_no_room_for_the_last_step_is_tried_again(config, tmp_path, monkeypatch):
    attempts = []
    add = Snapshots.add

    def fail_once(self, checkpoint, step):
        attempts.append(step)
        if attempts == [2, 4]:
            raise OSError('no space left')
        return add(self, checkpoint, step)

    monkeypatch.setattr(Snapshots, 'add', fail_once)
    monkeypatch.setattr(Trainer, '_do_steps', _ending(Trainer._do_steps, at_step=4))
    model = tmp_path / 'model'
    _train(config, model, ['done 2', 'done 4'])
    assert attempts == [2, 4, 4]
    assert _evaluated(model) == [2, 4]


def _ending(do_steps, at_step):
    """As if the data had ended."""
    return lambda self: self._step < at_step and do_steps(self)


def test_settings_of_the_process_are_handed_on(config, tmp_path, monkeypatch):
    monkeypatch.setattr(tf.config.threading, 'get_intra_op_parallelism_threads', lambda: 3)
    monkeypatch.setattr(tf.config.threading, 'get_inter_op_parallelism_threads', lambda: 2)
    monkeypatch.setattr(tf.config, 'functions_run_eagerly', lambda: True)
    made = []
    monkeypatch.setattr(
        background_evaluation, 'AsyncEvaluation', lambda job, max_waiting: made.append(job)
    )
    files = JobFiles(record_summaries=False, val_json_file='a.json', events='b', dllogger='c')
    run = TrainingRun(config, str(tmp_path), tf.distribute.get_strategy(), Intervals(), files)
    background_evaluation.build(run, lambda step: None)
    (job,) = made
    options = job.options
    assert job.job_files == files
    assert (options.intra_op_threads, options.inter_op_threads, options.run_eagerly) == (3, 2, True)


@pytest.mark.slow
def test_a_training_without_it_leaves_out_what_waits(config, tmp_path, caplog):
    model = tmp_path / 'model'
    _train(config, model, ['die'] * 3, num_steps=4)
    config.eval_config.ClearField('async_evaluation')
    _train(config, model, num_steps=6)
    assert 'steps [2, 4], which waited to be evaluated, are left out' in caplog.text
    assert 4 in _evaluated(model)
    assert _waiting(model) == []
    assert best_checkpoint.read(model / 'best') is None


class _Evaluation:
    """Results that arrive when they are put in `news`."""

    def __init__(self):
        self.news, self.added = [], []
        self.is_closed = self.is_dropped = False

    def add(self, checkpoint, step):
        self.added.append(step)
        return True

    def poll(self):
        arrived, self.news = self.news, []
        return arrived

    def wait(self, should_stop):
        return iter(self.poll())

    def drop(self):
        self.is_dropped = True

    def close(self):
        self.is_closed = True


def test_nothing_is_evaluated_between_a_decision_and_its_time():
    # Several workers are asked now and then only.
    evaluation = _Evaluation()
    background = BackgroundEvaluation(
        evaluation, tf.distribute.get_strategy(), lambda step: 'enough'
    )
    background.add('ckpt-1', 1)
    assert background.reason() is None
    evaluation.news = [AsyncResult(1, {'': {'images': 1.0}}, 2.0)]
    background.poll()
    assert evaluation.is_closed
    evaluation.news = [AsyncResult(2, {}, 2.0)]
    background.add('ckpt-2', 2)
    background.poll()
    assert (evaluation.added, background.metrics) == ([1], {'': {'images': 1.0}})
    assert background.has_decided
    # Nor where all steps were done before the workers were asked.
    assert background.finish('ckpt-3', 3, lambda: False) == 'enough'
    assert evaluation.added == [1]
    assert evaluation.is_dropped


def test_the_result_of_the_last_step_has_nothing_to_stop():
    evaluation = _Evaluation()
    background = BackgroundEvaluation(
        evaluation, tf.distribute.get_strategy(), lambda step: 'enough'
    )
    evaluation.news = [AsyncResult(3, {'': {'images': 1.0}}, 2.0)]
    assert background.finish('ckpt-3', 3, lambda: False) is None
    assert evaluation.added == [3]
    assert not evaluation.is_dropped


def test_of_two_results_at_once_the_first_decides():
    evaluation, asked = _Evaluation(), []

    def reason_to_stop(step):
        asked.append(step)
        return 'enough'

    background = BackgroundEvaluation(evaluation, tf.distribute.get_strategy(), reason_to_stop)
    evaluation.news = [AsyncResult(step, {'': {'images': float(step)}}, 2.0) for step in (1, 2)]
    background.poll()
    assert asked == [1]
    assert background.metrics == {'': {'images': 1.0}}
