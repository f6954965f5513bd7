"""Rounding of weights and activations, against NumPy."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from object_detection.core import tracing
from object_detection.errors import UserError
from object_detection.models import rounding
from object_detection.models.hyperparams import LayerHyperparams
from object_detection.models.normalization import BatchNormParams, FrozenBatchNorm, normalized
from object_detection.models.quantization import Quantization, QuantizationParams
from tests import rows
from tests.models import test_folding as folding

RNG = np.random.default_rng(0)
HYPERPARAMS = LayerHyperparams(activation='relu6', batch_norm=BatchNormParams(scale=True))
IMAGES = RNG.uniform(-1.0, 3.0, [2, 8, 8, 3]).astype(np.float32)


class Head(keras.layers.Layer):
    """Convolutions that two levels share, a separable one with a norm for each."""

    def __init__(self):
        super().__init__(name='head')
        self.conv = HYPERPARAMS.separable_conv(4, 3, name='conv')
        self.norms = [HYPERPARAMS.norm(frozen=False, name=f'bn_{i}') for i in range(2)]
        self.activation = HYPERPARAMS.activation_layer(name='activation')
        self.last = HYPERPARAMS.conv(5, 1, use_bias=True, name='last')

    def call(self, levels, training=False):
        return [
            self.last(self.activation(normalized(self.conv, norm, level, training)))
            for norm, level in zip(self.norms, levels, strict=True)
        ]


class Network:
    """A residual block, a gate, a pool, and a head of two levels."""

    def __init__(self, **options):
        self.quantization = Quantization(QuantizationParams(**options))
        with rounding.rounded_by(self.quantization):
            self._make()

    def _make(self):
        x = images = keras.Input((None, None, 3), name='images')
        x = rounding.ZeroPadding2D(1, name='pad')(x)
        x = self._conv_norm(x, 'first', padding='valid')
        x = first = HYPERPARAMS.activation_layer(name='first_relu')(x)
        x = rounding.Add(name='add')([first, self._conv_norm(x, 'second')])
        x = HYPERPARAMS.activation_layer(name='add_relu')(x)
        x = rounding.Activation('sigmoid', name='gate')(self._conv_norm(x, 'third'))
        pooled = rounding.MaxPooling2D(2, name='pool')(x)
        self.backbone = keras.Model(images, [x, pooled], name='backbone')
        self.head = Head()
        self.head(self.backbone(IMAGES))

    def _conv_norm(self, x, name, **options):
        conv = HYPERPARAMS.conv(4, 3, name=name, **options)
        return normalized(conv, HYPERPARAMS.norm(frozen=False, name=f'{name}_bn'), x)

    def layers(self):
        for top in (self.backbone, self.head):
            for layer in top._flatten_layers():
                yield f'{top.name}/{layer.name}', layer

    def __call__(self, images, training=False):
        return self.head(self.backbone(images, training=training), training=training)

    def quantized(self) -> Quantization:
        def run():
            self(tf.zeros([1, 8, 8, 3]))

        trace = tf.function(run, autograph=False).get_concrete_function
        self.quantization.build(list(self.layers()), trace)
        return self.quantization


def rounded_kernel(kernel: np.ndarray, bits: int, channel_axes: int = 1) -> np.ndarray:
    axes = tuple(range(kernel.ndim - channel_axes))
    levels = 2 ** (bits - 1) - 1
    scale = np.abs(kernel).max(axes, keepdims=True) / levels
    return (np.round(kernel / scale) * scale).astype(np.float32)


def fake_quant(values: np.ndarray, low: float, high: float, bits: int = 8) -> np.ndarray:
    """As an integer model stores values: zero is one of the levels."""
    scale = (high - low) / (2**bits - 1)
    zero = np.clip(np.round(-low / scale), 0, 2**bits - 1)
    return (np.clip(np.round(values / scale) + zero, 0, 2**bits - 1) - zero) * scale


def quantized(make, params: QuantizationParams, run=lambda layer: None):
    """Makes a layer that is rounded: the layer and the quantization."""
    quantization = Quantization(params)
    with rounding.rounded_by(quantization):
        layer = make()
    quantization.build([(layer.name, layer)], lambda: run(layer))
    return layer, quantization


def both(name: str, bits: int):
    """A layer with rounded weights, a norm and inputs of it, and the layer as it is."""
    plain, norm, inputs = folding.pair(name)
    layer, _ = quantized(folding.LAYERS[name][1], QuantizationParams(weight_bits=bits))
    layer.build(inputs.shape)
    layer.set_weights(plain.get_weights())
    return layer, norm, inputs, plain


@rows.parametrize('bits', [3, 8])
@rows.parametrize('name', folding.LAYERS)
def test_each_channel_of_a_kernel_is_rounded(name, bits):
    layer, norm, inputs, plain = both(name, bits)
    kernels = [each.numpy() for each in layer.weights if each.shape.rank > 1]
    rounded = layer(inputs).numpy()
    folded, _ = folding.run(layer, norm, inputs)
    layer = plain
    axes = [2 if 'depthwise' in each.name else 1 for each in layer.weights if each.shape.rank > 1]
    for variable, kernel, axis in zip(layer.weights, kernels, axes, strict=False):
        variable.assign(rounded_kernel(kernel, bits, axis))
    limit = folding.rounding(layer, norm, inputs)
    np.testing.assert_array_less(np.abs(layer(inputs).numpy() - rounded), limit + 1e-5)
    # Rounding the folded kernel and folding the rounded one are the same.
    expected, _ = folding.run(layer, norm, inputs)
    np.testing.assert_allclose(folded, expected, rtol=1e-4, atol=1e-4)


def test_gradients_pass_the_rounding_of_a_kernel():
    layer, _, inputs, plain = both('convolution', 2)
    step = tf.Variable(5, dtype=tf.int64)
    with tracing.training_step(step), tf.GradientTape() as tape:
        outputs = tf.reduce_sum(layer(inputs))
    gradient = tape.gradient(outputs, layer.kernel.value)
    with tf.GradientTape() as tape:
        outputs = tf.reduce_sum(plain(inputs))
    np.testing.assert_allclose(gradient, tape.gradient(outputs, plain.kernel.value), rtol=1e-5)


def test_the_tensors_that_an_integer_model_stores_have_ranges():
    network = Network()
    names = network.quantized().ranges
    places = {name.removesuffix('/moving_min') for name in names if name.endswith('min')}
    assert places == {
        'backbone/pad/input_0',
        'backbone/first_relu',
        'backbone/second_bn',
        'backbone/add_relu',
        'backbone/third_bn',
        'backbone/gate',
        'head/conv/inner',
        'head/conv/call_1/inner',
        'head/activation',
        'head/activation/call_1',
        'head/last',
        'head/last/call_1',
    }
    assert {name.replace('_max', '_min') for name in names} == {f'{p}/moving_min' for p in places}


def test_ranges_are_means_and_then_moving_averages_of_the_batches():
    network = Network()
    quantization = network.quantized()
    step = tf.Variable(0, dtype=tf.int64)

    @tf.function(autograph=False)
    def run(images):
        with tracing.training_step(step):
            return network(images, training=True)

    def limits() -> list[float]:
        return [
            float(quantization.ranges[f'backbone/pad/input_0/moving_{end}'])
            for end in ('min', 'max')
        ]

    assert limits() == [-6.0, 6.0]
    run(tf.constant(IMAGES))
    first = np.array([IMAGES.min(), IMAGES.max()])
    np.testing.assert_allclose(limits(), first, rtol=1e-6)
    step.assign(1)
    run(tf.constant(IMAGES * 2.0))
    np.testing.assert_allclose(limits(), 1.5 * first, rtol=1e-6)
    # The number of batches counts, not the step, which a training from a checkpoint begins anew.
    step.assign(0)
    quantization.variables['count'].assign(5000.0)
    run(tf.constant(IMAGES))
    np.testing.assert_allclose(limits(), 1.5 * first - 0.001 * 0.5 * first, rtol=1e-5)
    # Neither further passes of a step nor evaluations change them.
    before = limits()
    with tracing.FrozenStatistics(), tracing.training_step(step):
        network(tf.constant(IMAGES * 9.0), training=True)
    network(tf.constant(IMAGES * 9.0))
    assert limits() == before


@rows.parametrize('symmetric', [False, True])
@rows.parametrize('bits', [4, 8])
def test_activations_are_rounded_within_their_ranges(bits, symmetric):
    conv, quantization = quantized(
        lambda: HYPERPARAMS.conv(3, 1, use_bias=True, name='conv'),
        QuantizationParams(weight_bits=8, activation_bits=bits, symmetric=symmetric),
        lambda conv: conv(IMAGES),
    )
    conv.set_weights([np.eye(3)[np.newaxis, np.newaxis], np.zeros(3)])
    step = tf.Variable(0, dtype=tf.int64)
    with tracing.training_step(step):
        conv(tf.constant(IMAGES))
    low, high = (float(quantization.ranges[f'conv/input_0/moving_{e}']) for e in ('min', 'max'))
    assert high == pytest.approx(IMAGES.max())
    half = 2 ** (bits - 1)
    assert low == pytest.approx(-high * half / (half - 1) if symmetric else IMAGES.min())
    rounded = conv(tf.constant(IMAGES)).numpy()
    once = fake_quant(IMAGES, low, high, bits)
    out = [float(quantization.ranges[f'conv/moving_{e}']) for e in ('min', 'max')]
    # A value halfway between two levels may go either way.
    one_level = (high - low) / (2**bits - 1)
    differences = np.abs(rounded - fake_quant(once, *out, bits))
    assert differences.max() < 1.01 * one_level
    assert np.mean(differences > 1e-4) < 0.01
    assert len(np.unique(np.round(rounded, 4))) <= 2**bits


def test_a_training_rounds_after_the_delay_and_the_rest_always():
    network = Network(delay=3, weight_bits=4, activation_bits=4)
    plain = [each.numpy() for each in network(IMAGES)]
    network.quantized()
    step = tf.Variable(2, dtype=tf.int64)

    @tf.function(autograph=False)
    def run():
        with tracing.training_step(step), tracing.FrozenStatistics():
            return network(tf.constant(IMAGES))

    before = [each.numpy() for each in run()]
    for expected, found in zip(plain, before, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    step.assign(3)
    after = [each.numpy() for each in run()]
    for expected, found, in_inference in zip(plain, after, network(IMAGES), strict=True):
        assert np.abs(found - expected).max() > 0.01 * np.abs(expected).max()
        np.testing.assert_allclose(found, in_inference, rtol=1e-4, atol=1e-5)


def test_layers_with_other_weights_are_refused_by_name():
    layer = keras.layers.Conv2DTranspose(2, 2, name='deconv')
    layer.build((None, 4, 4, 3))
    with pytest.raises(UserError, match=r'mask_head/deconv \(Conv2DTranspose\)'):
        Quantization(QuantizationParams()).build([('mask_head/deconv', layer)], lambda: None)


def test_layers_of_keras_that_would_not_be_rounded_are_refused():
    layer = keras.layers.Add(name='add')
    with pytest.raises(UserError, match=r'block/add \(Add\)'):
        Quantization(QuantizationParams()).build([('block/add', layer)], lambda: None)


def test_a_norm_that_follows_no_convolution_has_ranges_of_its_own():
    _, quantization = quantized(
        lambda: folding.filled(FrozenBatchNorm(name='norm'), [None, None, None, 3]),
        QuantizationParams(),
        lambda norm: norm(IMAGES),
    )
    assert {name.rpartition('/')[0] for name in quantization.ranges} == {'norm/input_0', 'norm'}
