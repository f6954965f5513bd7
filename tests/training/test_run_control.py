"""How long trainings run, and what ends them: epochs, results, signals."""

import os
import signal

import numpy as np
import pytest
import tensorflow as tf

from object_detection.errors import ConfigError
from object_detection.training import status
from object_detection.training.checkpoints import following
from object_detection.training.distribution import collectives, strategies
from object_detection.training.evaluation import results
from object_detection.training.evaluation.reader_evaluation import PipelineEvaluation
from object_detection.training.loop import train
from object_detection.training.monitoring import history
from object_detection.training.monitoring.progress import Silent
from object_detection.training.monitoring.run_types import Intervals
from object_detection.training.trainer import Trainer
from object_detection.weights import checkpoints
from tests.data import examples
from tests.training import fakes


@pytest.fixture(autouse=True)
def _fakes(monkeypatch):
    fakes.patch_builders(monkeypatch.setattr)


@pytest.fixture
def config(tmp_path):
    """Evaluates one reader, whose metric `images` never improves."""
    config = fakes.pipeline_config()
    config.eval_config.batch_size = 2
    eval_reader = config.eval_input_reader.add()
    eval_reader.label_map_path = fakes.write_label_map(tmp_path / 'labels.pbtxt')
    return config


def _train(config, directory, **options):
    options = {'num_steps': 9, 'intervals': Intervals(evaluation=2), **options}
    return train(config, directory, seed=1, record_summaries=False, progress=Silent(), **options)


def _evaluated(directory):
    return [entry['step'] for entry in history.read(directory / 'eval' / 'metrics.jsonl')]


def test_epochs_are_trained(config, tmp_path):
    path = examples.write_records(tmp_path / 'train', [b'x'] * 6)
    config.train_input_reader.tf_record_input_reader.input_path.append(path)
    config.train_config.num_epochs = 2
    result = _train(config, tmp_path / 'model', num_steps=None, intervals=Intervals())
    assert result.step == 6
    assert following.read_finished(tmp_path / 'model') == (6, 'all steps are done')


def test_the_steps_before_an_evaluation_are_not_lost_with_it(config, tmp_path, monkeypatch):
    def fail(evaluation, step, should_stop):
        raise ArithmeticError

    monkeypatch.setattr(PipelineEvaluation, 'run', fail)
    with pytest.raises(ArithmeticError):
        _train(config, tmp_path)
    assert checkpoints.read_step(checkpoints.find(str(tmp_path))) == 2
    found = status.read(tmp_path)
    assert (found.state, found.waits_for) == (status.FAILED, 'ArithmeticError')


def test_early_stopping_ends_for_good(config, tmp_path, monkeypatch, caplog):
    config.eval_config.early_stopping.patience = 2
    config.eval_config.early_stopping.metric = 'images'
    result = _train(config, tmp_path)
    assert result.step == 6
    assert result.exit_status == 0
    assert result.reason.startswith('images has not improved for 2 evaluations')
    assert following.read_finished(tmp_path) == (6, result.reason)
    found = status.read(tmp_path)
    assert (found.state, found.step, found.waits_for) == (status.FINISHED, 6, result.reason)
    # A restart changes nothing, also where a worker does not see the results yet.
    assert _train(config, tmp_path).reason == result.reason
    monkeypatch.setattr(results, 'reason_to_stop', lambda config, results: None)
    monkeypatch.setattr(collectives, 'reason_of_chief', lambda strategy, ask: result.reason)
    assert _train(config, tmp_path).reason == result.reason
    assert _evaluated(tmp_path) == [2, 4, 6]


def test_early_stopping_needs_evaluation(config, tmp_path, caplog):
    config.eval_config.early_stopping.patience = 1
    assert _train(config, tmp_path, num_steps=1, intervals=Intervals()).step == 1
    assert 'early_stopping has no effect without evaluation' in caplog.text


