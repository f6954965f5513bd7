import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format

from object_detection.errors import UserError
from object_detection.meta_architectures.faster_rcnn import build as feature_extractor_builder
from object_detection.meta_architectures.faster_rcnn.feature_extractor import (
    TwoStageFeatureExtractor,
)
from object_detection.models.backbones import resnet_v1
from object_detection.models.backbones.resnet_v1 import Options, Padding
from object_detection.models.necks.resizing import Doubling
from object_detection.models.normalization import FrozenBatchNorm, GroupNorm
from object_detection.protos import faster_rcnn_pb2, fpn_pb2
from tests import rows, slow_cases


def build(text: str, is_training: bool = True) -> TwoStageFeatureExtractor:
    config = faster_rcnn_pb2.FasterRcnnFeatureExtractor()
    return feature_extractor_builder.build_extractor(text_format.Parse(text, config), is_training)


PYRAMID = 'type: "faster_rcnn_resnet18_fpn_keras" conv_hyperparams {} '


@pytest.mark.slow
def test_levels():
    assert build(PYRAMID).strides == [4, 8, 16, 32, 64]
    assert build(PYRAMID + 'fpn {}').strides == [8, 16, 32, 64, 128]
    extractor = build(PYRAMID + 'fpn { min_level: 4 max_level: 4 additional_layer_depth: 12 }')
    assert extractor.strides == [16]
    assert extractor.pyramid.outputs[0].shape[-1] == 12


def test_fields():
    extractor = build(
        'type: "faster_rcnn_resnet18_fpn_keras" pad_to_multiple: 64 box_head_depth: 6 '
        'override_base_feature_extractor_hyperparams: true '
        'conv_hyperparams { regularizer { l2_regularizer { weight: 0.5 } } batch_norm {} }'
    )
    assert extractor.pad_to_multiple == 64
    assert extractor.backbone.get_layer('conv1_conv').kernel_regularizer.l2 == 0.25
    assert extractor.box_classifier_features(tf.zeros([1, 1, 1, 2])).shape == (1, 1, 1, 6)


@slow_cases.parametrize(
    1,
    ('trainable', 'is_training', 'frozen'),
    [('true', True, False), ('true', False, True), ('false', True, True)],
)
def test_batch_norm(trainable, is_training, frozen):
    extractor = build(f'{PYRAMID} batch_norm_trainable: {trainable}', is_training)
    norm = extractor.backbone.get_layer('conv1_bn')
    assert isinstance(norm, FrozenBatchNorm) is frozen


@pytest.fixture
def narrow(monkeypatch):
    """Few channels, for tests that need no size."""
    monkeypatch.setattr(resnet_v1, '_STAGE_FILTERS', {2: 2, 3: 3, 4: 4, 5: 5})


RESNET_50 = 'type: "faster_rcnn_resnet50_fpn_keras" conv_hyperparams {} '


@slow_cases.parametrize(
    1,
    ('text', 'expected'),
    [
        (
            'stride_in_1x1: false padding_mode: SYMMETRIC_ALL',
            Options(stride_in_1x1=False, padding=Padding.SYMMETRIC_ALL),
        ),
        ('', Options()),
        ('padding_mode: SAME', Options(padding=Padding.SAME)),
    ],
)
@pytest.mark.usefixtures('narrow')
def test_variants_of_a_resnet(text, expected):
    for kind in (RESNET_50, 'type: "faster_rcnn_resnet50_keras" '):
        extractor = build(kind + text)
        assert resnet_v1.options_of(extractor.backbone) == expected
    # Stage 5 over the crops is of the same kind.
    stride = extractor.box_classifier.get_layer('conv5_block1_1_conv').strides
    assert stride == ((2, 2) if expected.stride_in_1x1 else (1, 1))


def trained(text: str, is_training: bool = True) -> set[str]:
    """The layers that have a variable that trains, each behind its part."""
    extractor = build(text, is_training)
    return {
        f'{part}/{variable.path.partition("/")[0]}'
        for part, layer in extractor.parts().items()
        for variable in layer.trainable_variables
    }


