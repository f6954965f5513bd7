"""Whole trainings of a tiny detector."""

import dataclasses
import logging
import os
import shutil
import signal
import time

import numpy as np
import pytest
import tensorflow as tf

from object_detection.config import reader
from object_detection.core.fields import InputFields
from object_detection.core.loss_sum import LossSum
from object_detection.data.pipeline import record_order
from object_detection.data.pipeline.bad_records import Place
from object_detection.errors import CheckpointError, ConfigError, DivergenceError
from object_detection.training import measurements, setup, status
from object_detection.training.checkpoints import manager
from object_detection.training.checkpoints.following import Snapshots
from object_detection.training.loop import train
from object_detection.training.monitoring import history
from object_detection.training.monitoring.run_types import Intervals
from object_detection.training.step import TrainStep
from object_detection.validation.resumption import CONFIG_FILE_NAME
from object_detection.weights import checkpoints
from tests import forks, rows, slow_cases
from tests.training import fake_training, fakes

_config = fakes.pipeline_config
LOSSES = {
    'Loss/BoxClassifierLoss/localization_loss',
    'Loss/RPNLoss/objectness_loss',
    'Loss/regularization_loss',
    'Loss/total_loss',
}


@pytest.fixture(autouse=True)
def _fakes(monkeypatch):
    fakes.patch_builders(monkeypatch.setattr)


@dataclasses.dataclass
class Probe:
    """A progress display that keeps the records and may act at a step."""

    at_step: int | None = None
    action: object = None
    logged: list = dataclasses.field(default_factory=list)
    closed: bool = False

    def start(self, step, num_steps, batch_size):
        self.started = (step, num_steps, batch_size)

    def update(self, record):
        if record.step == self.at_step:
            self.action()

    def log(self, record):
        self.logged.append(record)

    def close(self):
        self.closed = True


def _run(directory, num_steps, **options):
    options.setdefault('progress', Probe())
    options.setdefault('record_summaries', False)
    return train(fakes.pipeline_config(), directory, num_steps=num_steps, seed=1, **options)


def _saved(directory):
    """Number of each kept checkpoint -> its step."""
    prefixes = tf.train.get_checkpoint_state(str(directory)).all_model_checkpoint_paths
    return {int(p.rpartition('-')[2]): checkpoints.read_step(p) for p in prefixes}


@pytest.fixture(scope='module')
def two_steps(tmp_path_factory):
    """The folder of a training of two steps, of which tests get copies."""
    folder = tmp_path_factory.mktemp('two_steps') / 'model'
    with pytest.MonkeyPatch.context() as patch:
        fakes.patch_builders(patch.setattr)
        _run(folder, 2)
    return folder


@pytest.fixture
def started(two_steps, tmp_path):
    return shutil.copytree(two_steps, tmp_path / 'model')


def test_trains_exactly_so_many_steps_and_saves_at_the_end(tmp_path):
    saved_at_first = []
    probe = Probe(1, action=lambda: saved_at_first.append(list(tmp_path.glob('ckpt-*'))))
    result = _run(
        tmp_path,
        7,
        intervals=Intervals(log=3, checkpoint=4),
        progress=probe,
        precision='bfloat16',
    )
    assert saved_at_first == [[]]
    assert result.step == 7
    assert _saved(tmp_path) == {1: 4, 2: 7}
    assert result.checkpoint == str(tmp_path / 'ckpt-2')
    assert result.exit_status == 0
    assert probe.started == (0, 7, 2)
    assert [record.step for record in probe.logged] == [3, 6, 7]
    assert probe.logged[0].losses.keys() == LOSSES
    assert probe.logged[0].learning_rate == pytest.approx(0.01)
    assert probe.logged[1].images_per_second > 0
    assert probe.closed
    assert result.losses == probe.logged[-1].losses
    entries = history.read(tmp_path / 'train' / 'history.jsonl')
    assert [entry['step'] for entry in entries] == [3, 6, 7]
    assert entries[0]['losses'].keys() == LOSSES
    # It was run without summaries.
    assert not list(tmp_path.glob('**/events.*'))
    config = reader.read_pipeline(str(tmp_path / CONFIG_FILE_NAME))
    assert config.train_config.num_steps == 7
    assert config.train_config.precision == config.train_config.BFLOAT16


