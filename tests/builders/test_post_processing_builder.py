"""What PostProcessing protos build, against golden numbers and by hand."""

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format

from object_detection.builders import post_processing_builder
from object_detection.protos import calibration_pb2, post_processing_pb2
from tests import goldens, rows
from tests.schema import missing_options

# The reference rejects sigmoid calibrations; here they are built. Their scales are those of no
# calibration, and these their shifts.
BUILT_HERE = {'calib_sigmoid': 0.1, 'calib_class_sigmoid': 0.0}


def parse(text):
    return text_format.Parse(text, post_processing_pb2.PostProcessing())


@goldens.rows('score_converters', prefix=('conv_', 'calib_'))
def test_scores_equal_the_reference(case_name):
    case = goldens.load('score_converters', case_name)
    if case_name in BUILT_HERE:
        converter = post_processing_builder.build_score_converter(parse(case.config))
        scores = converter(tf.constant(case.inputs['logits']))
        assert case.raises == 'ValueError'
        expected = 1 / (1 + np.exp(-case.inputs['logits'] + BUILT_HERE[case_name]))
        np.testing.assert_allclose(scores, expected, atol=1e-6)
    elif case.raises:
        with pytest.raises(ValueError, match='Received'):
            post_processing_builder.build_score_converter(parse(case.config))
    else:
        converter = post_processing_builder.build_score_converter(parse(case.config))
        scores = converter(tf.constant(case.inputs['logits']))
        np.testing.assert_allclose(scores, case.outputs['scores'], atol=1e-6)


def test_function_approximation_beyond_its_table_equals_the_reference():
    case = goldens.load('score_converters', 'raw_function_out_of_range')
    converter = post_processing_builder.build_score_converter(
        parse(f'calibration_config {{ {case.config} }}')
    )
    scores = converter(tf.constant(case.inputs['values']))
    np.testing.assert_allclose(scores, case.outputs['values'], atol=1e-6)


def test_every_calibration_is_built():
    missing = missing_options(
        calibration_pb2.CalibrationConfig, 'calibrator', post_processing_builder.CALIBRATIONS
    )
    # It acts on the logits: part of the scale.
    assert missing == {'temperature_scaling_calibration'}


def test_every_converter_is_built():
    converters = post_processing_pb2.PostProcessing.ScoreConverter.values()
    assert set(converters) == post_processing_builder.CONVERTERS.keys()


def test_sigmoid_calibration_by_hand():
    converter = post_processing_builder.build_score_converter(
        parse(
            'score_converter: SIGMOID calibration_config { sigmoid_calibration { '
            'sigmoid_parameters { a: -2.0 b: 0.5 } } }'
        )
    )
    logits = np.array([[-1.0, 0.0, 3.0]], np.float32)
    expected = 1 / (1 + np.exp(-2 * logits + 0.5))
    np.testing.assert_allclose(converter(tf.constant(logits)), expected, rtol=1e-4)


def test_class_id_sigmoid_calibration_by_hand():
    converter = post_processing_builder.build_score_converter(
        parse(
            'score_converter: SIGMOID calibration_config { class_id_sigmoid_calibrations { '
            'class_id_sigmoid_parameters_map { key: 1 value { a: -1.0 b: 1.0 } } } }'
        )
    )
    scores = converter(tf.constant([[0.5, 0.5]]))
    expected = [[1 / (1 + np.exp(-0.5)), 1 / (1 + np.exp(0.5))]]
    np.testing.assert_allclose(scores, expected, rtol=1e-5)


@rows.parametrize(
    ('text', 'message'),
    [
        ('logit_scale: 0.0', r'PostProcessing\.logit_scale'),
        ('calibration_config {}', r'CalibrationConfig\.calibrator is not set'),
        ('calibration_config { function_approximation {} }', r'XYPairs: .*strictly increasing'),
        (
            'batch_non_max_suppression { max_classes_per_detection: 2 }',
            'max_classes_per_detection must be 1, or above it with use_class_agno.*Received: 2',
        ),
        (
            'batch_non_max_suppression { max_classes_per_detection: 0 use_class_agnostic_nms: 1 }',
            'max_classes_per_detection must be 1.*Received: 0',
        ),
        (
            'batch_non_max_suppression { iou_threshold: 1.5 }',
            r'protos\.BatchNonMaxSuppression: .*iou_threshold must be in \[0, 1\]',
        ),
        (
            'batch_non_max_suppression { max_detections_per_class: 0 }',
            'max_detections_per_class must be positive',
        ),
    ],
)
def test_errors_name_the_field(text, message):
    with pytest.raises(ValueError, match=message):
        post_processing_builder.build(parse(text))


def test_all_numbers_of_the_suppression_are_read():
    params = post_processing_builder.build_nms_params(
        text_format.Parse(
            'score_threshold: 0.25 iou_threshold: 0.5 max_detections_per_class: 3 '
            'max_total_detections: 7 use_class_agnostic_nms: true soft_nms_sigma: 0.5 '
            'change_coordinate_frame: false use_hard_nms: true use_cpu_nms: true '
            'use_combined_nms: true max_classes_per_detection: 3',
            post_processing_pb2.BatchNonMaxSuppression(),
        )
    )
    assert params.score_threshold == 0.25
    assert params.iou_threshold == 0.5
    assert params.max_detections_per_class == 3
    assert params.max_total_detections == 7
    assert params.soft_nms_sigma == 0.5
    assert params.use_class_agnostic_nms
    assert params.max_classes_per_detection == 3
    assert params.use_cpu_nms
    assert params.use_combined_nms
    assert not params.change_coordinate_frame
    assert not params.is_soft  # use_hard_nms


@rows.parametrize('static', [None, True, False])
def test_static_shapes_come_from_the_argument_or_the_config(static):
    nms, _ = post_processing_builder.build(
        parse('batch_non_max_suppression { use_static_shapes: true }'), static=static
    )
    assert nms.keywords['static'] is (static is not False)
