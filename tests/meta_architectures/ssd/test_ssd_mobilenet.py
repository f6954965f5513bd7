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
from object_detection.models.image_values import scale_to_unit, subtract_means
from object_detection.models.normalization import BatchNormParams
from tests import rows, slow_cases
from tests.contracts_feature_extractor import check_propagates_sums, check_stacks

HYPERPARAMS = LayerHyperparams(
    regularizer=L2(0.1), activation='relu6', batch_norm=BatchNormParams(momentum=0.9, scale=True)
)


def small(**fields) -> SingleShotOptions:
    """Options of a network of an eighth of the channels."""
    defaults = {'batch_norm_trainable': True, 'hyperparams': HYPERPARAMS}
    return SingleShotOptions(**(defaults | {'depth_multiplier': 0.125, 'min_depth': 8} | fields))


def build(type_name: str, **fields) -> FeatureExtractor:
    return build_ssd(type_name, small(**fields))


@pytest.fixture(autouse=True)
def _seed():
    keras.utils.set_random_seed(1)


def shapes(extractor: FeatureExtractor, *size: int) -> list[tuple[int, ...]]:
    ((*maps,),) = extractor.feature_stacks(tf.zeros([1, *size, 3]))
    return [tuple(level.shape[1:]) for level in maps]


ALL_OPTIONS = {'use_explicit_padding': True, 'use_depthwise': True, 'pad_to_multiple': 32}


@slow_cases.parametrize(
    1,
    ('type_name', 'options'),
    [
        ('ssd_mobilenet_v1_keras', ALL_OPTIONS),
        pytest.param('ssd_mobilenet_v2_keras', {}, marks=pytest.mark.slow),
        pytest.param('ssd_mobilenet_v1_fpn_keras', {}, marks=pytest.mark.slow),
        ('ssd_mobilenet_v2_fpn_keras', ALL_OPTIONS),
        pytest.param('ssd_mobilenet_v1_ppn', {}, marks=pytest.mark.slow),
    ],
)
def test_contract(type_name, options):
    check_stacks(build(type_name, override_backbone=True, **options))


@pytest.mark.slow
@pytest.mark.parametrize(
    'type_name',
    ['ssd_mobilenet_v1_ppn', 'ssd_mobilenet_v1_keras'],
)
def test_contract_in_mixed_precision(type_name):
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy('mixed_bfloat16')
    try:
        check_stacks(build(type_name, override_backbone=True))
    finally:
        keras.config.set_dtype_policy(before)


def test_six_maps():
    extractor = build('ssd_mobilenet_v2_keras')
    assert extractor.strides == [16, 32, 64, 128, 256, 512]
    assert shapes(extractor, 300, 70) == [
        (19, 5, 96), (10, 3, 160), (5, 2, 64), (3, 1, 32), (2, 1, 32), (1, 1, 16),
    ]  # fmt: skip
    assert list(extractor.parts()) == ['backbone', 'fpn']
    normalized = extractor.normalize(tf.constant([[[[0.0, 127.5, 255.0]]]]))
    np.testing.assert_allclose(normalized, [[[[-1, 0, 1]]]], atol=1e-6)


@slow_cases.parametrize(1, 'num_layers', [1, 2, 3])
def test_fewer_maps(num_layers):
    extractor = build('ssd_mobilenet_v1_keras', num_layers=num_layers)
    assert extractor.strides == [16, 32, 64][:num_layers]
    # The factor counts twice in the backbone, and once in the map after it.
    assert shapes(extractor, 64, 64) == [(4, 4, 8), (2, 2, 16), (1, 1, 64)][:num_layers]
    # As in the reference, the backbone always has all of its layers.
    assert extractor.backbone.get_layer('conv_pw_13').filters == 16


def test_levels_of_a_pyramid():
    extractor = build('ssd_mobilenet_v2_fpn_keras', fpn=FpnOptions(2, 6, 64))
    assert extractor.strides == [4, 8, 16, 32, 64]
    # The factor holds for the pyramid too.
    assert shapes(extractor, 65, 40) == [
        (17, 10, 8), (9, 5, 8), (5, 3, 8), (3, 2, 8), (2, 1, 8),
    ]  # fmt: skip


def test_default_levels_of_a_pyramid():
    extractor = build('ssd_mobilenet_v1_fpn_keras')
    assert extractor.strides == [8, 16, 32, 64, 128]
    assert extractor.pyramid.outputs[0].shape[-1] == 256 // 8
    extractor = build('ssd_mobilenet_v1_fpn_keras', fpn=FpnOptions(3, 4))
    assert [layer.name for layer in extractor.pyramid.layers if 'coarse' in layer.name] == []


@pytest.mark.slow
def test_separable_pyramids_thin_the_end_of_v1_only():
    def last(type_name: str, use_depthwise: bool) -> int:
        return build(type_name, use_depthwise=use_depthwise).backbone.outputs[-1].shape[-1]

    assert last('ssd_mobilenet_v1_fpn_keras', False) == 1024 // 8 // 8
    assert last('ssd_mobilenet_v1_fpn_keras', True) == 256 // 8
    assert last('ssd_mobilenet_v2_fpn_keras', True) == 1280 // 8
    assert last('ssd_mobilenet_v1_keras', True) == 1024 // 8 // 8


