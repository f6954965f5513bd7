import keras
import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format

from object_detection.builders import hyperparams_builder
from object_detection.models.hyperparams import LayerHyperparams
from object_detection.models.normalization import GroupNormParams, LayerNormParams
from object_detection.protos import hyperparams_pb2
from tests import goldens
from tests.schema import missing_options


def build(text: str = '') -> LayerHyperparams:
    return hyperparams_builder.build(text_format.Parse(text, hyperparams_pb2.Hyperparams()))


@goldens.rows(
    'hyperparams',
    prefix=('l1', 'l2', 'noreg', 'empty', 'act', 'varscale', 'keras', 'bn', 'sync', 'force'),
)
def test_equals_the_reference(case_name):
    case = goldens.load('hyperparams', case_name)
    hyperparams = build(case.config)
    outputs, params = case.outputs, case.params

    activation = hyperparams.activation_layer(name='activation')
    np.testing.assert_allclose(activation(case.inputs['act_in']), outputs['act_out'], atol=1e-6)
    assert hyperparams.use_bias == params['use_bias']
    assert hyperparams.force_use_bias == params['force_use_bias']
    assert (hyperparams.batch_norm is not None) == params['use_batch_norm']
    for name, value in params['batch_norm'].items():
        assert getattr(hyperparams.batch_norm, name) == pytest.approx(value)
    if params['use_batch_norm']:
        assert hyperparams.batch_norm.synchronized == params['use_sync_batch_norm']
    if 'reg' in outputs:
        penalty = hyperparams.regularizer(tf.constant(case.inputs['w']))
        np.testing.assert_allclose(penalty, outputs['reg'], rtol=1e-5)
    else:
        assert hyperparams.regularizer is None
    _check_initializer(hyperparams, params.get('initializer'))
    if 'initializer_stats' in outputs:
        _check_statistics(hyperparams, outputs['initializer_stats'])


def _check_initializer(hyperparams: LayerHyperparams, expected: list | str | None) -> None:
    initializer = hyperparams.initializer
    if expected is None or isinstance(expected, str):
        assert isinstance(initializer, keras.initializers.GlorotUniform)
        return
    name, options = expected
    assert type(initializer).__name__ == name
    for key, value in options.items():
        assert initializer.get_config()[key] == (
            pytest.approx(value) if isinstance(value, float) else value
        )


def _check_statistics(hyperparams: LayerHyperparams, expected: np.ndarray) -> None:
    """Mean, standard deviation, minimum and maximum of some 100,000 draws, as recorded."""
    name = type(hyperparams.initializer).__name__
    # The recorded fans are those of a [100, 2000] kernel.
    draws = hyperparams.initializer.clone()([100, 2000], dtype='float32').numpy()
    deviation = expected[1]
    np.testing.assert_allclose(draws.mean(), expected[0], atol=0.02 * deviation)
    np.testing.assert_allclose(draws.std(), deviation, rtol=0.02)
    if name != 'RandomNormal':
        bounds = [draws.min(), draws.max()]
        np.testing.assert_allclose(bounds, expected[2:], atol=0.02 * deviation)


def test_momentum_and_epsilon_of_batch_norm():
    norm = build('batch_norm { decay: 0.75 epsilon: 0.5 }').batch_norm
    assert (norm.momentum, norm.epsilon) == (0.75, 0.5)


def test_frozen_batch_norm():
    assert build('batch_norm { train: false }').batch_norm.train is False
    assert build('batch_norm {}').batch_norm.train is True


def test_every_option_has_a_builder():
    proto = hyperparams_pb2
    for message, oneof, table in (
        (proto.Regularizer, 'regularizer_oneof', hyperparams_builder.REGULARIZERS),
        (proto.Initializer, 'initializer_oneof', hyperparams_builder.INITIALIZERS),
        (proto.Hyperparams, 'normalizer_oneof', hyperparams_builder.NORMALIZERS),
    ):
        assert missing_options(message, oneof, table) == set()
    assert set(hyperparams_builder.ACTIVATIONS) == set(proto.Hyperparams.Activation.values())


