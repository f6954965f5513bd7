import keras
import numpy as np
import pytest
import tensorflow as tf

from object_detection.models.backbones import resnet_v1
from object_detection.models.backbones.resnet_v1 import Options, Padding
from object_detection.models.hyperparams import LayerHyperparams
from object_detection.models.normalization import GroupNormParams
from tests import rows, slow_cases


def build(
    depth: int, levels=(2, 3, 4, 5), batch_norm_trainable: bool = False, **options
) -> keras.Model:
    return resnet_v1.trunk(
        depth,
        levels=levels,
        hyperparams=resnet_v1.default_hyperparams(1e-4),
        batch_norm_trainable=batch_norm_trainable,
        name='backbone',
        options=Options(**options),
    )


@pytest.fixture
def narrow(monkeypatch):
    """Few channels, for tests that need no size.

    Not fewer than 16: of fewer input channels, oneDNN's gradient of the kernel of a 1x1 convolution
    of stride 2 writes beyond its memory (TensorFlow 2.21, oneDNN 3.7.3, CPUs with AVX-512).
    """
    monkeypatch.setattr(resnet_v1, '_STAGE_FILTERS', {2: 16, 3: 18, 4: 20, 5: 22})


# Convolutions without projections are depth - 1; the fully connected layer is not built.
@slow_cases.parametrize(1, ('depth', 'projections'), [(18, 3), (50, 4)])
def test_layers(depth, projections):
    model = build(depth)
    convs = [layer for layer in model.layers if isinstance(layer, keras.layers.Conv2D)]
    assert len(convs) == depth - 1 + projections
    assert sum(conv.name.endswith('_0_conv') for conv in convs) == projections
    assert len(model.variables) == 5 * len(convs)
    assert len(model.losses) == len(convs)


@pytest.mark.slow
def test_the_deepest_one(narrow):
    hyperparams = resnet_v1.default_hyperparams(0.0)
    stage = resnet_v1.stage(
        200, 3, hyperparams=hyperparams, batch_norm_trainable=False, name='box_classifier'
    )
    convs = [layer for layer in stage.layers if isinstance(layer, keras.layers.Conv2D)]
    assert len(convs) == 24 * 3 + 1
    # Three convolutions a block, the first one and the fully connected layer.
    assert 3 * sum(resnet_v1._VARIANTS[200].blocks) + 2 == 200


def test_narrow_layers():
    options = Options(depth_multiplier=0.15, min_depth=20)
    model = build(50, levels=(2, 3), depth_multiplier=0.15, min_depth=20)
    convs = {v.path: v.shape[-1] for v in model.variables if v.path.endswith('_conv/kernel')}
    assert convs['conv1_conv/kernel'] == 20
    assert convs['conv3_block1_0_conv/kernel'] == int(512 * 0.15)
    assert [output.shape[-1] for output in model.outputs] == [38, 76]
    assert [resnet_v1.stage_channels(50, level, options) for level in (2, 3)] == [38, 76]


