"""The best model is kept, whole at any moment."""

import json
import math
import os

import pytest
import tensorflow as tf
from google.protobuf import text_format

from object_detection.config import show
from object_detection.errors import CheckpointError, ConfigError
from object_detection.protos.eval_pb2 import EvalConfig
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from object_detection.system import disk
from object_detection.training.evaluation import best_checkpoint
from object_detection.training.monitoring import run_record
from object_detection.validation import resumption
from object_detection.validation.eval_config import best_metric
from object_detection.weights import checkpoints
from tests import rows

AP = 'DetectionBoxes_Precision/mAP'
LOSS = 'Loss/total_loss'


def _config(text=''):
    full = f'eval_input_reader {{}} eval_config {{ best_checkpoint {{ {text} }} }}'
    return text_format.Parse(full, TrainEvalPipelineConfig())


@pytest.fixture
def weight():
    return tf.Variable(0.0)


def _keeper(directory, weight, text=''):
    return best_checkpoint.BestCheckpoint(_config(text), directory, {'layer/kernel': weight})


def _update(keeper, weight, step, value, metric=AP):
    """Evaluates to `value` at `step`, with weights that tell the step."""
    weight.assign(float(step))
    return keeper.update(step, {'': {AP: 0.0, LOSS: 0.0, metric: value}})


def _kept(directory):
    """The step that metrics.json, the checkpoint and its weights agree in."""
    entry = json.loads((directory / 'best' / 'metrics.json').read_text())
    weight = tf.Variable(0.0)
    prefix = checkpoints.find(str(directory / 'best'))
    step = checkpoints.restore_model(prefix, {'layer/kernel': weight})
    assert entry['step'] == step == int(weight.numpy())
    assert os.path.basename(prefix) == entry['checkpoint']
    return step


def test_the_best_is_kept_and_nothing_else(tmp_path, weight):
    keeper = _keeper(tmp_path, weight)
    assert not (tmp_path / 'best').exists()
    kept = [_update(keeper, weight, s, v) for s, v in [(1, 0.2), (2, 0.1), (3, 0.4), (4, 0.4)]]
    assert kept == [True, False, True, False]
    assert _kept(tmp_path) == 3
    entry = best_checkpoint.read(tmp_path / 'best')
    assert (entry['metric'], entry['reader'], entry['value']) == (AP, '', 0.4)
    assert entry['metrics'] == {'': {AP: 0.4, LOSS: 0.0}}
    assert len(list((tmp_path / 'best').glob('ckpt-*.index'))) == 1
    assert best_checkpoint.is_best_directory(tmp_path / 'best')
    assert not best_checkpoint.is_best_directory(tmp_path)


def test_restarts_continue_comparing(tmp_path, weight):
    _update(_keeper(tmp_path, weight), weight, 1, 0.3)
    assert not _update(_keeper(tmp_path, weight), weight, 2, 0.2)
    assert _update(_keeper(tmp_path, weight), weight, 3, 0.4)
    assert _kept(tmp_path) == 3


def test_of_a_loss_less_is_better(tmp_path, weight):
    keeper = _keeper(tmp_path, weight, f'metric: "{LOSS}"')
    for step, value in [(1, 2.0), (2, 3.0), (3, 1.0), (4, math.nan)]:
        _update(keeper, weight, step, value, LOSS)
    assert _kept(tmp_path) == 3


@pytest.mark.parametrize('value', [math.nan, -1.0])
def test_what_is_undefined_is_never_the_best(tmp_path, weight, value):
    keeper = _keeper(tmp_path, weight)
    assert not _update(keeper, weight, 1, value)
    assert not (tmp_path / 'best').exists()
    assert _update(keeper, weight, 2, 0.0)
    assert not _update(keeper, weight, 3, value)
    assert _kept(tmp_path) == 2


def test_another_metric_is_compared_with_what_it_was_then(tmp_path, weight):
    keeper = _keeper(tmp_path, weight)
    keeper.update(1, {'': {AP: 0.5, LOSS: 2.0}})
    other = _keeper(tmp_path, weight, f'metric: "{LOSS}"')
    assert not other.update(2, {'': {AP: 0.9, LOSS: 2.5}})
    assert other.update(3, {'': {AP: 0.1, LOSS: 1.5}})
    third = _keeper(tmp_path, weight, 'metric: "new"')
    assert third.update(4, {'': {'new': 0.1}})


def test_an_unknown_metric_lists_those_there_are(tmp_path, weight):
    keeper = _keeper(tmp_path, weight, 'metric: "mAP"')
    with pytest.raises(ConfigError, match=f"best_checkpoint.metric: .*'{AP}'.* Received: 'mAP'"):
        _update(keeper, weight, 1, 0.5)


def test_the_best_of_another_model_is_not_replaced(tmp_path, weight):
    _update(_keeper(tmp_path, weight), weight, 1, 0.3)
    with pytest.raises(CheckpointError, match=r'best.ckpt-0 is a checkpoint of another model'):
        best_checkpoint.BestCheckpoint(_config(), tmp_path, {'other/kernel': weight})


