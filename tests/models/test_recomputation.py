"""Networks that compute their maps again have the same gradients, and keep few maps."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from object_detection.core import tracing
from object_detection.models import precision, recomputation
from object_detection.models.backbones import nasnet, resnet_v1
from object_detection.optimizers.gradients import Execution, LossGradients
from object_detection.system import private_names
from tests.meta_architectures import loss_families

# Late enough for all of the drop path.
_STEP = tf.Variable(10**6, dtype=tf.int64, trainable=False)
_SEEDS = tf.constant([[3, 1], [4, 1], [5, 9], [2, 6]], tf.int32)


@pytest.fixture(scope='module')
def resnet():
    """Its norms train, so that a second pass could move their statistics twice."""
    keras.utils.set_random_seed(3)
    return resnet_v1.trunk(
        18,
        levels=[3, 5],
        hyperparams=resnet_v1.default_hyperparams(1e-4),
        batch_norm_trainable=True,
        name='backbone',
        options=resnet_v1.Options(frozen_stages=1, depth_multiplier=0.125),
    )


@pytest.fixture(scope='module')
def images():
    return tf.constant(np.random.default_rng(1).normal(size=(4, 64, 96, 3)), tf.float32)


def _losses_and_gradients(network, images, *, recomputes):
    with tf.GradientTape() as tape, tracing.drawing_by(_SEEDS), tracing.training_step(_STEP):
        tape.watch(images)
        if recomputes:
            with tracing.Recomputed():
                maps = recomputation.call(network, images, training=True)
        else:
            maps = network(images, training=True)
        loss = sum(tf.reduce_mean(tf.square(each)) for each in tf.nest.flatten(maps))
    variables = {each.path: each.value for each in network.trainable_variables}
    return loss, tape.gradient(loss, variables | {'images': images})


def _step(network, images, *, recomputes, jit_compile=None):
    """Returns loss, gradients and moving statistics after a step; the network stays as it is."""
    before = [each.numpy() for each in network.variables]
    run = tf.function(_losses_and_gradients, autograph=False, jit_compile=jit_compile)
    loss, gradients = run(network, images, recomputes=recomputes)
    after = [each.numpy() for each in network.non_trainable_variables]
    for variable, value in zip(network.variables, before, strict=True):
        variable.assign(value)
    gradients = {name: each.numpy() for name, each in gradients.items() if each is not None}
    return loss.numpy(), gradients, after


def _assert_equal(found, expected):
    assert found[0] == pytest.approx(expected[0], rel=1e-5)
    assert found[1].keys() == expected[1].keys()
    for name, gradient in expected[1].items():
        size = np.max(np.abs(gradient))
        np.testing.assert_allclose(found[1][name], gradient, rtol=0, atol=1e-4 * size, err_msg=name)
    for value, same in zip(found[2], expected[2], strict=True):
        np.testing.assert_allclose(value, same, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize('jit_compile', [None, True])
def test_gradients_and_statistics_are_those_of_one_pass(resnet, images, jit_compile):
    expected = _step(resnet, images, recomputes=False, jit_compile=jit_compile)
    found = _step(resnet, images, recomputes=True, jit_compile=jit_compile)
    _assert_equal(found, expected)
    moved = [each.numpy() for each in resnet.non_trainable_variables]
    assert any(np.any(value != new) for value, new in zip(moved, found[2], strict=True))


def test_random_numbers_are_drawn_again():
    inputs = keras.Input((None, None, 3), name='images')
    x = keras.layers.Conv2D(4, 3, name='conv')(inputs)
    x = nasnet.DropPath(0.5, 7, name='drop_path')(x)
    network = keras.Model(inputs, keras.layers.Conv2D(2, 3, name='last')(x))
    images = tf.constant(np.random.default_rng(2).uniform(size=(4, 16, 16, 3)), tf.float32)
    _assert_equal(_step(network, images, recomputes=True), _step(network, images, recomputes=False))


def _maps_kept(network, images, *, recomputes):
    """Counts the maps of the forward pass that operations of the backward pass take."""
    made_before = {}

    @tf.function(autograph=False)
    def run(images):
        with tf.GradientTape() as tape, tracing.Recomputed():
            call = recomputation.call if recomputes else keras.Model.__call__
            loss = sum(tf.reduce_sum(each) for each in call(network, images, training=True))
        made_before.update({op.name: op for op in loss.graph.get_operations()})
        return tape.gradient(loss, [each.value for each in network.trainable_variables])

    graph = run.get_concrete_function(images).graph
    taken = {
        tensor.name
        for op in graph.get_operations()
        if op.name not in made_before
        for tensor in op.inputs
        if tensor.op.name in made_before and tensor.shape.rank == 4
        if tensor.shape[:1] == images.shape[:1]
    }
    return len(taken)


def test_few_maps_are_kept(resnet, images):
    segments = list(recomputation.segments(private_names.nodes(resnet), resnet.outputs))
    borders = 1 + sum(len(each.outputs) for each in segments)  # The images are one.
    assert 4 < len(segments) < 12
    kept = _maps_kept(resnet, images, recomputes=True)
    assert 0 < kept <= borders
    assert _maps_kept(resnet, images, recomputes=False) > 3 * borders


def test_a_network_without_calls_of_layers_is_one_segment(images):
    class Twice(keras.layers.Layer):
        def build(self, shape):
            self.scale = self.add_weight(shape=(), initializer='ones', name='scale')

        def call(self, inputs, training=None):
            assert inputs.shape.rank == 4
            return tf.square(tf.square(inputs * self.scale.value))

    layer = Twice()
    layer(images)
    _assert_equal(_step(layer, images, recomputes=True), _step(layer, images, recomputes=False))


def test_exempt_layers_compute_as_without(images):
    """Maps between segments keep the precision that layers got after the network was built."""
    with precision.scope('mixed_bfloat16'):
        network = resnet_v1.trunk(
            18,
            levels=[3],
            hyperparams=resnet_v1.default_hyperparams(0.0),
            batch_norm_trainable=False,
            name='backbone',
            options=resnet_v1.Options(depth_multiplier=0.125),
        )
    for layer in (network, *network.layers):
        layer.dtype_policy = 'float32'
    private_names.set_input_dtype(network, 'float32')
    _assert_equal(_step(network, images, recomputes=True), _step(network, images, recomputes=False))


def test_a_step_runs_the_network_once_more():
    """The field of the config reaches the feature extractor of a detector."""

    def convolutions(recomputes):
        detector = loss_families.build('ssd')
        batch = loss_families.batch_of(detector)
        gradients = LossGradients(
            lambda batch, seeds: loss_families.loss_sums(detector, batch, seeds),
            detector.named_trainable_variables(),
            Execution(recomputes=recomputes),
        )
        run = tf.function(
            lambda: gradients(batch, tf.constant(loss_families.SEEDS)), autograph=False
        )
        return sum(op.type == 'Conv2D' for op in run.get_concrete_function().graph.get_operations())

    assert convolutions(True) == convolutions(False) + 3  # Those of its extractor.
