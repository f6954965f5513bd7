import json
import re

import pytest
from click.testing import CliRunner
from google.protobuf import text_format

from object_detection.cli.config import command
from object_detection.config.reader import read_pipeline
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from tests.data import examples
from tests.validation.pipelines import write_files


def invoke(*arguments: str):
    return CliRunner().invoke(command, [str(argument) for argument in arguments])


def test_check_reports_that_a_config_is_ready(tmp_path):
    result = invoke('check', write_files(tmp_path))
    assert result.exit_code == 0, result.output
    assert result.output.endswith('ready to train, eval, export.\n')


def test_check_applies_overrides_and_settings(tmp_path):
    path = write_files(tmp_path)
    result = invoke('check', path, '--set', 'train_config.batch_size=0')
    assert 'train_config.batch_size: expected at least 1' in str(result.exception)
    override = 'train_config { batch_size: 0 }'
    result = invoke('check', path, '--config_override', override)
    assert 'train_config.batch_size: expected at least 1' in str(result.exception)
    result = invoke('check', path, '--config_override', override, '--for', 'eval')
    assert result.exit_code == 0
    assert result.output.endswith('ready to eval.\n')


def test_show_prints_the_config_that_results(tmp_path):
    path = write_files(tmp_path)
    result = invoke(
        'show', path, '--set', 'train_config.batch_size=3', '--set', 'train_config.num_steps=9'
    )
    assert result.exit_code == 0
    shown = text_format.Parse(result.output, TrainEvalPipelineConfig())
    assert (shown.train_config.batch_size, shown.train_config.num_steps) == (3, 9)
    assert re.search(r'^ +# first_stage_minibatch_size: 256$', result.output, re.MULTILINE)


def test_show_as_json(tmp_path):
    result = invoke('show', write_files(tmp_path), '--set', 'train_config.batch_size=3', '--json')
    shown = json.loads(result.stdout)
    assert shown['train_config']['batch_size'] == 3
    assert list(shown['model']) == ['faster_rcnn']
    assert shown['model']['faster_rcnn']['first_stage_minibatch_size'] == 256
    assert shown['eval_input_reader'][0]['input_type'] == 'TF_EXAMPLE'


def test_help_of_both_commands():
    for name in ('check', 'show'):
        result = invoke(name, '--help')
        assert result.exit_code == 0
        assert '--config_override' in result.output
        assert '--set' in result.output


def test_the_config_as_an_option(tmp_path):
    path = write_files(tmp_path)
    for name in ('--config', '--pipeline_config_path'):
        assert invoke('show', name, path).output == invoke('show', path).output
    for arguments in ([], ['a', '--config', 'b']):
        result = invoke('check', *arguments)
        assert result.exit_code == 2
        assert 'Expected FILE or --config FILE' in result.output


def test_new_writes_a_config_that_is_ready(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    size = {'image__height': [20], 'image__width': [30]}
    for part in ('train', 'val'):
        record = examples.example([[0.1, 0.1, 0.5, 0.5]], [1], ['cat'], **size)
        examples.write_records(tmp_path / f'{part}-00000-of-00001', [record] * 3)
    (tmp_path / 'train_label_map.pbtxt').write_text(examples.LABEL_MAP)
    result = invoke('new', '--data', 'train', '--output', 'my.config')
    assert result.exit_code == 0, result.output
    assert '3 images; objects: cat 3, Hund 0' in result.output
    assert 'my.config: ready to train, eval, export.' in result.output
    pipeline = read_pipeline('my.config')
    assert pipeline.model.faster_rcnn.num_classes == 2
    (reader,) = pipeline.eval_input_reader
    assert list(reader.tf_record_input_reader.input_path) == ['val-?????-of-?????']
    assert invoke('check', 'my.config').exit_code == 0
    result = invoke('new', '--data', 'train', '--output', 'my.config')
    assert result.exit_code == 1
    assert 'my.config exists' in str(result.exception)
    assert invoke('new', '--data', 'train', '--output', 'my.config', '--force').exit_code == 0
    # A batch has all 3 images.
    mobile = ('--for', 'mobile', '--output', 'mobile.config', '--epochs', '40')
    result = invoke('new', '--data', 'train', *mobile)
    assert result.exit_code == 0, result.output
    assert 'feature_extractor: SSD on MobileNet v2' in result.output
    pipeline = read_pipeline('mobile.config')
    assert pipeline.model.ssd.num_classes == 2
    assert pipeline.train_config.num_steps == 40
    rate = pipeline.train_config.optimizer.momentum_optimizer.learning_rate
    assert rate.cosine_decay_learning_rate.total_steps == 40
    assert rate.cosine_decay_learning_rate.warmup_steps == 4
    result = invoke('new', '--data', 'train', *mobile, '--num_train_steps', '7')
    assert result.exit_code == 2
    assert '--epochs: not with --num_train_steps.' in result.output


def test_check_for_a_tpu(tmp_path):
    path = write_files(tmp_path)
    result = invoke('check', '--tpu', path, '--set', 'train_config.batch_size=12')
    assert result.exit_code == 1
    assert result.output.startswith(f'{path}: does not fit a TPU of 8 cores: 1 setting to change; ')
    first = result.output.split('\n\n')[1]
    assert first.splitlines() == [
        '1. does not fit: train_config.batch_size',
        '   found: 12',
        '   why:   A batch of 12 cannot be divided among 8 cores.',
        '   write: batch_size: 96',
    ]
    # Files are not read, and advice alone is no failure.
    missing = ('--set', 'train_input_reader.label_map_path=missing')
    result = invoke('check', '--tpu', path, '--tpu_cores', 2, *missing)
    assert result.exit_code == 0
    assert 'fits a TPU of 2 cores; ' in result.output
    assert 'advice: model.faster_rcnn.use_static_shapes' in result.output
    assert invoke('check', '--tpu', path, '--for', 'eval').exit_code == 2


def test_the_program_of_a_tpu_is_not_built_before_the_config_fits(tmp_path):
    path = write_files(tmp_path)
    arguments = ('check', '--tpu', '--tpu_program', path, '--set')
    result = invoke(*arguments, 'train_config.batch_size=12')
    assert result.exit_code == 1
    assert result.output.endswith('was not built: change what does not fit first.\n')


@pytest.mark.slow
def test_the_program_of_a_tpu(tmp_path):
    path = write_files(tmp_path)
    result = invoke('check', '--tpu', '--tpu_program', path, '--tpu_cores', 2)
    assert result.exit_code == 0, result.output
    pattern = r'one program of [\d,]+ instructions: all shapes are fixed, and the host computes'
    assert re.search(pattern, result.output)
