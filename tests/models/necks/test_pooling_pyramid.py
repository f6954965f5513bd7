import numpy as np
import pytest
import tensorflow as tf

from object_detection.models.hyperparams import L2, LayerHyperparams
from object_detection.models.necks.multi_resolution import pooling_pyramid
from object_detection.models.normalization import BatchNormParams


def build(channels: int, **options):
    defaults = {
        'depth': None,
        'num_maps': 6,
        'hyperparams': LayerHyperparams(regularizer=L2(0.1), batch_norm=BatchNormParams()),
        'batch_norm_trainable': True,
        'name': 'fpn',
    }
    return pooling_pyramid(channels, **(defaults | options))


def test_pooled_maps_by_hand():
    model = build(1, num_maps=3)
    features = np.arange(15, dtype=np.float32).reshape(1, 3, 5, 1)
    first, second, third = model(features)
    np.testing.assert_array_equal(first, features)
    # The last row and the last column are pooled on their own.
    np.testing.assert_array_equal(second[0, :, :, 0], [[6, 8, 9], [11, 13, 14]])
    np.testing.assert_array_equal(third[0, :, :, 0], [[13, 14]])
    assert not model.weights


def test_sizes_are_those_of_a_300_pixel_image():
    sizes = [level.shape[1] for level in build(2)(tf.zeros([1, 19, 19, 2]))]
    assert sizes == [19, 10, 5, 3, 2, 1]


def test_base():
    model = build(4, depth=6)
    maps = model(tf.ones([1, 8, 8, 4]))
    assert {level.shape[-1] for level in maps} == {6}
    assert {weight.path.split('/')[0] for weight in model.weights} == {'base', 'base_bn'}
    assert len(model.losses) == 1
    assert np.min(maps[0]) >= 0  # after the activation


def test_number_of_maps_is_checked():
    with pytest.raises(ValueError, match='num_layers: expected at least 1'):
        build(4, num_maps=0)
