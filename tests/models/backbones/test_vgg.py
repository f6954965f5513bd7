"""VGG16 as SSD has it: its two maps, and what is made of them."""

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format

from object_detection.errors import UserError
from object_detection.meta_architectures.ssd import build as ssd_build
from object_detection.models.backbones.vgg import VGG16, ScaledNorm
from object_detection.protos.ssd_pb2 import SsdFeatureExtractor
from tests.contracts_feature_extractor import check_stacks
from tests.meta_architectures.ssd.configs import tiny

NARROW = 'depth_multiplier: 0.02 min_depth: 4 conv_hyperparams { activation: RELU }'


def extractor(text=''):
    config = text_format.Parse(f"type: 'ssd_vgg16' {NARROW}", SsdFeatureExtractor())
    text_format.Merge(text, config)
    return ssd_build.build_extractor(config, True)


def test_maps_are_those_of_ssd300():
    sides = [38, 19, 10, 5, 3, 1]
    shapes = extractor().map_shapes(300, 300)
    assert [shape[1:3] for shape in shapes] == [(side, side) for side in sides]
    # Sizes are rounded up by all poolings.
    shapes = extractor('num_layers: 3').map_shapes(70, 45)
    assert [shape[1:3] for shape in shapes] == [(9, 6), (5, 3), (3, 2)]


def test_contract_under_a_pyramid():
    fpn = "type: 'ssd_fpn' backbone: 'vgg16' fpn { min_level: 3 max_level: 5 }"
    check_stacks(extractor(f'{fpn} conv_hyperparams {{ batch_norm {{}} }}'))


def test_layers():
    layers = {layer.name: layer for layer in extractor().backbone.layers}
    assert {name for name, layer in layers.items() if layer.weights} == {
        *('conv1_1', 'conv1_2', 'conv2_1', 'conv2_2', 'conv3_1', 'conv3_2', 'conv3_3'),
        *('conv4_1', 'conv4_2', 'conv4_3', 'conv5_1', 'conv5_2', 'conv5_3'),
        *('conv4_3_scaled', 'fc6', 'fc7'),
    }
    assert layers['fc6'].dilation_rate == (6, 6)
    pool = layers['pool5']
    assert (pool.pool_size, pool.strides, pool.padding) == ((3, 3), (1, 1), 'same')
    assert [layers[f'conv{stage}_1'].filters for stage in range(1, 6)] == [4, 4, 5, 10, 10]
    images = tf.constant([[[[123.0, 117.0, 104.0]]]])
    # torchvision's means, 0.48235 and so on, of 0..1.
    np.testing.assert_allclose(VGG16.normalize(images), [[[[7.5e-4, 9e-4, 8e-4]]]], atol=1e-5)


def test_first_stages_may_not_train():
    names = [v.path for v in extractor('frozen_stages: 2').backbone.trainable_variables]
    assert 'conv3_1/kernel' in names
    assert 'conv4_3_scaled/scale' in names
    assert not any(name.startswith(('conv1_', 'conv2_')) for name in names)


@pytest.mark.parametrize('dtype', ['float32', 'float16'])
def test_scaled_norm_by_hand(dtype):
    # The squares of the first cell exceed float16; the second one has no direction.
    layer = ScaledNorm(dtype=dtype)
    values = tf.constant([[[[300.0, 400.0], [0.0, 0.0], [3.0, -4.0]]]], dtype)
    assert layer(values).dtype == dtype
    layer.scale.assign([10.0, 20.0])
    with tf.GradientTape() as tape:
        tape.watch(values)
        found = layer(values)
        total = tf.reduce_sum(found)
    np.testing.assert_allclose(found[0, 0], [[6, 16], [0, 0], [6, -16]], rtol=1e-3)
    assert np.isfinite(tape.gradient(total, layer.scale)).all()


@pytest.mark.parametrize(('side', 'num_layers', 'least'), [(256, 6, 257), (128, 5, 129)])
def test_images_that_leave_a_map_no_cells_are_refused(side, num_layers, least):
    config = tiny(f'image_resizer {{ fixed_shape_resizer {{ height: {side} width: 300 }} }}')
    config.ssd.feature_extractor.Clear()
    text_format.Merge(f"type: 'ssd_vgg16' {NARROW}", config.ssd.feature_extractor)
    config.ssd.feature_extractor.num_layers = num_layers
    config.ssd.anchor_generator.ssd_anchor_generator.num_layers = num_layers
    with pytest.raises(UserError, match=f'image_resizer: expected sides of at least {least}, '):
        ssd_build.build_detector(config.ssd, is_training=True)
    config.ssd.image_resizer.fixed_shape_resizer.height = least
    detector = ssd_build.build_detector(config.ssd, is_training=True)
    assert min(detector.feature_extractor.map_shapes(least, 300)[-1][1:3]) == 1