@slow_cases.parametrize(1, ('depth', 'channels'), [(18, [64, 128, 256]), (50, [256, 512, 1024])])
def test_maps_of_odd_sizes(depth, channels):
    model = build(depth, levels=(2, 3, 4))
    maps = model(tf.zeros([1, 67, 33, 3]))
    assert [tuple(level.shape) for level in maps] == [
        (1, -(-67 // stride), -(-33 // stride), c)
        for stride, c in zip((4, 8, 16), channels, strict=True)
    ]
    assert channels == [resnet_v1.stage_channels(depth, level) for level in (2, 3, 4)]
    names = [layer.name for layer in model.layers]
    assert 'conv4_block2_2_conv' in names
    assert not any(name.startswith('conv5') for name in names)


def test_stride_of_a_stage_sits_on_its_first_convolution():
    for depth in (18, 50):
        layer = build(depth, levels=(3,)).get_layer
        assert layer('conv3_block1_1_conv').strides == (2, 2)
        assert layer('conv3_block1_0_conv').strides == (2, 2)
        assert layer('conv3_block1_2_conv').strides == (1, 1)
        assert layer('conv3_block2_1_conv').strides == (1, 1)


@pytest.mark.usefixtures('narrow')
def test_stride_on_the_3x3():
    model, other = (build(50, levels=(3,), stride_in_1x1=value) for value in (False, True))
    assert model.get_layer('conv3_block1_1_conv').strides == (1, 1)
    assert model.get_layer('conv3_block1_2_conv').strides == (2, 2)
    assert model.get_layer('conv3_block1_0_conv').strides == (2, 2)
    assert model.get_layer('conv3_block2_2_conv').strides == (1, 1)
    assert [v.path for v in model.variables] == [v.path for v in other.variables]
    # By hand: 1x1 on the whole map, then the 3x3 at every second cell, padded alike.
    first = model.get_layer('conv3_block1_1_relu').output
    second = model.get_layer('conv3_block1_2_conv').output
    before, after = keras.Model(model.inputs, [first, second])(
        tf.random.stateless_normal([1, 32, 48, 3], [1, 2])
    )
    assert before.shape[1:3] == (8, 12)
    kernel = model.get_layer('conv3_block1_2_conv').kernel
    dense = tf.nn.conv2d(before, kernel, 1, [[0, 0], [1, 1], [1, 1], [0, 0]])
    np.testing.assert_allclose(after, dense[:, ::2, ::2], atol=1e-5)


@pytest.mark.usefixtures('narrow')
def test_basic_blocks_have_their_stride_on_the_first_3x3_in_any_case():
    assert build(18, stride_in_1x1=False).get_layer('conv3_block1_1_conv').strides == (2, 2)


# Before and after, of the 7x7 convolution of stride 2 and of the pooling, on an even size.
@pytest.mark.parametrize(
    ('padding', 'conv_pads', 'pool_pads'),
    [
        (Padding.SYMMETRIC, (3, 3), (0, 1)),
        (Padding.SAME, (2, 3), (0, 1)),
        (Padding.SYMMETRIC_ALL, (3, 3), (1, 1)),
    ],
)
@pytest.mark.usefixtures('narrow')
def test_padding_of_the_stem(padding, conv_pads, pool_pads):
    model = build(18, levels=(2,), padding=padding)
    images = tf.random.stateless_normal([1, 32, 48, 3], [1, 2])
    outputs = [model.get_layer(name).output for name in ('conv1_conv', 'conv1_relu', 'pool1_pool')]
    conv, relu, pool = keras.Model(model.inputs, outputs)(images)
    kernel = model.get_layer('conv1_conv').kernel
    expected = tf.nn.conv2d(images, kernel, 2, [[0, 0], conv_pads, conv_pads, [0, 0]])
    np.testing.assert_allclose(conv, expected, atol=1e-5)
    padded = tf.pad(relu, [[0, 0], pool_pads, pool_pads, [0, 0]])
    np.testing.assert_array_equal(pool, tf.nn.max_pool2d(padded, 3, 2, 'VALID'))


@pytest.mark.parametrize(('padding', 'pads'), [(Padding.SAME, (0, 1)), (Padding.SYMMETRIC, (1, 1))])
@pytest.mark.usefixtures('narrow')
def test_padding_of_a_stage(padding, pads):
    model = build(50, levels=(3,), stride_in_1x1=False, padding=padding)
    names = ('conv3_block1_1_relu', 'conv3_block1_2_conv')
    probe = keras.Model(model.inputs, [model.get_layer(name).output for name in names])
    before, after = probe(tf.random.stateless_normal([1, 32, 48, 3], [1, 2]))
    kernel = model.get_layer(names[1]).kernel
    expected = tf.nn.conv2d(before, kernel, 2, [[0, 0], pads, pads, [0, 0]])
    np.testing.assert_allclose(after, expected, atol=1e-5)


@slow_cases.parametrize(1, 'padding', list(Padding))
@pytest.mark.usefixtures('narrow')
def test_sizes_do_not_depend_on_the_padding(padding):
    maps = build(50, levels=(2, 3, 4), padding=padding)(tf.zeros([1, 67, 33, 3]))
    assert [level.shape[1:3] for level in maps] == [(17, 9), (9, 5), (5, 3)]


@pytest.mark.parametrize('padding', list(Padding))
@pytest.mark.parametrize('stride_in_1x1', [True, False])
@pytest.mark.usefixtures('narrow')
def test_options_are_read_off_the_layers(padding, stride_in_1x1):
    options = {'stride_in_1x1': stride_in_1x1, 'padding': padding}
    assert resnet_v1.options_of(build(50, levels=(3,), **options)) == Options(**options)
    inputs = keras.Input((4,))
    assert resnet_v1.options_of(keras.Model(inputs, inputs)) is None


@slow_cases.parametrize(1, 'frozen_stages', [1, 0, 3])
@pytest.mark.usefixtures('narrow')
def test_frozen_stages(frozen_stages):
    model = build(18, levels=(2, 3, 4), batch_norm_trainable=True, frozen_stages=frozen_stages)
    images = tf.random.stateless_normal([2, 32, 48, 3], [1, 2])
    before = {v.path: v.numpy() for v in model.variables}
    with tf.GradientTape() as tape:
        tape.watch(images)
        total = tf.add_n([tf.reduce_sum(level) for level in model(images, training=True)])
    trained = [variable.value for variable in model.trainable_variables]
    assert all(gradient is not None for gradient in tape.gradient(total, trained))
    stages = {int(v.path[len('conv')]) for v in model.trainable_variables}
    assert stages == set(range(frozen_stages + 1, 5))
    # Norms of frozen stages keep their statistics, others do not; nor is there a penalty.
    moved = {
        int(v.path[len('conv')]) for v in model.variables if (v != before[v.path]).numpy().any()
    }
    assert moved == stages
    convs = [v for v in model.trainable_variables if v.path.endswith('kernel')]
    assert len(model.losses) == len(convs)
    assert [v.path for v in model.variables] == [v.path for v in build(18, (2, 3, 4)).variables]


@pytest.mark.usefixtures('narrow')
def test_no_gradient_is_computed_below_frozen_stages():
    images = tf.random.stateless_normal([1, 32, 48, 3], [1, 2])
    found = {}
    for frozen_stages in (0, 2):
        model = build(18, levels=(2, 3), frozen_stages=frozen_stages)
        with tf.GradientTape() as tape:
            tape.watch(images)
            fine, coarse = model(images)
        found[frozen_stages] = tape.gradient([fine, coarse], images)
    assert found[0] is not None
    assert found[2] is None


@pytest.mark.usefixtures('narrow')
def test_group_norm_in_place_of_batch_norm():
    keras.utils.set_random_seed(3)
    model = resnet_v1.trunk(
        18,
        levels=(2,),
        hyperparams=LayerHyperparams(group_norm=GroupNormParams(groups=2)),
        batch_norm_trainable=False,
        name='backbone',
        options=Options(),
    )
    images = tf.random.stateless_normal([2, 32, 48, 3], [1, 2])
    whole = tf.nest.flatten(model(images, training=True))[0]
    one = tf.nest.flatten(model(images[:1], training=True))[0]
    # Whatever the batch; convolutions of another batch size round otherwise.
    np.testing.assert_allclose(one, whole[:1], rtol=1e-5, atol=1e-5)
    kinds = {variable.path.rpartition('/')[2] for variable in model.variables}
    assert kinds == {'kernel', 'gamma', 'beta'}


def test_strided_convolutions_are_padded_on_both_sides():
    model = build(18, levels=(3,))
    conv = model.get_layer('conv3_block1_1_conv')
    probe = keras.Model(model.inputs, [model.get_layer('conv2_block2_out').output, conv.output])
    before, after = probe(tf.random.stateless_normal([1, 32, 32, 3], [1, 2]))
    expected = tf.nn.conv2d(before, conv.kernel, 2, [[0, 0], [1, 1], [1, 1], [0, 0]])
    np.testing.assert_allclose(after, expected, atol=1e-5)


def test_basic_block_by_numpy():
    model = build(18, levels=(2,))
    block = keras.Model(
        model.get_layer('pool1_pool').output, model.get_layer('conv2_block1_out').output
    )
    x = np.random.default_rng(0).normal(size=(1, 4, 5, 64)).astype(np.float32)

    def conv(x, name):
        padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
        windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2))
        outputs = np.einsum('bhwcij,ijcd->bhwd', windows, model.get_layer(name).kernel.numpy())
        return outputs / np.sqrt(1 + 1e-5)

    hidden = np.maximum(conv(x, 'conv2_block1_1_conv'), 0)
    expected = np.maximum(x + conv(hidden, 'conv2_block1_2_conv'), 0)
    np.testing.assert_allclose(block(x), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize('trainable', [True, False])
def test_batch_norm_follows_training_only_if_trainable(trainable):
    model = build(18, levels=(2,), batch_norm_trainable=trainable)
    images = tf.random.stateless_normal([2, 32, 32, 3], [1, 2])
    frozen, training = model(images, training=False), model(images, training=True)
    moved = np.abs(model.get_layer('conv1_bn').moving_mean.numpy()).max() > 0
    assert moved is np.bool_(trainable)
    assert np.allclose(tf.nest.flatten(frozen)[0], tf.nest.flatten(training)[0]) is not trainable
    assert len(model.trainable_variables) == 3 * 5


def test_stage_continues_the_trunk():
    options = {
        'hyperparams': resnet_v1.default_hyperparams(0.0),
        'batch_norm_trainable': False,
    }
    stage = resnet_v1.stage(18, 5, name='stage', **options)
    assert stage(tf.zeros([3, 7, 7, 256])).shape == (3, 4, 4, 512)
    whole = {variable.path: variable.shape for variable in build(18).variables}
    assert {v.path: v.shape for v in stage.variables}.items() <= whole.items()
    assert not stage.losses


@rows.parametrize('levels', [(), (1, 2), (5, 6), (3, 2), (2, 2)])
def test_bad_levels(levels):
    with pytest.raises(ValueError, match=r'expected ascending levels within 2\.\.5'):
        build(18, levels=levels)


def test_bad_depth():
    with pytest.raises(ValueError, match=r'expected a depth of .*Received: 20'):
        build(20)


@slow_cases.parametrize(
    1,
    ('stride_in_1x1', 'padding'),
    [(True, Padding.SYMMETRIC), (False, Padding.SYMMETRIC), (True, Padding.SAME)],
)
def test_half_the_stride_gives_the_cells_of_the_full_one_in_between(narrow, stride_in_1x1, padding):
    common = {
        'levels': [4],
        'hyperparams': resnet_v1.default_hyperparams(0.0),
        'batch_norm_trainable': False,
        'name': 'backbone',
        'options': Options(stride_in_1x1=stride_in_1x1, padding=padding),
    }
    coarse = resnet_v1.trunk(50, **common)
    fine = resnet_v1.trunk(50, stride=8, **common)
    assert [v.path for v in coarse.variables] == [v.path for v in fine.variables]
    random = np.random.default_rng(0)
    for ours, theirs in zip(coarse.variables, fine.variables, strict=True):
        if not ours.path.endswith(('kernel', 'variance')):
            ours.assign(random.normal(size=ours.shape))
        theirs.assign(ours)
    images = random.normal(size=[1, 64, 96, 3]).astype(np.float32)
    maps, expected = fine(images), coarse(images)
    assert maps.shape[1:3] == (8, 12)
    scale = np.abs(expected).max()
    np.testing.assert_allclose(maps[:, ::2, ::2], expected, atol=1e-5 * scale)
