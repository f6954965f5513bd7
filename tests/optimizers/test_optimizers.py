"""Optimizers against the reference's numbers and NumPy."""

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format

from object_detection.builders import optimizer_builder
from object_detection.optimizers import optimizers, schedules
from object_detection.optimizers.moving_averages import Averaging
from object_detection.protos import optimizer_pb2
from tests import goldens, rows
from tests.schema import missing_options


def _run(optimizer, case):
    """Applies the case's gradients; returns the values after each step, by name.

    The averages, where there are some, are under the names with `average/` before them.
    """
    variables = {'d/kernel': tf.Variable(case.inputs['w']), 'd/bias': tf.Variable(case.inputs['b'])}
    optimizer.build(variables)
    apply = tf.function(optimizer.apply_gradients, autograph=False)
    averages = {f'average/{name}': value for name, value in optimizer.averages().items()}
    steps = {name: [] for name in (*variables, *averages)}
    for k in range(len(case.inputs['gw'])):
        gradients = {
            'd/kernel': tf.constant(case.inputs['gw'][k]),
            'd/bias': tf.constant(case.inputs['gb'][k]),
        }
        apply(gradients, tf.constant(k, tf.int64))
        for name, variable in (variables | averages).items():
            steps[name].append(variable.numpy())
    return {name: np.stack(values) for name, values in steps.items()}


def _config(case):
    return text_format.Parse(case.config, optimizer_pb2.Optimizer())


def _assert_equal(found, case):
    expected = {'d/kernel': case.outputs['w_steps'], 'd/bias': case.outputs['b_steps']}
    if 'average_w_steps' in case.outputs:
        expected['average/d/kernel'] = case.outputs['average_w_steps']
        expected['average/d/bias'] = case.outputs['average_b_steps']
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-5, atol=1e-6, err_msg=name)


@goldens.rows('optimizers')
def test_reference_numbers(case_name):
    case = goldens.load('optimizers', case_name)
    config = _config(case)
    if case.raises:
        with pytest.raises(ValueError, match=r'Optimizer\.optimizer is not set'):
            optimizer_builder.build(config)
        return
    optimizer = optimizer_builder.build(config)
    if config.HasField('rms_prop_optimizer'):
        optimizer = _rms_prop_with_the_reference_s_reading_of_decay(config)
    _assert_equal(_run(optimizer, case), case)
    schedule = optimizer_builder.build_schedule(
        getattr(config, config.WhichOneof('optimizer')).learning_rate
    )
    rates = [schedule(step) for step in range(len(case.inputs['gw']))]
    np.testing.assert_allclose(rates, case.outputs['learning_rate'], rtol=1e-5)


def _rms_prop_with_the_reference_s_reading_of_decay(config):
    """The reference leaves rho at 0.9 and divides the rate by 1 + decay * step: a defect.

    The update rule is compared under that reading; what a config builds takes decay for rho.
    """
    average_decay = config.moving_average_decay if config.use_moving_average else None
    config = config.rms_prop_optimizer
    schedule = optimizer_builder.build_schedule(config.learning_rate)
    optimizer = optimizers.RmsProp(
        lambda step: schedule(step) / (1 + config.decay * tf.cast(step, tf.float32)),
        rho=0.9,
        momentum=config.momentum_optimizer_value,
        epsilon=config.epsilon,
    )
    if average_decay is None:
        return optimizer
    return Averaging(optimizer, decay=average_decay)


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

    @tf.function(autograph=False)
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


def test_gradients_of_other_variables_are_reported():
    optimizer = optimizers.Momentum(schedules.constant(0.1), momentum=0.9)
    optimizer.build({'a': tf.Variable(1.0)})
    with pytest.raises(ValueError, match=r"differ by: \['a', 'b'\]"):
        optimizer.apply_gradients({'b': tf.constant(1.0)}, tf.constant(0))


def _averaging(decay=0.9, learning_rate=0.5):
    inner = optimizers.Momentum(schedules.constant(learning_rate), momentum=0.0)
    return Averaging(inner, decay=decay)


