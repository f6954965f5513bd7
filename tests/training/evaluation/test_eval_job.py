"""Evaluation of a tiny detector: every image once, whatever the batch size."""

import contextlib
import functools
import glob
import json
import os
import signal
import time
import types

import numpy as np
import pytest
import tensorflow as tf

from object_detection.config import show
from object_detection.core.fields import InputFields
from object_detection.core.loss_sum import LossSum, over_images
from object_detection.errors import CheckpointError, ConfigError
from object_detection.system import files
from object_detection.training.checkpoints import following, manager
from object_detection.training.checkpoints.following import mark_finished
from object_detection.training.evaluation import best_checkpoint, inference, reader_evaluation
from object_detection.training.evaluation import results as evaluation_results
from object_detection.training.evaluation.eval_job import evaluate_checkpoint, evaluate_directory
from object_detection.training.monitoring import history, run_record
from object_detection.validation import resumption
from object_detection.weights import checkpoints
from tests import rows
from tests.training import fakes


@pytest.fixture(autouse=True)
def _fakes(monkeypatch):
    fakes.patch_builders(monkeypatch.setattr)


@pytest.fixture
def detector():
    built = fakes.FakeDetector()
    built.build_variables()
    return built


@pytest.fixture
def config(tmp_path):
    config = fakes.pipeline_config(num_steps=20)
    config.eval_config.batch_size = 2
    reader = config.eval_input_reader.add()
    reader.label_map_path = fakes.write_label_map(tmp_path / 'labels.pbtxt')
    return config


def _save(directory, steps):
    """Saves a checkpoint of the fake at each of `steps`."""
    model = fakes.FakeDetector()
    model.build_variables()
    step = tf.Variable(0, dtype=tf.int64)
    saver = manager.Checkpoints(
        str(directory), model=model.named_variables(), optimizer={}, step=step
    )
    for number in steps:
        step.assign(number)
        saver.save()


def test_every_image_counts_once_and_losses_do_not_depend_on_the_batch_size(detector):
    results = []
    for batch_size in (1, 2, 5):
        evaluator = fakes.FakeEvaluator()
        data = fakes.dataset(5, batch_size)
        results.append(inference.evaluate(detector, data, [evaluator]))
        assert evaluator.source_ids == ['0', '1', '2', '3', '4']
    assert results[0]['images'] == 5.0
    for result in results[1:]:
        assert result == pytest.approx(results[0], rel=1e-5)
    parts = [value for name, value in results[0].items() if name.startswith('Loss/')]
    assert results[0]['Loss/total_loss'] == pytest.approx(sum(parts) / 2, rel=1e-5)


def test_evaluators_are_not_given_what_they_do_not_need(detector):
    evaluator = fakes.FakeEvaluator()
    metrics = inference.evaluate(detector, fakes.dataset(3, 2), [evaluator], with_losses=False)
    assert metrics == {'images': 3.0}
    assert 'raw_detection_boxes' not in evaluator.keys
    assert 'detection_boxes' in evaluator.keys


def test_stops_on_request(detector):
    data = fakes.dataset(3, 1)
    assert inference.evaluate(detector, data, [], should_stop=lambda: True) is None


@rows.parametrize(('at_vote', 'images'), [(0, 0), (1, 8), (2, 16), (None, 20)])
def test_another_worker_that_is_to_stop_stops_this_one(monkeypatch, detector, at_vote, images):
    """This one has 20 batches and is never asked itself; the other one has none."""
    votes = []

    def gather_rows(strategy, own):
        votes.append(own.tolist())
        return np.array([own, [len(votes) - 1 == at_vote, 1]])

    monkeypatch.setattr(inference.strategies, 'num_workers', lambda strategy: 2)
    monkeypatch.setattr(inference.collectives, 'gather_rows', gather_rows)
    monkeypatch.setattr(inference.collectives, 'gather_values', lambda strategy, own: [own, None])
    evaluator = fakes.FakeEvaluator()
    one = tf.distribute.get_strategy()
    data = fakes.dataset(20, 1)
    assert inference.evaluate(detector, data, [evaluator], strategy=one) is None
    assert len(evaluator.source_ids) == images
    if at_vote is None:
        assert votes == [[0, 0], [0, 0], [0, 0], [0, 1]]


def test_no_images_have_no_losses(detector):
    assert inference.evaluate(detector, fakes.dataset(0, 1), [fakes.FakeEvaluator()]) == {
        'images': 0.0
    }


