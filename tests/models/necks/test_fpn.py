import keras
import numpy as np
import pytest
import tensorflow as tf

from object_detection.models.hyperparams import LayerHyperparams
from object_detection.models.necks.fpn import Options, feature_pyramid
from object_detection.models.normalization import BatchNormParams


def build(**options) -> keras.Model:
    defaults = {
        'channels': [1, 1, 1],
        'min_level': 3,
        'depth': 1,
        'num_coarse_levels': 2,
        'hyperparams': LayerHyperparams(activation=None),
        'batch_norm_trainable': False,
        'name': 'fpn',
    }
    return feature_pyramid(**(defaults | options))


def test_numbers_by_hand():
    model = build()
    for level in (3, 4, 5):
        model.get_layer(f'projection_{level}').set_weights([np.ones([1, 1, 1, 1]), np.ones(1)])
    center = np.zeros([3, 3, 1, 1])
    center[1, 1] = 1.0
    for name, factor in (('smoothing_3', 2), ('smoothing_4', 2), ('coarse_6', 1), ('coarse_7', 1)):
        model.get_layer(name).set_weights([factor * center, np.zeros(1)])
    c3 = np.random.default_rng(0).normal(size=(1, 8, 4, 1)).astype(np.float32)
    c4 = np.random.default_rng(1).normal(size=(1, 4, 2, 1)).astype(np.float32)
    c5 = np.array([[3.0], [-5.0]], np.float32).reshape(1, 2, 1, 1)

    def doubled(x):
        return x.repeat(2, axis=1).repeat(2, axis=2)

    p5 = c5 + 1  # not smoothed
    p4 = 2 * (doubled(p5) + c4 + 1)
    p3 = 2 * (doubled(p4) + c3 + 1)  # of the smoothed p4
    maps = model([c3, c4, c5])
    for ours, expected in zip(maps[:3], (p3, p4, p5), strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-5)
    # SAME padding of a stride of 2: the kernel's centre falls on rows 1, 3, ... of an even
    # size and on rows 0, 2, ... of an odd one.
    np.testing.assert_allclose(maps[3], p5[:, 1:, :1])
    np.testing.assert_allclose(maps[4], p5[:, 1:, :1])


def numbers(levels) -> list[np.ndarray]:
    """Random maps [1, 4, 2, 1], [1, 2, 1, 1], ..."""
    rng = np.random.default_rng(0)
    sizes = [(2 * 2**i, 2**i) for i in range(levels)][::-1]
    return [rng.normal(size=(1, *size, 1)).astype(np.float32) for size in sizes]


def give_weights(model: keras.Model) -> None:
    """Projections keep their map; the smoothing of level l multiplies by l."""
    for layer in model.layers:
        kind, _, level = layer.name.partition('_')
        if kind == 'projection':
            layer.set_weights([np.ones(layer.kernel.shape), np.zeros(1)])
        elif kind == 'smoothing' and isinstance(layer, keras.layers.Conv2D):
            kernel = np.zeros([3, 3, 1, 1])
            kernel[1, 1] = int(level)
            layer.set_weights([kernel, np.zeros(1)])


def test_smoothed_outputs_by_hand():
    model = build(num_coarse_levels=0, options=Options(smooth_outputs=True))
    give_weights(model)
    c3, c4, c5 = numbers(3)
    m4 = c5.repeat(2, axis=1).repeat(2, axis=2) + c4
    m3 = m4.repeat(2, axis=1).repeat(2, axis=2) + c3  # of the map that is not smoothed
    for ours, expected in zip(model([c3, c4, c5]), (3 * m3, 4 * m4, 5 * c5), strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-5)


def test_propagated_sums_by_hand():
    model = build(num_coarse_levels=0, options=Options(propagate_sums=True))
    give_weights(model)
    c3, c4, c5 = numbers(3)
    m4 = c5.repeat(2, axis=1).repeat(2, axis=2) + c4
    m3 = m4.repeat(2, axis=1).repeat(2, axis=2) + c3
    for ours, expected in zip(model([c3, c4, c5]), (3 * m3, 4 * m4, c5), strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-5)


@pytest.mark.parametrize('dtype', ['float32', 'mixed_bfloat16'])
def test_bilinear_upsampling_by_hand(dtype):
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(dtype)
    try:
        options = Options(bilinear=True)
        model = build(channels=[1, 1], num_coarse_levels=0, options=options)
    finally:
        keras.config.set_dtype_policy(before)
    give_weights(model)
    c4 = np.array([[0.0, 4.0]], np.float32).reshape(1, 1, 2, 1)
    p3, _ = model([np.zeros([1, 2, 4, 1], np.float32), c4])
    assert p3.dtype == model.compute_dtype
    # New centres lie a quarter of a cell beside the old ones.
    expected = 3 * np.array([[0.0, 1.0, 3.0, 4.0]] * 2).reshape(1, 2, 4, 1)
    np.testing.assert_allclose(tf.cast(p3, tf.float32), expected)


def test_pooled_levels_by_hand():
    model = build(channels=[1], options=Options(pool_extra_levels=True))
    give_weights(model)
    c3 = np.arange(35, dtype=np.float32).reshape(1, 7, 5, 1) - 17.0
    p3, p4, p5 = model([c3])
    np.testing.assert_array_equal(p3, c3)
    np.testing.assert_array_equal(p4, c3[:, ::2, ::2])
    np.testing.assert_array_equal(p5, c3[:, ::4, ::4])
    assert {variable.path.split('/')[0] for variable in model.variables} == {'projection_3'}