@pytest.mark.slow
@pytest.mark.usefixtures('narrow')
def test_frozen_stages():
    for kind in (RESNET_50, 'type: "faster_rcnn_resnet50_keras" '):
        whole = trained(kind)
        frozen = {name for name in whole if name.startswith(('backbone/conv1_', 'backbone/conv2_'))}
        assert len(frozen) == 2 * (1 + 3 * 3 + 1)
        assert trained(kind + 'frozen_stages: 2') == whole - frozen


@pytest.mark.usefixtures('narrow')
def test_freeze_affine():
    norms = 'conv_hyperparams { batch_norm { scale: true } }'
    text = f'type: "faster_rcnn_resnet50_fpn_keras" {norms} '
    whole = trained(text)
    assert {name for name in whole if name.endswith('_bn')}
    # The same in evaluation, where all norms are frozen in any case.
    for is_training in (True, False):
        affine = trained(text + 'freeze_affine: true', is_training)
        assert affine == {name for name in whole if not name.endswith('_bn')}


@slow_cases.parametrize(
    2,
    ('text', 'expected'),
    [
        ('', [10.0, 20.0, 30.0]),
        ('mean: [1, 2, 5] std: [2, 4, 8]', [4.5, 4.5, 3.125]),
        ('scale: 0.5', [5.0, 10.0, 15.0]),
        ('mean: [1, 2, 3]', [9.0, 18.0, 27.0]),
        ('mean: [1, 2, 3] std: [3, 6, 9] scale: 0.1', [0.0, 0.0, 0.0]),
    ],
)
@pytest.mark.usefixtures('narrow')
def test_preprocess_by_hand(text, expected):
    extractor = build(f'{PYRAMID} preprocess {{ {text} }}')
    images = tf.constant([[[[10.0, 20.0, 30.0]]]])
    np.testing.assert_allclose(extractor.normalize(images), [[[expected]]], atol=1e-6)


@pytest.mark.slow
@pytest.mark.usefixtures('narrow')
def test_variants_of_the_pyramid():
    def layers(text: str):
        levels = 'fpn { min_level: 4 max_level: 6'
        return {
            layer.name: layer for layer in build(f'{PYRAMID} {levels} {text} }}').pyramid.layers
        }

    default = layers('')
    assert 'smoothing_5' not in default
    assert default['coarse_6'].kernel.shape == (3, 3, 256, 256)
    assert isinstance(default['upsampling_4'], Doubling)
    for text in ('num_filters: 8', 'num_filters: 8 additional_layer_depth: 8'):
        assert layers(text)['coarse_6'].kernel.shape == (3, 3, 8, 8)
    bilinear = layers('upsample_type: BILINEAR')['upsampling_4']
    assert not isinstance(bilinear, Doubling)
    assert not layers('extra_level_type: MAX_POOL')['coarse_6'].variables
    assert layers('smoothing_type: AFTER_TOP_DOWN')['smoothing_5'].kernel.shape[:2] == (3, 3)
    assert default['projection_4'].use_bias


@pytest.mark.usefixtures('narrow')
def test_norms_of_projections():
    text = (
        'type: "faster_rcnn_resnet18_fpn_keras" '
        'conv_hyperparams {{ {} }} fpn {{ num_filters: 8 projection_norm: true }}'
    )
    extractor = build(text.format('batch_norm { epsilon: 0.5 }'))
    layers = {layer.name: layer for layer in extractor.pyramid.layers}
    assert [layers[f'projection_{level}_bn'].epsilon for level in (3, 4, 5)] == [0.5] * 3
    assert not layers['projection_4'].use_bias
    with pytest.raises(UserError, match=r'fpn\.projection_norm: expected a norm'):
        build(text.format(''))


