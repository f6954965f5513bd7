import keras
import numpy as np
import pytest
import tensorflow as tf

from object_detection.core import tracing
from object_detection.models.backbones import hourglass
from object_detection.models.hyperparams import LayerHyperparams
from object_detection.models.normalization import (
    BatchNorm,
    BatchNormParams,
    GroupNorm,
    GroupNormParams,
    LayerNormParams,
    normalized,
)
from tests import forks, goldens, rows


@pytest.mark.parametrize('dtype', ['float32', 'mixed_bfloat16'])
def test_group_norm_by_numpy(dtype):
    hyperparams = LayerHyperparams(group_norm=GroupNormParams(groups=2, epsilon=0.1))
    assert not hyperparams.use_bias
    norm = hyperparams.norm(frozen=True, name='norm', dtype=dtype)
    rng = np.random.default_rng(0)
    maps = rng.normal(3.0, 2.0, [2, 3, 5, 4]).astype(np.float32)
    norm.build(maps.shape)
    scale, offset = rng.normal(size=[2, 4]).astype(np.float32)
    norm.set_weights([scale, offset])
    maps = tf.cast(maps, norm.compute_dtype)
    inputs = np.asarray(tf.cast(maps, tf.float32))
    groups = inputs.reshape(2, 15, 2, 2)
    mean, variance = (f(groups, axis=(1, 3), keepdims=True) for f in (np.mean, np.var))
    expected = ((groups - mean) / np.sqrt(variance + 0.1)).reshape(inputs.shape) * scale + offset
    outputs = norm(maps, training=True)
    assert outputs.dtype == norm.compute_dtype
    tolerance = 1e-5 if dtype == 'float32' else 2e-2
    np.testing.assert_allclose(tf.cast(outputs, tf.float32), expected, atol=tolerance)
    assert len(norm.trainable_variables) == len(norm.variables) == 2


# Maps that are large enough for the kernels, and those that are not.
LARGE, SMALL = (1, 64, 32, 64), (2, 5, 3, 8)
# Of sums in float32, and twice the spacing of the numbers around 1 in 16 bits.
ROUNDING = {'float32': 2e-5, 'mixed_bfloat16': 2.0**-6, 'mixed_float16': 2.0**-9}


def _group_norm(kind, shape, policy='float32'):
    """A norm of a kind with weights of its own."""
    norm = kind(4, epsilon=1e-3, dtype=policy)
    norm.build(shape)
    norm.set_weights(np.random.default_rng(1).normal(size=[2, shape[-1]]))
    return norm


def _with_gradients(norm, maps, upstream):
    """Outputs of a norm, and gradients of the maps, scale and offset."""
    variables = [variable.value for variable in norm.trainable_variables]
    with tf.GradientTape() as tape:
        tape.watch(maps)
        outputs = norm(maps)
        total = tf.reduce_sum(tf.cast(outputs, upstream.dtype) * upstream)
    return [outputs, *tape.gradient(total, [maps, *variables])]


@rows.parametrize('compiled', [False, True])
@rows.parametrize('policy', ['float32', 'mixed_bfloat16', 'mixed_float16'])
@rows.parametrize('shape', [LARGE, SMALL, (1, 1, 1, 32)])
def test_group_norm_and_its_gradients_are_those_of_keras_in_float64(shape, policy, compiled):
    rng = np.random.default_rng(0)
    norm = _group_norm(GroupNorm, shape, policy)
    maps = tf.cast(rng.normal(3.0, 2.0, shape), norm.compute_dtype)
    upstream = rng.normal(size=shape).astype(np.float32)
    exact = _group_norm(keras.layers.GroupNormalization, shape, 'float64')
    wanted = _with_gradients(exact, tf.cast(maps, tf.float64), tf.cast(upstream, tf.float64))
    run = tf.function(
        lambda maps: _with_gradients(norm, maps, upstream), autograph=False, jit_compile=compiled
    )
    found = run(maps)
    assert found[0].dtype == found[1].dtype == norm.compute_dtype
    for ours, exact in zip(found, wanted, strict=True):
        # Outputs and their gradients are rounded, the sums over the pixels are not.
        limit = ROUNDING[policy] * np.abs(exact).max()
        np.testing.assert_allclose(tf.cast(ours, tf.float64), exact, rtol=0, atol=limit)


