"""AdamW, Lion, Muon and decoupled decay by hand and against Keras; averages with a ramp."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format

from object_detection.builders import optimizer_builder
from object_detection.errors import UserError
from object_detection.optimizers import muon, optimizers
from object_detection.protos import optimizer_pb2
from tests import rows

RATE = 0.125
KERNEL, BIAS = 'a/kernel', 'a/bias'
_RANDOM = np.random.default_rng(0)
VALUES = {
    KERNEL: _RANDOM.normal(size=[3, 2]).astype(np.float32),
    BIAS: _RANDOM.normal(size=[2]).astype(np.float32),
}
# Of three steps.
GRADIENTS = {
    name: _RANDOM.normal(size=[3, *value.shape]).astype(np.float32)
    for name, value in VALUES.items()
}


def _build(text, *, averages='use_moving_average: false', kind_of_rate=f'learning_rate: {RATE}'):
    kind, _, rest = text.partition(' ')
    rate = f'learning_rate {{ constant_learning_rate {{ {kind_of_rate} }} }}'
    text = f'{kind} {{ {rate} {rest} }} {averages}'
    config = text_format.Parse(text, optimizer_pb2.Optimizer())
    return optimizer_builder.build(config)


def _run(optimizer, names=tuple(VALUES), multipliers=None):
    """Returns the values after each of three steps on a replica of a strategy, by name."""
    strategy = tf.distribute.MirroredStrategy(['CPU:0'])
    with strategy.scope():
        variables = {name: tf.Variable(VALUES[name]) for name in names}
        optimizer.build(variables, multipliers=multipliers)

    @tf.function(autograph=False)
    def step(k):
        given = {name: tf.constant(GRADIENTS[name])[k] for name in names}
        strategy.run(lambda: optimizer.apply_gradients(given, k))

    found = {name: [] for name in names}
    for k in range(3):
        step(tf.constant(k, tf.int64))
        for name, variable in variables.items():
            found[name].append(variable.numpy())
    return found


def _adam_by_hand(name, rate, decay, beta1=0.9, beta2=0.999, epsilon=1e-8):
    """Algorithm 2 of https://arxiv.org/abs/1711.05101, where the rate multiplies the decay, too."""
    weights, m, v = VALUES[name].astype(np.float64), 0.0, 0.0
    for t, gradient in enumerate(GRADIENTS[name].astype(np.float64), start=1):
        m = beta1 * m + (1 - beta1) * gradient
        v = beta2 * v + (1 - beta2) * gradient**2
        root = np.sqrt(v / (1 - beta2**t))
        weights = weights - rate * (m / (1 - beta1**t) / (root + epsilon) + decay * weights)
        yield weights


def _momentum_by_hand(name, rate, decay, momentum):
    weights, m = VALUES[name].astype(np.float64), 0.0
    for gradient in GRADIENTS[name].astype(np.float64):
        m = momentum * m + rate * gradient
        weights = weights - rate * decay * weights - m
        yield weights


def _lion_by_hand(name, rate, decay, beta1, beta2):
    weights, m = VALUES[name].astype(np.float64), 0.0
    for gradient in GRADIENTS[name].astype(np.float64):
        direction = np.sign(beta1 * m + (1 - beta1) * gradient)
        weights = weights - rate * (direction + decay * weights)
        m = beta2 * m + (1 - beta2) * gradient
        yield weights


@rows.parametrize(
    ('text', 'by_hand'),
    [
        (
            'adamw_optimizer beta_1: 0.8 beta_2: 0.9 weight_decay: 0.25',
            lambda name, rate, decay: _adam_by_hand(name, rate, 0.25 * decay, 0.8, 0.9),
        ),
        ('adamw_optimizer', lambda name, rate, decay: _adam_by_hand(name, rate, 0.05 * decay)),
        (
            'lion_optimizer beta_1: 0.7 beta_2: 0.6 weight_decay: 0.25',
            lambda name, rate, decay: _lion_by_hand(name, rate, 0.25 * decay, 0.7, 0.6),
        ),
        (
            'momentum_optimizer momentum_optimizer_value: 0.5 weight_decay: 0.25',
            lambda name, rate, decay: _momentum_by_hand(name, rate, 0.25 * decay, 0.5),
        ),
        # No decay unless it is set, as in the reference.
        (
            'momentum_optimizer',
            lambda name, rate, decay: _momentum_by_hand(name, rate, 0.0, 0.9),
        ),
    ],
)
def test_three_steps_by_hand(text, by_hand):
    """Kernels decay, biases do not; a factor of the rate is one of the decay, too."""
    found = _run(_build(text), multipliers={KERNEL: 0.5})
    for name, rate, decay in ((KERNEL, RATE / 2, 1.0), (BIAS, RATE, 0.0)):
        expected = list(by_hand(name, rate, decay))
        np.testing.assert_allclose(found[name], expected, rtol=2e-5, atol=2e-6, err_msg=name)


