import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format

from object_detection.meta_architectures.ssd.build import build_extractor
from object_detection.models.backbones.resnet_v1 import Options, Padding, options_of
from object_detection.models.feature_extractor import FeatureExtractor
from object_detection.models.image_values import VGG_MEANS
from object_detection.models.normalization import FrozenBatchNorm
from object_detection.protos import ssd_pb2
from tests import rows

CONV = (
    'depth_multiplier: 0.125 min_depth: 8 conv_hyperparams { '
    'regularizer { l2_regularizer { weight: 0.5 } } batch_norm { decay: 0.5 } } '
)


def parse(text: str) -> ssd_pb2.SsdFeatureExtractor:
    return text_format.Parse(text, ssd_pb2.SsdFeatureExtractor())


def build(text: str, batch_norm_trainable: bool = True) -> FeatureExtractor:
    return build_extractor(parse(text), batch_norm_trainable)


def test_fields_of_six_maps():
    extractor = build(
        f'type: "ssd_mobilenet_v2_keras" {CONV} num_layers: 3 use_depthwise: true '
        'pad_to_multiple: 32 use_explicit_padding: true '
        'override_base_feature_extractor_hyperparams: true'
    )
    assert extractor.strides == [16, 32, 64]
    assert extractor.pad_to_multiple == 32
    assert extractor.backbone.get_layer('Conv1').kernel_regularizer.l2 == 0.25
    assert extractor.backbone.get_layer('Conv1').padding == 'valid'
    assert extractor.pyramid.get_layer('map_2_depthwise').padding == 'valid'


def test_depthwise_kernels_of_tensorflow_1_have_the_penalty_of_the_config():
    for type_name, penalty in (('ssd_mobilenet_v2', 0.25), ('ssd_mobilenet_v2_keras', None)):
        extractor = build(f'type: "{type_name}" {CONV} num_layers: 3 use_depthwise: true')
        regularizer = extractor.pyramid.get_layer('map_2_depthwise').depthwise_regularizer
        assert (regularizer and regularizer.l2) == penalty


def test_fields_of_a_pyramid():
    extractor = build(
        f'type: "ssd_mobilenet_v1_fpn_keras" {CONV} '
        'fpn { min_level: 4 max_level: 6 additional_layer_depth: 96 extra_level_type: MAX_POOL }'
    )
    assert extractor.strides == [16, 32, 64]
    assert extractor.pyramid.outputs[0].shape[-1] == 12
    assert not extractor.pyramid.get_layer('coarse_6').weights
    assert extractor.backbone.get_layer('conv1_bn').momentum == 0.9997


def test_fields_of_a_resnet():
    text = (
        'type: "ssd_resnet50_v1_fpn_keras" depth_multiplier: 0.125 min_depth: 8 '
        'conv_hyperparams { activation: NONE } fpn { max_level: 6 additional_layer_depth: 64 } '
    )
    extractor = build(text)
    backbone = extractor.backbone
    assert backbone.get_layer('conv3_block1_2_conv').strides == (1, 1)
    assert not any(layer.name == 'pool1_pad' for layer in backbone.layers)
    black = np.zeros([1, 1, 1, 3], np.float32)
    np.testing.assert_allclose(
        extractor.normalize(tf.constant(black))[0, 0, 0], -np.array(VGG_MEANS)
    )
    extractor = build(
        f'{text} stride_in_1x1: false padding_mode: SYMMETRIC_ALL frozen_stages: 2 '
        'freeze_affine: true preprocess { mean: [1, 2, 3] std: [2, 4, 8] scale: 0.5 }',
        batch_norm_trainable=False,
    )
    backbone = extractor.backbone
    assert options_of(backbone) == Options(stride_in_1x1=False, padding=Padding.SYMMETRIC_ALL)
    names = {variable.path.split('/')[-2] for variable in backbone.trainable_variables}
    assert not any(name.endswith('_bn') or name.startswith('conv2') for name in names)
    assert 'conv3_block1_1_conv' in names
    np.testing.assert_allclose(
        extractor.normalize(tf.constant(black + 10))[0, 0, 0], [2, 0.75, 0.25]
    )


def test_fields_of_a_resnet_are_refused_for_others():
    with pytest.raises(ValueError, match='stride_in_1x1: expected none, as the backbone mobilenet'):
        build(f'type: "ssd_mobilenet_v1_fpn_keras" {CONV} stride_in_1x1: false')
    with pytest.raises(ValueError, match='frozen_stages: expected 0 to 5'):
        build(f'type: "ssd_resnet18_v1_fpn_keras" {CONV} frozen_stages: 6')


def test_extra_levels():
    # 256 channels by the factor, and 1024 by its square, as in the reference.
    for text, channels in (('', 32), ('extra_level_input: BACKBONE', 16)):
        extractor = build(
            f'type: "ssd_mobilenet_v1_fpn_keras" {CONV} '
            f'fpn {{ extra_level_type: PRE_ACTIVATED_CONV {text} }}'
        )
        assert extractor.pyramid.get_layer('coarse_7_relu').activation.__name__ == 'relu'
        assert extractor.pyramid.get_layer('coarse_6').kernel.shape[2] == channels
    with pytest.raises(ValueError, match=r'fpn\.extra_level_input: expected LAST_LEVEL'):
        build(
            f'type: "ssd_mobilenet_v1_fpn_keras" {CONV} '
            'fpn { extra_level_type: MAX_POOL extra_level_input: BACKBONE }'
        )


def test_defaults():
    extractor = build(f'type: "ssd_mobilenet_v1" {CONV}')
    assert extractor.strides == [16, 32, 64, 128, 256, 512]
    assert extractor.pad_to_multiple == 1
    extractor = build(f'type: "ssd_mobilenet_v1_fpn" {CONV} fpn {{}}')
    assert extractor.strides == [8, 16, 32, 64, 128]


@pytest.mark.parametrize('trainable', [False, True])
def test_batch_norm(trainable):
    extractor = build(f'type: "ssd_mobilenet_v1_ppn" {CONV}', batch_norm_trainable=trainable)
    norm = extractor.backbone.get_layer('conv1_bn')
    assert isinstance(norm, FrozenBatchNorm) is not trainable


@rows.parametrize(
    ('text', 'message'),
    [
        (f'type: "ssd_spaghettinet" {CONV}', "'ssd_spaghettinet': type: .* nearest"),
        ('type: "ssd_mobilenet_v1_keras"', 'needs `conv_hyperparams`'),
        (
            f'type: "ssd_mobilenet_v1_keras" {CONV} replace_preprocessor_with_placeholder: true',
            'replace_preprocessor_with_placeholder: expected false.* Received: true',
        ),
        (
            f'type: "ssd_mobilenet_v1_keras" {CONV} spaghettinet_arch_name: "spaghettinet_s"',
            'spaghettinet_arch_name: expected none.* Received: spaghettinet_s',
        ),
        (f'type: "ssd_mobilenet_v1_keras" {CONV} bifpn {{}}', 'bifpn: expected none'),
        (
            f'type: "ssd_mobilenet_v1_fpn" {CONV} '
            'fpn { additional_layer_depth: 3 num_filters: 4 }',
            'fpn.num_filters: expected that of',
        ),
    ],
)
def test_errors(text, message):
    with pytest.raises(ValueError, match=message):
        build(text)
