import keras
import numpy as np
import pytest
import tensorflow as tf

from object_detection.meta_architectures.faster_rcnn.extractors import EXTRACTORS
from object_detection.meta_architectures.faster_rcnn.feature_extractor import (
    TwoStageFeatureExtractor,
    build_faster_rcnn,
)
from object_detection.models.backbones import resnet_v1
from object_detection.models.backbones.resnet_v1 import Padding
from object_detection.models.hyperparams import LayerHyperparams
from object_detection.models.image_values import Preprocess
from object_detection.models.necks import fpn
from object_detection.models.normalization import BatchNormParams
from tests import rows, slow_cases
from tests.contracts_feature_extractor import check_feature_extractor
from tests.extractor_options import two_stage_options

INCEPTION_RESNET_V2 = 'faster_rcnn_inception_resnet_v2_keras'


def build(type_name: str = 'faster_rcnn_resnet18_fpn_keras', **options) -> TwoStageFeatureExtractor:
    defaults = {'batch_norm_trainable': True, 'hyperparams': LayerHyperparams()}
    small = {'pyramid_depth': 16, 'box_head_depth': 8}
    if not type_name.endswith('fpn_keras'):
        defaults, small = {'batch_norm_trainable': True}, {}
    return build_faster_rcnn(type_name, two_stage_options(**(defaults | small | options)))


@slow_cases.parametrize(
    1, 'type_name', ['faster_rcnn_resnet18_fpn_keras', 'faster_rcnn_resnet50_keras']
)
def test_contract(type_name):
    check_feature_extractor(build(type_name))


def test_contract_of_a_variant():
    """All that differs from the reference, at once."""
    extractor = build(
        padding_mode=Padding.SAME,
        frozen_stages=2,
        freeze_affine=True,
        batch_norm_trainable=False,
        preprocess=Preprocess((0.485, 0.456, 0.406), (0.229, 0.224, 0.225), 1 / 255),
        pyramid=fpn.Options(pool_extra_levels=True, bilinear=True, smooth_outputs=True),
    )
    check_feature_extractor(extractor)
    images = tf.constant([[[[123.675, 116.28, 103.53], [255.0, 0.0, 255.0]]]])
    expected = [[0, 0, 0], [0.515 / 0.229, -0.456 / 0.224, 0.594 / 0.225]]
    np.testing.assert_allclose(extractor.normalize(images), [[expected]], atol=1e-5)


@pytest.mark.slow
@pytest.mark.usefixtures('short_inception_resnet_v2')
def test_contract_of_inception_resnet_v2():
    extractor = build(INCEPTION_RESNET_V2, stride=8)
    check_feature_extractor(extractor)
    assert extractor.strides == [8]
    assert extractor.pad_to_multiple == 1
    assert not extractor.losses
    normalized = extractor.normalize(tf.constant([[[[0.0, 127.5, 255.0]]]]))
    np.testing.assert_allclose(normalized, [[[[-1, 0, 1]]]], atol=1e-6)


@pytest.fixture
def mixed_precision():
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy('mixed_bfloat16')
    yield
    keras.config.set_dtype_policy(before)


@pytest.mark.usefixtures('mixed_precision', 'short_inception_resnet_v2')
@slow_cases.parametrize(1, 'type_name', ['faster_rcnn_resnet18_fpn_keras', INCEPTION_RESNET_V2])
def test_contract_in_mixed_precision(type_name):
    check_feature_extractor(build(type_name))


def test_pyramid():
    extractor = build(levels=(3, 7), hyperparams=LayerHyperparams(batch_norm=BatchNormParams()))
    assert extractor.strides == [8, 16, 32, 64, 128]
    maps = extractor.proposal_features(tf.zeros([1, 33, 64, 3]))
    assert [tuple(level.shape) for level in maps] == [
        (1, 8, 8, 16), (1, 4, 4, 16), (1, 2, 2, 16), (1, 1, 1, 16), (1, 1, 1, 16),
    ]  # fmt: skip
    assert extractor.box_classifier_features(tf.zeros([2, 3, 3, 16])).shape == (2, 1, 1, 8)
    assert extractor.box_classifier_features(tf.zeros([0, 3, 3, 16])).shape == (0, 1, 1, 8)
    assert list(extractor.parts()) == ['backbone', 'fpn', 'box_classifier']


