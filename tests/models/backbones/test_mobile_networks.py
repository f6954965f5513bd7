"""Mobile networks of tables: widths and numbers of parameters by other tables, values by NumPy."""

import functools
import math

import keras
import numpy as np
import pytest
import tensorflow as tf

from object_detection.models import activations
from object_detection.models.backbones import mobile_blocks, mobilenet
from object_detection.models.backbones.mobile_blocks import FUSED, INVERTED, TUCKER, Block, Network
from object_detection.models.backbones.resnet_v1 import Padding
from object_detection.models.backbones.table import BACKBONES, BackboneOptions
from object_detection.models.hyperparams import L2, LayerHyperparams
from object_detection.models.normalization import BatchNormParams
from tests import mobile_networks, slow_cases


def build(name: str, levels=(4, 5), **fields) -> keras.Model:
    row = BACKBONES[name]
    options = {'hyperparams': row.hyperparams, 'batch_norm_trainable': True, 'min_depth': 16}
    return row.trunk(levels, BackboneOptions(**options | fields))


@functools.cache
def built(name: str) -> keras.Model:
    return build(name, (1, 2, 3, 4, 5))


QUICK = ('mobilenet_v3_small', 'mobiledet_dsp')
SLOW = tuple(name for name in mobile_networks.NETWORKS if name not in QUICK)


@slow_cases.parametrize(2, 'name', [*QUICK, *SLOW])
def test_numbers_of_parameters(name):
    expected = mobile_networks.backbone(name).values()
    assert built(name).count_params() == sum(math.prod(shape) for shape in expected)


@slow_cases.parametrize(
    2,
    ('name', 'channels'),
    [
        ('mobilenet_v3_small', [16, 16, 24, 48, 288]),
        ('mobiledet_dsp', [24, 32, 64, 144, 240]),
        ('mobilenet_v3_large', [16, 24, 40, 112, 480]),
        ('mobilenet_edgetpu', [16, 32, 48, 96, 192]),
        ('mobiledet_cpu', [8, 16, 32, 72, 144]),
        ('mobiledet_edgetpu', [16, 16, 40, 96, 384]),
        ('mobiledet_gpu', [16, 32, 64, 128, 384]),
    ],
)
def test_maps_of_all_levels(name, channels):
    shapes = built(name).compute_output_shape((1, 65, 33, 3))
    sides = [(33, 17), (17, 9), (9, 5), (5, 3), (3, 2)]
    assert shapes == [(1, *side, c) for side, c in zip(sides, channels, strict=True)]


def filters(model: keras.Model, *names: str) -> list[int]:
    return [model.get_layer(name).filters for name in names]


@pytest.mark.parametrize(
    ('factor', 'outputs', 'expanded', 'squeezed'),
    [
        # Nearest multiples of 8, at least 90 % and, of outputs, at least 16.
        (0.75, [16, 16, 24, 32, 40, 216], [72, 88, 96, 192], 48),
        (0.35, [16, 16, 16, 16, 16, 104], [72, 56, 64, 96], 24),
    ],
)
def test_rounded_widths_of_v3(factor, outputs, expanded, squeezed):
    model = build('mobilenet_v3_small', depth_multiplier=factor)
    projections = [f'expanded_conv_{block}_project' for block in (0, 1, 3, 6)]
    assert filters(model, 'first_conv', *projections, 'last_conv') == outputs
    assert filters(model, *(f'expanded_conv_{i}_expand' for i in (1, 2, 3, 4))) == expanded
    assert filters(model, 'expanded_conv_4_squeeze') == [squeezed]


@slow_cases.parametrize(
    1,
    ('factor', 'outputs', 'core'),
    [
        # Nearest multiples of 8, the greater one of two, at least 8; `min_depth` does not count.
        (0.35, [8, 8, 8, 24, 40, 48, 56, 88], [8, 8]),
        (0.75, [24, 16, 24, 48, 88, 112, 120, 184], [8, 16]),
    ],
)
def test_rounded_widths_of_mobiledet(factor, outputs, core):
    model = build('mobiledet_dsp', depth_multiplier=factor)
    blocks = ['ibn_no_expansion_0', 'fused_0', 'fused_2', 'fused_5', 'ibn_5', 'ibn_8', 'ibn_10']
    assert filters(model, 'first_conv', *(f'{block}_project' for block in blocks)) == outputs
    assert filters(model, 'tucker_0_reduce', 'tucker_0_core') == core
    # Widths that become equal by rounding do not make another skip.
    assert sum(isinstance(layer, keras.layers.Add) for layer in model.layers) == 15


