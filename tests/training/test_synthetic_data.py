"""A training and its evaluation, in images of two sizes, without any file of data."""

import json

import numpy as np
import pytest
import tensorflow as tf

from object_detection.config import show
from object_detection.config.job_options import TrainOptions
from object_detection.errors import ConfigError
from object_detection.training import epochs, jobs, resolve_config
from tests import tiny_models

CONFIG = """
model { faster_rcnn { image_resizer { keep_aspect_ratio_resizer {
  min_dimension: 64 max_dimension: 96 pad_height: 64 pad_width: 96
} } } }
train_config { batch_size: 2 fine_tune_checkpoint: 'PATH_TO_BE_CONFIGURED/model.ckpt' }
train_input_reader { max_number_of_boxes: 5 }
"""


@pytest.fixture
def path(tmp_path):
    """A config whose paths are the sample's placeholders."""
    pipeline = tiny_models.tiny_pipeline(CONFIG)
    reader = pipeline.eval_input_reader[0]
    for height, width in ((64, 96), (96, 64)):
        reader.aspect_ratio_buckets.add(height=height, width=width)
    path = tmp_path / 'pipeline.config'
    show.write_pipeline(pipeline, str(path))
    return str(path)


@pytest.mark.slow
def test_trains_and_evaluates(path, tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(jobs, 'show_log', lambda: None)  # It would keep the log from this test.
    caplog.set_level('INFO')
    model_dir = tmp_path / 'model'
    options = TrainOptions(
        use_synthetic_data=True,
        num_train_steps=2,
        eval_every_n_steps=2,
        eval_samples=2,
        checkpoint_every_n=1,
        log_every_n=1,
        seed=1,
        record_summaries=False,
    )
    assert jobs.run_training(path, str(model_dir), options) == 0
    for sentence in (
        'the training data are synthetic',
        'the evaluation data are synthetic',
        'fine_tune_checkpoint (PATH_TO_BE_CONFIGURED/model.ckpt) is not read',
    ):
        assert sentence in caplog.text
    lines = (model_dir / 'train' / 'history.jsonl').read_text().splitlines()
    assert all(json.loads(line)['losses']['Loss/total_loss'] > 0 for line in lines)
    assert len(lines) == 2
    _check_weights_are_equal(model_dir / 'ckpt-1', model_dir / 'ckpt-2')
    metrics = json.loads((model_dir / 'eval' / 'metrics.json').read_text())
    assert metrics['Loss/BoxClassifierLoss/mask_loss'] > 0
    assert 'DetectionMasks_Precision/mAP' in metrics
    # What real data would train on is no noise.
    with pytest.raises(ConfigError, match='PATH_TO_BE_CONFIGURED'):
        jobs.run_training(path, str(model_dir), TrainOptions(num_train_steps=5))


def _check_weights_are_equal(*prefixes):
    first, second = (tf.train.load_checkpoint(str(prefix)) for prefix in prefixes)
    names = [name for name in first.get_variable_to_shape_map() if '/kernel/' in name]
    assert names
    for name in names:
        np.testing.assert_allclose(first.get_tensor(name), second.get_tensor(name), atol=1e-6)


def test_an_epoch_is_one_of_coco(path):
    options = TrainOptions(
        use_synthetic_data=True, num_epochs=2, set=('train_config.batch_size=16',)
    )
    pipeline = resolve_config.read(path, options, for_what='train')
    epochs.resolve_epochs(pipeline)
    assert pipeline.train_config.num_steps == round(2 * 118287 / 16)


def test_annotations_are_of_no_noise(path):
    options = TrainOptions(use_synthetic_data=True, eval_every_n_steps=1, val_json_file='a.json')
    with pytest.raises(ConfigError, match='--val_json_file: expected data that the file annotates'):
        resolve_config.read(path, options, for_what='train and eval')
