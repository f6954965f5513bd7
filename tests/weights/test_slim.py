"""Detectors of TensorFlow 1, and Inception networks, by the names in their checkpoints."""

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format

from object_detection.builders import model_builder
from object_detection.errors import CheckpointError
from object_detection.meta_architectures.faster_rcnn.variable_names import FASTER_RCNN_NAMES
from object_detection.models.backbones import resnet_v1
from object_detection.protos import model_pb2, train_pb2
from object_detection.training import fine_tune
from object_detection.weights import restore, slim
from tests import slow_cases
from tests.weights import third_party_files

FIRST, SECOND = 'FirstStageBoxPredictor', 'SecondStageBoxPredictor'
RPN = {
    'rpn/conv/kernel': 'Conv/weights',
    'rpn/conv/bias': 'Conv/biases',
    'rpn/box_codes_0/kernel': f'{FIRST}/BoxEncodingPredictor/weights',
    'rpn/box_codes_0/bias': f'{FIRST}/BoxEncodingPredictor/biases',
    'rpn/objectness_0/kernel': f'{FIRST}/ClassPredictor/weights',
    'rpn/objectness_0/bias': f'{FIRST}/ClassPredictor/biases',
}
HEADS = RPN | {
    'box_head/box_codes/kernel': f'{SECOND}/BoxEncodingPredictor/weights',
    'box_head/box_codes/bias': f'{SECOND}/BoxEncodingPredictor/biases',
    'box_head/classes/kernel': f'{SECOND}/ClassPredictor/weights',
    'box_head/classes/bias': f'{SECOND}/ClassPredictor/biases',
    'mask_head/conv_1/kernel': f'{SECOND}/Conv/weights',
    'mask_head/conv_1/bias': f'{SECOND}/Conv/biases',
    'mask_head/conv_2/kernel': f'{SECOND}/Conv_1/weights',
    'mask_head/conv_2/bias': f'{SECOND}/Conv_1/biases',
    'mask_head/masks/kernel': f'{SECOND}/Conv_2/weights',
    'mask_head/masks/bias': f'{SECOND}/Conv_2/biases',
}
RFCN_HEADS = RPN | {
    'box_head/reduce_depth/kernel': f'{SECOND}/reduce_depth/weights',
    'box_head/reduce_depth/bias': f'{SECOND}/reduce_depth/biases',
    'box_head/box_codes/kernel': f'{SECOND}/refined_locations/weights',
    'box_head/box_codes/bias': f'{SECOND}/refined_locations/biases',
    'box_head/classes/kernel': f'{SECOND}/class_predictions/weights',
    'box_head/classes/bias': f'{SECOND}/class_predictions/biases',
}
MODEL = """
faster_rcnn {
  number_of_stages: 3
  num_classes: 3
  image_resizer { fixed_shape_resizer { height: 64 width: 64 } }
  feature_extractor { type: 'faster_rcnn_resnet50' }
  first_stage_anchor_generator { grid_anchor_generator { scales: 1 aspect_ratios: [1, 2] } }
  first_stage_box_predictor_depth: 4
  initial_crop_size: 14
  maxpool_kernel_size: 2
  maxpool_stride: 2
  second_stage_box_predictor {
    mask_rcnn_box_predictor {
      predict_instance_masks: true
      mask_prediction_num_conv_layers: 3
      mask_prediction_conv_depth: 4
      conv_hyperparams {}
    }
  }
}
"""
RFCN = """
faster_rcnn {
  number_of_stages: 2
  second_stage_box_predictor { rfcn_box_predictor { depth: 6 } }
}
"""