def test_one_checkpoint(tmp_path, config):
    _save(tmp_path / 'model', [3, 6])
    out = tmp_path / 'out'
    results = evaluate_checkpoint(config, tmp_path / 'model', output_dir=out)
    assert results['']['images'] == 5.0
    assert json.loads((out / 'eval' / 'metrics.json').read_text()) == results['']
    evaluate_checkpoint(config, tmp_path / 'model' / 'ckpt-1', output_dir=out)
    entries = history.read(out / 'eval' / 'metrics.jsonl')
    assert [entry['step'] for entry in entries] == [6, 3]
    tags = set()
    for path in (out / 'eval').glob('events.*'):
        for event in tf.compat.v1.train.summary_iterator(str(path)):
            tags |= {value.tag for value in event.summary.value}
    assert {'images', 'Loss/total_loss', 'eval_side_by_side_0', 'eval_side_by_side_4'} <= tags


@pytest.mark.parametrize('count', [0, 2])
def test_so_many_pictures_are_drawn_as_the_config_says(tmp_path, config, count):
    _save(tmp_path / 'model', [3])
    config.eval_config.num_visualizations = count
    evaluate_checkpoint(config, tmp_path / 'model', output_dir=tmp_path)
    tags = {
        value.tag
        for path in (tmp_path / 'eval').glob('events.*')
        for event in tf.compat.v1.train.summary_iterator(str(path))
        for value in event.summary.value
    }
    pictures = {tag for tag in tags if tag.startswith('eval_side_by_side')}
    assert pictures == {f'eval_side_by_side_{index}' for index in range(count)}


def test_nothing_is_written_without_a_directory(tmp_path, config):
    _save(tmp_path / 'model', [3])
    evaluate_checkpoint(config, tmp_path / 'model')
    assert not list(tmp_path.glob('**/eval'))


def test_every_reader_is_evaluated_under_its_own_name(tmp_path, config):
    config.eval_input_reader[0].name = 'day'
    config.eval_input_reader.add().CopyFrom(config.eval_input_reader[0])
    config.eval_input_reader[1].name = 'night'
    _save(tmp_path / 'model', [3])
    results = evaluate_checkpoint(
        config, tmp_path / 'model', output_dir=tmp_path, record_summaries=False
    )
    assert list(results) == ['day', 'night']
    for name in results:
        assert (tmp_path / 'eval' / name / 'metrics.json').exists()
        assert not list((tmp_path / 'eval' / name).glob('events.*'))


def test_readers_of_the_same_form_share_a_graph(tmp_path, config, monkeypatch):
    config.eval_input_reader.add().CopyFrom(config.eval_input_reader[0])
    _save(tmp_path / 'model', [3])
    made, make = [], reader_evaluation.make_predict
    monkeypatch.setattr(
        reader_evaluation, 'make_predict', lambda *a, **b: made.append(make(*a, **b)) or made[-1]
    )
    assert len(evaluate_checkpoint(config, tmp_path / 'model')) == 2
    assert len(made) == 1


def test_ends_with_the_training(tmp_path, config):
    _save(tmp_path, [10, 20])
    evaluate_directory(config, tmp_path, output_dir=tmp_path, timeout=1000.0)
    entries = history.read(tmp_path / 'eval' / 'metrics.jsonl')
    assert [entry['step'] for entry in entries] == [20]


def test_a_longer_training_than_the_config_says_is_followed(tmp_path, config, monkeypatch):
    run_record.write(tmp_path, num_steps=60)
    _save(tmp_path, [20, 40, 60])
    prefixes = [str(tmp_path / f'ckpt-{number}') for number in (1, 2, 3)]
    monkeypatch.setattr(following, 'follow', lambda *_, **__: iter([*prefixes, 'unasked']))
    results = []
    last = evaluate_directory(config, tmp_path, timeout=1000.0, on_result=results.append)
    assert [result.step for result in results] == [20, 40, 60]
    assert results[-1] == last


def test_ends_with_a_training_that_says_so(tmp_path, config):
    _save(tmp_path, [10])
    mark_finished(tmp_path, 10, 'all targets are reached')
    assert evaluate_directory(config, tmp_path, timeout=1000.0).step == 10