@slow_cases.parametrize(1, 'override', [False, True])
def test_hyperparams_of_the_backbone(override):
    extractor = build('ssd_mobilenet_v2_keras', override_backbone=override)
    norm = extractor.backbone.get_layer('bn_Conv1')
    assert norm.momentum == (0.9 if override else 0.9997)
    assert extractor.backbone.get_layer('Conv1').kernel_regularizer.l2 == pytest.approx(
        0.1 if override else 2e-5
    )
    assert extractor.pyramid.get_layer('map_2_conv_bn').momentum == 0.9


@slow_cases.parametrize(1, 'name', ['v1_fpn', 'v2_fpn'])
def test_pyramids_of_tensorflow_1_propagate_sums(name):
    # At a factor of 1, as it counts differently.
    options = {'override_backbone': True} | ({'depth_multiplier': 1.0} if name == 'v1_fpn' else {})
    slim, ours = (
        build(type_name, **options)
        for type_name in (f'ssd_mobilenet_{name}', f'ssd_mobilenet_{name}_keras')
    )
    check_propagates_sums(slim, ours)


def test_separable_pyramids_of_tensorflow_1_thin_the_end_of_v2():
    extractor = build('ssd_mobilenet_v2_fpn', use_depthwise=True)
    assert extractor.backbone.outputs[-1].shape[-1] == 256 // 8


def test_pooling_pyramid_of_mobilenet():
    extractor = build('ssd_mobilenet_v1_ppn')
    assert extractor.strides == [16, 32, 64, 128, 256, 512]
    assert shapes(extractor, 300, 70) == [
        (19, 5, 64), (10, 3, 64), (5, 2, 64), (3, 1, 64), (2, 1, 64), (1, 1, 64),
    ]  # fmt: skip
    assert not extractor.pyramid.weights
    images = tf.constant([[[[1.0, 2.0, 3.0]]]])
    np.testing.assert_allclose(extractor.normalize(images), scale_to_unit(images))
    assert build('ssd_mobilenet_v1_ppn', num_layers=2).strides == [16, 32]


def test_pooling_pyramid_of_resnet():
    extractor = build('ssd_resnet50_v1_ppn', depth_multiplier=1.0, num_layers=3)
    assert shapes(extractor, 65, 33) == [(5, 3, 1024), (3, 2, 1024), (2, 1, 1024)]
    images = tf.constant([[[[1.0, 2.0, 3.0]]]])
    np.testing.assert_allclose(extractor.normalize(images), subtract_means(images))
    assert {weight.path.split('/')[0] for weight in extractor.pyramid.weights} == {
        'base',
        'base_bn',
    }
    assert extractor.backbone.get_layer('conv1_conv').kernel_regularizer.l2 == 5e-5


@rows.parametrize(
    ('type_name', 'fields', 'message'),
    [
        ('ssd_mobilenet_v1_keras', {'hyperparams': None}, 'needs `conv_hyperparams`'),
        ('ssd_mobilenet_v1_keras', {'fpn': FpnOptions()}, 'fpn: expected none'),
        ('ssd_mobilenet_v2_keras', {'bifpn': BiFpnOptions()}, 'bifpn: expected none'),
        ('ssd_mobilenet_v2_keras', {'num_layers': 7}, 'num_layers: expected 1 to 6'),
        ('ssd_mobilenet_v2_keras', {'depth_multiplier': -1.0}, 'depth_multiplier: .* positive'),
        ('ssd_mobilenet_v2_keras', {'min_depth': 0}, 'min_depth: expected at least 1'),
        ('ssd_mobilenet_v2_keras', {'pad_to_multiple': 0}, 'pad_to_multiple'),
        (
            'ssd_mobilenet_v1_fpn_keras',
            {'bifpn': BiFpnOptions()},
            'bifpn: expected none, as the neck fpn',
        ),
        (
            'ssd_mobilenet_v1_fpn_keras',
            {'num_layers': 6},
            'num_layers: expected none',
        ),
        (
            'ssd_mobilenet_v1_fpn_keras',
            {'fpn': FpnOptions(1, 7)},
            'min_level <= 5, .*Received: 1 and 7',
        ),
        (
            'ssd_mobilenet_v1_fpn_keras',
            {'fpn': FpnOptions(4, 3)},
            'min_level <= max_level. Received: 4 and 3',
        ),
        ('ssd_mobilenet_v1_fpn_keras', {'fpn': FpnOptions(6, 7)}, 'Received: 6 and 7'),
        ('ssd_mobilenet_v1_fpn_keras', {'fpn': FpnOptions(depth=0)}, 'additional_layer_depth'),
        ('ssd_mobilenet_v1_ppn', {'fpn': FpnOptions()}, 'fpn: expected none'),
        ('ssd_mobilenet_v1_ppn', {'use_depthwise': True}, 'use_depthwise: expected false'),
        ('ssd_mobilenet_v1_ppn', {'num_layers': 0}, 'num_layers: expected at least 1'),
        (
            'ssd_resnet50_v1_ppn',
            {'depth_multiplier': 1.0, 'use_explicit_padding': True},
            'use_explicit_padding: expected false',
        ),
    ],
)
def test_errors(type_name, fields, message):
    with pytest.raises(ValueError, match=message):
        build_ssd(type_name, small(**fields))
