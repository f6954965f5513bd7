"""Norms that become part of the layer before them."""

import keras
import numpy as np
import tensorflow as tf

from object_detection.models.convolutions import (
    Convolution,
    Dense,
    DepthwiseConvolution,
    FoldedVariables,
    SeparableConvolution,
)
from object_detection.models.normalization import (
    BatchNorm,
    FrozenBatchNorm,
    normalized,
)
from tests import rows

RNG = np.random.default_rng(0)
EPSILON = np.finfo(np.float32).eps
CHANNELS = 6
# Shape of the inputs and layer, which has six channels.
LAYERS = {
    'convolution': ([2, 7, 6, 3], lambda **o: Convolution(6, 3, name='layer', **o)),
    'dilated': ([2, 7, 6, 3], lambda **o: Convolution(6, 3, dilation_rate=2, name='layer', **o)),
    'depthwise': (
        [2, 7, 7, 3],
        lambda **o: DepthwiseConvolution(3, strides=2, depth_multiplier=2, name='layer', **o),
    ),
    'separable': ([2, 7, 6, 3], lambda **o: SeparableConvolution(6, 3, name='layer', **o)),
    'dense': ([5, 3], lambda **o: Dense(6, name='layer', **o)),
}


def filled(layer: keras.layers.Layer, shape) -> keras.layers.Layer:
    """Builds a layer and gives it weights as of a training; variances are positive."""
    if not layer.built:
        layer.build(shape)
    layer.set_weights([RNG.uniform(0.5, 1.5, each.shape) for each in layer.weights])
    return layer


def pair(name: str, **options) -> tuple[keras.layers.Layer, BatchNorm, tf.Tensor]:
    """A layer, a norm that does not train, and inputs."""
    shape, make = LAYERS[name]
    layer = filled(make(**options), shape)
    norm = filled(FrozenBatchNorm(name='norm'), [*[None] * len(shape[1:]), CHANNELS])
    return layer, norm, tf.constant(RNG.normal(size=shape), tf.float32)


def rounding(layer: keras.layers.Layer, norm: BatchNorm, inputs: tf.Tensor) -> np.ndarray:
    """How far two ways to compute the same sums may be apart, for each output.

    A sum of n products is off by n roundings of the sum of their sizes at most. The layer's sum is
    scaled before or after, and the bias, mean and offset are added one by one or as one number.
    """
    kernel, _ = norm.fold(layer)
    sizes = layer.apply_kernel(tf.abs(inputs), tf.abs(kernel)).numpy()
    scale = norm.gamma.numpy() / np.sqrt(norm.moving_variance.numpy() + norm.epsilon)
    bias = layer.bias.numpy() if layer.use_bias else 0.0
    added = (np.abs(bias) + np.abs(norm.moving_mean.numpy())) * np.abs(scale)
    terms = sum(np.prod(each.shape[:-1]) for each in layer.weights) + 8
    return terms * EPSILON * (sizes + added + np.abs(norm.beta.numpy()))


def kinds(function) -> set[str]:
    return {each.type for each in function.get_concrete_function().graph.get_operations()}


def run(layer, norm, inputs, training=False, **context):
    """`normalized` in a graph, and the kinds of its operations."""
    graph = tf.function(lambda: normalized(layer, norm, inputs, training), autograph=False)
    return graph().numpy(), kinds(graph)


@rows.parametrize('use_bias', [False, True])
@rows.parametrize('name', LAYERS)
def test_the_folded_layer_computes_the_same(name, use_bias):
    layer, norm, inputs = pair(name, use_bias=use_bias)
    # Eagerly, one is done after the other.
    expected = norm(layer(inputs)).numpy()
    np.testing.assert_array_equal(normalized(layer, norm, inputs), expected)
    found, operations = run(layer, norm, inputs)
    allowed = rounding(layer, norm, inputs)
    assert allowed.max() < 1e-3 * np.abs(expected).max()
    assert (np.abs(found - expected) <= allowed).all()
    assert 'FusedBatchNormV3' not in operations

    folded = FoldedVariables()
    graph = tf.function(lambda: normalized(layer, norm, inputs), autograph=False)
    with folded:
        concrete = graph.get_concrete_function()
    kernel, offset = folded.variables
    captured = {id(each) for each, _ in concrete.graph.captures}
    assert {id(kernel.handle), id(offset.handle)} <= captured
    np.testing.assert_array_equal(concrete(), found)
    # The variables are not the norm's: what is done to it later does not count.
    norm.set_weights([2 * each for each in norm.get_weights()])
    np.testing.assert_array_equal(concrete(), found)


