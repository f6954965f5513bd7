"""Both parts of the benchmark of GPUs, small and on the CPU."""

import importlib
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import types

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format

from object_detection.models import precision as precisions
from tests.tiny_models import IMAGE_SIZE, tiny_pipeline

FOLDER = pathlib.Path(__file__).resolve().parents[2] / 'benchmarks'
JAX = os.environ.get('JAX_PYTHON') or (sys.executable if importlib.util.find_spec('jax') else None)
_RATE = """
train_config {
  optimizer {
    momentum_optimizer {
      learning_rate { constant_learning_rate { learning_rate: 0.01 } }
      momentum_optimizer_value: 0.9
    }
    use_moving_average: false
  }
}
"""


@pytest.fixture(scope='module')
def load():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(FOLDER)
        yield importlib.import_module


@pytest.fixture(scope='module')
def exported(load, tmp_path_factory):
    directory = tmp_path_factory.mktemp('exported')
    pipeline = tiny_pipeline(_RATE)
    config = directory / 'tiny.config'
    config.write_text(text_format.MessageToString(pipeline))
    words = ['export', '--config', config, '--directory', directory, '--size', IMAGE_SIZE]
    words += ['--precision', 'float32', '--batch_size', 2, '--expect', 2]
    load('gpu').main([str(word) for word in words])
    return directory


@pytest.mark.slow
def test_weights_are_arguments(load, exported):
    function = load('gpu_files').read(exported, 'training_float32_2')
    assert b'StableHLO_v1.0.0' in function.module[:32]
    assert sum(np.prod(a.shape) for a in function.arguments) * 4 > 20 * len(function.module)
    replaced = [r for r in function.results if r.replaces is not None]
    names = {result.name for result in replaced}
    assert {'step', 'backbone/conv1_conv/kernel', 'momentum/rpn/conv/kernel'} <= names
    for result in replaced:
        argument = function.arguments[result.replaces]
        assert (argument.name, argument.shape, argument.dtype) == (
            result.name,
            result.shape,
            result.dtype,
        )
    first, second = function.expected
    assert first['Loss/total_loss'] != second['Loss/total_loss']


@pytest.mark.skipif(not JAX, reason='neither here nor as JAX_PYTHON is there an interpreter of jax')
@pytest.mark.parametrize('work', ['inference', 'training'])
def test_runs_without_tensorflow_as_with_it(exported, work, tmp_path):
    path = tmp_path / 'results.json'
    words = ['run', '--directory', exported, '--steps', '1', '--work', work, '--batch_size', '2']
    ran = subprocess.run(
        [JAX, FOLDER / 'gpu.py', *words, '--json', path], capture_output=True, text=True, check=True
    )
    (row,) = json.loads(path.read_text())
    ours = row['ours']
    assert 'problem' not in ours, ours
    # What masks crop moves with the boxes: their limit is that of `agreement`.
    others = [value for name, value in ours['differences'].items() if name != 'detection_masks']
    assert max(others) < 1e-4
    assert ours['agrees']
    assert ours['share'] == pytest.approx(ours['gigaflop'] / ours['seconds'] / ours['matmul_rate'])
    assert ours['peak_memory'] > 0
    assert 'agrees with TensorFlow on a CPU' in ran.stdout


def test_products_say_their_precision(load):
    weights = tf.Variable(tf.ones([4, 4]))

    def lowered(precision):
        with precisions.scope(precision):
            module, *_ = load('gpu_export')._lowered(
                lambda batch: {'product': tf.matmul(batch['image'], weights)},
                {'image': np.ones((4, 4), np.float32)},
                {'weights': weights},
            )
        return module

    assert lowered('float32') != lowered('tf32')


def test_assigned_variables_are_results(load):
    weights, count = tf.Variable([2.0, 4.0]), tf.Variable(0, dtype=tf.int64)

    def compute(batch):
        count.assign_add(1)
        return {'sum': tf.reduce_sum(weights * batch['image'])}

    variables = {'weights': weights, 'count': count}
    batch = {'image': np.ones(2, np.float32)}
    _, arguments, results, _ = load('gpu_export')._lowered(compute, batch, variables)
    named = {argument.name: argument for argument in arguments}
    assert (named['weights'].mean, named['weights'].deviation) == (3.0, 1.0)
    assert named['image'].mean is None
    assert [(result.name, result.dtype) for result in results] == [
        ('sum', 'float32'),
        ('count', 'int64'),
    ]
    assert arguments[results[1].replaces].name == 'count'
    with pytest.raises(ValueError, match='variables of the detector alone'):
        load('gpu_export')._lowered(compute, batch, {'count': count})