@pytest.mark.parametrize('number', [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_between_batches(tmp_path, config, number):
    _save(tmp_path, [10])
    told = []

    def interrupt(done, total):
        told.append(done)
        os.kill(os.getpid(), number)

    show = functools.partial(contextlib.nullcontext, interrupt)
    result = evaluate_directory(
        config, tmp_path, output_dir=tmp_path, timeout=1000.0, show_progress=show
    )
    assert told == [2]
    assert (result.metrics, result.stopped_by) == ({}, number)
    assert result.exit_status == 128 + number
    assert not evaluation_results.path(tmp_path, '').exists()


def test_a_signal_ends_the_waiting(tmp_path, config, monkeypatch):
    _save(tmp_path, [10])

    def sleep(seconds):
        os.kill(os.getpid(), signal.SIGTERM)

    fake_time = types.SimpleNamespace(monotonic=time.monotonic, sleep=sleep)
    monkeypatch.setattr(files, 'time', fake_time)
    result = evaluate_directory(config, tmp_path, timeout=1000.0)
    assert (result.step, result.stopped_by) == (10, signal.SIGTERM)


def test_ends_at_the_timeout_with_the_last_result(tmp_path, config):
    _save(tmp_path, [10])
    result = evaluate_directory(config, tmp_path, timeout=0.1)
    assert result.metrics['']['images'] == 5.0
    assert (result.step, result.stopped_by, result.exit_status) == (10, None, 0)


def test_an_unpacked_archive_is_evaluated_once(tmp_path, config):
    (tmp_path / 'pipeline.config').write_text('')
    _save(tmp_path / 'checkpoint', [10])
    result = evaluate_directory(config, tmp_path, output_dir=tmp_path / 'results', timeout=1000.0)
    assert (result.step, result.metrics['']['images']) == (10, 5.0)
    assert not (tmp_path / 'results' / best_checkpoint.FOLDER).exists()


@pytest.mark.parametrize('timeout', [0.0, 0.1])
def test_no_checkpoint_is_an_error(tmp_path, config, timeout):
    with pytest.raises(CheckpointError, match='no checkpoint'):
        evaluate_directory(config, tmp_path / 'nothing', timeout=timeout)


@rows.parametrize('trains_on_masks', [False, True])
@rows.parametrize('evaluates_masks', [False, True])
@rows.parametrize('stages', [2, 3])
def test_losses_need_masks_where_the_model_predicts_them(
    tmp_path, config, stages, evaluates_masks, trains_on_masks
):
    config.model.faster_rcnn.number_of_stages = stages
    config.train_input_reader.load_instance_masks = trains_on_masks
    config.eval_input_reader[0].load_instance_masks = evaluates_masks
    _save(tmp_path, [1])
    results = evaluate_checkpoint(config, tmp_path)['']
    assert ('Loss/total_loss' in results) == (stages == 2 or evaluates_masks)


def _delete(prefix):
    for path in glob.glob(f'{prefix}.*'):
        os.remove(path)


def test_checkpoints_that_vanish_before_they_are_opened_are_left_out(
    tmp_path, config, monkeypatch, caplog
):
    _save(tmp_path, [10, 15, 20])
    prefixes = [str(tmp_path / f'ckpt-{number}') for number in (1, 2, 3)]

    def follow(directory, timeout, should_stop):
        for prefix in prefixes:
            if prefix.endswith('2'):
                _delete(prefix)
            yield prefix

    monkeypatch.setattr(following, 'follow', follow)
    evaluate_directory(config, tmp_path, output_dir=tmp_path, timeout=1.0)
    entries = history.read(tmp_path / 'eval' / 'metrics.jsonl')
    assert [entry['step'] for entry in entries] == [10, 20]
    assert f'{prefixes[1]} was deleted before it could be evaluated' in caplog.text


def test_the_one_checkpoint_that_vanishes_is_an_error(tmp_path, config, monkeypatch):
    _save(tmp_path, [10])
    prefix = str(tmp_path / 'ckpt-1')

    def find(path):
        _delete(prefix)
        return prefix

    monkeypatch.setattr(checkpoints, 'find', find)
    with pytest.raises(CheckpointError, match='deleted meanwhile'):
        evaluate_checkpoint(config, prefix)


def test_a_checkpoint_that_is_there_but_does_not_fit_is_an_error(tmp_path, config, monkeypatch):
    _save(tmp_path, [10])
    fakes.patch_builders(monkeypatch.setattr, detector=lambda: fakes.FakeDetector(units=5))
    with pytest.raises(CheckpointError, match='another model'):
        evaluate_directory(config, tmp_path, timeout=0.1)


def test_results_go_to_this_machine(tmp_path, config):
    _save(tmp_path, [1])
    with pytest.raises(ConfigError, match=r'model_dir: .* Received: gs://bucket/model'):
        evaluate_checkpoint(config, tmp_path, output_dir='gs://bucket/model')


def test_the_checkpoint_s_weights_are_evaluated(tmp_path, config):
    _save(tmp_path, [1])
    first = evaluate_checkpoint(config, tmp_path)
    _save(tmp_path, [1])
    second = evaluate_checkpoint(config, tmp_path)
    assert np.isfinite(first['']['Loss/total_loss'])
    assert first['']['Loss/total_loss'] != second['']['Loss/total_loss']


def test_results_are_replaced_whole(tmp_path, config, monkeypatch):
    _save(tmp_path, [1])
    evaluate_checkpoint(config, tmp_path, output_dir=tmp_path)
    path = tmp_path / 'eval' / 'metrics.json'
    before = path.read_text()

    def kill(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr('os.replace', kill)
    with pytest.raises(KeyboardInterrupt):
        evaluate_checkpoint(config, tmp_path, output_dir=tmp_path)
    assert path.read_text() == before


def test_progress_counts_images_and_knows_their_number_the_second_time(
    tmp_path, config, monkeypatch
):
    _save(tmp_path, [10])
    told = []

    @contextlib.contextmanager
    def show():
        told.append('shown')
        yield lambda done, total: told.append((done, total))
        told.append('closed')

    twice = [str(tmp_path / 'ckpt-1')] * 2
    monkeypatch.setattr(following, 'follow', lambda *_, **__: iter(twice))
    evaluate_directory(config, tmp_path, timeout=1.0, show_progress=show)
    first = ['shown', (2, None), (4, None), (5, None), 'closed']
    assert told == [*first, 'shown', (2, 5), (4, 5), (5, 5), 'closed']


def test_the_directory_s_evaluation_shows_progress(tmp_path, config):
    _save(tmp_path, [10])
    told = []
    show = functools.partial(contextlib.nullcontext, lambda done, total: told.append(done))
    evaluate_directory(config, tmp_path, timeout=0, show_progress=show)
    assert told == [2, 4, 5]


def test_only_so_many_images(detector, tmp_path, config):
    for batch_size, limit in [(2, 3), (2, 4), (2, 9), (5, 1)]:
        evaluator = fakes.FakeEvaluator()
        data = fakes.dataset(5, batch_size)
        inference.evaluate(detector, data, [evaluator], max_images=limit)
        assert evaluator.source_ids == [str(i) for i in range(min(5, limit))]
    config.eval_config.eval_samples = 3
    _save(tmp_path, [10])
    assert evaluate_checkpoint(config, tmp_path)['']['images'] == 3.0


class _CountingDetector(fakes.FakeDetector):
    """One of its losses is a mean over things, of which image i has i."""

    def predict(self, images, true_shapes, training=False, groundtruth=None, seeds=None):
        # The counts travel as weights of the ground truth.
        counts = tf.reduce_sum(groundtruth.weights, axis=1)
        return super().predict(images, true_shapes) | {'counts': counts}

    def loss_sums(self, predictions, groundtruth, seeds=None):
        counts = predictions['counts']
        return {
            'Loss/by_image': over_images(counts),
            'Loss/by_thing': LossSum(tf.reduce_sum(counts * counts), tf.reduce_sum(counts)),
        }


def test_losses_are_means_over_what_the_detector_says():
    detector = _CountingDetector()
    detector.build_variables()
    for batch_size in (1, 2, 5):
        data = fakes.dataset(5, batch_size).map(_with_weights)
        losses = inference.evaluate(detector, data, [])
        assert losses['Loss/by_image'] == pytest.approx((0 + 1 + 2 + 3 + 4) / 5)
        assert losses['Loss/by_thing'] == pytest.approx((0 + 1 + 4 + 9 + 16) / 10)
        penalty = losses['Loss/regularization_loss']
        assert losses['Loss/total_loss'] == pytest.approx(2 + 3 + penalty)


def test_losses_may_be_means_over_batches():
    detector = _CountingDetector()
    detector.build_variables()
    for batch_size, expected in ((1, (0 + 1 + 2 + 3 + 4) / 5), (2, (1 / 1 + 13 / 5 + 4) / 3)):
        data = fakes.dataset(5, batch_size).map(_with_weights)
        losses = inference.evaluate(detector, data, [], losses_by_batch=True)
        assert losses['Loss/by_thing'] == pytest.approx(expected)


def _with_weights(batch):
    counts = tf.cast(batch[InputFields.HASH_FROM_SOURCE_ID], tf.float32)
    weights = tf.stack([counts, tf.zeros_like(counts)], axis=1)
    return batch | {InputFields.GROUNDTRUTH_WEIGHTS: weights}


class _Recorder:
    """Takes the place of `restore_model`, and keeps what it was asked for."""

    def __init__(self):
        self.averages = []

    def __call__(self, prefix, variables, *, averages, names):
        self.averages.append(averages)
        return 20


@pytest.mark.parametrize('has_averages', [False, True])
def test_averages_are_evaluated_where_training_keeps_them(
    tmp_path, config, monkeypatch, has_averages
):
    _save(tmp_path, [20])
    config.train_config.optimizer.use_moving_average = has_averages
    recorder = _Recorder()
    monkeypatch.setattr(checkpoints, 'restore_model', recorder)
    evaluate_checkpoint(config, tmp_path)
    evaluate_directory(config, tmp_path, timeout=0)
    assert recorder.averages == [has_averages] * 2


def test_the_best_checkpoint_of_a_job_is_kept(tmp_path, config):
    config.eval_config.best_checkpoint.keep = True
    config.eval_config.best_checkpoint.metric = 'Loss/total_loss'
    _save(tmp_path, [10])
    evaluate_checkpoint(config, tmp_path, output_dir=tmp_path)
    assert not (tmp_path / 'best').exists()
    evaluate_directory(config, tmp_path, output_dir=tmp_path, timeout=0)
    entry = best_checkpoint.read(tmp_path / 'best')
    assert (entry['step'], entry['metric']) == (10, 'Loss/total_loss')
    # It can be evaluated itself, which changes nothing in its folder but adds results.
    evaluate_directory(config, tmp_path / 'best', output_dir=tmp_path / 'best', timeout=0)
    assert not (tmp_path / 'best' / 'best').exists()
    assert best_checkpoint.read(tmp_path / 'best') == entry
    # The training has chosen by another metric; that of the job is another one.
    show.write_pipeline(config, tmp_path / resumption.CONFIG_FILE_NAME)
    config.eval_config.best_checkpoint.metric = 'images'
    evaluate_directory(config, tmp_path, output_dir=tmp_path, timeout=0)
    assert best_checkpoint.read(tmp_path / 'best') == entry
    config.eval_config.best_checkpoint.metric = 'mAP'
    with pytest.raises(ConfigError, match=r"best_checkpoint.metric: .*'images'.* Received: 'mAP'"):
        evaluate_directory(config, tmp_path, output_dir=tmp_path, timeout=0)


def test_an_annotation_file_is_for_one_reader(tmp_path, config):
    _save(tmp_path, [10])
    with pytest.raises(ConfigError, match=r"--val_json_file: there is no file '.*gone.json'"):
        evaluate_checkpoint(config, tmp_path, val_json_file=str(tmp_path / 'gone.json'))
    path = tmp_path / 'val.json'
    path.write_text('{"images": [], "annotations": [], "categories": []}')
    with pytest.raises(ValueError, match=r"val.json: expected a category .* 'cat' \(id 1\)"):
        evaluate_directory(config, tmp_path, timeout=0, val_json_file=str(path))
    config.eval_input_reader.add().CopyFrom(config.eval_input_reader[0])
    with pytest.raises(ConfigError, match='--val_json_file: expected one eval_input_reader'):
        evaluate_checkpoint(config, tmp_path, val_json_file=str(path))


@pytest.mark.parametrize('part', ['', 'eval_samples', 'sample_1_of_n_examples'])
def test_evaluators_get_the_annotation_file(tmp_path, config, monkeypatch, part):
    _save(tmp_path, [10])
    names = [{'id': 7, 'name': 'dog'}, {'id': 8, 'name': 'cat'}]
    images = [{'id': i, 'height': 8, 'width': 8} for i in range(9)]
    path = tmp_path / 'val.json'
    path.write_text(json.dumps({'images': images, 'annotations': [], 'categories': names}))
    if part == 'eval_samples':
        config.eval_config.eval_samples = 2
    elif part:
        config.eval_input_reader[0].sample_1_of_n_examples = 2
    given = []

    def build(config, categories, annotations):
        given.append(annotations)
        return []

    monkeypatch.setattr('object_detection.builders.evaluator_builder.build', build)
    evaluate_checkpoint(config, tmp_path, val_json_file=str(path))
    (annotations,) = given
    assert annotations.category_ids == {1: 8, 2: 7}
    assert len(annotations.not_evaluated({0})) == (0 if part else 8)


def test_results_of_steps_that_are_done_again_are_dropped(tmp_path, config):
    _save(tmp_path, [10, 20])
    for number in (1, 2):
        evaluate_checkpoint(config, tmp_path / f'ckpt-{number}', output_dir=tmp_path)
    assert evaluation_results.is_evaluated(config, tmp_path, 20)
    evaluation_results.drop_later(config, tmp_path, 15)
    assert not evaluation_results.is_evaluated(config, tmp_path, 20)
    assert evaluation_results.is_evaluated(config, tmp_path, 10)
    evaluation_results.drop_later(config, tmp_path / 'other', 15)
    assert not (tmp_path / 'other').exists()
