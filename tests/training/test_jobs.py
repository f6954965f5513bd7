"""From command lines to configs."""

import re

import pytest

from object_detection.config.job_options import EvalOptions, TrainOptions
from object_detection.errors import ConfigError
from object_detection.training import resolve_config
from object_detection.training.monitoring.run_types import Intervals

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
    monkeypatch.setattr(
        'object_detection.validation.validate.validate',
        lambda pipeline, for_what, prepare, resumes, known: None,
    )
    path = tmp_path / 'pipeline.config'
    path.write_text(CONFIG)
    return str(path)


def _read(path, for_what, **options):
    return resolve_config.read(path, TrainOptions(**options), for_what=for_what)


def test_overrides(path):
    pipeline = _read(
        path,
        'train and eval',
        config_override='train_config { batch_size: 6 }',
        set=('train_config.gradient_clipping_by_norm=2',),
        num_train_steps=50,
        sample_1_of_n_eval_examples=3,
        eval_samples=12,
    )
    assert pipeline.train_config.batch_size == 6
    assert pipeline.train_config.gradient_clipping_by_norm == 2
    assert pipeline.train_config.num_steps == 50
    assert pipeline.eval_config.eval_samples == 12
    assert [r.sample_1_of_n_examples for r in pipeline.eval_input_reader] == [3, 3]


@pytest.mark.parametrize(
    ('flag', 'told'), [(None, True), ('auto', None), ('true', True), ('false', False)]
)
def test_the_flag_of_compilation_goes_before_the_config(path, flag, told):
    config = _read(path, 'train', set=('train_config.jit_compile=true',), jit_compile=flag)
    has_said = config.train_config.HasField('jit_compile')
    assert (config.train_config.jit_compile if has_said else None) is told


def test_the_config_s_values_stay(path):
    pipeline = _read(path, 'train')
    assert pipeline.train_config.num_steps == 10
    assert [r.sample_1_of_n_examples for r in pipeline.eval_input_reader] == [2, 1]


def test_epochs_go_before_the_config_s_steps_and_steps_before_its_epochs(path):
    train = _read(path, 'train', num_epochs=1.5).train_config
    assert (train.num_steps, train.num_epochs) == (0, 1.5)
    train = _read(path, 'train', set=('train_config.num_epochs=3',), num_train_steps=7).train_config
    assert train.num_steps == 7
    assert not train.HasField('num_epochs')


def test_steps_and_epochs_contradict_each_other(path):
    with pytest.raises(ConfigError, match='--num_train_steps, --num_epochs: expected one of them'):
        _read(path, 'train', num_epochs=1.0, num_train_steps=7)
    with pytest.raises(ConfigError, match='--num_epochs: expected a positive'):
        _read(path, 'train', num_epochs=0.0)


def test_evaluation_of_training_data(path):
    options = EvalOptions(eval_on_train_data=True, sample_1_of_n_eval_on_train_examples=7)
    pipeline = resolve_config.read(path, options, for_what='eval')
    (reader,) = pipeline.eval_input_reader
    assert reader.name == 'training_data'
    assert list(reader.tf_record_input_reader.input_path) == ['train.record']
    assert reader.sample_1_of_n_examples == 7
    assert not reader.HasField('shuffle')
    assert not reader.HasField('num_epochs')


def test_evaluation_flags_without_evaluation(path, caplog):
    for options in ({'eval_on_train_data': True}, {'val_json_file': 'a.json'}):
        (name,) = options
        with pytest.raises(ConfigError, match=f'--{name}: expected --eval_every_n_steps'):
            _read(path, 'train', **options)
    with caplog.at_level('INFO'):
        _read(path, 'train', sample_1_of_n_eval_examples=1, async_eval=True, evaluate=True)
    for name in ('sample_1_of_n_eval_examples', 'async_eval', 'evaluate'):
        assert f'--{name} has no effect' in caplog.text


