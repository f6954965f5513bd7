import pytest
import tensorflow as tf
from google.protobuf import text_format

from object_detection.builders import feature_extractor_builder
from object_detection.models.feature_extractor import FeatureExtractor
from object_detection.models.hyperparams import FrozenBatchNorm
from object_detection.protos import faster_rcnn_pb2


def build(text: str, is_training: bool = True) -> FeatureExtractor:
    config = faster_rcnn_pb2.FasterRcnnFeatureExtractor()
    return feature_extractor_builder.build(text_format.Parse(text, config), is_training)


def check(text: str) -> None:
    config = faster_rcnn_pb2.FasterRcnnFeatureExtractor()
    feature_extractor_builder.check(text_format.Parse(text, config))


PYRAMID = 'type: "faster_rcnn_resnet18_fpn_keras" conv_hyperparams {} '


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


@pytest.mark.parametrize(
    ('trainable', 'is_training', 'frozen'),
    [('true', True, False), ('true', False, True), ('false', True, True)],
)
def test_batch_norm(trainable, is_training, frozen):
    extractor = build(f'{PYRAMID} batch_norm_trainable: {trainable}', is_training)
    norm = extractor.backbone.get_layer('conv1_bn')
    assert isinstance(norm, FrozenBatchNorm) is frozen


@pytest.mark.parametrize(
    ('text', 'message'),
    [
        ('type: "faster_rcnn_resnet18_keras"', "did you mean 'faster_rcnn_resnet1"),
        ('', "Received: ''"),
        ('type: "faster_rcnn_resnet50_keras" fpn {}', 'Received: levels'),
        (f'{PYRAMID} first_stage_features_stride: 4', 'first_stage_features_stride: expected 8'),
        (f'{PYRAMID} pad_to_multiple: 7', 'pad_to_multiple: expected a multiple of 32'),
        ('type: "faster_rcnn_resnet50_fpn_keras"', 'needs `conv_hyperparams`'),
    ],
)
def test_errors_name_the_message(text, message):
    for function in (build, check):
        with pytest.raises(ValueError, match=f'FasterRcnnFeatureExtractor.*{message}'):
            function(text)


def test_a_check_builds_nothing(monkeypatch):
    monkeypatch.setattr(feature_extractor_builder, 'build_faster_rcnn', None)
    check('type: "faster_rcnn_resnet152_fpn_keras" conv_hyperparams {}')
    check('type: "faster_rcnn_resnet152_keras"')
    check('type: "faster_rcnn_inception_resnet_v2_keras" first_stage_features_stride: 8')
