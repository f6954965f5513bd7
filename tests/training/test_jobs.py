"""From command lines to configs."""

import pytest

from object_detection.config.errors import ConfigError
from object_detection.training import jobs

CONFIG = """
train_config { batch_size: 4 num_steps: 10 }
train_input_reader {
  name: 'train' label_map_path: 'labels' shuffle: true num_epochs: 3
  tf_record_input_reader { input_path: 'train.record' }
}
eval_input_reader { name: 'a' sample_1_of_n_examples: 2 }
eval_input_reader { name: 'b' }
"""


@pytest.fixture
def path(tmp_path, monkeypatch):
    validated = []
    monkeypatch.setattr(
        'object_detection.config.validation.validate',
        lambda pipeline, for_what: validated.append(for_what),
    )
    path = tmp_path / 'pipeline.config'
    path.write_text(CONFIG)
    yield str(path)
    assert len(validated) <= 1


def test_overrides(path):
    pipeline = jobs.read_config(
        path,
        for_what='train and eval',
        overrides_text='train_config { batch_size: 6 }',
        settings=['train_config.gradient_clipping_by_norm=2'],
        num_train_steps=50,
        sample_1_of_n_eval_examples=3,
    )
    assert pipeline.train_config.batch_size == 6
    assert pipeline.train_config.gradient_clipping_by_norm == 2
    assert pipeline.train_config.num_steps == 50
    assert [r.sample_1_of_n_examples for r in pipeline.eval_input_reader] == [3, 3]


def test_the_config_s_values_stay(path):
    pipeline = jobs.read_config(path, for_what='train')
    assert pipeline.train_config.num_steps == 10
    assert [r.sample_1_of_n_examples for r in pipeline.eval_input_reader] == [2, 1]


def test_evaluation_of_training_data(path):
    pipeline = jobs.read_config(
        path, for_what='eval', eval_on_train_data=True, sample_1_of_n_eval_on_train_examples=7
    )
    (reader,) = pipeline.eval_input_reader
    assert reader.name == 'training_data'
    assert list(reader.tf_record_input_reader.input_path) == ['train.record']
    assert reader.sample_1_of_n_examples == 7
    assert not reader.HasField('shuffle')
    assert not reader.HasField('num_epochs')


def test_evaluation_flags_without_evaluation(path, caplog):
    with pytest.raises(ConfigError, match='--eval_on_train_data: expected --checkpoint_dir'):
        jobs.read_config(path, for_what='train', eval_on_train_data=True)
    with caplog.at_level('INFO'):
        jobs.read_config(path, for_what='train', sample_1_of_n_eval_examples=1)
    assert '--sample_1_of_n_eval_examples has no effect' in caplog.text


@pytest.mark.parametrize('count', [-5, 0, 2**32])
@pytest.mark.parametrize(
    'flag',
    ['num_train_steps', 'sample_1_of_n_eval_examples', 'sample_1_of_n_eval_on_train_examples'],
)
def test_counts_out_of_range_are_told_by_the_name_of_the_flag(path, flag, count):
    with pytest.raises(ConfigError, match=rf'^--{flag}: expected 1 to .* Received: {count}\.'):
        jobs.read_config(path, for_what='train', **{flag: count})


@pytest.mark.parametrize(
    ('flags', 'text'),
    [
        ({'use_tpu': True}, '--use_tpu'),
        ({'tpu_name': 'mine'}, 'tpu_name=mine'),
        ({'num_workers': 2}, '--num_workers.*Received: 2'),
    ],
)
def test_what_needs_several_devices_is_rejected_by_name(flags, text):
    given = {'use_tpu': False, 'tpu_name': None, 'num_workers': 1, **flags}
    with pytest.raises(ConfigError, match=text):
        jobs.reject_several_devices(**given)


def test_one_device_is_fine():
    jobs.reject_several_devices(use_tpu=False, tpu_name=None, num_workers=1)