@rows.parametrize(
    ('text', 'build'),
    [
        ('adamw_optimizer', lambda: keras.optimizers.AdamW(RATE, weight_decay=0.05, epsilon=1e-8)),
        ('lion_optimizer', lambda: keras.optimizers.Lion(RATE, weight_decay=0.5)),
        (
            'momentum_optimizer weight_decay: 0.25',
            lambda: keras.optimizers.SGD(RATE, momentum=0.9, weight_decay=0.25),
        ),
        (
            'muon_optimizer weight_decay: 0.25',
            lambda: keras.optimizers.Muon(
                RATE, weight_decay=0.25, adam_weight_decay=0.25, epsilon=1e-8
            ),
        ),
    ],
)
def test_three_steps_are_those_of_keras(text, build):
    found = _run(_build(text))
    theirs = build()
    theirs.exclude_from_weight_decay(var_names=['bias'])
    variables = [keras.Variable(VALUES[name], name=name.partition('/')[2]) for name in VALUES]
    for k in range(3):
        theirs.apply([tf.constant(GRADIENTS[name][k]) for name in VALUES], variables)
        for name, variable in zip(VALUES, variables, strict=True):
            np.testing.assert_allclose(
                found[name][k], variable.numpy(), rtol=2e-5, atol=2e-6, err_msg=f'{name} {k}'
            )


def test_orthogonal_has_singular_values_near_one():
    """Those that are not tiny beside the largest; and the vectors are those of the matrix."""
    matrix = _RANDOM.normal(size=[7, 4]).astype(np.float32)
    left, _, right = np.linalg.svd(matrix, full_matrices=False)
    found = muon.orthogonal(tf.constant(matrix)).numpy()
    inner = left.T @ found @ right.T
    assert np.abs(inner - np.diag(np.diag(inner))).max() < 1e-4
    assert np.diag(inner).min() > 0.6
    assert np.diag(inner).max() < 1.3
    np.testing.assert_allclose(muon.orthogonal(tf.constant(matrix.T)), found.T, atol=1e-5)


def test_muon_is_for_kernels_with_several_inputs_and_outputs():
    optimizer = _build('muon_optimizer')
    shapes = {
        'a/kernel': [3, 3, 4, 8],
        'a/depthwise_kernel': [3, 3, 4, 1],
        'a/bias': [8],
        'a/pos_embed': [16, 8],
        'a/factor': [],
    }
    optimizer.build({name: tf.Variable(tf.ones(shape)) for name, shape in shapes.items()})
    state = optimizer.state()
    assert state['momentum'].keys() == {'a/kernel'}
    assert state['m'].keys() == state['v'].keys() == shapes.keys() - {'a/kernel'}
    assert optimizer.decayed == {'a/kernel', 'a/depthwise_kernel', 'a/factor'}


def test_what_decays_by_default():
    decay = optimizers.WeightDecay(1.0, optimizer_pb2.AdamWOptimizer().exclude_pattern)
    names = {
        'backbone/conv1_conv/kernel': True,
        'backbone/block_1_depthwise/depthwise_kernel': True,
        'rpn/conv/bias': False,
        'backbone/conv1_bn/gamma': False,
        'backbone/conv1_bn/beta': False,
        'backbone/block_layer_scale/gamma': False,
        'encoder/layer_scale': False,
        'backbone/pos_embed': False,
        'backbone/position_embedding/embeddings': False,
        'backbone/attention/relative_position_bias_table': False,
        'fpn/node_0/bifpn_combine_weights': False,
        # Of attention and of heads.
        'encoder/attention/query/kernel': True,
        'box_head/scales/kernel': True,
    }
    assert decay.decayed(names) == {name for name, decays in names.items() if decays}
    assert optimizers.WeightDecay(1.0, '').decayed(names) == names.keys()
    assert optimizers.NO_DECAY.decayed(names) == set()


