"""Optimizers against the reference's numbers and NumPy."""

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format

from object_detection.builders import oneof, optimizer_builder
from object_detection.protos import optimizer_pb2
from object_detection.training import optimizers, schedules
from tests import goldens


def _run(optimizer, case, learning_rates=None):
    """Applies the case's gradients; returns the values after each step, by name."""
    variables = {'d/kernel': tf.Variable(case.inputs['w']), 'd/bias': tf.Variable(case.inputs['b'])}
    optimizer.build(variables)
    apply = tf.function(optimizer.apply_gradients)
    steps = {name: [] for name in variables}
    for k in range(len(case.inputs['gw'])):
        gradients = {
            'd/kernel': tf.constant(case.inputs['gw'][k]),
            'd/bias': tf.constant(case.inputs['gb'][k]),
        }
        apply(gradients, tf.constant(k, tf.int64))
        for name, variable in variables.items():
            steps[name].append(variable.numpy())
    return {name: np.stack(values) for name, values in steps.items()}


def _config(case):
    return text_format.Parse(case.config, optimizer_pb2.Optimizer())


def _assert_equal(found, case):
    np.testing.assert_allclose(found['d/kernel'], case.outputs['w_steps'], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found['d/bias'], case.outputs['b_steps'], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    'name',
    [
        'momentum_optimizer_const_ma0',
        'momentum_optimizer_sched_ma0',
        'adam_optimizer_const_ma0',
        'adam_optimizer_sched_ma0',
        'momentum_0.5',
        'adam_eps1',
    ],
)
def test_reference_numbers(name):
    case = goldens.load('optimizers', name)
    optimizer = optimizer_builder.build(_config(case))
    _assert_equal(_run(optimizer, case), case)


@pytest.mark.parametrize(
    'name',
    ['rms_prop_optimizer_const_ma0', 'rms_prop_optimizer_sched_ma0', 'rms_custom', 'rms_decay0'],
)
def test_rms_prop_with_the_reference_s_reading_of_decay(name):
    """The reference leaves rho at 0.9 and divides the rate by 1 + decay * step: a defect.

    The update rule is compared under that reading; what a config builds takes decay for rho.
    """
    case = goldens.load('optimizers', name)
    config = _config(case).rms_prop_optimizer
    schedule = optimizer_builder.build_schedule(config.learning_rate)
    optimizer = optimizers.RmsProp(
        lambda step: schedule(step) / (1 + config.decay * tf.cast(step, tf.float32)),
        rho=0.9,
        momentum=config.momentum_optimizer_value,
        epsilon=config.epsilon,
    )
    _assert_equal(_run(optimizer, case), case)


def test_rms_prop_of_a_config_averages_by_decay():
    text = """rms_prop_optimizer {
      learning_rate { constant_learning_rate { learning_rate: 0.1 } }
      decay: 0.7 momentum_optimizer_value: 0.3 epsilon: 0.5 } use_moving_average: false"""
    optimizer = optimizer_builder.build(text_format.Parse(text, optimizer_pb2.Optimizer()))
    variable = tf.Variable([1.0, -2.0])
    optimizer.build({'w': variable})
    expected, rms, momentum = np.array([1.0, -2.0]), np.zeros(2), np.zeros(2)
    for step, gradient in enumerate(np.array([[0.5, 2.0], [-1.0, 1.0], [0.1, 0.0]])):
        optimizer.apply_gradients({'w': tf.constant(gradient, tf.float32)}, tf.constant(step))
        rms = 0.7 * rms + 0.3 * gradient**2
        momentum = 0.3 * momentum + 0.1 * gradient / np.sqrt(rms + 0.5)
        expected -= momentum
        np.testing.assert_allclose(variable.numpy(), expected, rtol=1e-5)


def test_works_in_the_replica_context_of_a_strategy():
    strategy = tf.distribute.MirroredStrategy(['CPU:0'])
    with strategy.scope():
        variable = tf.Variable([1.0, 1.0])
        optimizer = optimizers.Momentum(schedules.constant(0.5), momentum=0.5)
        optimizer.build({'w': variable})

    @tf.function
    def step(k):
        strategy.run(lambda: optimizer.apply_gradients({'w': tf.constant([1.0, 2.0])}, k))

    step(tf.constant(0, tf.int64))
    step(tf.constant(1, tf.int64))
    np.testing.assert_allclose(variable.numpy(), [1 - 0.5 - 0.75, 1 - 1 - 1.5])


def test_state_is_named_after_the_variables():
    optimizer = optimizers.Adam(schedules.constant(0.1))
    optimizer.build({'a/kernel': tf.Variable(tf.ones([2, 3]))})
    state = optimizer.state()
    assert list(state) == ['m', 'v']
    assert state['m']['a/kernel'].shape == [2, 3]
    assert not np.any(state['v']['a/kernel'].numpy())


def test_gradients_of_other_variables_are_told():
    optimizer = optimizers.Momentum(schedules.constant(0.1), momentum=0.9)
    optimizer.build({'a': tf.Variable(1.0)})
    with pytest.raises(ValueError, match=r"differ by: \['a', 'b'\]"):
        optimizer.apply_gradients({'b': tf.constant(1.0)}, tf.constant(0))


@pytest.mark.parametrize('text', ['', 'use_moving_average: true'])
def test_moving_averages_are_rejected_by_name(text):
    text = f'momentum_optimizer {{ learning_rate {{ constant_learning_rate {{}} }} }} {text}'
    with pytest.raises(ValueError, match=r'train_config\.optimizer\.use_moving_average'):
        optimizer_builder.build(text_format.Parse(text, optimizer_pb2.Optimizer()))


def test_an_optimizer_must_be_set():
    with pytest.raises(ValueError, match=r'Optimizer\.optimizer is not set'):
        optimizer_builder.build(optimizer_pb2.Optimizer())


def test_every_optimizer_of_the_schema_has_a_builder():
    missing = oneof.missing_options(
        optimizer_pb2.Optimizer, 'optimizer', optimizer_builder.OPTIMIZER_BUILDERS
    )
    assert not missing
