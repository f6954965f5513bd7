import keras
import numpy as np
import pytest
import tensorflow as tf

from object_detection.models import convolutions
from object_detection.models.convolutions import Convolution, PlainGradients
from tests import rows


def gradients(layer, maps, upstream, *, training=True):
    """Of the maps and of the layer's variables, with the names of the operations behind them."""

    @tf.function(autograph=False)
    def run(maps):
        with tf.GradientTape() as tape:
            tape.watch(maps)
            outputs = layer(maps, training=training)
            total = tf.reduce_sum(tf.cast(outputs, tf.float32) * upstream)
        return tape.gradient(total, [maps, *(v.value for v in layer.trainable_variables)])

    # Runs before its operations are looked at: some have gradients that no CPU can compute.
    found = run(maps)
    kinds = {op.type for op in run.get_concrete_function(maps).graph.get_operations()}
    return found, kinds


def layer_and_maps(shape, *, filters=4, kernel_size=3, **options):
    layer = Convolution(filters, kernel_size, name='conv', **{'padding': 'same'} | options)
    layer.build(shape)
    rng = np.random.default_rng(0)
    for variable in layer.trainable_variables:
        variable.assign(rng.normal(size=variable.shape))
    maps = tf.constant(rng.normal(size=shape), tf.float32)
    return layer, maps, tf.constant(rng.normal(size=layer(maps).shape), tf.float32)


@rows.parametrize(
    ('shape', 'kernel_size'),
    [
        ((1, 64, 80, 3), 3),
        ((3, 47, 53, 3), 3),
        ((2, 70, 66, 3), (1, 5)),
        ((1, 64, 64, 3), 1),
        ((40, 11, 13, 3), 3),  # Much padding: of the kernel's gradient TensorFlow's own.
    ],
)
def test_gradients_of_many_pixels_are_tensorflows(shape, kernel_size):
    layer, maps, upstream = layer_and_maps(shape, kernel_size=kernel_size, use_bias=True)
    ours, kinds = gradients(layer, maps, upstream)
    assert 'Conv2DBackpropInput' not in kinds
    assert ('Conv2DBackpropFilter' in kinds) == (shape[0] == 40)
    with PlainGradients():
        plain, kinds = gradients(layer, maps, upstream)
    assert {'Conv2DBackpropInput', 'Conv2DBackpropFilter'} <= kinds
    for our, other in zip(ours, plain, strict=True):
        np.testing.assert_allclose(our, other, rtol=1e-4, atol=1e-5 * np.abs(other).max())


@rows.parametrize(
    ('shape', 'options', 'training'),
    [
        ((1, 60, 60, 3), {}, True),
        ((1, 64, 80, 3), {}, False),
        ((1, 64, 80, 3), {'strides': 2}, True),
        ((1, 64, 80, 3), {'dilation_rate': 2}, True),
        ((1, 66, 82, 3), {'padding': 'valid'}, True),
        ((1, 64, 80, 3), {'kernel_size': 2}, True),
        ((1, 64, 80, 3), {'dtype': 'mixed_bfloat16'}, True),
        ((1, 64, 80, 3), {'dtype': 'mixed_float16'}, True),
    ],
)
def test_other_convolutions_keep_their_gradients(shape, options, training):
    layer, maps, upstream = layer_and_maps(shape, **options)
    _, kinds = gradients(layer, maps, upstream, training=training)
    assert {'Conv2DBackpropInput', 'Conv2DBackpropFilter'} <= kinds


@pytest.mark.parametrize(
    ('shape', 'kernel_size'),
    [((2, 12, 10, 8), 1), ((1, 184, 184, 8), 3), ((3, 129, 92, 8), (3, 5))],
)
def test_gradients_in_bfloat16_are_those_of_rounded_values(shape, kernel_size):
    layer, maps, upstream = layer_and_maps(
        shape, kernel_size=kernel_size, filters=6, use_bias=False, dtype='mixed_bfloat16'
    )
    maps, upstream = rounded(maps), rounded(upstream)
    layer.kernel.assign(rounded(layer.kernel.value))
    ours, kinds = gradients(layer, maps, upstream)
    assert 'Conv2DBackpropFilter' not in kinds
    # That of the maps is TensorFlow's, which without oneDNN also sums in bfloat16.
    with PlainGradients():
        plain, _ = gradients(layer, maps, upstream)
    np.testing.assert_array_equal(ours[0], plain[0])
    wanted = exact_gradients(maps, layer.kernel.value, upstream)
    assert_close_in_bfloat16(ours[1:], wanted[1:])


