import keras
import numpy as np
import pytest
import tensorflow as tf

from object_detection.models.backbones import mobilenet, mobilenet_v2
from object_detection.models.hyperparams import L2, LayerHyperparams
from object_detection.models.normalization import BatchNormParams
from tests import goldens, slow_cases


def build(version: int, outputs, *, hyperparams=None, frozen=False, only_v1=None, **options):
    arguments = {
        'hyperparams': hyperparams or mobilenet.default_hyperparams(),
        'batch_norm_trainable': not frozen,
        'name': 'backbone',
        'options': mobilenet.Options(**options),
        **(only_v1 or {}),
    }
    trunk = mobilenet.trunk if version == 1 else mobilenet_v2.trunk
    return trunk(outputs, **arguments)


def layers_with_weights(model: keras.Model) -> dict[str, list[tuple[str, tuple[int, ...]]]]:
    return {
        layer.name: [(weight.name, tuple(weight.shape)) for weight in layer.weights]
        for layer in model.layers
        if layer.weights
    }


@slow_cases.parametrize(
    1,
    ('ours', 'keras_model', 'alpha'),
    [
        (lambda **options: build(1, [13], **options), keras.applications.MobileNet, 0.25),
        (lambda **options: build(2, ['out_relu'], **options), keras.applications.MobileNetV2, 1.0),
    ],
    ids=['v1', 'v2'],
)
def test_layers_are_those_of_keras(ours, keras_model, alpha):
    theirs = layers_with_weights(
        keras_model((64, 64, 3), alpha=alpha, include_top=False, weights=None)
    )
    found = layers_with_weights(ours(depth_multiplier=alpha))
    # Keras calls depthwise kernels `kernel` in its models of today.
    renamed = {
        name: [(part.replace('depthwise_', ''), shape) for part, shape in weights]
        for name, weights in found.items()
    }
    assert list(renamed) == list(theirs)
    assert renamed == theirs


def test_outputs_of_v1():
    model = build(1, [3, 5, 11, 13], depth_multiplier=0.25, min_depth=16)
    maps = model(tf.zeros([1, 65, 33, 3]))
    assert [tuple(level.shape[1:]) for level in maps] == [
        (17, 9, 32), (9, 5, 64), (5, 3, 128), (3, 2, 256),
    ]  # fmt: skip
    assert model.get_layer('conv1').filters == model.get_layer('conv_pw_1').filters == 16
    assert len(model.losses) == 27  # of all kernels, the depthwise ones too


def test_outputs_of_v2():
    names = ['block_2', 'block_5', 'block_12', 'block_13_expand_relu', 'out_relu']
    model = build(2, names, depth_multiplier=0.35)
    maps = model(tf.zeros([1, 65, 33, 3]))
    assert [tuple(level.shape[1:]) for level in maps] == [
        (17, 9, 8), (9, 5, 16), (5, 3, 32), (5, 3, 192), (3, 2, 448),
    ]  # fmt: skip
    shortcuts = [layer.name for layer in model.layers if isinstance(layer, keras.layers.Add)]
    assert shortcuts == [f'block_{i}_add' for i in (2, 4, 5, 7, 8, 9, 11, 12, 14, 15)]
    assert len(model.losses) == 52


def test_min_depth_of_v2_spares_expansions_and_ends_shortcuts():
    model = build(2, ['block_5'], depth_multiplier=0.35, min_depth=20)
    filters = {name: model.get_layer(name).filters for name in ('Conv1', 'block_2_project')}
    assert filters == {'Conv1': 20, 'block_2_project': 20}
    assert model.get_layer('block_1_expand').filters == 6 * 20
    assert not [layer for layer in model.layers if isinstance(layer, keras.layers.Add)]


def test_the_end_of_v2_does_not_widen():
    # `keras.applications` widens it, and does not make it narrower for factors below 1.
    assert build(2, ['out_relu'], depth_multiplier=1.4).outputs[0].shape[-1] == 1280


