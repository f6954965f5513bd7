import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from object_detection.meta_architectures.ssd.extractors import EXTRACTORS
from object_detection.meta_architectures.ssd.feature_extractor import (
    BiFpnOptions,
    FpnOptions,
    SingleShotOptions,
    build_ssd,
)
from object_detection.models.backbones import efficientnet
from object_detection.models.feature_extractor import FeatureExtractor
from object_detection.models.hyperparams import L2, LayerHyperparams
from object_detection.models.normalization import BatchNormParams
from tests import rows, slow_cases
from tests.contracts_feature_extractor import check_stacks

HYPERPARAMS = LayerHyperparams(
    regularizer=L2(0.1),
    activation='swish',
    batch_norm=BatchNormParams(momentum=0.9, scale=True),
    force_use_bias=True,
)
B0 = 'ssd_efficientnet-b0_bifpn_keras'


def options(**fields) -> SingleShotOptions:
    return SingleShotOptions(
        **({'batch_norm_trainable': True, 'hyperparams': HYPERPARAMS} | fields)
    )


@pytest.fixture
def shallow(monkeypatch):
    """Networks of half of the channels and, but for the stages 2 to 5, of one block each."""
    stages = list(efficientnet._STAGES)
    monkeypatch.setattr(efficientnet, '_SIZES', ((0.5, 1.0),) * 8)
    stages[3] = efficientnet._Stage(3, 1, 80, 6, 2)
    stages[5] = efficientnet._Stage(5, 1, 192, 6, 2)
    monkeypatch.setattr(efficientnet, '_STAGES', tuple(stages))


def build(**fields) -> FeatureExtractor:
    return build_ssd(B0, options(**({'bifpn': BiFpnOptions(3, 6, 1, 16)} | fields)))


def test_contract(shallow):
    check_stacks(build())


@pytest.mark.slow
def test_contract_in_mixed_precision(shallow):
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy('mixed_bfloat16')
    try:
        check_stacks(build())
    finally:
        keras.config.set_dtype_policy(before)


def test_levels(shallow):
    extractor = build(bifpn=BiFpnOptions(2, 4, 1, 16), pad_to_multiple=16)
    assert extractor.strides == [4, 8, 16]
    assert list(extractor.parts()) == ['backbone', 'fpn']
    ((*maps,),) = extractor.feature_stacks(tf.zeros([1, 33, 16, 3]))
    assert [tuple(level.shape[1:]) for level in maps] == [(12, 4, 16), (6, 2, 16), (3, 1, 16)]
    unused = [layer.name for layer in extractor.backbone.unused if layer.name.endswith('_dwconv')]
    assert unused == ['block6a_dwconv', 'block7a_dwconv']


def test_hyperparams_of_the_backbone_are_its_own(shallow):
    extractor = build(batch_norm_trainable=False)
    norm = extractor.backbone.get_layer('stem_bn')
    assert (norm.momentum, norm.epsilon) == (0.99, 0.001)
    conv = extractor.backbone.get_layer('stem_conv')
    assert conv.kernel_regularizer.l2 == 5e-6
    assert not conv.use_bias
    assert extractor.pyramid.get_layer('node_1_conv_bn').momentum == 0.9
    images = tf.random.stateless_uniform([1, 32, 32, 3], [1, 2])
    before = norm.moving_mean.numpy()
    extractor.feature_stacks(images, training=True)
    np.testing.assert_array_equal(norm.moving_mean, before)


@slow_cases.parametrize(1, 'regularizer', [L2(0.1), None])
def test_overriding_hyperparams_determine_the_penalty_of_the_backbone_alone(shallow, regularizer):
    hyperparams = dataclasses.replace(HYPERPARAMS, regularizer=regularizer, activation='relu')
    extractor = build(override_backbone=True, hyperparams=hyperparams)
    conv = extractor.backbone.get_layer('stem_conv')
    assert conv.kernel_regularizer is regularizer
    assert extractor.backbone.get_layer('block2a_se_reduce').bias_regularizer is regularizer
    assert extractor.backbone.get_layer('block2a_dwconv').depthwise_regularizer is None
    assert not conv.use_bias
    norm = extractor.backbone.get_layer('stem_bn')
    assert (norm.momentum, norm.epsilon) == (0.99, 0.001)
    assert extractor.backbone.get_layer('stem_activation').activation is keras.activations.silu


def test_images(shallow):
    images = tf.constant([[[[0.0, 127.5, 255.0]]]])
    expected = (np.array([0, 0.5, 1]) - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]
    np.testing.assert_allclose(build().normalize(images)[0, 0, 0], expected, rtol=1e-5)


@pytest.mark.slow
def test_pyramids_of_configs_without_one(shallow):
    extractor = build_ssd('ssd_efficientnet-b6_bifpn_keras', options())
    assert extractor.strides == [8, 16, 32, 64, 128]
    combined = [layer for layer in extractor.pyramid.layers if layer.name.endswith('_weights')]
    assert len(combined) == 8 * 8
    assert not any(layer.weights for layer in combined)
    assert extractor.pyramid.outputs[0].shape[-1] == 384


def test_sizes():
    assert [name for name in EXTRACTORS if 'efficientnet' in name] == [
        f'ssd_efficientnet-b{size}_bifpn_keras' for size in range(8)
    ]


@rows.parametrize(
    ('fields', 'message'),
    [
        ({'hyperparams': None}, 'needs `conv_hyperparams`'),
        (
            {'fpn': FpnOptions()},
            'fpn: expected none, .* bifpn. Received: the message',
        ),
        ({'num_layers': 6}, 'num_layers: expected none, .* reads bifpn'),
        ({'depth_multiplier': 0.5}, 'depth_multiplier: expected 1'),
        ({'use_explicit_padding': True}, 'use_explicit_padding: expected false'),
        ({'use_depthwise': True}, 'use_depthwise: expected false'),
        ({'bifpn': BiFpnOptions(0)}, 'bifpn.min_level: expected 1 to 5'),
        ({'bifpn': BiFpnOptions(3, 3)}, 'min_level < max_level'),
        ({'bifpn': BiFpnOptions(num_iterations=0)}, 'num_iterations: .* backbone 5; .* no default'),
        ({'bifpn': BiFpnOptions(num_filters=0)}, 'num_filters: .* backbone 112; .* no default'),
        ({'bifpn': BiFpnOptions(combine_method='x')}, 'combine_method: expected one of'),
    ],
)
def test_errors(fields, message):
    with pytest.raises(ValueError, match=message):
        build_ssd('ssd_efficientnet-b2_bifpn_keras', options(**fields))