@rows.parametrize(
    ('text', 'decay'),
    [('', 0.9999), ('moving_average_decay: 0.5', 0.5), ('use_moving_average: false', None)],
)
def test_averages_are_kept_unless_the_config_says_no(text, decay):
    text = f'adam_optimizer {{ learning_rate {{ constant_learning_rate {{}} }} }} {text}'
    optimizer = optimizer_builder.build(text_format.Parse(text, optimizer_pb2.Optimizer()))
    optimizer.build({'a/kernel': tf.Variable([1.0])})
    assert list(optimizer.averages()) == ([] if decay is None else ['a/kernel'])
    assert list(optimizer.state()) == ['m', 'v'] + ([] if decay is None else ['average'])
    if decay is not None:
        assert optimizer.state()['average']['a/kernel'] is optimizer.averages()['a/kernel']
        # Late enough for the decay to be the config's.
        optimizer.apply_gradients({'a/kernel': tf.constant([0.0])}, tf.constant(10**6))
        assert optimizer.averages()['a/kernel'].numpy() == pytest.approx([1 - decay], rel=1e-3)


def test_averages_by_hand():
    """On every replica; w goes 1.5, 1.0, 0.5; shares of the new value 9/11, 9/12, then 1 - 0.3."""
    strategy = tf.distribute.MirroredStrategy(['CPU:0'])
    with strategy.scope():
        variable = tf.Variable([2.0])
        optimizer = _averaging(decay=0.3)
        optimizer.build({'w': variable})

    @tf.function(autograph=False)
    def step(k):
        strategy.run(lambda: optimizer.apply_gradients({'w': tf.constant([1.0])}, k))

    expected = 0.0
    for k, (value, share) in enumerate([(1.5, 9 / 11), (1.0, 9 / 12), (0.5, 0.7)]):
        step(tf.constant(k, tf.int64))
        expected += share * (value - expected)
        np.testing.assert_allclose(variable.numpy(), [value])
        np.testing.assert_allclose(optimizer.averages()['w'].numpy(), [expected], rtol=1e-6)


@pytest.mark.parametrize('decay', [-0.1, 1.5])
def test_a_decay_outside_its_range_is_reported(decay):
    with pytest.raises(ValueError, match=rf'moving_average_decay: .* Received: {decay:g}'):
        _averaging(decay=decay)


def test_multipliers_scale_the_learning_rate_of_one_variable():
    """Also what momentum remembers; and averages follow the scaled updates."""
    variables = {'a': tf.Variable(0.0), 'b': tf.Variable(0.0), 'c': tf.Variable(0.0)}
    inner = optimizers.Momentum(schedules.constant(1.0), momentum=0.5)
    optimizer = Averaging(inner, decay=1.0)
    optimizer.build(variables, multipliers={'a': 0.1, 'c': 2.0})
    for k in range(2):
        gradients = {name: tf.constant(1.0) for name in variables}
        optimizer.apply_gradients(gradients, tf.constant(k))
    found = [variables[name].numpy() for name in 'abc']
    np.testing.assert_allclose(found, [-0.25, -2.5, -5.0], rtol=1e-6)
    averages = optimizer.averages()
    np.testing.assert_allclose(averages['a'].numpy() * 10, averages['b'].numpy(), rtol=1e-5)


def test_multipliers_of_other_variables_are_reported():
    optimizer = optimizers.Momentum(schedules.constant(0.1), momentum=0.9)
    with pytest.raises(ValueError, match=r"Received multipliers of: \['b'\]"):
        optimizer.build({'a': tf.Variable(1.0)}, multipliers={'b': 2.0})


def _lars_by_hand(weights, gradients, rate, momentum, decay, trust):
    """Algorithm 1 of the paper, one variable."""
    velocity = np.zeros_like(weights)
    for gradient in gradients:
        norm = np.linalg.norm(weights)
        ratio = trust * norm / (np.linalg.norm(gradient) + decay * norm)
        velocity = momentum * velocity + rate * ratio * (gradient + decay * weights)
        weights = weights - velocity
    return weights