def test_last_blocks_of_v1_can_be_thinner():
    model = build(1, [12, 13], depth_multiplier=0.5, only_v1={'last_filters': (512, 256)})
    assert [output.shape[-1] for output in model.outputs] == [256, 128]


@pytest.mark.parametrize(
    ('factor', 'min_depth', 'expected'),
    [
        (0.75, 16, [18, 36, 72, 288, 192]),
        (0.25, 16, [16, 16, 16, 32, 64]),
        # The least number of channels holds for the product, not for a factor of it.
        (1.5, 64, [72, 144, 288, 1152, 384]),
    ],
)
def test_the_factor_of_v1_may_count_twice_except_for_given_channels(factor, min_depth, expected):
    arguments = {'last_filters': (512, 256), 'squares_multiplier': True}
    model = build(1, [13], depth_multiplier=factor, min_depth=min_depth, only_v1=arguments)
    names = ('conv1', 'conv_pw_1', 'conv_pw_2', 'conv_pw_11', 'conv_pw_13')
    assert [model.get_layer(name).filters for name in names] == expected


@goldens.parametrize('ops', names=('fixed_padding',))
def test_explicit_padding(case_name):
    """The padding of strides is the recorded one; that of a stride of 1 is SAME padding."""
    case = goldens.load('ops', case_name)
    model = build(1, [1], explicit_padding=True)
    pad = model.get_layer('conv1_pad')
    np.testing.assert_array_equal(pad(case.inputs['x']), case.outputs['k3'])
    assert model.get_layer('conv1').padding == 'valid'
    assert model.get_layer('conv_dw_1').padding == 'same'
    same = build(1, [1])
    same.set_weights(model.get_weights())
    # At odd sizes, SAME padding is alike on both sides, too; at even ones it begins a pixel later.
    images = tf.random.stateless_normal([1, 64, 64, 3], [1, 2])
    np.testing.assert_allclose(model(images[:, 1:, 1:]), same(images[:, 1:, 1:]), atol=1e-5)
    assert model(images).shape == same(images).shape
    assert not np.allclose(model(images), same(images), atol=1e-2)


def test_hyperparams_of_the_config():
    hyperparams = LayerHyperparams(
        regularizer=L2(0.1),
        activation='relu',
        batch_norm=BatchNormParams(momentum=0.9, epsilon=0.1, scale=False),
        force_use_bias=True,
    )
    model = build(2, ['block_0'], hyperparams=hyperparams)
    norm = model.get_layer('bn_Conv1')
    assert (norm.momentum, norm.epsilon, norm.scale) == (0.9, 0.1, False)
    # Convolutions have no bias, whatever the hyperparameters say, as in the reference.
    assert not model.get_layer('Conv1').use_bias
    assert model.get_layer('Conv1_relu').activation is keras.activations.relu
    assert len(model.losses) == 3


def test_default_hyperparams():
    norm = build(1, [1]).get_layer('conv1_bn')
    assert (norm.momentum, norm.epsilon, norm.scale, norm.center) == (0.9997, 0.001, True, True)
    model = build(1, [1], frozen=True)
    before = model.get_layer('conv1_bn').moving_mean.numpy()
    model(tf.ones([1, 8, 8, 3]), training=True)
    np.testing.assert_array_equal(model.get_layer('conv1_bn').moving_mean, before)


@slow_cases.parametrize(
    3,
    ('version', 'outputs', 'options', 'message'),
    [
        (1, [5, 3], {}, 'ascending blocks within 1..13'),
        (1, [14], {}, 'Received: \\[14\\]'),
        (2, ['out_relu', 'block_2'], {}, 'in order'),
        (2, ['block_17'], {}, 'block_17'),
        (1, [1], {'depth_multiplier': 0.0}, 'depth_multiplier: expected a positive number'),
        (1, [1], {'min_depth': 0}, 'min_depth: expected at least 1'),
    ],
)
def test_errors(version, outputs, options, message):
    with pytest.raises(ValueError, match=message):
        build(version, outputs, **options)