def _rates(directory):
    entries = history.read(directory / 'train' / 'history.jsonl')
    return {entry['step']: entry['learning_rate'] for entry in entries}


def _saved(result):
    reader = tf.train.load_checkpoint(result.checkpoint)
    names = reader.get_variable_to_shape_map()
    return {name: reader.get_tensor(name) for name in names if name.startswith(('model', 'optim'))}


@pytest.mark.parametrize('is_missing', [False, True])
def test_a_plateau_lowers_the_rate_and_is_resumed(config, tmp_path, is_missing):
    """Also from a checkpoint whose evaluation is done, or has still to be done."""
    plateau = config.train_config.optimizer.reduce_on_plateau
    plateau.patience, plateau.factor, plateau.metric = 1, 0.5, 'images'
    options = {'intervals': Intervals(log=1, evaluation=2)}
    whole = _train(config, tmp_path / 'whole', num_steps=8, **options)
    # The first result is the best; those after it are no better.
    expected = dict.fromkeys(range(1, 5), 0.01) | {5: 0.005, 6: 0.005, 7: 0.0025, 8: 0.0025}
    assert _rates(tmp_path / 'whole') == pytest.approx(expected)
    # The fake data are the same again after three steps.
    _train(config, tmp_path / 'parts', num_steps=6, **options)
    if is_missing:
        results = tmp_path / 'parts' / 'eval' / 'metrics.jsonl'
        results.write_text(''.join(results.read_text().splitlines(keepends=True)[:-1]))
    parts = _train(config, tmp_path / 'parts', num_steps=8, **options)
    assert _evaluated(tmp_path / 'parts') == [2, 4, 6, 8]
    assert _rates(tmp_path / 'parts') == pytest.approx(expected)
    saved = _saved(whole)
    assert saved['optimizer/plateau/factor/.ATTRIBUTES/VARIABLE_VALUE'] == 0.25
    for name, value in _saved(parts).items():
        np.testing.assert_array_equal(value, saved[name], err_msg=name)


def test_a_plateau_needs_evaluation(config, tmp_path, caplog):
    config.train_config.optimizer.reduce_on_plateau.patience = 1
    assert _train(config, tmp_path, num_steps=1, intervals=Intervals()).step == 1
    assert 'reduce_on_plateau has no effect without evaluation' in caplog.text


def test_a_metric_of_a_plateau_that_there_is_not(config, tmp_path):
    config.train_config.optimizer.reduce_on_plateau.metric = 'pictures'
    with pytest.raises(ConfigError, match=r"reduce_on_plateau: expected a metric .*'pictures'"):
        _train(config, tmp_path)


class _SignallingEvaluator(fakes.FakeEvaluator):
    """A signal comes when the evaluation is complete."""

    def evaluate(self):
        os.kill(os.getpid(), signal.SIGTERM)
        return super().evaluate()


def test_a_signal_in_an_evaluation_ends_at_that_step(config, tmp_path, monkeypatch):
    # As with several workers, which are not asked after each call.
    monkeypatch.setattr(Trainer, '_is_stop_requested', lambda self, interrupts: False)
    monkeypatch.setattr(
        'object_detection.builders.evaluator_builder.build',
        lambda config, categories, annotations: [_SignallingEvaluator()],
    )
    result = _train(config, tmp_path)
    assert (result.step, result.stopped_by) == (2, signal.SIGTERM)
    assert result.metrics['']['images'] == 5.0
    assert _evaluated(tmp_path) == [2]
    assert following.read_finished(tmp_path) is None
    found = status.read(tmp_path)
    assert (found.state, found.waits_for) == (status.STOPPED, 'by SIGTERM at step 2')