class _KilledError(BaseException):
    pass


@pytest.mark.parametrize('moment', ['before saving', 'after saving'])
def test_a_kill_leaves_a_whole_one(tmp_path, weight, monkeypatch, moment):
    _update(_keeper(tmp_path, weight), weight, 1, 0.3)
    save = checkpoints.save_model

    def save_and_die(*args, **kwargs):
        if moment == 'after saving':
            save(*args, **kwargs)
        raise _KilledError

    monkeypatch.setattr(checkpoints, 'save_model', save_and_die)
    with pytest.raises(_KilledError):
        _update(_keeper(tmp_path, weight), weight, 2, 0.4)
    monkeypatch.undo()
    expected = 2 if moment == 'after saving' else 1
    assert best_checkpoint.read(tmp_path / 'best')['step'] == expected
    keeper = _keeper(tmp_path, weight)
    assert _kept(tmp_path) == expected
    assert not (tmp_path / 'best' / 'next.json').exists()
    assert _update(keeper, weight, 3, 0.35) == (expected == 1)
    assert _update(keeper, weight, 4, 0.5)
    assert _kept(tmp_path) == 4


def test_leftovers_of_killed_saves_are_removed(tmp_path, weight):
    folder = tmp_path / 'best'
    keeper = _keeper(tmp_path, weight)
    _update(keeper, weight, 1, 0.3)
    old = {path: path.read_bytes() for path in folder.glob('ckpt-*')}
    _update(keeper, weight, 2, 0.4)
    for path, content in old.items():
        path.write_bytes(content)
    (folder / 'ckpt-9.data-00000-of-00001').write_bytes(b'half')
    _keeper(tmp_path, weight)
    assert _kept(tmp_path) == 2
    assert {path.stem for path in folder.glob('ckpt-*')} == {'ckpt-1'}


def test_without_metrics_the_checkpoint_is_replaced_but_not_written_over(tmp_path, weight):
    _update(_keeper(tmp_path, weight), weight, 1, 0.3)
    (tmp_path / 'best' / 'metrics.json').write_text('{')
    assert best_checkpoint.read(tmp_path / 'best') is None
    _update(_keeper(tmp_path, weight), weight, 2, 0.1)
    assert best_checkpoint.read(tmp_path / 'best')['checkpoint'] == 'ckpt-1'
    assert _kept(tmp_path) == 2


def test_a_job_of_other_data_replaces_nothing(tmp_path, weight, caplog):
    _update(_keeper(tmp_path, weight), weight, 1, 0.2)
    fewer = _config()
    fewer.eval_config.eval_samples = 4
    named = {'layer/kernel': weight}
    with caplog.at_level('INFO'):
        job = best_checkpoint.BestCheckpoint(fewer, tmp_path, named, is_training=False)
        assert not _update(job, weight, 2, 0.9)
        job = best_checkpoint.BestCheckpoint(
            _config(), tmp_path, named, 'a.json', is_training=False
        )
        assert not _update(job, weight, 3, 0.9)
    assert 'only a part of the images is evaluated' in caplog.text
    assert 'another val_json_file, and is left as it is' in caplog.text
    assert _kept(tmp_path) == 1


def test_a_training_replaces_what_was_chosen_on_other_data(tmp_path, weight, caplog):
    job = best_checkpoint.BestCheckpoint(
        _config(), tmp_path, {'layer/kernel': weight}, 'a.json', is_training=False
    )
    # No training is there that could evaluate otherwise.
    assert _update(job, weight, 1, 0.9)
    training = _keeper(tmp_path, weight)
    with caplog.at_level('INFO'):
        assert _update(training, weight, 2, 0.2)
    assert 'another val_json_file, and is replaced' in caplog.text
    assert _kept(tmp_path) == 2
    assert not _update(job, weight, 3, 0.9)
    assert not _update(training, weight, 4, 0.1)
    assert _kept(tmp_path) == 2


@rows.parametrize(
    ('of_training', 'of_job', 'keeps'),
    [
        ('', 'part.json', False),
        ('/all.json', 'part.json', False),
        ('/all.json', None, False),
        ('/all.json', '/all.json', True),
        ('', None, True),
        # A training that does not evaluate leaves it to the job.
        (None, 'part.json', True),
    ],
)
def test_a_job_of_another_file_of_annotations_chooses_nothing_before_the_training(
    tmp_path, weight, of_training, of_job, keeps
):
    show.write_pipeline(_config(), tmp_path / resumption.CONFIG_FILE_NAME)
    run_record.write(tmp_path, val_json_file='/earlier.json')
    run_record.write(tmp_path, val_json_file=of_training)
    job = best_checkpoint.BestCheckpoint(
        _config(), tmp_path, {'layer/kernel': weight}, of_job, is_training=False
    )
    assert _update(job, weight, 1, 0.9) == keeps
    assert (tmp_path / 'best').exists() == keeps