def test_differences_are_parts_of_the_largest_value(load):
    found = [{'loss': np.array(2.0), 'scores': np.array([0.5, 0.25])}, {'loss': np.array(1.0)}]
    expected = [{'loss': 2.0, 'scores': [0.5, 0.2]}, {'loss': 4.0}]
    differences = load('gpu_run').differences(found, expected)
    assert differences == pytest.approx({'loss': 0.75, 'scores': 0.1})


def test_results_that_are_not_the_expected_ones_are_reported(load):
    run = load('gpu_run')
    expected = [{'loss': 2.0}, {'loss': 4.0}]
    function = types.SimpleNamespace(work='training', precision='float32', expected=expected)
    found = [{'loss': np.array(2.0)}, {'loss': np.array(4.001)}]
    assert run.agrees(function, found)
    found[1]['loss'] = np.array(4.1)
    assert not run.agrees(function, found)
    ours = {'seconds': 1.0, 'differences': run.differences(found, expected), 'agrees': False}
    lines = list(run.report({'job': ['training', 'float32', 1], 'ours': ours}))
    assert 'DIFFERS FROM TensorFlow on a CPU; at most by 2.5e-02 (loss)' in lines[-1]


def test_rows_show_ratios_and_failures(load):
    result = {'seconds': 0.5, 'p99': 0.6, 'images_per_second': 32.0, 'peak_memory': 9e3}
    ours = result | {'share': 0.4, 'device': 'chip', 'matmul_rate': 8e5}
    ours |= {'differences': {}, 'is_peers_work': True}
    row = {'job': ['training', 'bfloat16', 16], 'ours': ours}
    lines = list(load('gpu_run').report(row | {'torchvision': result | {'seconds': 1.25}}))
    assert lines[0] == 'training bfloat16, batch size 16, chip (800 TFLOP/s)'
    assert lines[-1].strip() == '2.50 times as fast as torchvision'
    ours['is_peers_work'] = False
    lines = list(load('gpu_run').report(row | {'torchvision': result | {'seconds': 1.25}}))
    assert lines[-1].endswith('on other work')
    lines = list(load('gpu_run').report(row | {'torchvision': {'problem': 'out of memory'}}))
    assert lines[-1].split() == ['torchvision', 'failed:', 'out', 'of', 'memory']
    compiled = {'torch.compile': result | {'seconds': 0.25}}
    lines = list(load('gpu_run').report(row | {'torchvision': result} | compiled))
    assert lines[-1].strip() == '0.50 times as fast as torch.compile on other work'


def test_the_same_command_measures_what_is_left(load, monkeypatch, tmp_path):
    run, ran = load('gpu_run'), []
    jobs = [('inference', 'float32', 1), ('inference', 'float32', 2)]
    names = {load('gpu_files').file_name(*job): job for job in jobs}
    for name in names:
        (tmp_path / f'{name}.json').write_text('{}')
    monkeypatch.setattr(run, '_ours', lambda job, options: ['ours', job])
    monkeypatch.setattr(run, '_peer', lambda job, ours, options: ['peer', job])

    def measured(command, timeout, **options):
        ran.append(tuple(command))
        if len(ran) == 3:
            raise subprocess.TimeoutExpired(command, timeout)
        return subprocess.CompletedProcess(command, 0, '{"seconds": 1, "is_peers_work": true}', '')

    monkeypatch.setattr(run.subprocess, 'run', measured)
    words = ['run', '--directory', str(tmp_path), '--torchvision', 'python3', '--minutes', '10']
    words += ['--work', 'inference', '--precision', 'float32', '--batch_size', '1', '2']
    load('gpu').main(words)
    load('gpu').main(words)
    peers = [('peer',), ('peer', '--compile')]
    wanted = [(side[0], job, *side[1:]) for job in jobs for side in (('ours',), *peers)]
    assert ran == [*wanted[:3], *wanted[2:]]
    rows = json.loads((tmp_path / 'results.json').read_text())
    assert [sorted(row) for row in rows] == [['job', 'ours', 'torch.compile', 'torchvision']] * 2


def test_a_measurement_that_a_whole_piece_does_not_hold_is_a_result(load):
    command = [sys.executable, '-c', 'import time; time.sleep(60)']
    piece = load('gpu_run').Piece(0.005)
    assert piece.run(command) == {'problem': 'took more than 0.005 minutes'}
    with pytest.raises(subprocess.TimeoutExpired):
        piece.run(command)