@slow_cases.parametrize(
    1,
    ('name', 'without'),
    [
        ('mobilenet_edgetpu', ['expanded_conv_13']),
        ('mobiledet_cpu', ['ibn_9']),
        ('mobiledet_gpu', ['fused_9']),
    ],
)
def test_blocks_whose_skip_is_off(name, without):
    model = built(name)
    for layer in model.layers:
        block = layer.name.removesuffix('_project')
        if block == layer.name:
            continue
        first = next(each for each in model.layers if each.name.startswith(f'{block}_'))
        same = first.input.shape[-1] == layer.filters
        strides = {each.strides for each in model.layers if each.name in _convolutions(block)}
        is_possible = same and strides == {(1, 1)}
        has_skip = f'{block}_add' in {each.name for each in model.layers}
        assert has_skip == (is_possible and block not in without), block


def _convolutions(block: str) -> set[str]:
    return {f'{block}_{part}' for part in ('expand', 'depthwise', 'core', 'project')}


def test_layers_of_a_network():
    """What each kind of block has, and what activates it."""
    table = (
        Block(FUSED, 3, 1, 16, 1),
        Block(FUSED, 5, 2, 8, 2, activation='relu6'),
        Block(TUCKER, 3, 1, 8, 1, 2),
        Block(INVERTED, 3, 1, 8, 4, squeezes=True),
    )
    model = model_of(table)
    found = {
        layer.name: layer.activation.__name__
        for layer in model.layers
        if isinstance(layer, keras.layers.Activation)
    }
    assert found == {
        'first_conv_activation': 'hard_swish',
        'fused_1_expand_activation': 'relu6',
        'tucker_0_reduce_activation': 'hard_swish',
        'tucker_0_core_activation': 'hard_swish',
        'ibn_0_expand_activation': 'hard_swish',
        'ibn_0_depthwise_activation': 'hard_swish',
        'ibn_0_squeeze_activation_1': 'relu',
        'ibn_0_excite_activation_1': 'shifted_relu6',
        'ibn_0_excite_activation_2': 'sixth',
        'last_conv_activation': 'hard_swish',
    }
    kernels = {
        layer.name: tuple(layer.kernel.shape) for layer in model.layers if hasattr(layer, 'kernel')
    }
    assert kernels == {
        'first_conv': (3, 3, 3, 16),
        'fused_0_project': (1, 1, 16, 16),
        'fused_1_expand': (5, 5, 16, 32),
        'fused_1_project': (1, 1, 32, 8),
        'tucker_0_reduce': (1, 1, 8, 8),
        'tucker_0_core': (3, 3, 8, 16),
        'tucker_0_project': (1, 1, 16, 8),
        'ibn_0_expand': (1, 1, 8, 32),
        'ibn_0_depthwise': (3, 3, 32, 1),
        'ibn_0_squeeze': (1, 1, 32, 8),
        'ibn_0_excite': (1, 1, 8, 32),
        'ibn_0_project': (1, 1, 32, 8),
        'last_conv': (1, 1, 8, 24),
    }
    assert [layer.name for layer in model.layers if isinstance(layer, keras.layers.Add)] == [
        'fused_0_add', 'tucker_0_add', 'ibn_0_add',
    ]  # fmt: skip


def model_of(table, **fields) -> keras.Model:
    network = Network(
        16,
        table,
        mobilenet.round_to_eights,
        mobilenet.default_hyperparams(),
        lambda _: {'regularizer': None},
        last_filters=24,
        activation=activations.hard_swish,
        squeeze=(('relu',), (activations.shifted_relu6, activations.sixth)),
    )
    options = {'hyperparams': network.hyperparams, 'batch_norm_trainable': True}
    return mobile_blocks.trunk(network, (1, 2), BackboneOptions(**options | fields), {})