def test_defaults_of_the_pyramid():
    extractor = build(pyramid_depth=None, box_head_depth=None)
    assert extractor.strides == [4, 8, 16, 32, 64]
    assert extractor.pad_to_multiple == 32
    assert extractor.pyramid.outputs[0].shape[-1] == 256
    assert extractor.box_classifier_features(tf.zeros([1, 1, 1, 256])).shape[-1] == 1024
    # The backbone's own penalty, 1e-4 times the sum of squares; dense layers have none.
    convs = [v for v in extractor.backbone.variables if v.path.endswith('conv/kernel')]
    penalty = sum(1e-4 * np.square(v.numpy()).sum() for v in convs)
    np.testing.assert_allclose(sum(extractor.losses), penalty, rtol=1e-5)


def test_single_level():
    extractor = build('faster_rcnn_resnet50_keras')
    assert extractor.strides == [16]
    assert extractor.pad_to_multiple == 1
    assert extractor.box_classifier_features(tf.zeros([2, 7, 7, 1024])).shape == (2, 4, 4, 2048)
    assert not extractor.losses


def test_padding_is_bottom_and_right():
    extractor = build(levels=(2, 2), pad_to_multiple=32)
    image = tf.random.stateless_normal([1, 40, 24, 3], [1, 2])
    padded = tf.pad(image, [[0, 0], [0, 24], [0, 8], [0, 0]])
    np.testing.assert_array_equal(
        extractor.proposal_features(image)[0], extractor.proposal_features(padded)[0]
    )


def test_static_sizes_stay_static():
    extractor = build(levels=(2, 3))

    @tf.function(input_signature=[tf.TensorSpec([1, 40, 24, 3])], autograph=False)
    def shapes(images):
        assert [level.shape[1:3] for level in extractor.proposal_features(images)] == [
            (16, 8),
            (8, 4),
        ]
        return images

    shapes.get_concrete_function()


def test_normalize_subtracts_the_means():
    images = tf.fill([1, 1, 1, 3], 130.0)
    expected = [[[[6.32, 13.221, 26.061]]]]
    np.testing.assert_allclose(build().normalize(images), expected, rtol=1e-5)


def test_override_of_the_backbone():
    hyperparams = LayerHyperparams(
        regularizer=keras.regularizers.L2(0.5), activation='relu6', batch_norm=BatchNormParams()
    )
    extractor = build(levels=(2, 2), hyperparams=hyperparams, override_backbone=True)
    norm = extractor.backbone.get_layer('conv1_bn')
    assert (norm.momentum, norm.epsilon, norm.scale) == (0.999, 0.001, False)
    assert extractor.backbone.get_layer('conv1_relu').activation is keras.activations.relu6
    assert extractor.backbone.get_layer('conv1_conv').kernel_regularizer.l2 == 0.5


@pytest.mark.parametrize('trainable', [True, False])
def test_frozen_batch_norms_keep_their_statistics(trainable):
    hyperparams = LayerHyperparams(batch_norm=BatchNormParams())
    extractor = build(levels=(2, 3), hyperparams=hyperparams, batch_norm_trainable=trainable)
    extractor.proposal_features(tf.random.stateless_normal([2, 32, 32, 3], [1, 2]), training=True)
    extractor.box_classifier_features(tf.ones([2, 2, 2, 16]), training=True)
    moved = {
        part: any(
            np.abs(variable.numpy()).max() > 0
            for variable in layer.variables
            if variable.path.endswith('moving_mean')
        )
        for part, layer in extractor.parts().items()
    }
    assert moved == dict.fromkeys(('backbone', 'fpn', 'box_classifier'), trainable)