def test_resumes_from_the_newest_checkpoint_exactly(tmp_path):
    """Four steps, then three more, equal seven steps when every batch is the same."""
    whole, parts = tmp_path / 'whole', tmp_path / 'parts'
    options = {'intervals': Intervals(log=3, checkpoint=3)}
    probe = Probe()
    with pytest.MonkeyPatch.context() as patch:
        fakes.patch_builders(patch.setattr, num_images=2)
        _run(whole, 7, **options)
        _run(parts, 4, **options)
        _run(parts, 7, progress=probe, **options)
    assert probe.started == (4, 7, 2)
    assert _saved(parts) == {1: 3, 2: 4, 3: 6, 4: 7}
    entries = history.read(parts / 'train' / 'history.jsonl')
    assert [entry['step'] for entry in entries] == [3, 4, 6, 7]
    saved = [tf.train.load_checkpoint(checkpoints.find(str(folder))) for folder in (whole, parts)]
    for name in ('model', 'optimizer/momentum'):
        key = f'{name}/box_head/dense/kernel/.ATTRIBUTES/VARIABLE_VALUE'
        expected, found = (checkpoint.get_tensor(key) for checkpoint in saved)
        assert np.any(found != 0)
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_nothing_left_to_do_is_logged(started, caplog):
    with caplog.at_level(logging.INFO):
        result = _run(started, 2)
    assert result.step == 2
    assert 'is at step 2 of 2: nothing left to do' in caplog.text
    assert _saved(started) == {1: 2}


def test_a_run_without_a_step_changes_nothing(started):
    def contents():
        paths = (path for path in started.rglob('*') if path.is_file())
        return {path: path.read_bytes() for path in paths if path.name != 'state.json'}

    snapshots = Snapshots(started)
    snapshots.add(str(started / 'ckpt-1'), 2)
    finished = contents()
    assert _run(started, 1).step == 2
    assert contents() == finished
    assert status.read(started).waits_for == 'all steps are done'
    # As a kill before the end leaves it.
    (started / status.FINISHED_FILE).unlink()
    assert _run(started, 1).exit_status == 0
    assert contents() == {k: v for k, v in finished.items() if k.name != 'ended.json'}
    found = status.read(started)
    assert (found.state, found.waits_for) == ('stopped', 'at step 2, beyond the 1 asked for')
    assert _run(started, 3).step == 3
    assert snapshots.recover(9) == []


def test_a_model_dir_of_another_model_is_reported_and_kept(started, monkeypatch):
    config = (started / CONFIG_FILE_NAME).read_text()
    fakes.patch_builders(monkeypatch.setattr, detector=lambda: fakes.FakeDetector(units=5))
    with pytest.raises(CheckpointError, match='another model'):
        _run(started, 5)
    assert (started / CONFIG_FILE_NAME).read_text() == config


def test_what_changed_since_the_last_start_is_reported(started, caplog):
    _run(started, 4)
    (message,) = (text for text in caplog.messages if text.startswith('changed since'))
    assert message == 'changed since the last start: train_config.num_steps: 2 -> 4'