def test_a_block_of_v3_by_hand():
    """Expansion, 5x5 convolution of each channel, squeeze-and-excitation, projection, skip."""
    rng = np.random.default_rng(0)
    model = model_of([Block(INVERTED, 5, 1, 16, 4, squeezes=True), Block(FUSED, 3, 2, 8, 2)])
    for weight in model.weights:
        low = 0.5 if weight.path.endswith(('gamma', 'moving_variance')) else -0.5
        weight.assign(rng.uniform(low, low + 1, weight.shape))
    maps = {name: model.get_layer(name).output for name in ('first_conv_activation', 'ibn_0_add')}
    images = rng.uniform(-1, 1, [2, 9, 7, 3]).astype(np.float32)
    found = keras.Model(model.input, maps)(images)
    x = np.asarray(found['first_conv_activation'], np.float64)

    def of(layer: str) -> list[np.ndarray]:
        return [np.float64(weight) for weight in model.get_layer(layer).get_weights()]

    def normalized(x: np.ndarray, layer: str) -> np.ndarray:
        gamma, beta, mean, variance = of(layer)
        return (x - mean) / np.sqrt(variance + 0.001) * gamma + beta

    def hard_swish(x: np.ndarray) -> np.ndarray:
        return x * np.clip(x + 3, 0, 6) / 6

    wide = hard_swish(normalized(x @ of('ibn_0_expand')[0][0, 0], 'ibn_0_expand_bn'))
    padded = np.pad(wide, [(0, 0), (2, 2), (2, 2), (0, 0)])
    kernel = of('ibn_0_depthwise')[0][..., 0]
    height, width = wide.shape[1:3]
    moved = sum(
        padded[:, i : i + height, j : j + width] * kernel[i, j] for i in range(5) for j in range(5)
    )
    moved = hard_swish(normalized(moved, 'ibn_0_depthwise_bn'))
    (squeeze, squeeze_bias), (excite, excite_bias) = of('ibn_0_squeeze'), of('ibn_0_excite')
    means = np.maximum(moved.mean((1, 2), keepdims=True) @ squeeze[0, 0] + squeeze_bias, 0)
    moved *= np.clip(means @ excite[0, 0] + excite_bias + 3, 0, 6) * 0.16667
    expected = x + normalized(moved @ of('ibn_0_project')[0][0, 0], 'ibn_0_project_bn')
    np.testing.assert_allclose(found['ibn_0_add'], expected, rtol=1e-4, atol=1e-4)


def test_activations():
    x = tf.constant([-4.0, -3.0, -1.0, 0.0, 1.0, 3.0, 5.0])
    np.testing.assert_allclose(activations.hard_swish(x), [0, 0, -1 / 3, 0, 2 / 3, 3, 5], rtol=1e-6)
    gates = np.array([0, 0, 2, 3, 4, 6, 6]) * 0.16667
    np.testing.assert_allclose(activations.sixth(activations.shifted_relu6(x)), gates, rtol=1e-6)


def norm_of(model: keras.Model, name: str) -> tuple[float, float, bool, bool]:
    norm = model.get_layer(name)
    return norm.momentum, norm.epsilon, norm.center, norm.scale


def penalties(model: keras.Model) -> set[str]:
    """Layers whose kernels have a penalty."""
    names = ('depthwise_regularizer', 'kernel_regularizer')
    return {each.name for each in model.layers if any(getattr(each, name, None) for name in names)}


TABLE = (Block(INVERTED, 3, 1, 16, 4, squeezes=True), Block(FUSED, 3, 2, 8, 2))


def test_hyperparams_of_v3():
    model = model_of(TABLE)
    assert norm_of(model, 'ibn_0_depthwise_bn') == (0.9997, 0.001, True, True)
    kernels = {layer.name for layer in model.layers if hasattr(layer, 'kernel')}
    assert penalties(model) == kernels - {'ibn_0_depthwise'}
    assert model.get_layer('ibn_0_expand').kernel_regularizer.l2 == pytest.approx(2e-5)


