import keras
import numpy as np
import pytest
import tensorflow as tf

from object_detection.models.backbones import resnet_v1


def build(depth: int, levels=(2, 3, 4, 5), batch_norm_trainable: bool = False) -> keras.Model:
    return resnet_v1.trunk(
        depth,
        levels=levels,
        hyperparams=resnet_v1.default_hyperparams(1e-4),
        batch_norm_trainable=batch_norm_trainable,
        name='backbone',
    )


# Convolutions without projections are depth - 1; the fully connected layer is not built.
@pytest.mark.parametrize(('depth', 'projections'), [(18, 3), (50, 4)])
def test_layers(depth, projections):
    model = build(depth)
    convs = [layer for layer in model.layers if isinstance(layer, keras.layers.Conv2D)]
    assert len(convs) == depth - 1 + projections
    assert sum(conv.name.endswith('_0_conv') for conv in convs) == projections
    assert len(model.variables) == 5 * len(convs)
    assert len(model.losses) == len(convs)


@pytest.mark.parametrize(('depth', 'channels'), [(18, [64, 128, 256]), (50, [256, 512, 1024])])
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


@pytest.mark.parametrize('levels', [(), (1, 2), (5, 6), (3, 2), (2, 2)])
def test_bad_levels(levels):
    with pytest.raises(ValueError, match=r'expected ascending levels within 2\.\.5'):
        build(18, levels=levels)


def test_bad_depth():
    with pytest.raises(ValueError, match=r'expected a depth of .*Received: 20'):
        build(20)