@pytest.fixture
def two_workers(monkeypatch):
    """The other one does as this one does; returns the questions whether one wants to stop."""
    questions = []

    def gather(strategy, own):
        questions.append(own)
        return np.stack([own, own])

    monkeypatch.setattr(strategies, 'num_workers', lambda strategy: 2)
    monkeypatch.setattr(strategies, 'worker_index', lambda strategy: 0)
    monkeypatch.setattr(strategies, 'describe', lambda strategy: 'one of two')
    monkeypatch.setattr(collectives, 'gather_rows', gather)
    return questions


class _Signal(Silent):
    def __init__(self, at_step, before):
        self._at_step, self._before = at_step, before

    def log(self, record):
        if record.step == self._at_step:
            self._before()
            os.kill(os.getpid(), signal.SIGTERM)


def test_workers_answer_a_signal_within_two_calls(tmp_path, two_workers):
    config = fakes.pipeline_config()
    asked = []
    progress = _Signal(30, lambda: asked.append(len(two_workers)))
    started = []
    progress.start = lambda *_: started.append(len(two_workers))
    result = train(
        config,
        tmp_path,
        num_steps=50,
        seed=1,
        record_summaries=False,
        intervals=Intervals(log=1, checkpoint=0),
        progress=progress,
    )
    assert (result.step, result.exit_status) == (32, 143)
    assert _saved_step(tmp_path) == 32
    # Before, the steps alone have told.
    assert asked == started


def _saved_step(directory):
    return checkpoints.read_step(tf.train.latest_checkpoint(str(directory)))


def test_log_and_summaries_have_intervals_of_their_own(config, tmp_path, monkeypatch):
    summarized = []
    monkeypatch.setattr(
        'object_detection.training.monitoring.recorder.Recorder.summarize',
        lambda self, record: summarized.append(record),
    )
    intervals = Intervals(log=4, summary=3)
    result = _train(config, tmp_path, intervals=intervals)
    logged = history.read(tmp_path / 'train' / 'history.jsonl')
    assert [entry['step'] for entry in logged] == [4, 8, 9]
    assert [record.step for record in summarized] == [3, 6, 9]
    # Means over other steps.
    assert summarized[-1].losses != result.losses


def test_the_first_batch_is_compared_with_the_model(config, tmp_path, monkeypatch):
    class Detector(fakes.FakeDetector):
        def __init__(self):
            super().__init__()
            self.num_classes += 1

    class MaskDetector(fakes.FakeDetector):
        needs_masks = True

    fakes.patch_builders(monkeypatch.setattr, detector=Detector)
    with pytest.raises(ConfigError, match=r'first batch .*num_classes = 3 classes. Received: 2'):
        _train(config, tmp_path)
    fakes.patch_builders(monkeypatch.setattr, detector=MaskDetector)
    with pytest.raises(ConfigError, match=r'first batch .*load_instance_masks: true'):
        _train(config, tmp_path)
    assert not list(tmp_path.glob('ckpt-*'))


def test_an_evaluation_that_was_cut_off_is_made_up_for_at_the_next_start(config, tmp_path):
    options = {'intervals': Intervals(evaluation=2, checkpoint=2)}
    _train(config, tmp_path, **{**options, 'num_steps': 4})
    results = tmp_path / 'eval' / 'metrics.jsonl'
    assert _evaluated(tmp_path) == [2, 4]
    # As after a kill between the checkpoint and the end of its evaluation.
    results.write_text(results.read_text().splitlines()[0] + '\n')
    _train(config, tmp_path, **{**options, 'num_steps': 7})
    assert _evaluated(tmp_path) == [2, 4, 6, 7]


def test_results_of_fewer_images_do_not_count(config, tmp_path):
    config.eval_config.eval_samples = 2
    _train(config, tmp_path, num_steps=2)
    assert results.is_evaluated(config, tmp_path, 2)
    config.eval_config.eval_samples = 0
    assert not results.is_evaluated(config, tmp_path, 2)
    _train(config, tmp_path, num_steps=2)
    assert results.is_evaluated(config, tmp_path, 2)
    assert not results.is_evaluated(config, tmp_path, 2, 'a.json')