@slow_cases.parametrize(1, 'number', [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_ends(tmp_path, number):
    probe = Probe(at_step=4, action=lambda: os.kill(os.getpid(), number))
    result = _run(tmp_path, 100, progress=probe, intervals=Intervals(log=2))
    assert result.step == 4
    assert _saved(tmp_path) == {1: 4}
    assert result.stopped_by == number
    assert result.exit_status == 128 + number


def test_several_steps_a_call_do_not_change_the_number_of_steps(tmp_path):
    intervals = Intervals(log=5, checkpoint=6, call=4)
    result = _run(tmp_path, 11, intervals=intervals)
    assert result.step == 11
    assert _saved(tmp_path) == {1: 6, 2: 11}
    entries = history.read(tmp_path / 'train' / 'history.jsonl')
    assert [entry['step'] for entry in entries] == [5, 10, 11]


def test_fast_steps_are_done_many_in_one_call(tmp_path, monkeypatch):
    counts = []
    repeat = TrainStep.repeat

    def counted(self, iterator, count):
        counts.append(count)
        return repeat(self, iterator, count)

    monkeypatch.setattr(TrainStep, 'repeat', counted)
    # Looks, by which the speed is known, come once a second else.
    monkeypatch.setattr(measurements, '_CHECK_INTERVAL', 0.0)
    monkeypatch.setattr(measurements, '_CALL_SECONDS', 5.0)
    result = _run(tmp_path, 120, intervals=Intervals(log=50, checkpoint=0))
    assert result.step == 1 + sum(counts) == 120
    # No call goes past a record that is due.
    assert counts[0] == 1
    assert 4 <= max(counts) <= 50
    entries = history.read(tmp_path / 'train' / 'history.jsonl')
    assert [entry['step'] for entry in entries] == [50, 100, 120]


def test_slow_steps_are_done_one_by_one(tmp_path, monkeypatch):
    monkeypatch.setattr(TrainStep, '_run_many', lambda *args: pytest.fail('built in vain'))
    monkeypatch.setattr(measurements, '_CHECK_INTERVAL', 0.0)
    monkeypatch.setattr(measurements, '_CALL_SECONDS', 1e-6)
    assert _run(tmp_path, 9).step == 9


def test_parts_of_a_batch_train_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(
        'object_detection.builders.dataset_builder.build_train',
        lambda *args, **options: fakes.dataset(6, 1).unbatch().batch(2, drop_remainder=True),
    )
    whole = _run(tmp_path / 'whole', 3).losses
    monkeypatch.setattr(fakes, 'pipeline_config', lambda: _config(gradient_accumulation_steps=2))
    assert _run(tmp_path / 'parts', 3).losses == pytest.approx(whole, rel=1e-5)


def test_data_that_ends_within_a_call_ends_the_training(tmp_path, monkeypatch, caplog):
    fakes.patch_builders(monkeypatch.setattr, repeat=False)
    build_left_out = setup.build_left_out

    def with_lost_objects(*args):
        left_out = build_left_out(*args)
        left_out.add_objects(Place('f', 0, 'a'), 0, {'unknown_class': 17, 'box_without_area': 2})
        return left_out

    monkeypatch.setattr(setup, 'build_left_out', with_lost_objects)
    with caplog.at_level(logging.WARNING):
        result = _run(tmp_path, 100, intervals=Intervals(call=4))
    assert result.step == 3
    assert 'the training data ended at step 3 of 100' in caplog.text
    reasons = '17 with an unknown class, 2 with a box without area'
    assert f'train_input_reader: 19 objects were left out: {reasons}.' in caplog.messages
    assert _saved(tmp_path) == {1: 3}


def test_no_data_is_an_error(tmp_path, monkeypatch):
    fakes.patch_builders(monkeypatch.setattr, num_images=0, repeat=False)
    with pytest.raises(ConfigError, match=r'at least one batch.*bad_records\.jsonl lists: 0'):
        _run(tmp_path, 3)


class _DivergingDetector(fakes.FakeDetector):
    def loss_sums(self, predictions, groundtruth, seeds=None):
        losses = super().loss_sums(predictions, groundtruth, seeds)
        bad = tf.reduce_sum(predictions['boxes']) * 1e38 * 1e3
        return {**losses, 'Loss/bad_loss': LossSum(bad, 0.0)}


def test_a_loss_that_is_not_finite_stops_before_anything_is_saved(started, monkeypatch):
    fakes.patch_builders(monkeypatch.setattr, detector=_DivergingDetector)
    with pytest.raises(DivergenceError) as error:
        _run(started, 9)
    text = str(error.value)
    assert 'Loss/bad_loss = ' in text
    assert 'at step 3, learning rate 0.01' in text
    assert "source ids '0', '1'." in text
    assert f'last good checkpoint is {started / "ckpt-1"}' in text
    assert _saved(started) == {1: 2}


class _LaterDivergingDetector(fakes.FakeDetector):
    """Its loss is infinite for batches with the image '4', which is in every third one."""

    def loss_sums(self, predictions, groundtruth, seeds=None):
        losses = super().loss_sums(predictions, groundtruth, seeds)
        with tf.init_scope():
            images = list(fakes.dataset(6, 1))
        is_bad = tf.reduce_any(
            groundtruth.boxes[:, 0, 0] == images[4][InputFields.GROUNDTRUTH_BOXES].numpy()[0, 0, 0]
        )
        return {**losses, 'Loss/bad_loss': LossSum(tf.where(is_bad, np.inf, 0.0), 0.0)}


@pytest.mark.parametrize('call', [1, 5])
def test_the_batch_that_diverged_is_named_also_within_a_call(tmp_path, monkeypatch, call):
    fakes.patch_builders(monkeypatch.setattr, detector=_LaterDivergingDetector)
    with pytest.raises(DivergenceError) as error:
        _run(tmp_path, 9, intervals=Intervals(call=call, log=6))
    text = str(error.value)
    assert text.startswith('The training diverged: Loss/bad_loss = inf at step 3, learning rate')
    assert "source ids '4', '5'." in text
    assert 'Loss/RPNLoss/objectness_loss = 0.5' in text


class _ExplodingDetector(fakes.FakeDetector):
    """Its loss is finite, its gradient is not."""

    def loss_sums(self, predictions, groundtruth, seeds=None):
        distance = tf.sqrt(tf.reduce_sum(predictions['boxes'] * 0.0))
        return {'Loss/distance_loss': LossSum(distance, 0.0)}


def test_gradients_that_are_not_finite_are_reported(tmp_path, monkeypatch):
    fakes.patch_builders(monkeypatch.setattr, detector=_ExplodingDetector)
    with pytest.raises(
        DivergenceError, match=r'gradient_norm = nan at step 1, learning rate 0\.01'
    ):
        _run(tmp_path, 1)
    assert not list(tmp_path.glob('ckpt-*'))


def test_weights_that_are_not_finite_are_not_saved(tmp_path):
    config = fakes.pipeline_config(num_steps=1)
    rate = config.train_config.optimizer.momentum_optimizer.learning_rate
    rate.constant_learning_rate.learning_rate = 3e38
    with pytest.raises(DivergenceError, match=r'before step 1, learning rate 3e\+38.*box_head'):
        train(config, tmp_path, seed=1, progress=Probe(), record_summaries=False)
    assert not list(tmp_path.glob('ckpt-*'))


def test_num_steps_is_required(tmp_path):
    with pytest.raises(ConfigError, match=r'train_config\.num_steps'):
        train(fakes.pipeline_config(), tmp_path)


def test_evaluates_during_training_and_at_the_end(tmp_path):
    config = fakes.pipeline_config()
    config.eval_config.batch_size = 2
    eval_reader = config.eval_input_reader.add()
    eval_reader.label_map_path = fakes.write_label_map(tmp_path / 'labels.pbtxt')
    result = train(
        config,
        tmp_path / 'model',
        num_steps=5,
        intervals=Intervals(evaluation=2),
        seed=1,
        progress=Probe(),
        record_summaries=False,
    )
    entries = history.read(tmp_path / 'model' / 'eval' / 'metrics.jsonl')
    assert [entry['step'] for entry in entries] == [2, 4, 5]
    assert result.metrics['']['images'] == 5.0
    assert result.metrics[''].keys() >= LOSSES


def test_events_hold_scalars_and_pictures(tmp_path):
    _run(tmp_path, 3, intervals=Intervals(log=2), record_summaries=True)
    tags = set()
    for path in (tmp_path / 'train').glob('events.*'):
        for event in tf.compat.v1.train.summary_iterator(str(path)):
            tags |= {value.tag for value in event.summary.value}
    assert tags >= LOSSES | {'learning_rate', 'steps_per_sec', 'train_input_images_0'}


@rows.parametrize('values', [{'log': 0}, {'call': -1}, {'checkpoint': -1}, {'evaluation': -1}])
def test_intervals_must_make_sense(values):
    with pytest.raises(ValueError, match='Intervals: log must be positive'):
        Intervals(**values)


def test_killed_and_started_again_resumes_from_the_last_checkpoint(tmp_path):
    process = forks.context().Process(target=fake_training.run, args=(str(tmp_path), 100_000))
    process.start()
    try:
        deadline = time.monotonic() + 60
        while not (tmp_path / 'ckpt-2.index').exists() and time.monotonic() < deadline:
            assert process.is_alive()
            time.sleep(0.05)
    finally:
        process.kill()
        process.join()
    saved = checkpoints.read_step(checkpoints.find(str(tmp_path)))
    # Its index gets its name before the state file says that it counts.
    assert saved >= 5
    probe = Probe()
    result = _run(tmp_path, saved + 3, progress=probe, intervals=Intervals(log=5))
    assert probe.started[0] == saved
    assert result.step == saved + 3
    steps = [entry['step'] for entry in history.read(tmp_path / 'train' / 'history.jsonl')]
    assert steps == sorted(set(steps))
    assert steps[-1] == saved + 3


def _run_with_evaluation(directory, **options):
    config = fakes.pipeline_config()
    config.eval_config.batch_size = 2
    for name in ('day', 'night'):
        reader = config.eval_input_reader.add(name=name)
        reader.label_map_path = fakes.write_label_map(directory / 'labels.pbtxt')
    options = {'num_steps': 4, 'intervals': Intervals(evaluation=100), **options}
    return train(
        config, directory / 'model', progress=Probe(), record_summaries=False, seed=1, **options
    )


class _InterruptingEvaluator(fakes.FakeEvaluator):
    """A signal comes while the second reader is evaluated."""

    made = 0

    def __init__(self):
        super().__init__()
        _InterruptingEvaluator.made += 1

    def add_batch(self, batch, detections):
        super().add_batch(batch, detections)
        if _InterruptingEvaluator.made == 2:
            os.kill(os.getpid(), signal.SIGTERM)


def _evaluated(directory):
    """Reader's name -> the evaluated steps."""
    return {
        path.parent.name: [entry['step'] for entry in history.read(path)]
        for path in (directory / 'model' / 'eval').glob('*/metrics.jsonl')
    }


def test_a_last_evaluation_that_a_signal_stopped_is_made_up_for(tmp_path, monkeypatch, caplog):
    def build(config, categories, annotations=None):
        return [_InterruptingEvaluator()]

    caplog.set_level(logging.INFO)
    with monkeypatch.context() as patch:
        patch.setattr('object_detection.builders.evaluator_builder.build', build)
        monkeypatch.setattr(_InterruptingEvaluator, 'made', 0)
        stopped = _run_with_evaluation(tmp_path)
        assert (stopped.step, stopped.exit_status, stopped.metrics) == (4, 143, None)
        # Stopped once more, in the evaluation alone.
        monkeypatch.setattr(_InterruptingEvaluator, 'made', 0)
        stopped = _run_with_evaluation(tmp_path)
        assert (stopped.step, stopped.exit_status, stopped.metrics) == (4, 143, None)
    assert 'night' not in _evaluated(tmp_path)
    result = _run_with_evaluation(tmp_path)
    assert (result.step, result.exit_status) == (4, 0)
    assert result.checkpoint == str(tmp_path / 'model' / 'ckpt-1')
    assert result.metrics['night']['images'] == 5.0
    assert _evaluated(tmp_path)['night'] == [4]
    assert _saved(tmp_path / 'model') == {1: 4}
    assert 'nothing left to do' not in caplog.text
    # Done for good now, and where no evaluation is asked for.
    evaluated = _evaluated(tmp_path)
    assert _run_with_evaluation(tmp_path).metrics is None
    assert _run_with_evaluation(tmp_path, intervals=Intervals()).metrics is None
    assert _evaluated(tmp_path) == evaluated


def test_a_remote_model_dir_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r'model_dir: .* Received: gs://bucket/model'):
        _run('gs://bucket/model', 1)
    assert not list(tmp_path.iterdir())


def test_a_run_keeps_the_seed_that_it_began_with(tmp_path, monkeypatch, caplog):
    seen = []

    def build(config, input_context, seed, start, left_out, step=0):
        seen.append((seed, int(start[0, 0])))
        return record_order.counted(fakes.dataset(6, 2, repeat=True), int(start[0, 0]))

    monkeypatch.setattr('object_detection.builders.dataset_builder.build_train', build)
    for num_steps, seed in ((3, None), (5, None), (7, 4)):
        train(
            fakes.pipeline_config(),
            tmp_path,
            num_steps=num_steps,
            seed=seed,
            progress=Probe(),
            record_summaries=False,
        )
    drawn = seen[0][0]
    assert seen == [(drawn, 0), (drawn, 3), (drawn, 5)]
    assert f'--seed 4 has no effect: the run continues with seed {drawn}, ' in caplog.text


@slow_cases.parametrize(1, 'interrupted_at', [2, None, 1, 4])
def test_augmentations_stop_at_their_step(tmp_path, monkeypatch, interrupted_at):
    """The input is built anew, from where it is; also for a run that begins there or after it."""
    seen = []

    def build(config, input_context, seed, start, left_out, step=0):
        position = int(start[0, 0])
        seen.append((step, position))
        return record_order.counted(fakes.dataset(6, 2, repeat=True), position)

    monkeypatch.setattr('object_detection.builders.dataset_builder.build_train', build)
    config = fakes.pipeline_config()
    for number in (1, 2, 2, 5, 99):
        step = config.train_config.data_augmentation_options.add(stop_after_step=number)
        step.rgb_to_gray.SetInParent()
    for num_steps in filter(None, (interrupted_at, 7)):
        train(
            config,
            tmp_path,
            num_steps=num_steps,
            intervals=Intervals(log=3),
            progress=Probe(),
            record_summaries=False,
        )
    # A run that ends at a change leaves it to the next one.
    expected = {None: [], 1: [(1, 1)], 2: [(2, 2)], 4: [(4, 4)]}[interrupted_at]
    done = interrupted_at or 0
    before = [(n, n) for n in (0, 1, 2, 5) if n < (interrupted_at or 7)]
    after = [(n, n) for n in (1, 2, 5) if interrupted_at and n > done]
    assert seen == before + expected + after


def test_data_that_had_ended_end_the_training_again(tmp_path, monkeypatch):
    def build(config, input_context, seed, start, left_out, step=0):
        return (
            fakes.dataset(6, 2)
            .skip(int(start[0, 0]))
            .enumerate(int(start[0, 0]))
            .map(lambda index, batch: {**batch, InputFields.STREAM_STATE: index[tf.newaxis] + 1})
        )

    monkeypatch.setattr('object_detection.builders.dataset_builder.build_train', build)
    for _ in range(2):
        result = _run(tmp_path, 9, intervals=Intervals(call=1))
        assert result.step == 3
        assert result.reason.startswith('the training data ended at step 3 of 9')
    assert _saved(tmp_path) == {1: 3}


def _train_config(directory, **train_config):
    """One step with fields of `train_config`; returns the kernel that it leaves."""
    config = _config(**train_config)
    train(config, directory, num_steps=1, seed=1, progress=Probe(), record_summaries=False)
    weights = tf.train.load_checkpoint(str(directory / 'ckpt-1'))
    return weights.get_tensor('model/box_head/dense/kernel/.ATTRIBUTES/VARIABLE_VALUE')


def test_gradients_are_clipped_and_checkpoints_kept_as_the_config_says(tmp_path, monkeypatch):
    made = []

    class Recorded(manager.Checkpoints):
        def __init__(self, *args, **options):
            made.append(options['keep_every_n_hours'])
            super().__init__(*args, **options)

    monkeypatch.setattr(manager, 'Checkpoints', Recorded)
    free = _train_config(tmp_path / 'free', keep_checkpoint_every_n_hours=2.5)
    assert made == [2.5]
    clipped, other = (
        _train_config(tmp_path / str(norm), gradient_clipping_by_norm=norm) for norm in (1e-3, 2e-3)
    )
    # Both clipped steps go the same way, one twice as far, from a start that none of them saved.
    start = 2 * clipped - other
    assert np.abs(free - start).max() > 100 * np.abs(clipped - start).max() > 0