def test_an_asynchronous_evaluation(path):
    flags = {'eval_device': 'gpu:1', 'eval_cpu_affinity': '0'}
    assert not _read(path, 'train and eval').eval_config.HasField('async_evaluation')
    config = _read(path, 'train and eval', async_eval=True).eval_config
    assert config.HasField('async_evaluation')
    told = _read(path, 'train and eval', async_eval=True, **flags).eval_config.async_evaluation
    assert (told.device, told.cpu_affinity) == ('gpu:1', '0')
    for name, value in flags.items():
        with pytest.raises(ConfigError, match=f'--{name}: expected --async_eval'):
            _read(path, 'train and eval', **{name: value})


@pytest.mark.parametrize('count', [-5, 0, 2**32])
@pytest.mark.parametrize(
    'flag',
    [
        'num_train_steps',
        'sample_1_of_n_eval_examples',
        'sample_1_of_n_eval_on_train_examples',
        'eval_samples',
    ],
)
def test_counts_out_of_range_are_reported_by_the_name_of_the_flag(path, flag, count):
    with pytest.raises(ConfigError, match=rf'^--{flag}: expected 1 to .* Received: {count}\.'):
        _read(path, 'train', **{flag: count})


@pytest.mark.parametrize(
    ('flag', 'number', 'lowest'),
    [
        ('log_every_n', 0, 1),
        ('steps_per_loop', -1, 0),
        ('summary_every_n', -1, 0),
        ('checkpoint_every_n', -1, 0),
        ('eval_every_n_steps', -1, 0),
        ('max_to_keep', -1, 0),
        ('seed', -1, 0),
        ('seed', 2**31, 0),
    ],
)
def test_numbers_of_a_training_out_of_range(path, flag, number, lowest):
    with pytest.raises(
        ConfigError, match=rf'^--{flag}: expected {lowest} to .* Received: {number}\.'
    ):
        _read(path, 'train', **{flag: number})


def test_a_timeout_below_zero(path):
    with pytest.raises(ConfigError, match=r'^--eval_timeout: expected 0 to .* Received: -1\.'):
        resolve_config.read(path, EvalOptions(eval_timeout=-1), for_what='eval')


@pytest.mark.parametrize(
    ('options', 'expected'),
    [
        ({}, False),
        ({'eval_every_n_steps': 5}, True),
        ({'eval_every_n_steps': 5, 'evaluate': True}, True),
        ({'eval_every_n_steps': 5, 'evaluate': False}, False),
    ],
)
def test_whether_a_training_evaluates(options, expected):
    assert TrainOptions(**options).evaluates is expected


def test_flags_of_log_files(path, tmp_path):
    assert _read(path, 'train', num_epochs=2.0, steps_per_epoch=9).train_config.steps_per_epoch == 9
    with pytest.raises(ConfigError, match='--log_tensorboard: expected --record_summaries'):
        _read(path, 'train', log_tensorboard='events', record_summaries=False)
    with pytest.raises(ConfigError, match='--log_file: expected a file'):
        _read(path, 'train', log_file=str(tmp_path))
    for flag, below in (('log_tensorboard', f'{path}/events'), ('log_file', f'{path}/new/log')):
        expected = f'--{flag}: expected a folder that can be written. Received: {path}'
        with pytest.raises(ConfigError, match=re.escape(expected)):
            _read(path, 'train', **{flag: below})
    with pytest.raises(ConfigError, match='--log_file: expected a folder that can be written'):
        _read(path, 'train', log_file=f'{path}/log.json')
    with pytest.raises(ConfigError, match='--steps_per_epoch: expected 1 to'):
        _read(path, 'train', steps_per_epoch=0)


@pytest.mark.parametrize(
    ('num_steps', 'log'), [(1, 1), (49, 1), (300, 6), (5000, 100), (90_000, 100), (0, 100)]
)
def test_short_trainings_log_more_often(num_steps, log):
    assert Intervals.log_of(num_steps) == log
