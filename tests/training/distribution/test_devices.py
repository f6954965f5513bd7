"""Choosing devices; there is no GPU on most machines, so TensorFlow's calls are recorded."""

import pytest
import tensorflow as tf

from object_detection.config.job_options import TrainOptions
from object_detection.errors import ConfigError
from object_detection.training.distribution import devices
from object_detection.training.distribution.cluster import Cluster
from object_detection.training.distribution.strategy_choice import Choice


@pytest.fixture
def calls(monkeypatch):
    """What is set, on a machine with three GPUs."""
    recorded = {'growth': []}
    monkeypatch.setattr(tf.config, 'list_physical_devices', lambda kind: ['a', 'b', 'c'])
    monkeypatch.setattr(
        tf.config, 'set_visible_devices', lambda gpus, kind: recorded.update(visible=gpus)
    )
    monkeypatch.setattr(
        tf.config.experimental,
        'set_memory_growth',
        lambda gpu, on: recorded['growth'].append((gpu, on)),
    )
    monkeypatch.setattr(tf.config, 'run_functions_eagerly', lambda on: recorded.update(eagerly=on))
    return recorded


def test_all_gpus_take_memory_as_they_need_it(calls):
    devices.set_up(TrainOptions())
    assert calls == {'growth': [('a', True), ('b', True), ('c', True)]}


@pytest.mark.parametrize(
    ('device', 'visible'),
    [
        ('cpu', []),
        ('gpu', ['a', 'b', 'c']),
        ('gpu:1', ['b']),
        ('GPU:2,0', ['c', 'a']),
    ],
)
def test_devices_are_chosen(calls, device, visible):
    devices.set_up(TrainOptions(device=device, gpu_memory_growth=False))
    assert calls == {'visible': visible, 'growth': []}


@pytest.mark.parametrize(
    ('device', 'text'),
    [
        ('gpu:3', r'GPUs 0 to 2 here\). Received: .gpu:3'),
        ('tpu', "expected 'cpu', 'gpu'"),
        ('cpu:0', "expected 'cpu', 'gpu'"),
        ('gpu:', "expected 'cpu', 'gpu'"),
    ],
)
def test_devices_that_there_are_not(calls, device, text):
    with pytest.raises(ConfigError, match=f'--device: .*{text}'):
        devices.set_up(TrainOptions(device=device))


@pytest.mark.parametrize(
    ('kind', 'index', 'environment', 'visible'),
    [
        ('one_device', 0, {}, ['a']),
        ('multi_worker', 1, {}, ['b']),
        # SLURM has shared them out.
        ('multi_worker', 1, {'SLURM_GPUS_PER_TASK': '3'}, None),
    ],
)
def test_workers_of_one_machine_share_its_gpus_out(calls, kind, index, environment, visible):
    cluster = Cluster(('h:1', 'h:2', 'g:1') if kind == 'multi_worker' else (), index)
    choice = Choice(kind, cluster)
    devices.set_up(TrainOptions(), choice=choice, environment=environment)
    assert calls.get('visible') == visible


def test_no_gpu_at_all(monkeypatch):
    monkeypatch.setattr(tf.config, 'list_physical_devices', lambda kind: [])
    with pytest.raises(ConfigError, match='no GPU here'):
        devices.set_up(TrainOptions(device='gpu'))


def test_running_eagerly(calls):
    devices.set_up(TrainOptions(run_eagerly=True))
    assert calls['eagerly'] is True


def test_too_late_is_reported(calls, monkeypatch, caplog):
    def refuse(gpus, kind):
        raise RuntimeError('already initialized')

    monkeypatch.setattr(tf.config, 'set_visible_devices', refuse)
    devices.set_up(TrainOptions(device='cpu'))
    assert '--device has no effect' in caplog.text
