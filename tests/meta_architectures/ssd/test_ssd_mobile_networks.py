"""Types on MobileNet v3, EdgeTPU and MobileDet, and the embedded one."""

import re

import keras
import numpy as np
import pytest
import tensorflow as tf

from object_detection.builders import model_builder
from object_detection.core.groundtruth import Groundtruth
from object_detection.errors import UserError
from object_detection.meta_architectures.faster_rcnn.feature_extractor import build_faster_rcnn
from object_detection.meta_architectures.ssd.feature_extractor import (
    FpnOptions,
    SingleShotOptions,
    build_ssd,
)
from object_detection.models.feature_extractor import FeatureExtractor
from object_detection.models.hyperparams import L2, LayerHyperparams
from object_detection.models.normalization import BatchNormParams, FrozenBatchNorm
from tests import mobile_networks, rows, slow_cases
from tests.contracts_feature_extractor import check_stacks
from tests.extractor_options import two_stage_options
from tests.meta_architectures.ssd import configs
from tests.unread import unread

HYPERPARAMS = LayerHyperparams(
    regularizer=L2(0.1), activation='relu6', batch_norm=BatchNormParams(momentum=0.9, scale=True)
)
TYPES = [f'ssd_{name}' for name in mobile_networks.NETWORKS]
NARROW = {'depth_multiplier': 0.25, 'min_depth': 8}
EMBEDDED = 'embedded_ssd_mobilenet_v1'


def options(**fields) -> SingleShotOptions:
    return SingleShotOptions(
        **{'batch_norm_trainable': True, 'hyperparams': HYPERPARAMS, 'use_depthwise': True} | fields
    )


def build(type_name: str, **fields) -> FeatureExtractor:
    return build_ssd(type_name, options(**fields))


def shapes(extractor: FeatureExtractor, size: int) -> list[tuple[int, ...]]:
    """Side and channels of each map of square images."""
    maps = extractor.backbone.compute_output_shape((1, *extractor.padded_size(size, size), 3))
    return [shape[2:] for shape in extractor.pyramid.compute_output_shape(maps)]


@slow_cases.parametrize(1, 'type_name', ['ssd_mobiledet_edgetpu', *TYPES[:-2], TYPES[-1]])
def test_six_maps(type_name):
    _, _, _, channels = mobile_networks.NETWORKS[type_name.removeprefix('ssd_')]
    channels = [*channels, 512, 256, 256, 128]
    extractor = build(type_name)
    assert extractor.strides == [16, 32, 64, 128, 256, 512]
    for size, sides in ((320, [20, 10, 5, 3, 2, 1]), (299, [19, 10, 5, 3, 2, 1])):
        assert shapes(extractor, size) == list(zip(sides, channels, strict=True))
    normalized = extractor.normalize(tf.constant([[[[0.0, 127.5, 255.0]]]]))
    np.testing.assert_allclose(normalized, [[[[-1, 0, 1]]]], atol=1e-6)


@slow_cases.parametrize(
    1,
    ('fields', 'channels'),
    [
        ({'depth_multiplier': 0.125, 'use_explicit_padding': True}, [64, 128, 64, 32, 32]),
        ({}, [512, 1024, 512, 256, 256]),
        ({'depth_multiplier': 2**-12, 'min_depth': 32}, [32] * 5),
    ],
)
def test_five_maps_of_the_embedded_type(fields, channels):
    extractor = build(EMBEDDED, use_depthwise=False, **fields)
    assert extractor.strides == [16, 32, 64, 128, 256]
    assert shapes(extractor, 256) == list(zip([16, 8, 4, 2, 1], channels, strict=True))
    assert extractor.pyramid.get_layer('map_4_conv').kernel_size == (2, 2)
    padding = 'valid' if 'use_explicit_padding' in fields else 'same'
    assert extractor.backbone.get_layer('conv1').padding == padding
    assert extractor.pyramid.get_layer('map_4_conv').padding == padding


@slow_cases.parametrize(
    1, 'type_name', ['ssd_mobilenet_v3_small', 'ssd_mobiledet_cpu', 'ssd_mobiledet_dsp']
)
def test_contract(type_name):
    check_stacks(build(type_name, **NARROW))


@pytest.mark.slow
@pytest.mark.parametrize('type_name', TYPES)
def test_contract_in_mixed_precision(type_name):
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy('mixed_bfloat16')
    try:
        check_stacks(build(type_name, **NARROW))
    finally:
        keras.config.set_dtype_policy(before)


def momentum(extractor: FeatureExtractor) -> tuple[float, float]:
    """That of the norms of the backbone, and of the maps after it."""
    layers = (
        extractor.backbone.get_layer('first_conv_bn'),
        extractor.pyramid.get_layer('map_2_conv_bn'),
    )
    return tuple(layer.momentum for layer in layers)


def test_hyperparams_of_the_backbone():
    overridden = {'override_backbone': True, **NARROW}
    assert momentum(build('ssd_mobilenet_v3_small', **overridden)) == (0.9, 0.9)
    # The reference does not use the config's there.
    frozen = build('ssd_mobiledet_dsp', batch_norm_trainable=False, **overridden)
    assert momentum(frozen) == (0.99, 0.9)
    assert isinstance(frozen.backbone.get_layer('first_conv_bn'), FrozenBatchNorm)