def test_all_optimizers_exclude_the_same():
    default = optimizer_pb2.AdamWOptimizer().exclude_pattern
    for kind in ('Momentum', 'Lion', 'Muon'):
        assert getattr(optimizer_pb2, f'{kind}Optimizer')().exclude_pattern == default


@rows.parametrize(
    ('text', 'message'),
    [
        ('adamw_optimizer weight_decay: -1', 'weight_decay: expected at least 0. Received: -1'),
        ("lion_optimizer exclude_pattern: '('", r"exclude_pattern: .* Received: '\('"),
    ],
)
def test_decays_that_cannot_be_are_reported(text, message):
    with pytest.raises(UserError, match=message):
        _build(text)


def test_averages_with_a_ramp_by_hand():
    """d = 0.9 * (1 - exp(-t / 2)), counted from t = 1, where d = 0."""
    averages = 'moving_average_decay: 0.9 moving_average_ramp: 2'
    optimizer = _build('momentum_optimizer', averages=averages)
    found = _run(optimizer)
    expected = np.zeros([3, 2])
    for t, value in enumerate(found[KERNEL], start=1):
        decay = 0.9 * (1 - np.exp(-t / 2)) if t > 1 else 0.0
        expected = decay * expected + (1 - decay) * value
    np.testing.assert_allclose(optimizer.averages()[KERNEL].numpy(), expected, rtol=1e-5)
    assert optimizer.decayed == set()
    with pytest.raises(UserError, match='moving_average_ramp: expected at least 0'):
        _build('momentum_optimizer', averages='moving_average_ramp: -1')


def test_averages_follow_decayed_weights():
    optimizer = _build('adamw_optimizer', averages='moving_average_decay: 0')
    found = _run(optimizer)
    average = optimizer.averages()[KERNEL].numpy()
    np.testing.assert_allclose(average, found[KERNEL][-1], rtol=1e-6, atol=1e-6)
    assert optimizer.decayed == {KERNEL}


def test_a_skipped_update_decays_nothing():
    """As after gradients that are not finite."""
    optimizer = _build('adamw_optimizer')
    variable = tf.Variable(VALUES[KERNEL])
    optimizer.build({KERNEL: variable})
    step = tf.function(optimizer.apply_gradients, autograph=False)
    gradients = {KERNEL: tf.constant(GRADIENTS[KERNEL][0])}
    step(gradients, tf.constant(0, tf.int64), tf.constant(False))
    np.testing.assert_array_equal(variable.numpy(), VALUES[KERNEL])
    step(gradients, tf.constant(0, tf.int64), tf.constant(True))
    assert np.abs(variable.numpy() - VALUES[KERNEL]).min() > 0.1


@rows.parametrize(
    ('text', 'rate'),
    [
        ('adamw_optimizer', 'cosine_restarts_learning_rate { first_period_steps: 2 }'),
        ('lion_optimizer', 'one_cycle_learning_rate { total_steps: 3 }'),
        ('muon_optimizer', 'polynomial_learning_rate { total_steps: 3 } warmup { steps: 2 }'),
    ],
)
def test_a_compiled_update_is_the_same(text, rate):
    """As XLA compiles a whole step, averages with it."""
    text = f'{text} {{ learning_rate {{ {rate} }} }} moving_average_ramp: 2'
    ends = []
    for is_compiled in (False, True):
        optimizer = optimizer_builder.build(text_format.Parse(text, optimizer_pb2.Optimizer()))
        variables = {name: tf.Variable(value) for name, value in VALUES.items()}
        optimizer.build(variables, multipliers={KERNEL: 0.5})
        step = tf.function(optimizer.apply_gradients, jit_compile=is_compiled, autograph=False)
        for k in range(3):
            given = {name: tf.constant(GRADIENTS[name][k]) for name in VALUES}
            step(given, tf.constant(k, tf.int64))
        ends.append(
            [each.numpy() for each in (*variables.values(), *optimizer.averages().values())]
        )
    for plain, compiled in zip(*ends, strict=True):
        np.testing.assert_allclose(compiled, plain, rtol=2e-5, atol=2e-6)