@pytest.mark.parametrize('dtype', ['float32', 'mixed_bfloat16'])
@pytest.mark.parametrize(
    ('shape', 'kernel_size', 'share'),
    [
        ((2, 51, 47, 8), 3, 0.01),
        ((1, 64, 80, 8), 1, 0.03),
        ((2, 60, 40, 8), (1, 5), 0.01),
        ((2, 50, 46, 8), 3, 0.0),
        ((1, 64, 80, 8), 1, 0.5),  # Too many.
    ],
)
def test_gradients_of_few_pixels(monkeypatch, shape, kernel_size, share, dtype):
    large = dict.fromkeys((tf.float32, tf.bfloat16), (4096, 4096))
    monkeypatch.setattr(convolutions, '_LARGE', large)
    layer, maps, upstream = layer_and_maps(
        shape,
        kernel_size=kernel_size,
        filters=5,
        sparse_gradients=True,
        use_bias=False,
        dtype=dtype,
    )
    if dtype == 'mixed_bfloat16':
        maps, upstream = rounded(maps), rounded(upstream)
        layer.kernel.assign(rounded(layer.kernel.value))
    kept = np.random.default_rng(1).uniform(size=(*shape[:3], 1)) < share
    # Corners see the border of the image on two sides; parts of pixels are zero too.
    kept[-1, -1, -1] = kept[0, 0, 0] = share > 0
    upstream *= kept.astype(np.float32) * np.float32([1, 0, 1, 0, 1])
    ours, kinds = gradients(layer, maps, upstream)
    assert kinds & {'If', 'StatelessIf'}
    wanted = exact_gradients(maps, layer.kernel.value, upstream)
    if dtype == 'mixed_bfloat16':
        assert_close_in_bfloat16(ours, wanted)
        return
    for our, other in zip(ours, wanted, strict=True):
        np.testing.assert_allclose(our, other, rtol=1e-5, atol=1e-5)


def rounded(values):
    return tf.cast(tf.cast(values, tf.bfloat16), tf.float32)


def exact_gradients(maps, kernel, upstream):
    with tf.GradientTape() as tape:
        tape.watch([maps, kernel])
        total = tf.reduce_sum(tf.nn.conv2d(maps, kernel, 1, 'SAME') * upstream)
    return tape.gradient(total, [maps, kernel])


def assert_close_in_bfloat16(ours, wanted):
    """Products of numbers of bfloat16 are exact in float32; sums are rounded to 8 bits."""
    for our, other in zip(ours, wanted, strict=True):
        np.testing.assert_allclose(our, other, rtol=2**-7, atol=2**-9 * np.abs(other).max())


def test_graphs_of_xla_compute_all_pixels():
    layer, maps, upstream = layer_and_maps((1, 64, 80, 3), sparse_gradients=True)

    @tf.function(jit_compile=True, autograph=False)
    def run(maps):
        with tf.GradientTape() as tape:
            total = tf.reduce_sum(layer(maps, training=True) * upstream)
        return tape.gradient(total, layer.kernel.value)

    kernel_only = exact_gradients(maps, layer.kernel.value, upstream)[1]
    np.testing.assert_allclose(run(maps), kernel_only, rtol=1e-4, atol=1e-3)


def test_graphs_of_accelerators_keep_their_gradients(monkeypatch):
    devices = [tf.config.LogicalDevice('/device:GPU:0', 'GPU')]
    monkeypatch.setattr(tf.config, 'list_logical_devices', lambda kind=None: devices)
    layer, maps, upstream = layer_and_maps((1, 64, 80, 3))
    _, kinds = gradients(layer, maps, upstream)
    assert {'Conv2DBackpropInput', 'Conv2DBackpropFilter'} <= kinds


def test_computes_what_keras_does():
    layer, maps, _ = layer_and_maps((2, 9, 8, 3), strides=2, use_bias=True, activation='relu')
    other = keras.layers.Conv2D(4, 3, strides=2, padding='same', activation='relu')
    other.build(maps.shape)
    other.set_weights(layer.get_weights())
    np.testing.assert_allclose(layer(maps), other(maps), rtol=1e-6, atol=1e-6)