@rows.parametrize(
    ('type_name', 'fields', 'message'),
    [
        (
            'ssd_mobilenet_v3_large',
            {'num_layers': 6},
            'num_layers: expected none, as the type ssd_mobilenet_v3_large always has 6 maps. '
            'Received: 6.',
        ),
        ('ssd_mobiledet_gpu', {'num_layers': 4}, 'always has 6 maps. Received: 4.'),
        (EMBEDDED, {'num_layers': 5}, 'always has 5 maps. Received: 5.'),
        (
            'ssd_mobilenet_edgetpu',
            {'use_explicit_padding': True},
            'use_explicit_padding: expected false, as the reference pads whole blocks by it, which '
            'changes the sizes of its maps. Received: true.',
        ),
        (
            'ssd_mobiledet_cpu',
            {'use_explicit_padding': True},
            'use_explicit_padding: expected false, as its convolutions always have SAME padding.',
        ),
        (
            EMBEDDED,
            {'pad_to_multiple': 32},
            f'pad_to_multiple: expected 1, as the type {EMBEDDED} takes images of 256 pixels only. '
            'Received: 32.',
        ),
        ('ssd_mobilenet_v3_small', {'fpn': FpnOptions()}, 'fpn: expected none, as the neck'),
    ],
)
def test_errors(type_name, fields, message):
    with pytest.raises(UserError, match=re.escape(message)):
        build(type_name, **fields)


CHANGES = """
feature_extractor { type: '%s' depth_multiplier: 0.25 min_depth: 8 use_depthwise: true }
anchor_generator { ssd_anchor_generator { num_layers: %d } }
"""


def tiny(type_name: str, num_maps: int = 6, changes: str = ''):
    model = configs.tiny(CHANGES % (type_name, num_maps) + changes)
    model.ssd.feature_extractor.ClearField('num_layers')
    return model


@slow_cases.parametrize(
    1,
    ('resizer', 'received'),
    [
        ('fixed_shape_resizer { height: 256 width: 320 }', 'images of 256 x 320'),
        ('keep_aspect_ratio_resizer { min_dimension: 256 max_dimension: 256 }', 'of any size'),
    ],
)
def test_images_of_the_embedded_type(resizer, received):
    model = tiny(EMBEDDED, 5, f'image_resizer {{ {resizer} }}')
    message = (
        r'image_resizer: expected images of 256 x 256, such as of fixed_shape_resizer \{ height: '
        rf'256 width: 256 \}}, as the type {EMBEDDED} takes no others. Received: .*{received}'
    )
    with pytest.raises(UserError, match=message):
        model_builder.build(model)


@slow_cases.parametrize(1, 'type_name', ['ssd_mobiledet_dsp', 'ssd_mobilenet_v3_small'])
def test_a_field_without_an_effect_is_reported(type_name):
    path = 'model.ssd.feature_extractor.override_base_feature_extractor_hyperparams'
    reported = [(path, 'as in the reference, the backbone keeps its own')]
    assert unread(tiny(type_name)) == (reported if 'mobiledet' in type_name else [])


@slow_cases.parametrize(1, 'type_name', ['ssd_mobilenet_v3_small', *TYPES[2:]])
def test_losses_have_gradients(type_name):
    """Of all weights, in training."""
    keras.utils.set_random_seed(0)
    detector = model_builder.build(tiny(type_name), is_training=True)
    detector.build_variables()
    images, true_shapes = detector.preprocess(
        tf.random.stateless_uniform([2, 64, 64, 3], (1, 2), 0.0, 255.0)
    )
    groundtruth = Groundtruth.from_lists(
        boxes=[np.array([[0.1, 0.2, 0.6, 0.9]], np.float32)] * 2,
        classes=[np.eye(3, dtype=np.float32)[[1]]] * 2,
    )
    with tf.GradientTape() as tape:
        predictions = detector.predict(
            images, true_shapes, True, groundtruth, tf.constant([[1, 2]])
        )
        losses = detector.loss(predictions, groundtruth)
        total = tf.add_n(list(losses.values()))
    variables = detector.named_trainable_variables()
    gradients = tape.gradient(total, list(variables.values()))
    assert np.isfinite(float(total))
    without = [name for name, each in zip(variables, gradients, strict=True) if each is None]
    assert without == []


@slow_cases.parametrize(1, 'name', ['mobilenet_v3_small', 'mobiledet_gpu', 'mobilenet_edgetpu'])
def test_the_field_backbone(name):
    fpn = FpnOptions(min_level=2, max_level=6, depth=64)
    pyramid = build('ssd_fpn', backbone=name, fpn=fpn, **NARROW)
    assert [side for side, _ in shapes(pyramid, 65)] == [17, 9, 5, 3, 2]
    six_maps = build('ssd', backbone=name, num_layers=3, **NARROW)
    assert six_maps.strides == [16, 32, 64]


@pytest.mark.slow
def test_a_pyramid_of_faster_rcnn():
    hyperparams = LayerHyperparams(batch_norm=BatchNormParams())
    extractor = build_faster_rcnn(
        'faster_rcnn_fpn',
        two_stage_options(
            batch_norm_trainable=True, backbone='mobilenet_v3_small', hyperparams=hyperparams
        ),
    )
    (maps,) = extractor.feature_stacks(tf.zeros([1, 64, 64, 3]))
    assert [level.shape[1] for level in maps] == [16, 8, 4, 2, 1]