@rows.parametrize('shape', [LARGE, SMALL])
def test_group_norm_of_maps_of_any_size(shape):
    norm = _group_norm(GroupNorm, shape)
    maps = tf.random.stateless_normal(shape, seed=[0, 0])
    for static in (shape[0], None):
        signature = tf.TensorSpec([static, None, None, shape[-1]])
        found = tf.function(norm, input_signature=[signature], autograph=False)(maps)
        np.testing.assert_allclose(found, norm(maps), atol=2e-6)


def test_group_norm_of_basic_operations_has_no_kernel_of_batches_and_no_own_gradient():
    norm = _group_norm(GroupNorm, LARGE)
    maps = tf.random.stateless_normal(LARGE, seed=[0, 0])
    fast = tf.function(norm, autograph=False).get_concrete_function(maps)
    with tracing.BasicOperations(), tracing.SingleImages():
        basic = tf.function(norm, autograph=False).get_concrete_function(maps)
    kinds, basic_kinds = (
        {operation.type for operation in each.graph.get_operations()} for each in (fast, basic)
    )
    kernels = {'FusedBatchNormV3', 'IdentityN'}
    assert kernels <= kinds
    assert not kernels & basic_kinds
    np.testing.assert_allclose(basic(maps), fast(maps), atol=2e-6)


def test_group_norm_needs_groups_that_divide_the_channels():
    norm = LayerHyperparams(group_norm=GroupNormParams()).norm(frozen=False, name='classes_bn')
    assert isinstance(norm, GroupNorm)
    message = r'classes_bn: group_norm\.groups: .*a divisor of 91.*Received: 32'
    with pytest.raises(ValueError, match=message):
        norm.build((None, 91))


@pytest.mark.parametrize('dtype', ['float32', 'mixed_bfloat16'])
def test_layer_norm_by_numpy(dtype):
    hyperparams = LayerHyperparams(layer_norm=LayerNormParams(epsilon=0.1))
    norm = hyperparams.norm(frozen=True, name='norm', dtype=dtype)
    rng = np.random.default_rng(0)
    maps = tf.constant(rng.normal(3.0, 2.0, [2, 3, 5, 8]), tf.float32)
    norm.build(maps.shape)
    scale, offset = rng.normal(size=[2, 8]).astype(np.float32)
    norm.set_weights([scale, offset])
    maps = tf.cast(maps, norm.compute_dtype)
    inputs = np.asarray(tf.cast(maps, tf.float32))
    mean, variance = (f(inputs, axis=-1, keepdims=True) for f in (np.mean, np.var))
    expected = (inputs - mean) / np.sqrt(variance + 0.1) * scale + offset
    outputs = norm(maps, training=True)
    assert outputs.dtype == norm.compute_dtype
    tolerance = 1e-5 if dtype == 'float32' else 4e-2
    np.testing.assert_allclose(tf.cast(outputs, tf.float32), expected, atol=tolerance)
    assert len(norm.trainable_variables) == len(norm.variables) == 2


@goldens.rows('hyperparams', prefix='freezable_bn_ctor_False')
def test_frozen_norm_equals_the_reference(case_name):
    _check_norm(case_name, frozen=True)


@goldens.rows('hyperparams', prefix=('freezable_bn_ctor_None', 'freezable_bn_ctor_True'))
def test_norm_equals_the_reference(case_name):
    _check_norm(case_name, frozen=False)