@pytest.mark.usefixtures('narrow')
def test_group_norm():
    extractor = build(
        'type: "faster_rcnn_resnet18_fpn_keras" override_base_feature_extractor_hyperparams: true '
        'conv_hyperparams { group_norm { groups: 1 } } fpn { num_filters: 8 }'
    )
    layers = [*extractor.backbone.layers, *extractor.pyramid.layers]
    norms = [layer for layer in layers if layer.name.endswith('_bn')]
    assert norms
    assert all(isinstance(norm, GroupNorm) for norm in norms)
    assert not any(layer.use_bias for layer in layers if layer.name.endswith('_conv'))


def test_every_value_of_the_enums_has_a_meaning():
    extractor, pyramid = faster_rcnn_pb2.FasterRcnnFeatureExtractor, fpn_pb2.FeaturePyramidNetworks
    assert extractor.PaddingMode.keys() == [padding.name for padding in Padding]
    # What one of two is, is a flag; of three, two of which one at most is set.
    for name in ('ExtraLevelInput', 'UpsampleType', 'SmoothingType'):
        assert len(getattr(pyramid, name).values()) == 2
    assert len(pyramid.ExtraLevelType.values()) == 3


INCEPTION = 'type: "faster_rcnn_inception_resnet_v2_keras" '


@rows.parametrize(
    ('text', 'message'),
    [
        ('type: "faster_rcnn_resnet18_keras"', "Received: 'faster_rcnn_resnet18_keras'"),
        ('', "Received: ''"),
        ('type: "faster_rcnn_resnet50_keras" fpn {}', 'expected no `fpn`'),
        (f'{PYRAMID} first_stage_features_stride: 4', 'first_stage_features_stride: expected 8'),
        (f'{PYRAMID} pad_to_multiple: 7', 'pad_to_multiple: expected a multiple of 32'),
        ('type: "faster_rcnn_resnet50_fpn_keras"', 'expected `conv_hyperparams`'),
        (f'{PYRAMID} frozen_stages: 6', 'frozen_stages: expected 0 to 5.*Received: 6'),
        (f'{PYRAMID} frozen_stages: -1', 'frozen_stages: .*Received: -1'),
        (
            f'{PYRAMID} frozen_stages: 4 fpn {{ min_level: 2 max_level: 3 }}',
            'frozen_stages: expected 0 to 3',
        ),
        ('type: "faster_rcnn_resnet50_keras" frozen_stages: 5', 'frozen_stages: expected 0 to 4'),
        (f'{PYRAMID} preprocess {{ mean: 1 }}', r'preprocess.mean: expected three.*\[1.0\]'),
        (
            f'{PYRAMID} freeze_affine: true batch_norm_trainable: true',
            'freeze_affine: expected `batch_norm_trainable: false`',
        ),
        (
            f'{PYRAMID} freeze_affine: true override_base_feature_extractor_hyperparams: true',
            'freeze_affine: expected batch norms',
        ),
        (
            f'{PYRAMID} fpn {{ num_filters: 8 additional_layer_depth: 16 }}',
            'fpn.num_filters: expected that of fpn.additional_layer_depth.*8 and 16',
        ),
        (f'{PYRAMID} fpn {{ num_filters: 0 }}', 'fpn.num_filters or .*at least 1'),
        (
            'type: "faster_rcnn_resnet18_fpn_keras" stride_in_1x1: false',
            'stride_in_1x1: expected none, as the backbone resnet_v1_18 does not read it',
        ),
        (
            'type: "faster_rcnn_resnet50_keras" fpn { extra_level_type: MAX_POOL }',
            'expected no `fpn`',
        ),
        *(
            (INCEPTION + text, f'{text.split()[0].rstrip(":")}: expected none, .* does not read it')
            for text in (
                'stride_in_1x1: true',
                'padding_mode: SYMMETRIC',
                'frozen_stages: 0',
                'freeze_affine: false',
                'preprocess {}',
            )
        ),
    ],
)
def test_errors_name_the_message(text, message):
    with pytest.raises(ValueError, match=f'FasterRcnnFeatureExtractor.*{message}'):
        build(text)
