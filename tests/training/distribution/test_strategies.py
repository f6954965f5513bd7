"""The choice of a strategy, and workers that are alone; several are in test_replicas.py."""

import contextlib
import time
import types

import pytest
import tensorflow as tf

from object_detection.errors import ConfigError
from object_detection.training.distribution import strategies
from object_detection.training.distribution.cluster import Cluster
from object_detection.training.distribution.strategy_choice import Choice

TWO_REPLICAS = types.SimpleNamespace(num_replicas_in_sync=2)


def test_one_device_has_the_strategy_without_overhead(monkeypatch):
    monkeypatch.setattr(tf.config, 'get_visible_devices', lambda kind: [])
    strategy = strategies.build()
    assert strategy is tf.distribute.get_strategy()
    assert strategies.describe(strategy) == '1 replica'
    assert strategies.num_workers(strategy) == 1
    assert strategies.is_chief(strategy)


def test_several_gpus_are_mirrored(monkeypatch):
    monkeypatch.setattr(tf.config, 'get_visible_devices', lambda kind: ['one', 'two'])
    monkeypatch.setattr(tf.distribute, 'MirroredStrategy', lambda: 'mirrored')
    assert strategies.build() == 'mirrored'


def test_one_device_of_several_gpus_is_not_mirrored(monkeypatch):
    monkeypatch.setattr(tf.config, 'get_visible_devices', lambda kind: ['one', 'two'])
    assert strategies.build(Choice('one_device')) is tf.distribute.get_strategy()


def test_a_mirrored_strategy_of_the_only_device():
    strategy = strategies.build(Choice('mirrored'))
    assert isinstance(strategy, tf.distribute.MirroredStrategy)
    assert strategies.describe(strategy) == '1 replica'


@pytest.mark.parametrize('name', ['', 'grpc://127.0.0.1:1'])
def test_a_tpu_out_of_reach_is_reported_in_one_sentence(name):
    with pytest.raises(
        ConfigError, match=r'^--use_tpu, --tpu_name: expected a TPU that can be'
    ) as e:
        strategies.build(Choice('tpu', tpu_name=name))
    assert '\n' not in str(e.value)


def test_the_batch_must_divide_by_the_replicas():
    strategies.check_batch_size(TWO_REPLICAS, 4)
    with pytest.raises(ConfigError, match=r'^train_config.batch_size: .*multiple of 2.*ved: 3\.'):
        strategies.check_batch_size(TWO_REPLICAS, 3)


def test_data_that_end_need_one_replica():
    strategies.check_endless(TWO_REPLICAS, 0)
    strategies.check_endless(types.SimpleNamespace(num_replicas_in_sync=1), 3)
    with pytest.raises(ConfigError, match=r'^train_input_reader.num_epochs: .*Received: 3\.'):
        strategies.check_endless(TWO_REPLICAS, 3)


def test_an_error_of_one_worker_stays_as_it_is():
    strategy = tf.distribute.get_strategy()
    with pytest.raises(tf.errors.UnavailableError), strategies.lost_workers_named(strategy):
        raise tf.errors.UnavailableError(None, None, 'gone')


@pytest.mark.parametrize(
    ('gathering', 'start_timeout', 'expected'), [(0.2, 1000, 999.8), (0.2, 1, 60.0)]
)
def test_devices_may_take_the_rest_of_the_time_of_the_start(
    monkeypatch, gathering, start_timeout, expected
):
    watched = []

    @contextlib.contextmanager
    def killed_after(seconds, reason):
        watched.append((seconds, reason))
        yield

    monkeypatch.setattr(strategies.rendezvous, 'killed_after', killed_after)
    monkeypatch.setattr(strategies.rendezvous, 'gather', lambda *_: time.sleep(gathering))
    monkeypatch.setattr(strategies.private_names, 'set_heartbeat', lambda *_: None)
    monkeypatch.setattr(tf.distribute, 'MultiWorkerMirroredStrategy', lambda cluster_resolver: 's')
    cluster = Cluster(('127.0.0.1:1', '127.0.0.1:2'), 1, 'TF_CONFIG')
    choice = Choice('multi_worker', cluster, worker_timeout=30, start_timeout=start_timeout)
    assert strategies.build(choice) == 's'
    ((seconds, reason),) = watched
    assert expected - 1 < seconds <= expected
    assert f'worker 1 of 2 was ended, as it had not connected {seconds:.0f} seconds' in reason