def _check_norm(case_name: str, *, frozen: bool) -> None:
    case = goldens.load('hyperparams', case_name)
    params = BatchNormParams(
        momentum=case.params['momentum'], epsilon=case.params['epsilon'], scale=True
    )
    norm = LayerHyperparams(batch_norm=params).norm(frozen=frozen, name='norm')
    norm.build(case.inputs['x'].shape)
    for name in ('gamma', 'beta', 'moving_mean', 'moving_variance'):
        getattr(norm, name).assign(np.array(case.params[name], np.float32))
    outputs = norm(case.inputs['x'], training=case_name.endswith('call_True'))
    np.testing.assert_allclose(outputs, case.outputs['y'], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(norm.moving_mean, case.outputs['moving_mean_after'], rtol=1e-5)
    assert len(norm.trainable_variables) == 2
    np.testing.assert_allclose(
        norm.moving_variance, case.outputs['moving_variance_after'], rtol=1e-5
    )


@rows.parametrize('training', [False, True])
@rows.parametrize('options', [{}, {'scale': False}, {'center': False}, {'dtype': 'bf16'}])
@rows.parametrize('side', [5, 1])
def test_fused_norm_equals_keras(side, options, training):
    """Outputs, gradients and moving statistics, of the pixels; one pixel has no variance."""
    if 'dtype' in options:
        options = {'dtype': 'mixed_bfloat16'}
    rng = np.random.default_rng(0)
    maps = tf.constant(rng.normal(2.0, 3.0, (1, side, side, 4)), tf.float32)
    upstream = tf.constant(rng.normal(size=maps.shape), tf.float32)
    found = []
    for kind in (keras.layers.BatchNormalization, BatchNorm):
        norm = kind(momentum=0.9, epsilon=1e-3, **options)
        norm.population_variance = False
        norm.build(maps.shape)
        norm.set_weights([np.linspace(0.5, 1.5, 4, dtype=np.float32)] * len(norm.weights))
        inputs = tf.cast(maps, norm.compute_dtype)
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            outputs = norm(inputs, training=training)
            total = tf.reduce_sum(tf.cast(outputs, tf.float32) * upstream)
        trained = [variable.value for variable in norm.trainable_variables]
        gradients = tape.gradient(total, [inputs, *trained])
        found.append([outputs, *gradients, *norm.get_weights()])
    assert outputs.dtype == norm.compute_dtype
    for wanted, ours in zip(*found, strict=True):
        wanted, ours = (np.asarray(tf.cast(value, tf.float32)) for value in (wanted, ours))
        np.testing.assert_allclose(ours, wanted, rtol=1e-5, atol=3e-5)


@pytest.mark.parametrize(
    ('hyperparams', 'shape', 'variance'),
    [
        # Of 1 and 5 the variance is 4, and the estimate of the population's is 8.
        (LayerHyperparams(batch_norm=BatchNormParams(0.9)), (1, 1, 2, 1), 2.6),
        (LayerHyperparams(batch_norm=BatchNormParams(0.9)), (2, 1), 2.2),
        (LayerHyperparams(batch_norm=BatchNormParams(0.9, synchronized=True)), (1, 1, 2, 1), 2.2),
        (hourglass.HYPERPARAMS, (1, 1, 2, 1), 3.8),
    ],
    ids=['maps', 'rows', 'over replicas', 'hourglass'],
)
def test_moving_variance_is_that_of_the_reference(hyperparams, shape, variance):
    norm = hyperparams.norm(frozen=False, name='norm')
    norm.build(shape)
    norm.moving_variance.assign([2.0])
    norm(tf.reshape([1.0, 5.0], shape), training=True)
    np.testing.assert_allclose(norm.moving_variance, [variance], rtol=1e-6)


@rows.parametrize('strides', [1, 2])
@rows.parametrize('params', [{'scale': True}, {'scale': False}])
@rows.parametrize('policy', ['float32', 'mixed_bfloat16'])
def test_a_frozen_norm_becomes_part_of_the_convolution(policy, params, strides):
    """Outputs and all gradients are those of eager execution, which does one after the other."""
    hyperparams = LayerHyperparams(batch_norm=BatchNormParams(epsilon=1e-3, **params))
    conv = hyperparams.conv(4, 3, strides=strides, dtype=policy, name='conv')
    norm = hyperparams.norm(frozen=True, dtype=policy, name='norm')
    rng = np.random.default_rng(0)
    maps = tf.constant(rng.normal(size=(2, 6, 5, 3)), tf.float32)
    norm(conv(maps))
    norm.set_weights([rng.uniform(0.5, 1.5, 4) for _ in norm.weights])
    upstream = tf.constant(rng.normal(size=norm(conv(maps)).shape), tf.float32)
    variables = [conv.kernel.value, *(variable.value for variable in norm.trainable_variables)]

    def run(maps: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(maps)
            outputs = normalized(conv, norm, maps, training=True)
            total = tf.reduce_sum(tf.cast(outputs, tf.float32) * upstream)
        assert outputs.dtype == norm.compute_dtype
        return [outputs, *tape.gradient(total, [maps, *variables])]

    graph = tf.function(run, autograph=False)
    rounding = 1e-5 if policy == 'float32' else 3e-2
    for folded, eager in zip(graph(maps), run(maps), strict=True):
        folded, eager = (tf.cast(value, tf.float32).numpy() for value in (folded, eager))
        np.testing.assert_allclose(folded, eager, rtol=0, atol=rounding * np.abs(eager).max())
    kinds = {
        operation.type for operation in graph.get_concrete_function(maps).graph.get_operations()
    }
    assert not {kind for kind in kinds if kind.startswith('FusedBatchNorm')}


def test_a_norm_that_trains_is_not_folded_into_the_convolution():
    hyperparams = LayerHyperparams(batch_norm=BatchNormParams(momentum=0.5))
    conv, norm = hyperparams.conv(4, 3, name='conv'), hyperparams.norm(frozen=False, name='norm')
    maps = tf.constant(np.random.default_rng(0).normal(size=(2, 6, 5, 3)), tf.float32)
    outputs = tf.function(lambda: normalized(conv, norm, maps, training=True), autograph=False)()
    np.testing.assert_allclose(tf.reduce_mean(outputs, [0, 1, 2]), np.zeros(4), atol=1e-6)
    assert np.abs(norm.moving_mean).max() > 0


@pytest.mark.parametrize('shape', [(2, 4, 4, 3), (5, 3)])
def test_a_further_pass_moves_no_statistics(shape):
    norm = BatchNorm(name='norm')
    inputs = tf.constant(np.random.default_rng(0).normal(3, 2, shape), tf.float32)
    norm.build(inputs.shape)

    @tf.function(autograph=False)
    def two_passes() -> tuple[tf.Tensor, tf.Tensor]:
        with tracing.FrozenStatistics():
            first = norm(inputs, training=True)
        return first, norm(inputs, training=True)

    first, second = two_passes()
    np.testing.assert_array_equal(first, second)
    once = BatchNorm(name='once')
    once(inputs, training=True)
    for ours, expected in zip(norm.variables, once.variables, strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-6)


def _on_two_replicas():
    """The outputs and variables of a norm of two replicas, and of the whole batch at once."""
    (device,) = tf.config.list_physical_devices('CPU')
    tf.config.set_logical_device_configuration(device, [tf.config.LogicalDeviceConfiguration()] * 2)
    strategy = tf.distribute.MirroredStrategy(['CPU:0', 'CPU:1'])
    maps = tf.constant(np.random.default_rng(0).normal(size=[2, 4, 4, 3]), tf.float32)
    with strategy.scope():
        norm = hourglass.HYPERPARAMS.norm(frozen=False, name='norm')
        norm.build((None, None, None, 3))
    start = norm.get_weights()

    def of_replica():
        index = tf.distribute.get_replica_context().replica_id_in_sync_group
        return norm(maps[index : index + 1], training=True)

    run = tf.function(lambda: strategy.run(of_replica))
    parts = strategy.experimental_local_results(run())
    shared = [tf.concat(parts, axis=0).numpy(), *norm.get_weights()]
    norm.set_weights(start)
    return shared, [norm(maps, training=True).numpy(), *norm.get_weights()]


def test_norms_of_an_hourglass_are_over_all_replicas():
    shared, whole = forks.call(_on_two_replicas)
    for ours, wanted in zip(shared, whole, strict=True):
        np.testing.assert_allclose(ours, wanted, rtol=1e-5, atol=1e-5)
