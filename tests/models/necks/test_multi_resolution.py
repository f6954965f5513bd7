import numpy as np
import pytest
import tensorflow as tf

from object_detection.models.hyperparams import L2, LayerHyperparams
from object_detection.models.necks.multi_resolution import Options, multi_resolution_maps
from object_detection.models.normalization import BatchNormParams

HYPERPARAMS = LayerHyperparams(regularizer=L2(0.1), batch_norm=BatchNormParams())


def build(channels=(4, 8), hyperparams=HYPERPARAMS, **options):
    return multi_resolution_maps(
        channels,
        hyperparams=hyperparams,
        batch_norm_trainable=True,
        name='fpn',
        options=Options(**options),
    )


def inputs(*sizes: tuple[int, int], channels=(4, 8)) -> list[tf.Tensor]:
    return [tf.ones([2, *size, c]) for size, c in zip(sizes, channels, strict=True)]


def test_shapes_and_layers():
    model = build(depth_multiplier=0.125, min_depth=16)
    maps = model(inputs((19, 9), (10, 5)))
    assert [tuple(level.shape) for level in maps] == [
        (2, 19, 9, 4), (2, 10, 5, 8), (2, 5, 3, 64), (2, 3, 2, 32), (2, 2, 1, 32), (2, 1, 1, 16),
    ]  # fmt: skip
    kernels = {
        layer.name: tuple(layer.kernel.shape) for layer in model.layers if hasattr(layer, 'kernel')
    }
    assert kernels == {
        'map_2_projection': (1, 1, 8, 32),
        'map_2_conv': (3, 3, 32, 64),
        'map_3_projection': (1, 1, 64, 16),
        'map_3_conv': (3, 3, 16, 32),
        'map_4_projection': (1, 1, 32, 16),
        'map_4_conv': (3, 3, 16, 32),
        'map_5_projection': (1, 1, 32, 16),
        'map_5_conv': (3, 3, 16, 16),
    }
    assert len(model.losses) == 8


def test_depthwise():
    model = build(num_maps=3, depth_multiplier=0.125, use_depthwise=True)
    weights = [layer.name for layer in model.layers if layer.weights]
    assert weights == [
        'map_2_projection', 'map_2_projection_bn', 'map_2_depthwise', 'map_2_depthwise_bn',
        'map_2_conv', 'map_2_conv_bn',
    ]  # fmt: skip
    depthwise = model.get_layer('map_2_depthwise')
    assert depthwise.strides == (2, 2)
    assert depthwise.depthwise_regularizer is None
    assert model.get_layer('map_2_conv').kernel.shape == (1, 1, 32, 64)
    assert len(model.losses) == 2


def test_explicit_padding_by_hand():
    """A kernel of ones counts the cells that are not padding; size 4 is padded at both ends."""
    arguments = {'channels': (1, 1), 'hyperparams': LayerHyperparams(activation=None)}
    for explicit, expected in ((True, [4, 6, 6, 9]), (False, [9, 6, 6, 4])):
        model = build(num_maps=3, depth_multiplier=2 / 512, explicit_padding=explicit, **arguments)
        model.get_layer('map_2_projection').set_weights([np.ones([1, 1, 1, 1]), np.zeros(1)])
        model.get_layer('map_2_conv').set_weights([np.ones([3, 3, 1, 2]), np.zeros(2)])
        *_, last = model(inputs((8, 8), (4, 4), channels=(1, 1)))
        np.testing.assert_allclose(np.ravel(last[0, :, :, 0]), expected)


def test_other_filters_after_three_maps_of_a_backbone():
    model = build((4, 8, 12), filters=(64, 32), last_kernel_size=2)
    sizes = (9, 9), (5, 5), (3, 3)
    maps = model(inputs(*sizes, channels=(4, 8, 12)))
    assert [tuple(level.shape[1:]) for level in maps] == [
        (9, 9, 4), (5, 5, 8), (3, 3, 12), (2, 2, 64), (1, 1, 32),
    ]  # fmt: skip
    kernels = {
        layer.name: tuple(layer.kernel.shape) for layer in model.layers if hasattr(layer, 'kernel')
    }
    assert kernels == {
        'map_3_projection': (1, 1, 12, 32),
        'map_3_conv': (3, 3, 32, 64),
        'map_4_projection': (1, 1, 64, 16),
        'map_4_conv': (2, 2, 16, 32),
    }


def test_last_maps_without_padding():
    model = build((4,), filters=(8, 8, 8), num_valid=2, explicit_padding=True)
    maps = model(inputs((10, 12), channels=(4,)))
    assert [tuple(level.shape[1:3]) for level in maps] == [(10, 12), (5, 6), (3, 4), (1, 2)]
    layers = [model.get_layer(f'map_{i}_conv') for i in (1, 2, 3)]
    assert [layer.strides[0] for layer in layers] == [2, 1, 1]
    # Which maps these are does not depend on how many there are.
    fewer = build((4,), filters=(8, 8, 8), num_valid=2, num_maps=3)
    sizes = [tuple(level.shape[1:3]) for level in fewer(inputs((10, 12), channels=(4,)))]
    assert sizes == [(10, 12), (5, 6), (3, 4)]


def test_a_kernel_of_an_even_size_is_padded_at_the_end():
    """A kernel of ones counts the cells that are not padding; without padding, 5 gives 2."""
    arguments = {'channels': (1,), 'hyperparams': LayerHyperparams(activation=None)}
    for explicit in (True, False):
        model = build(filters=(2,), last_kernel_size=2, explicit_padding=explicit, **arguments)
        model.get_layer('map_1_projection').set_weights([np.ones([1, 1, 1, 1]), np.zeros(1)])
        model.get_layer('map_1_conv').set_weights([np.ones([2, 2, 1, 2]), np.zeros(2)])
        *_, last = model(inputs((5, 5), channels=(1,)))
        np.testing.assert_allclose(last[0, :, :, 0], [[4, 4, 2], [4, 4, 2], [2, 2, 1]])


@pytest.mark.parametrize('num_maps', [1, 2])
def test_only_maps_of_the_backbone(num_maps):
    model = build(num_maps=num_maps)
    maps = tf.nest.flatten(model(inputs((4, 4), (2, 2))))
    assert [level.shape[-1] for level in maps] == [4, 8][:num_maps]
    assert not model.weights


@pytest.mark.parametrize('num_maps', [0, 7])
def test_number_of_maps_is_checked(num_maps):
    with pytest.raises(ValueError, match='num_layers: expected 1 to 6'):
        build(num_maps=num_maps)
