"""Epochs in steps."""

import json

import pytest
from google.protobuf import text_format

from object_detection.errors import ConfigError
from object_detection.training import epochs
from object_detection.validation import train_config as train_config_rules
from tests.data import examples
from tests.training import fakes


@pytest.fixture
def config(tmp_path):
    config = fakes.pipeline_config(batch_size=4)
    path = examples.write_records(tmp_path / 'train', [b'x'] * 10)
    config.train_input_reader.tf_record_input_reader.input_path.append(path)
    return config


@pytest.mark.parametrize(('num_epochs', 'expected'), [(1, 3), (2, 5), (0.1, 1), (2.5, 7)])
def test_steps_cover_the_epochs(config, num_epochs, expected):
    config.train_config.num_epochs = num_epochs
    epochs.resolve_epochs(config)
    assert config.train_config.num_steps == expected
    assert not config.train_config.HasField('num_epochs')


@pytest.mark.parametrize(('num_epochs', 'expected'), [(0.1, 1), (1.1, 11), (1.11, 12)])
def test_the_field_s_few_digits_add_no_step(config, num_epochs, expected):
    config.train_config.batch_size = 1
    config.train_config.num_epochs = num_epochs
    epochs.resolve_epochs(config)
    assert config.train_config.num_steps == expected


def test_a_sample_of_the_records_is_an_epoch_of_its_own(config):
    config.train_config.num_epochs = 4
    config.train_input_reader.sample_1_of_n_examples = 3
    epochs.resolve_epochs(config)
    assert config.train_config.num_steps == 4  # 4 * 4 / 4: the records 0, 3, 6 and 9


def test_images_of_coco_files_are_counted(config, tmp_path):
    images = [{'id': i, 'file_name': f'{i}.jpg'} for i in range(9)]
    for name in ('a.json', 'b.json'):
        (tmp_path / name).write_text(json.dumps({'images': images, 'categories': []}))
        config.train_input_reader.coco_input_reader.image_dir.append('images')
        config.train_input_reader.coco_input_reader.annotation_file.append(str(tmp_path / name))
    config.train_config.num_epochs = 2
    epochs.resolve_epochs(config)
    assert config.train_config.num_steps == 9  # 2 * 18 / 4
    config.train_config.num_epochs = 2
    (tmp_path / 'b.json').write_text('{')
    with pytest.raises(ConfigError, match=r'annotation_file\[1\]: .*b.json is not a JSON file'):
        epochs.resolve_epochs(config)


def test_steps_stay_as_they_are(config):
    config.train_config.num_steps = 77
    epochs.resolve_epochs(config)
    assert config.train_config.num_steps == 77


def test_a_schedule_in_epochs_ends_with_the_training(config):
    config.train_config.num_epochs = 2.5
    text = """learning_rate_unit: EPOCHS momentum_optimizer { learning_rate {
      manual_step_learning_rate { schedule { epoch: 0.5 } schedule { epoch: 2.5 } } } }"""
    text_format.Merge(text, config.train_config.optimizer)
    assert list(train_config_rules.schedule_warnings(config.train_config)) == []
    epochs.resolve_epochs(config)
    rate = config.train_config.optimizer.momentum_optimizer.learning_rate
    steps = [entry.step for entry in rate.manual_step_learning_rate.schedule]
    assert steps == [2, 7]  # 0.5 and 2.5 times 10 / 4, as many as are needed
    assert config.train_config.num_steps == 7
    (told,) = train_config_rules.schedule_warnings(config.train_config)
    assert 'schedule[1].step is 7' in told


def test_a_schedule_in_epochs_needs_no_epochs_of_the_training(config):
    config.train_config.num_steps = 77
    text = """learning_rate_unit: EPOCHS adam_optimizer { learning_rate {
      cosine_decay_learning_rate { total_steps: 4 } } }"""
    text_format.Merge(text, config.train_config.optimizer)
    epochs.resolve_epochs(config)
    rate = config.train_config.optimizer.adam_optimizer.learning_rate
    assert rate.cosine_decay_learning_rate.total_steps == 10
    assert config.train_config.num_steps == 77
    resolved = str(config)
    epochs.resolve_epochs(config)
    assert str(config) == resolved


def test_no_records_are_reported(config, tmp_path):
    config.train_config.num_epochs = 2
    (tmp_path / 'train').write_bytes(b'')
    with pytest.raises(ConfigError, match='expected records in train_input_reader'):
        epochs.resolve_epochs(config)
    (tmp_path / 'train').write_bytes(b'nonsense')
    with pytest.raises(ConfigError, match=r'input_path: .*train is no TFRecord file'):
        epochs.resolve_epochs(config)