@goldens.parametrize('hyperparams', names=('group_norm',))
def test_the_norm_that_the_reference_drops_is_built(case_name):
    case = goldens.load('hyperparams', case_name)
    hyperparams = build(case.config)
    # The reference builds all but the norm, and so leaves a bias in its place.
    assert not case.params['use_batch_norm']
    assert case.params['use_bias']
    assert hyperparams.batch_norm is None
    assert hyperparams.group_norm == GroupNormParams(groups=32, epsilon=pytest.approx(1e-5))
    assert not hyperparams.use_bias
    _check_initializer(hyperparams, case.params['initializer'])
    penalty = hyperparams.regularizer(tf.constant(case.inputs['w']))
    np.testing.assert_allclose(penalty, case.outputs['reg'], rtol=1e-5)


def test_group_norm():
    hyperparams = build('group_norm { groups: 4 epsilon: 0.5 } force_use_bias: true')
    assert hyperparams.group_norm == GroupNormParams(groups=4, epsilon=0.5)
    assert hyperparams.use_bias
    assert build('batch_norm {}').group_norm is None


def test_layer_norm():
    hyperparams = build('layer_norm { epsilon: 0.5 }')
    assert hyperparams.layer_norm == LayerNormParams(epsilon=0.5)
    assert not hyperparams.use_bias
    assert hyperparams.without_norm().use_bias
    assert build('layer_norm {}').layer_norm.epsilon == pytest.approx(1e-6)


@pytest.mark.parametrize(
    ('text', 'expected'),
    [
        ('LEAKY_RELU', [-0.4, -0.1, 0.0, 1.0, 2.0]),
        ('LEAKY_RELU leaky_relu_slope: 0.25', [-1.0, -0.25, 0.0, 1.0, 2.0]),
        # x times the normal distribution's 0.0000317, 0.1586553, 0.8413447 and 0.9772499.
        ('GELU', [-0.0001267, -0.1586553, 0.0, 0.8413447, 1.9544997]),
        ('HARD_SWISH', [0.0, -1 / 3, 0.0, 2 / 3, 5 / 3]),
        ('MISH', [-4 * np.tanh(np.log1p(np.exp(-4))), -0.3034015, 0.0, 0.8650984, 1.9439590]),
    ],
    ids=lambda value: value if isinstance(value, str) else '',
)
def test_activations_by_hand(text, expected):
    activation = build(f'activation: {text}').activation_layer(name='activation')
    values = tf.constant([-4.0, -1.0, 0.0, 1.0, 2.0])
    np.testing.assert_allclose(activation(values), expected, atol=1e-6)
    compiled = tf.function(activation, jit_compile=True)
    np.testing.assert_allclose(compiled(values), expected, atol=1e-6)
    rough = activation(tf.cast(values, tf.bfloat16))
    np.testing.assert_allclose(tf.cast(rough, tf.float32), expected, atol=0.02)
    extreme = tf.constant([-1e4, 1e4])
    with tf.GradientTape() as tape:
        tape.watch(extreme)
        results = activation(extreme)
    assert np.isfinite(tape.gradient(results, extreme)).all()


def test_errors():
    with pytest.raises(ValueError, match=r"keras_initializer_by_name: .*Received: 'glorot'"):
        build('initializer { keras_initializer_by_name: "glorot" }')
    with pytest.raises(
        ValueError, match=r'Hyperparams\.group_norm\.groups: expected at least 1.*: 0'
    ):
        build('group_norm { groups: 0 }')
    with pytest.raises(ValueError, match=r'group_norm\.epsilon: .*Received: -1'):
        build('group_norm { epsilon: -1 }')
    with pytest.raises(ValueError, match=r'batch_norm\.decay: .*0 to 1\. Received: 2'):
        build('batch_norm { decay: 2 }')
    initializer = hyperparams_pb2.Initializer(keras_initializer_by_name='glorot')
    with pytest.raises(ValueError, match=r"Initializer\.keras_initializer_by_name: .*'glorot'"):
        hyperparams_builder.build_initializer(initializer)
