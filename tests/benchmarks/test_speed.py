"""The parts of the speed benchmarks on a small config; times themselves are not tested."""

import importlib
import json
import pathlib

import click
import pytest
from click.testing import CliRunner

FOLDER = pathlib.Path(__file__).resolve().parents[2] / 'benchmarks'
CONFIG = 'mask_rcnn_resnet18_fpn_shapes'


@pytest.fixture
def load(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    monkeypatch.setattr(importlib.import_module('measure'), '_MATRIX_SIDE', 32)
    return importlib.import_module


def test_configs_are_found_by_name_and_path(load, tmp_path):
    find = load('measure').find_config
    assert find(CONFIG).endswith(f'samples/configs/{CONFIG}.config')
    path = tmp_path / 'own.config'
    path.touch()
    assert find(str(path)) == str(path)
    with pytest.raises(click.UsageError, match=f'{CONFIG}.*Received: nothing'):
        find('nothing')


@pytest.mark.parametrize('name', ['inference', 'training'])
def test_measures_a_config(load, name):
    module = load(name)
    command = load('measure').command(name, getattr(module, f'measure_{name}'))
    arguments = ['--config', CONFIG, '--size', '64', '--steps', '2', '--here']
    ran = CliRunner().invoke(command, arguments, catch_exceptions=False)
    result = json.loads(ran.output)
    assert result['image_size'] == '64 x 64'
    assert 0 < result['fastest'] <= result['seconds'] < result['first']
    assert result['share'] == pytest.approx(result['rate'] / result['matmul_rate'])
    assert result['rate'] == pytest.approx(result['gigaflop'] / result['seconds'])
    assert result['not_counted'] == []


def test_table_has_a_line_for_each_result(load):
    measure = load('measure')
    result = measure.result(
        precision='float32',
        image_size=(4, 6),
        imports=1.0,
        first=2.0,
        seconds=[0.5, 0.2, 0.4],
        matmul_rate=100.0,
        flops=int(20e9),
        unknown=['product'],
    )
    assert (result['seconds'], result['fastest']) == (0.4, 0.2)
    lines = measure.table([result, result | {'precision': 'bfloat16'}])
    assert lines[0].split()[:2] == ['precision', 'time']
    assert lines[1].split()[-3:] == ['50.0', '100.0', '0.50']
    assert lines[2].split()[0] == 'bfloat16'
    assert lines[3].endswith('product')
