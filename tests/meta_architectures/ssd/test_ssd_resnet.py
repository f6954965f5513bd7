import keras
import numpy as np
import pytest
import tensorflow as tf

from object_detection.meta_architectures.ssd.feature_extractor import (
    BiFpnOptions,
    FpnOptions,
    SingleShotOptions,
    build_ssd,
)
from object_detection.models.feature_extractor import FeatureExtractor
from object_detection.models.hyperparams import L2, LayerHyperparams
from object_detection.models.image_values import subtract_means
from object_detection.models.normalization import BatchNormParams
from tests import rows, slow_cases
from tests.contracts_feature_extractor import check_propagates_sums, check_stacks

HYPERPARAMS = LayerHyperparams(
    regularizer=L2(0.1),
    activation='relu',
    batch_norm=BatchNormParams(momentum=0.9, scale=True),
    force_use_bias=True,
)


def small(**fields) -> SingleShotOptions:
    """Options of a network of a quarter of the channels."""
    defaults = {'batch_norm_trainable': True, 'hyperparams': HYPERPARAMS}
    return SingleShotOptions(**(defaults | {'depth_multiplier': 0.25, 'min_depth': 16} | fields))


def build(type_name: str = 'ssd_resnet18_v1_fpn_keras', **fields) -> FeatureExtractor:
    return build_ssd(type_name, small(**fields))


@slow_cases.parametrize(
    1, 'options', [{'override_backbone': True, 'use_depthwise': True, 'pad_to_multiple': 32}, {}]
)
def test_contract(options):
    check_stacks(build(**options))


def test_levels_and_widths():
    extractor = build(fpn=FpnOptions(2, 6, 128))
    assert extractor.strides == [4, 8, 16, 32, 64]
    ((*maps,),) = extractor.feature_stacks(tf.zeros([1, 65, 40, 3]))
    shapes = [(17, 10, 32), (9, 5, 32), (5, 3, 32), (3, 2, 32), (2, 1, 32)]
    assert [tuple(level.shape[1:]) for level in maps] == shapes
    assert extractor.backbone.outputs[-1].shape[-1] == 512 // 4
    assert list(extractor.parts()) == ['backbone', 'fpn']


def test_default_levels():
    extractor = build()
    assert extractor.strides == [8, 16, 32, 64, 128]
    assert extractor.pyramid.outputs[0].shape[-1] == 256 // 4


def test_images():
    images = tf.constant([[[[1.0, 2.0, 3.0]]]])
    np.testing.assert_allclose(build().normalize(images), subtract_means(images))


@pytest.mark.parametrize('override', [False, True])
def test_hyperparams_of_the_backbone(override):
    extractor = build(override_backbone=override)
    assert extractor.backbone.get_layer('conv1_bn').momentum == (0.9 if override else 0.997)
    conv = extractor.backbone.get_layer('conv1_conv')
    assert conv.kernel_regularizer.l2 == pytest.approx(0.1 if override else 1e-4)
    # As in the reference, a bias that is asked for is only in the pyramid.
    assert not conv.use_bias
    assert extractor.pyramid.get_layer('smoothing_3').use_bias
    assert extractor.pyramid.get_layer('smoothing_3').kernel_regularizer.l2 == 0.1


def test_the_penalty_of_a_backbone_of_tensorflow_1_is_half_of_its_weight_decay():
    conv = build('ssd_resnet50_v1_fpn').backbone.get_layer('conv1_conv')
    assert conv.kernel_regularizer.l2 == pytest.approx(0.5e-4)


def test_depthwise_pyramid():
    pyramid = build(use_depthwise=True).pyramid
    assert isinstance(pyramid.get_layer('smoothing_3'), keras.layers.SeparableConv2D)
    assert isinstance(pyramid.get_layer('coarse_6'), keras.layers.SeparableConv2D)


@pytest.mark.slow
def test_pyramids_of_tensorflow_1_propagate_sums():
    check_propagates_sums(build('ssd_resnet50_v1_fpn'), build('ssd_resnet50_v1_fpn_keras'))


@rows.parametrize(
    ('fields', 'message'),
    [
        ({'hyperparams': None}, 'needs `conv_hyperparams`'),
        ({'depth_multiplier': 0.0}, 'depth_multiplier: .* positive'),
        ({'min_depth': 0}, 'min_depth: expected at least 1'),
        (
            {'bifpn': BiFpnOptions()},
            'bifpn: .* it reads fpn, use_depthwise. Received: the',
        ),
        ({'num_layers': 6}, 'num_layers: expected none, .* reads fpn'),
        ({'fpn': FpnOptions(1, 7)}, 'min_level <= 5, .*Received: 1 and 7'),
        ({'use_explicit_padding': True}, 'use_explicit_padding: expected false'),
    ],
)
def test_errors(fields, message):
    with pytest.raises(ValueError, match=message):
        build_ssd('ssd_resnet50_v1_fpn_keras', small(**fields))