def test_hyperparams_of_the_config():
    config = LayerHyperparams(
        initializer=keras.initializers.Constant(0.25),
        regularizer=L2(0.1),
        activation='relu6',
        batch_norm=BatchNormParams(momentum=0.97, epsilon=0.01, center=False),
    )
    model = model_of(TABLE, hyperparams=config, is_overridden=True)
    assert norm_of(model, 'ibn_0_depthwise_bn') == (0.97, 0.01, True, True)
    depthwise = model.get_layer('ibn_0_depthwise')
    assert depthwise.depthwise_regularizer.l2 == pytest.approx(0.1)
    np.testing.assert_array_equal(depthwise.kernel, np.full([3, 3, 64, 1], 0.25))
    # The activations stay, and so do norms where a config has none.
    assert model.get_layer('first_conv_activation').activation is activations.hard_swish
    model = model_of(TABLE, hyperparams=LayerHyperparams(), is_overridden=True)
    assert norm_of(model, 'ibn_0_depthwise_bn') == (0.999, 0.001, True, True)


def test_hyperparams_of_mobiledet():
    row = BACKBONES['mobiledet_cpu']
    keras.utils.set_random_seed(0)
    model = row.trunk((4, 5), BackboneOptions(row.hyperparams, batch_norm_trainable=False))
    assert norm_of(model, 'ibn_0_project_bn') == (0.99, 0.01, True, True)
    assert penalties(model) == {layer.name for layer in model.layers if hasattr(layer, 'kernel')}
    # He's initialization: sqrt(2 / 25) for one input channel of 5x5 pixels, sqrt(2 / 72) for 72.
    assert np.std(model.get_layer('ibn_5_depthwise').kernel) == pytest.approx(0.283, rel=0.03)
    assert np.std(model.get_layer('ibn_9_expand').kernel) == pytest.approx(1 / 6, rel=0.03)


def test_two_maps_of_one_stride():
    """Of torchvision's network: the first block of stride 32, and the last convolution."""
    row = BACKBONES['mobilenet_v3_large_full']
    model = build('mobilenet_v3_large_full', (5, 6))
    assert model.compute_output_shape((1, 64, 96, 3)) == [(1, 2, 3, 160), (1, 2, 3, 960)]
    assert [row.stride(level) for level in (4, 5, 6, 7)] == [16, 32, 32, 64]
    # 5.48 million with the classifier's 960 x 1280 + 1280 x 1000 kernels and their biases.
    learnt = sum(math.prod(weight.shape) for weight in model.trainable_weights)
    assert learnt == 5_483_032 - (960 * 1280 + 1280 + 1280 * 1000 + 1000)


def test_padding_alike_on_both_sides():
    rng = np.random.default_rng(0)
    images = rng.uniform(-1, 1, [1, 8, 8, 3]).astype(np.float32)
    settings = {'padding': Padding.SAME}
    for fields, is_alike in (({}, True), ({'settings': settings}, False)):
        model = build('mobilenet_v3_large_halved', (1,), **fields)
        kernel = model.get_layer('first_conv')
        alone = keras.Model(model.input, kernel.output)(images).numpy()
        padded = np.pad(images, [(0, 0), (1, 1), (1, 1), (0, 0)])
        moved = padded[:, :3, :3] if is_alike else images[:, :3, :3]
        expected = np.einsum('bhwi,hwio->bo', moved, kernel.get_weights()[0])
        np.testing.assert_allclose(alone[:, 0, 0], expected, rtol=1e-4, atol=1e-5)


def test_frozen_stages():
    model = build('mobilenet_v3_large_halved', settings={'frozen_stages': 3})
    frozen = {layer.name for layer in model.layers if layer.weights and not layer.trainable}
    assert {'first_conv', 'first_conv_bn', 'expanded_conv_5_project_bn'} <= frozen
    assert not any(name.startswith('expanded_conv_6') for name in frozen)


def test_exact_hard_sigmoid():
    x = tf.constant([-4.0, 0.0, 1.5, 5.0])
    np.testing.assert_array_equal(
        activations.exact_sixth(activations.shifted_relu6(x)), np.float32([0, 0.5, 0.75, 1])
    )