@rows.parametrize(
    ('type_name', 'options', 'message'),
    [
        ('faster_rcnn_resnet50_fpn', {}, "expected one of .*Received: 'faster_rcnn_resnet50_fpn'"),
        ('faster_rcnn_resnet18_fpn_keras', {'hyperparams': None}, 'expected `conv_hyperparams`'),
        ('faster_rcnn_resnet18_fpn_keras', {'levels': (6, 7)}, 'Received: 6 and 7'),
        ('faster_rcnn_resnet18_fpn_keras', {'levels': (4, 3)}, 'Received: 4 and 3'),
        ('faster_rcnn_resnet18_fpn_keras', {'levels': (1, 3)}, 'Received: 1 and 3'),
        ('faster_rcnn_resnet18_fpn_keras', {'pad_to_multiple': 48}, 'expected a multiple of 32'),
        ('faster_rcnn_resnet18_fpn_keras', {'stride': 32}, 'expected 8 or 16'),
        (
            'faster_rcnn_resnet18_fpn_keras',
            {'pyramid_depth': 0},
            'layer_depth: expected at',
        ),
        ('faster_rcnn_resnet18_fpn_keras', {'box_head_depth': 0}, 'box_head_depth: expected at'),
        ('faster_rcnn_resnet50_keras', {'stride': 4}, 'expected 8 or 16'),
        ('faster_rcnn_inception_v2', {'stride': 8}, 'first_stage_features_stride: expected 16'),
        ('faster_rcnn_resnet50_keras', {'pad_to_multiple': 0}, 'expected at least 1'),
        (INCEPTION_RESNET_V2, {'stride': 4}, 'expected 8 or 16'),
        (INCEPTION_RESNET_V2, {'levels': (2, 6)}, 'expected no `fpn`'),
        (INCEPTION_RESNET_V2, {'hyperparams': LayerHyperparams()}, 'uses `conv_hyper'),
        ('faster_rcnn_resnet50_keras', {'levels': (2, 6)}, 'expected no `fpn`'),
        ('faster_rcnn_resnet50_keras', {'box_head_depth': 8}, 'expected no `box_head_depth`'),
        ('faster_rcnn_resnet50_keras', {'hyperparams': LayerHyperparams()}, 'uses `conv_hyper'),
        ('faster_rcnn_resnet50_keras', {'override_backbone': True}, 'expected `conv_hyperparams`'),
    ],
)
def test_errors(type_name, options, message):
    with pytest.raises(ValueError, match=message):
        build(type_name, **options)


@pytest.mark.usefixtures('short_inception_resnet_v2')
@slow_cases.parametrize(
    1,
    ('type_name', 'side', 'expected'),
    [
        ('faster_rcnn_resnet50_keras', 7, 4),
        ('faster_rcnn_resnet50', 7, 7),
        (INCEPTION_RESNET_V2, 17, 9),
        ('faster_rcnn_inception_resnet_v2', 17, 8),
        ('faster_rcnn_inception_v2', 7, 4),
    ],
)
def test_crops_in_networks_of_tensorflow_1(monkeypatch, type_name, side, expected):
    monkeypatch.setattr(resnet_v1, '_STAGE_FILTERS', {2: 2, 3: 3, 4: 4, 5: 5})
    extractor = build(type_name)
    channels = extractor.backbone.outputs[0].shape[-1]
    features = extractor.box_classifier_features(tf.zeros([2, side, side, channels]))
    assert features.shape[1:3] == (expected, expected)


@pytest.mark.slow
def test_contract_of_inception_v2():
    extractor = build('faster_rcnn_inception_v2')
    check_feature_extractor(extractor)
    assert extractor.strides == [16]
    normalized = extractor.normalize(tf.constant([[[[0.0, 127.5, 255.0]]]]))
    np.testing.assert_allclose(normalized, [[[[-1, 0, 1]]]], atol=1e-6)


def test_crops_of_unknown_size():
    extractor = build(levels=(2, 2))

    @tf.function(input_signature=[tf.TensorSpec([None, None, 7, 16])], autograph=False)
    def classify(crops):
        return extractor.box_classifier_features(crops)

    with pytest.raises(ValueError, match='expected crops of static height'):
        classify.get_concrete_function()


def test_rows():
    assert {name for name in EXTRACTORS if '_fpn_' in name} == {
        f'faster_rcnn_resnet{depth}_fpn_keras' for depth in (18, 34, 50, 101, 152, 200)
    }
