"""Which way steps are executed, by config, data, model and devices."""

import keras
import pytest
import tensorflow as tf

from object_detection.core.fields import InputFields
from object_detection.errors import ConfigError
from object_detection.optimizers.gradients import Execution
from object_detection.protos.train_pb2 import TrainConfig
from object_detection.training import execution
from tests.training import fakes


def _spec(height=8, width=8, batch=4):
    return {InputFields.IMAGE: tf.TensorSpec([batch, height, width, 3])}


def _of(spec=None, sizes=(), detector=None, **fields):
    config = TrainConfig(**({'batch_size': 4} | fields))
    return execution.of_training(config, detector or fakes.FakeDetector(), spec or _spec(), sizes)


def _with_norm(**options):
    detector = fakes.FakeDetector()
    detector.norm = keras.layers.BatchNormalization(name='some_norm', **options)
    return detector


class TwoReplicas:
    num_replicas_in_sync = 2


def _pretend_gpus(monkeypatch):
    monkeypatch.setattr(tf.config, 'list_logical_devices', lambda kind: ['a GPU'])


def test_automatically_compiles_on_gpus_alone(monkeypatch):
    assert _of() == Execution()
    assert not execution.compiles_inference(TrainConfig(), _spec())
    _pretend_gpus(monkeypatch)
    assert _of() == Execution(jit_compile=True)
    assert execution.compiles_inference(TrainConfig(), _spec(batch=None))
    assert _of(jit_compile=False) == Execution()


def test_automatically_compiles_fixed_sizes_alone(monkeypatch, caplog):
    _pretend_gpus(monkeypatch)
    with caplog.at_level('INFO', 'object_detection'):
        assert not _of(_spec(None, None)).jit_compile
    assert 'no fixed size' in caplog.text
    sizes = ((8, 12), (12, 8))
    assert _of(_spec(None, None), sizes) == Execution(jit_compile=True, bucket_sizes=sizes)
    # One size needs no choice.
    assert _of(sizes=((8, 8),)) == Execution(jit_compile=True)


def test_compiles_on_request_and_logs_the_cost(caplog):
    assert _of(jit_compile=True) == Execution(jit_compile=True)
    assert _of(_spec(None, None), jit_compile=True).jit_compile
    assert 'each size is compiled for itself' in caplog.text


def test_eager_steps_are_not_compiled(caplog):
    tf.config.run_functions_eagerly(True)
    try:
        assert not _of(jit_compile=True).jit_compile
    finally:
        tf.config.run_functions_eagerly(False)
    assert 'jit_compile: --run_eagerly leaves no graph to compile' in caplog.text


def test_parts_divide_the_batch():
    assert _of(gradient_accumulation_steps=2) == Execution(accumulation_steps=2)
    assert _of(recompute_activations=True) == Execution(recomputes=True)
    with pytest.raises(ConfigError, match=r'accumulation_steps: .*divides.*Received: 3'):
        _of(gradient_accumulation_steps=3)
    with pytest.raises(ConfigError, match='drop_remainder: true'):
        _of(_spec(batch=None), gradient_accumulation_steps=2)


def test_parts_with_trained_norms_are_logged(caplog):
    # What is said at INFO, of every such step, is not about norms.
    caplog.set_level('WARNING', 'object_detection')
    _of(detector=_with_norm(trainable=False), gradient_accumulation_steps=2)
    assert not caplog.text
    _of(detector=_with_norm(), gradient_accumulation_steps=2)
    assert '1 batch norms, such as some_norm' in caplog.text


@pytest.mark.parametrize('fields', [{'gradient_accumulation_steps': 2}, {'jit_compile': True}])
def test_norms_over_replicas_cannot_wait_within_a_program(fields, monkeypatch):
    detector = _with_norm(synchronized=True)
    _of(detector=detector, **fields)
    monkeypatch.setattr(tf.distribute, 'get_strategy', TwoReplicas)
    with pytest.raises(ConfigError, match=r'1 batch norms over all replicas .*, such as some_norm'):
        _of(detector=detector, **fields)
    _of(detector=_with_norm(), **fields)


def test_replicas_that_are_not_compiled_have_one_graph_for_all_sizes(monkeypatch):
    """They add up counts over the replicas, which the graph of one size cannot."""
    sizes = ((8, 12), (12, 8))
    assert _of(_spec(None, None), sizes) == Execution(bucket_sizes=sizes)
    monkeypatch.setattr(tf.distribute, 'get_strategy', TwoReplicas)
    assert _of(_spec(None, None), sizes).is_plain