@pytest.mark.parametrize('averages', [False, True])
def test_lars_by_hand(averages):
    """Kernels by the paper's algorithm, norms and biases by plain momentum."""
    random = np.random.default_rng(0)
    names = ('a/kernel', 'a/bias', 'bn/gamma', 'bn/beta')
    values = {name: random.normal(size=[3, 2]).astype(np.float32) for name in names}
    gradients = {name: random.normal(size=[3, 3, 2]).astype(np.float32) for name in names}
    text = f"""
      lars_optimizer {{
        learning_rate {{ constant_learning_rate {{ learning_rate: 2.0 }} }}
        momentum_optimizer_value: 0.5 trust_coefficient: 0.1 weight_decay: 0.25
      }} use_moving_average: {str(averages).lower()}"""
    optimizer = optimizer_builder.build(text_format.Parse(text, optimizer_pb2.Optimizer()))
    strategy = tf.distribute.MirroredStrategy(['CPU:0'])
    with strategy.scope():
        variables = {name: tf.Variable(value) for name, value in values.items()}
        optimizer.build(variables)
    assert optimizer.state()['momentum'].keys() == variables.keys()

    @tf.function(autograph=False)
    def step(k):
        given = {name: tf.constant(gradients[name])[k] for name in names}
        strategy.run(lambda: optimizer.apply_gradients(given, k))

    for k in range(3):
        step(tf.constant(k, tf.int64))
    expected = _lars_by_hand(values['a/kernel'], gradients['a/kernel'], 2.0, 0.5, 0.25, 0.1)
    np.testing.assert_allclose(variables['a/kernel'].numpy(), expected, rtol=1e-5)
    for name in names[1:]:
        # Momentum 0.5 over three steps of rate 2.
        moved = np.tensordot([3.5, 3.0, 2.0], gradients[name], 1)
        np.testing.assert_allclose(
            variables[name].numpy(), values[name] - moved, rtol=1e-4, atol=1e-5
        )


def _lars(**options):
    defaults = {'momentum': 0.0, 'trust_coefficient': 0.1, 'weight_decay': 0.0}
    return optimizers.Lars(
        schedules.constant(1.0), **{**defaults, 'exclude_pattern': '', **options}
    )


def test_lars_excludes_none_for_an_empty_pattern_and_zeros_are_not_stuck():
    optimizer = _lars()
    variables = {'a/bias': tf.Variable([3.0, 4.0]), 'zero': tf.Variable([0.0, 0.0])}
    optimizer.build(variables, multipliers={'zero': 0.5})
    gradients = {'a/bias': tf.constant([0.0, 10.0]), 'zero': tf.constant([2.0, 0.0])}
    optimizer.apply_gradients(gradients, tf.constant(0))
    # |w| = 5, |g| = 10: the variable moves by 0.1 * 5.
    np.testing.assert_allclose(variables['a/bias'].numpy(), [3.0, 3.5])
    np.testing.assert_allclose(variables['zero'].numpy(), [-1.0, 0.0])
    with pytest.raises(ValueError, match=r"Received gradients that differ by: \['b'\]"):
        optimizer.apply_gradients({**gradients, 'b': tf.constant(1.0)}, tf.constant(1))


def test_lars_decays_a_variable_without_gradient_by_the_rate_alone():
    optimizer = _lars(weight_decay=0.5)
    variable = tf.Variable([3.0, 4.0])
    optimizer.build({'w': variable})
    optimizer.apply_gradients({'w': tf.zeros([2])}, tf.constant(0))
    # w - 1 * 0.5 * w; with the ratio 0.1 / 0.5 it would be 0.9 * w.
    np.testing.assert_allclose(variable.numpy(), [1.5, 2.0])


@rows.parametrize(
    ('option', 'message'),
    [
        ({'trust_coefficient': 0.0}, 'trust_coefficient: expected above 0. Received: 0'),
        ({'weight_decay': -1.0}, 'weight_decay: expected at least 0. Received: -1'),
        ({'exclude_pattern': '('}, r"Received: '\('"),
    ],
)
def test_numbers_of_lars_out_of_their_range_are_reported(option, message):
    with pytest.raises(ValueError, match=message):
        _lars(**option)


def test_a_factor_of_all_rates_reaches_the_updates_and_the_log():
    text = """momentum_optimizer { learning_rate { manual_step_learning_rate {
      initial_learning_rate: 1 warmup: true schedule { step: 2 learning_rate: 3 } } } }"""
    config = text_format.Parse(text, optimizer_pb2.Optimizer())
    optimizer = optimizer_builder.build(config, rate_factor=0.5)
    rates = [float(optimizer.learning_rate(step)) for step in range(4)]
    np.testing.assert_allclose(rates, [0.5, 1.0, 1.5, 1.5])
    variable = tf.Variable(0.0)
    optimizer.build({'w': variable})
    for k in range(2):
        optimizer.apply_gradients({'w': tf.constant(1.0)}, tf.constant(k))
    # 0.5, then 0.9 of it and 1.0.
    assert float(variable) == pytest.approx(-0.5 - 1.45)


def test_every_optimizer_of_the_schema_has_a_builder():
    missing = missing_options(
        optimizer_pb2.Optimizer, 'optimizer', optimizer_builder.OPTIMIZER_BUILDERS
    )
    assert not missing