@pytest.mark.parametrize('from_backbone', [False, True])
def test_pre_activated_levels_by_hand(from_backbone):
    options = Options(
        pre_activate_extra_levels=True,
        extra_levels_from_backbone=from_backbone,
        smooth_outputs=True,
    )
    channels = 2 if from_backbone else 1
    model = build(channels=[1, 1, channels], options=options)
    give_weights(model)
    c5 = np.array([[3.0, -1], [2, 1], [-7, -4]], np.float32).reshape(1, 3, 2, 1)
    for name, bias in (('coarse_6', 1), ('coarse_7', 0.5)):
        shape = model.get_layer(name).kernel.shape
        model.get_layer(name).set_weights([np.ones(shape), np.full(1, bias)])
    maps = [np.zeros([1, 12, 8, 1]), np.zeros([1, 6, 4, 1]), c5.repeat(channels, axis=3)]
    p5, p6, p7 = model([each.astype(np.float32) for each in maps])[2:]
    # The sum of a window around the cells (0, 0) and (2, 0), and the bias.
    factor = float(channels)
    np.testing.assert_allclose(p5[0, :, :, 0], 5 * factor * c5[0, :, :, 0], rtol=1e-6)
    scale = factor if from_backbone else 5 * factor
    p6_expected = np.array([5, -8]) * scale + 1
    np.testing.assert_allclose(p6[0, :, 0, 0], p6_expected, rtol=1e-6)
    # The negative one adds nothing.
    np.testing.assert_allclose(p7[0, 0, 0, 0], p6_expected[0] + 0.5, rtol=1e-6)


def test_names_shapes_and_penalties():
    hyperparams = LayerHyperparams(
        regularizer=keras.regularizers.L2(0.1), batch_norm=BatchNormParams(scale=True)
    )
    model = build(channels=[4, 8], min_level=4, depth=6, hyperparams=hyperparams)
    maps = model([tf.zeros([2, 6, 10, 4]), tf.zeros([2, 3, 5, 8])])
    sizes = [(6, 10), (3, 5), (2, 3), (1, 2)]
    assert [tuple(level.shape) for level in maps] == [(2, *size, 6) for size in sizes]
    convs = {'projection_4', 'projection_5', 'smoothing_4', 'coarse_6', 'coarse_7'}
    norms = {'smoothing_4_bn', 'coarse_6_bn', 'coarse_7_bn'}
    assert {variable.path.split('/')[0] for variable in model.variables} == convs | norms
    assert len(model.losses) == len(convs)


def test_maps_of_the_same_size_are_added_as_they_are():
    options = Options(same_size_levels=(3,), smooth_outputs=True)
    model = build(num_coarse_levels=0, options=options)
    for level in (3, 4, 5):
        model.get_layer(f'projection_{level}').set_weights([np.ones([1, 1, 1, 1]), np.zeros(1)])
        center = np.zeros([3, 3, 1, 1])
        center[1, 1] = 1.0
        model.get_layer(f'smoothing_{level}').set_weights([center, np.zeros(1)])
    p3, p4, p5 = model(
        [tf.fill([1, 4, 2, 1], 1.0), tf.fill([1, 4, 2, 1], 2.0), tf.fill([1, 2, 1, 1], 4.0)]
    )
    assert [each.shape for each in (p3, p4, p5)] == [(1, 4, 2, 1), (1, 4, 2, 1), (1, 2, 1, 1)]
    np.testing.assert_array_equal([tf.reduce_max(each) for each in (p3, p4, p5)], [7, 6, 4])


def test_one_level_is_a_projection():
    model = build(channels=[2], min_level=5, num_coarse_levels=0)
    assert [variable.path for variable in model.variables] == [
        'projection_5/kernel',
        'projection_5/bias',
    ]


def test_separable_convolutions():
    hyperparams = LayerHyperparams(
        initializer=keras.initializers.Constant(0.5),
        regularizer=keras.regularizers.L2(0.1),
        batch_norm=BatchNormParams(),
    )
    model = build(hyperparams=hyperparams, options=Options(use_depthwise=True))
    separable = [layer for layer in model.layers if hasattr(layer, 'pointwise_kernel')]
    names = {'smoothing_4', 'smoothing_3', 'coarse_6', 'coarse_7'}
    assert {layer.name for layer in separable} == names
    # Initializer and penalty are those of the depthwise kernels only.
    assert all(np.all(layer.depthwise_kernel == 0.5) for layer in separable)
    assert not any(np.any(layer.pointwise_kernel == 0.5) for layer in separable)
    assert len(model.losses) == 3 + len(separable)


def test_explicit_padding_of_coarse_levels():
    options = Options(explicit_padding=True)
    model = build(channels=[1], num_coarse_levels=1, options=options)
    give_weights(model)
    ones = [np.ones([3, 3, 1, 1]), np.zeros(1)]
    model.get_layer('coarse_4').set_weights(ones)
    _, p4 = model([tf.ones([1, 4, 4, 1])])
    # Padding at the top and left; SAME padding would be at the bottom and right.
    np.testing.assert_allclose(p4[0, :, :, 0], [[4, 6], [6, 9]])


@pytest.mark.parametrize('traced', [False, True])
def test_doubled_maps_are_cut(traced):
    model = build(channels=[1, 1], num_coarse_levels=0, options=Options(crop_upsampled=True))
    give_weights(model)
    c3 = np.arange(15, dtype=np.float32).reshape(1, 3, 5, 1)
    c4 = np.arange(6, dtype=np.float32).reshape(1, 2, 3, 1)
    signature = [[tf.TensorSpec([None, None, None, 1])] * 2]
    call = tf.function(model, input_signature=signature) if traced else model
    p3, _ = call([tf.constant(c3), tf.constant(c4)])
    doubled = c4.repeat(2, axis=1).repeat(2, axis=2)[:, :3, :5]
    np.testing.assert_allclose(p3, 3 * (c3 + doubled))
