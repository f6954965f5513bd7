import pytest
from google.protobuf import text_format

from object_detection.meta_architectures.ssd.build import build_extractor
from object_detection.models.feature_extractor import FeatureExtractor
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