def test_the_graph_is_traced_once():
    layer, norm, inputs = pair('convolution')
    traces = []

    def traced():
        traces.append(1)
        return normalized(layer, norm, inputs)

    with FoldedVariables():
        tf.function(traced, autograph=False).get_concrete_function()
    assert len(traces) == 1


@rows.parametrize('name', ['convolution', 'separable', 'depthwise'])
def test_a_tower_shared_over_levels_has_a_kernel_for_each_norm(name):
    layer, norm, level = pair(name, use_bias=True)
    norms = [
        norm,
        *(filled(FrozenBatchNorm(name=f'norm_{i}'), [None, None, None, 6]) for i in (1, 2)),
    ]
    levels = [level, level[:, :5, :5], level[:, :3, :3]]
    folded = FoldedVariables()

    def tower():
        return [normalized(layer, *each) for each in zip(norms, levels, strict=True)]

    graph = tf.function(tower, autograph=False)
    with folded:
        outputs = graph()
    assert len(folded.variables) == 6
    for norm, level, found in zip(norms, levels, outputs, strict=True):
        difference = np.abs(found.numpy() - norm(layer(level)).numpy())
        assert (difference <= rounding(layer, norm, level)).all()
    assert 'FusedBatchNormV3' not in kinds(graph)


def test_one_norm_over_levels_is_folded_once():
    """As in the region proposal network."""
    layer, norm, level = pair('convolution')
    levels, folded = [level, level[:, :4, :4]], FoldedVariables()
    with folded:
        outputs = tf.function(lambda: [normalized(layer, norm, each) for each in levels])()
    assert len(folded.variables) == 2
    for level, found in zip(levels, outputs, strict=True):
        difference = np.abs(found.numpy() - norm(layer(level)).numpy())
        assert (difference <= rounding(layer, norm, level)).all()


@rows.parametrize(
    ('name', 'use_bias', 'is_folded'),
    [
        ('convolution', False, True),
        ('convolution', True, False),
        ('depthwise', False, True),
        ('separable', False, False),
        ('dense', False, False),
    ],
)
def test_what_is_folded_in_training(name, use_bias, is_folded):
    layer, norm, inputs = pair(name, use_bias=use_bias)
    found, operations = run(layer, norm, inputs, training=True)
    if is_folded:
        assert 'FusedBatchNormV3' not in operations
        difference = np.abs(found - norm(layer(inputs)).numpy())
        assert (difference <= rounding(layer, norm, inputs)).all()
    else:
        unfolded = tf.function(lambda: norm(layer(inputs), training=True))
        np.testing.assert_array_equal(found, unfolded())


def test_layers_that_nothing_can_become_part_of():
    for options in ({'activation': 'relu'}, {'dtype': 'mixed_bfloat16'}):
        layer, norm, inputs = pair('convolution', **options)
        found, operations = run(layer, norm, inputs)
        assert 'FusedBatchNormV3' in operations
        np.testing.assert_array_equal(found, tf.function(lambda: norm(layer(inputs)))())  # noqa: B023
    layer, _, inputs = pair('convolution')
    identity = keras.layers.Identity()
    np.testing.assert_array_equal(normalized(layer, identity, inputs), layer(inputs))


def test_functional_models_fold_and_keep_their_layers():
    image = keras.Input((None, None, 3))
    conv, norm = Convolution(6, 3, use_bias=False, name='conv'), FrozenBatchNorm(name='bn')
    model = keras.Model(image, normalized(conv, norm, image))
    assert [layer.name for layer in model.layers][1:] == ['conv', 'bn']
    assert [each.path for each in model.variables] == [
        'conv/kernel', 'bn/gamma', 'bn/beta', 'bn/moving_mean', 'bn/moving_variance',
    ]  # fmt: skip
    filled(norm, None)
    images = tf.constant(RNG.normal(size=[1, 6, 6, 3]), tf.float32)
    graph = tf.function(lambda: model(images, training=True), autograph=False)
    assert 'FusedBatchNormV3' not in kinds(graph)
    difference = np.abs(graph().numpy() - norm(conv(images)).numpy())
    assert (difference <= rounding(conv, norm, images)).all()


def test_names_of_variables_are_those_of_keras_2():
    for name, expected in {
        'depthwise': ['layer/depthwise_kernel', 'layer/bias'],
        'separable': ['layer/depthwise_kernel', 'layer/pointwise_kernel', 'layer/bias'],
    }.items():
        layer = pair(name)[0]
        assert [each.path for each in layer.variables] == expected