def test_two_processes_take_turns(tmp_path, weight, monkeypatch, caplog):
    """An eval job that starts, or keeps a model, inside a save of the training, waits."""
    _update(_keeper(tmp_path, weight), weight, 1, 0.3)
    training, job = _keeper(tmp_path, weight), _keeper(tmp_path, weight)
    half = tmp_path / 'best' / 'ckpt-7.data-00000-of-00001'
    save = checkpoints.save_model

    def save_beside_a_job(*args, **kwargs):
        half.write_bytes(b'half')
        _keeper(tmp_path, weight)
        assert half.exists()
        assert not job.update(2, {'': {AP: 0.4}})
        half.unlink()
        return save(*args, **kwargs)

    monkeypatch.setattr(checkpoints, 'save_model', save_beside_a_job)
    monkeypatch.setattr(best_checkpoint, '_LOCK_TIMEOUT', 0.0, raising=False)
    assert _update(training, weight, 3, 0.5)
    assert _kept(tmp_path) == 3
    assert caplog.text.count('another process has held') == 2


def test_an_error_of_the_folder_does_not_end_a_training(tmp_path, weight, monkeypatch, caplog):
    keeper = _keeper(tmp_path, weight)
    _update(keeper, weight, 1, 0.3)

    def fail(*args, **kwargs):
        with disk.writing(str(tmp_path), 'A checkpoint'):
            raise OSError(28, os.strerror(28))

    with monkeypatch.context() as patched:
        patched.setattr(checkpoints, 'save_model', fail)
        assert not _update(keeper, weight, 2, 0.4)
    assert 'A checkpoint could not be written' in caplog.text
    assert _kept(tmp_path) == 1
    (tmp_path / 'best' / 'checkpoint').write_text('damaged')
    assert not _update(_keeper(tmp_path, weight), weight, 3, 0.5)
    assert 'could not be compared with the best' in caplog.text


def test_a_job_of_other_settings_than_the_trainings_keeps_nothing(tmp_path, weight, caplog):
    trained = _config()
    trained.eval_input_reader[0].tf_record_input_reader.input_path.append('val')

    def job(**settings):
        config = TrainEvalPipelineConfig()
        config.CopyFrom(trained)
        config.eval_config.MergeFrom(EvalConfig(**settings))
        return config

    def update(config, value, metric=AP, *, is_training=False):
        keeper = best_checkpoint.BestCheckpoint(
            config, tmp_path, {'layer/kernel': weight}, is_training=is_training
        )
        return _update(keeper, weight, int(10 * value), value, metric)

    show.write_pipeline(trained, tmp_path / resumption.CONFIG_FILE_NAME)
    # Before the first evaluation of the training, too.
    part = job(eval_samples=4)
    every_third = job()
    every_third.eval_input_reader[0].sample_1_of_n_examples = 3
    assert not update(part, 0.9)
    assert not update(every_third, 0.9)
    assert not (tmp_path / 'best').exists()
    assert update(trained, 0.2, is_training=True)
    other_data = job()
    other_data.eval_input_reader[0].tf_record_input_reader.input_path[:] = ['test']
    caplog.clear()
    with caplog.at_level('INFO'):
        assert not update(other_data, 0.9)
        assert not update(job(max_detections=500), 0.9, best_metric(job(max_detections=500)).metric)
        assert not update(job(best_checkpoint={'metric': LOSS}), 0.1, LOSS)
    assert caplog.text.count('is left as it is: this evaluation has other settings') == 3
    assert 'input_path[0]: val -> test' in caplog.text
    assert 'eval_config.max_detections: not set -> 500' in caplog.text
    assert _kept(tmp_path) == 2
    # Neither pictures nor the size of batches are settings of a metric.
    assert update(job(batch_size=8, num_visualizations=0), 0.3)
    # The training goes by another metric since its last start, and so does its job.
    by_new = job(best_checkpoint={'metric': 'new'})
    show.write_pipeline(by_new, tmp_path / resumption.CONFIG_FILE_NAME)
    assert update(by_new, 0.1, 'new')
    assert _kept(tmp_path) == 1


def test_without_a_training_a_part_of_the_images_chooses_nothing(tmp_path, weight):
    part = _config()
    part.eval_config.eval_samples = 4

    def keeper(*, is_training):
        named = {'layer/kernel': weight}
        return best_checkpoint.BestCheckpoint(part, tmp_path, named, is_training=is_training)

    assert not _update(keeper(is_training=False), weight, 1, 0.9)
    assert not (tmp_path / 'best').exists()
    # A training that always evaluates a part chooses by it.
    assert _update(keeper(is_training=True), weight, 2, 0.2)
    assert _kept(tmp_path) == 2


def test_without_a_training_another_metric_replaces_nothing(tmp_path, weight, caplog):
    _update(_keeper(tmp_path, weight), weight, 1, 0.2)
    job = best_checkpoint.BestCheckpoint(
        _config('metric: "new"'), tmp_path, {'layer/kernel': weight}, is_training=False
    )
    with caplog.at_level('INFO'):
        assert not _update(job, weight, 2, 0.9, 'new')
    assert 'was chosen by another metric or reader' in caplog.text
    assert 'left as it is' in caplog.text
    assert _kept(tmp_path) == 1