@pytest.fixture(scope='module', autouse=True)
def narrow_stages():
    """All layers of a ResNet-50, with few channels."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resnet_v1, '_STAGE_FILTERS', third_party_files.NARROW)
        yield


def build(*overrides):
    model = text_format.Parse(MODEL, model_pb2.DetectionModel())
    for text in overrides:
        text_format.Merge(text, model)
    detector = model_builder.build(model)
    detector.build_variables()
    return detector


def write(folder, detector, heads):
    """Writes a checkpoint of random values; returns its prefix, and our name -> value."""
    rng = np.random.default_rng(0)
    backbone = third_party_files.names(third_party_files.slim_detector, 50)
    values, arrays = {}, {}
    for name, variable in detector.named_variables().items():
        values[name] = rng.uniform(0.5, 1.5, variable.shape).astype(np.float32)
        theirs = heads.get(name) or backbone[name.partition('/')[2]]
        arrays[theirs] = values[name]
        # What a training keeps beside the weights.
        if not theirs.endswith(('mean', 'variance')):
            arrays[f'{theirs}/Momentum'] = values[name] + 1
            arrays[f'{theirs}/ExponentialMovingAverage'] = values[name] + 2
    arrays['global_step'] = np.int64(200000)
    path = third_party_files.write_checkpoint(folder / 'model.ckpt', arrays)
    return path, values


@pytest.fixture(scope='module')
def detector():
    return build()


@pytest.fixture(scope='module')
def checkpoint(detector, tmp_path_factory):
    return write(tmp_path_factory.mktemp('mask_rcnn'), detector, HEADS)


def zero(detector):
    for variable in detector.named_variables().values():
        variable.assign(tf.zeros_like(variable))


@slow_cases.parametrize(1, 'kind', ['mask', 'rfcn'])
def test_a_whole_detector(tmp_path, kind, detector, checkpoint):
    path, values = checkpoint
    if kind == 'rfcn':
        model = text_format.Parse(MODEL, model_pb2.DetectionModel())
        model.faster_rcnn.ClearField('second_stage_box_predictor')
        text_format.Merge(RFCN, model)
        detector = model_builder.build(model)
        detector.build_variables()
        path, values = write(tmp_path, detector, RFCN_HEADS)
    zero(detector)
    report = restore.restore(detector, path, 'full')
    assert report.missing == report.unused == report.mismatched == []
    for name, variable in detector.named_variables().items():
        np.testing.assert_array_equal(variable, values[name], err_msg=name)


@pytest.mark.parametrize(
    'text',
    ['from_detection_checkpoint: true', 'fine_tune_checkpoint_type: "detection"'],
)
def test_the_feature_extractor_of_a_detector(detector, checkpoint, text):
    path, values = checkpoint
    config = text_format.Parse(text, train_pb2.TrainConfig(fine_tune_checkpoint=path))
    zero(detector)
    report = fine_tune.from_config(detector, config)
    assert {name.split('/')[0] for name in report.restored} == {'backbone', 'box_classifier'}
    assert {name.split('/')[0] for name in report.missing} == {'rpn', 'box_head', 'mask_head'}
    for name in report.restored:
        np.testing.assert_array_equal(detector.named_variables()[name], values[name])


def test_another_number_of_classes_starts_its_layers_anew(checkpoint):
    path, values = checkpoint
    other = build('faster_rcnn { num_classes: 5 }')
    report = restore.restore(other, path, 'full')
    assert set(report.mismatched) == {
        f'{layer}/{name}'
        for layer in ('box_head/box_codes', 'box_head/classes', 'mask_head/masks')
        for name in ('kernel', 'bias')
    }
    np.testing.assert_array_equal(
        other.named_variables()['mask_head/conv_2/kernel'], values['mask_head/conv_2/kernel']
    )


def test_a_detector_without_a_mask_head_takes_the_rest(checkpoint):
    head = 'mask_rcnn_box_predictor { predict_instance_masks: false }'
    other = build(f'faster_rcnn {{ number_of_stages: 2 second_stage_box_predictor {{ {head} }} }}')
    report = restore.restore(other, checkpoint[0], 'full')
    assert not report.missing
    assert report.unused == sorted(HEADS[name] for name in HEADS if name.startswith('mask'))


@slow_cases.parametrize(
    1,
    ('override', 'message'),
    [
        ("faster_rcnn { feature_extractor { type: 'faster_rcnn_resnet101' } }", 'ResNet-101'),
        ('faster_rcnn { first_stage_box_predictor_depth: 8 }', 'of another shape: rpn/box_codes_0'),
        (
            'faster_rcnn { first_stage_box_predictor_conv_hyperparams { batch_norm {} } }',
            'not in it: rpn/conv_bn',
        ),
    ],
)
def test_what_does_not_fit_is_reported(checkpoint, override, message):
    with pytest.raises(CheckpointError, match=message):
        restore.restore(build(override), checkpoint[0], 'full')


def test_names_of_inception_resnet_v2():
    scope = 'FirstStageFeatureExtractor/InceptionResnetV2/'
    second = 'SecondStageFeatureExtractor/InceptionResnetV2/'
    expected = {
        'backbone/conv_1a/kernel': f'{scope}Conv2d_1a_3x3/weights',
        'backbone/mixed_5b_branch0_1/kernel': f'{scope}Mixed_5b/Branch_0/Conv2d_1x1/weights',
        'backbone/mixed_5b_branch3_1/kernel': f'{scope}Mixed_5b/Branch_3/Conv2d_0b_1x1/weights',
        'backbone/block35_10_branch2_1/kernel': (
            f'{scope}Repeat/block35_10/Branch_2/Conv2d_0a_1x1/weights'
        ),
        'backbone/block35_10_branch2_2/kernel': (
            f'{scope}Repeat/block35_10/Branch_2/Conv2d_0b_3x3/weights'
        ),
        'backbone/block35_10_branch2_2_bn/beta': (
            f'{scope}Repeat/block35_10/Branch_2/Conv2d_0b_3x3/BatchNorm/beta'
        ),
        'backbone/block17_2_conv/bias': f'{scope}Repeat_1/block17_2/Conv2d_1x1/biases',
        'backbone/block17_2_conv/kernel': f'{scope}Repeat_1/block17_2/Conv2d_1x1/weights',
        'box_classifier/mixed_7a_branch0_1/kernel': (
            f'{second}Mixed_7a/Branch_0/Conv2d_0a_1x1/weights'
        ),
        'box_classifier/mixed_7a_branch0_2/kernel': (
            f'{second}Mixed_7a/Branch_0/Conv2d_1a_3x3/weights'
        ),
        'box_classifier/block8_9_conv/kernel': f'{second}Repeat_2/block8_9/Conv2d_1x1/weights',
        'box_classifier/block8_10_conv/kernel': f'{second}Block8/Conv2d_1x1/weights',
        'box_classifier/conv_7b/kernel': f'{second}Conv2d_7b_1x1/weights',
    }
    assert slim.match(list(expected), list(expected.values()), FASTER_RCNN_NAMES) == expected
