"""Detectors that `graph_rewriter.quantization` of a config quantizes."""

import os
import re

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format

from object_detection.errors import CheckpointError, ConfigError
from object_detection.export import saved_model
from object_detection.meta_architectures import detector as detector_builder
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from object_detection.runtime.in_process import ProcessRuntime
from object_detection.validation import train_config, validate
from object_detection.weights import checkpoints, restore
from tests import rows, slow_cases, tiny_models
from tests.meta_architectures.center_net import test_center_net
from tests.meta_architectures.ssd import configs

QUANTIZED = 'graph_rewriter { quantization { delay: 0 } }'
IMAGES = np.random.default_rng(0).integers(0, 255, [2, 64, 64, 3]).astype(np.uint8)


def pipeline(*overrides: str) -> TrainEvalPipelineConfig:
    config = TrainEvalPipelineConfig(model=configs.tiny())
    for override in overrides:
        text_format.Merge(override, config)
    return config


def build(*overrides: str, seed: int = 0):
    tf.keras.utils.set_random_seed(seed)
    return detector_builder.build(pipeline(*overrides), is_training=False, has_penalty=False)


@pytest.fixture(scope='module')
def plain():
    return build()


@pytest.fixture(scope='module')
def quantized():
    """A detector with ranges as of a training."""
    detector = build(QUANTIZED)
    for name, variable in detector.quantization.ranges.items():
        variable.assign(-2.5 if name.endswith('min') else 3.5)
    return detector


def detections(detector) -> dict[str, np.ndarray]:
    outputs = ProcessRuntime(detector).run_batch(IMAGES)
    return {name: value.numpy() for name, value in outputs.items()}


def test_a_detector_without_quantization_is_as_before(plain):
    assert plain.quantization is None
    assert not any('quantization' in name for name in plain.named_variables())
    for _, layer in detector_builder._layers(plain):
        assert getattr(layer, 'rounding', None) is None


def test_ranges_are_variables_that_do_not_train(plain, quantized):
    ranges = {n: v for n, v in quantized.named_variables().items() if n.startswith('quantization/')}
    assert set(quantized.named_variables()) - set(ranges) == set(plain.named_variables())
    assert not set(ranges) & set(quantized.named_trainable_variables())
    assert 'quantization/backbone/Conv1_relu/moving_max' in ranges
    # Every convolution of the detector reads and writes a tensor with a range, images included.
    assert any(re.search(r'backbone/Conv1(_pad)?/input_0', name) for name in ranges)
    heads = [name for name in ranges if re.search(r'box_predictor/(box_codes|classes)_\d/', name)]
    assert len(heads) == 2 * 2 * 3


@pytest.mark.slow
def test_evaluations_round(plain, quantized):
    exact = detections(plain)
    rounded = detections(quantized)
    scores = exact['detection_scores'], rounded['detection_scores']
    assert 1e-4 < np.abs(scores[0] - scores[1]).max() < 0.3


@pytest.mark.slow
def test_exports_round_alike(quantized, tmp_path):
    saved_model.export(
        quantized,
        tmp_path,
        input_type='image_tensor',
        save_checkpoint=os.makedirs,
        pipeline_text='',
    )
    serve = tf.saved_model.load(str(tmp_path / 'saved_model')).signatures['serving_default']
    operations = [each.type for each in serve.graph.get_operations()]
    functions = serve.graph.as_graph_def().library.function
    operations += [node.op for function in functions for node in function.node_def]
    assert operations.count('FakeQuantWithMinMaxVars') == len(quantized.quantization.ranges) // 2
    expected = detections(quantized)
    found = serve(input_tensor=tf.constant(IMAGES))
    # Sums in another order may round to the next of 256 levels.
    np.testing.assert_allclose(
        found['detection_scores'], expected['detection_scores'], rtol=0, atol=6.0 / 255
    )


@pytest.mark.slow
def test_checkpoints_with_and_without_ranges(plain, quantized, tmp_path):
    with_ranges = checkpoints.save_model(str(tmp_path / 'a'), quantized.named_variables(), 7)
    detector = build(QUANTIZED, seed=1)
    restore.restore_exactly(detector, with_ranges, averages=False)
    for name, variable in quantized.named_variables().items():
        np.testing.assert_array_equal(detector.named_variables()[name], variable)
    # Trainings start from checkpoints without ranges.
    without = checkpoints.save_model(str(tmp_path / 'b'), plain.named_variables(), 7)
    report = restore.restore(detector, without, 'full')
    assert set(report.restored) == set(plain.named_variables())
    assert {name.split('/')[0] for name in report.missing} == {'quantization'}
    # But nothing else does, since the ranges are not known.
    with pytest.raises(CheckpointError, match='holds no ranges of activations'):
        restore.restore_exactly(detector, without, averages=False)
    with pytest.raises(CheckpointError, match='which the config does not set'):
        restore.restore_exactly(plain, with_ranges, averages=False)


@rows.parametrize(
    ('override', 'message'),
    [
        ('graph_rewriter { quantization { delay: -1 } }', r'quantization\.delay: .* Received: -1'),
        ('graph_rewriter { quantization { weight_bits: 1 } }', r'\.weight_bits: expected 2 to 16'),
        ('graph_rewriter { quantization { activation_bits: 17 } }', r'\.activation_bits: expected'),
        (
            f'{QUANTIZED} train_config {{ precision: MIXED_BFLOAT16 }}',
            'precision float32 or tf32 .* Received: mixed_bfloat16',
        ),
    ],
)
def test_what_cannot_be_quantized_is_refused(override, message):
    (problem,) = train_config.check_quantization(pipeline(override))
    assert re.search(message, problem)
    with pytest.raises(ConfigError, match=message):
        build(override)


def test_a_training_that_never_rounds_is_mentioned():
    config = pipeline('graph_rewriter { quantization {} } train_config { num_steps: 500000 }')
    (warning,) = train_config.quantization_warnings(config)
    assert 'after 500000 steps' in warning
    config.graph_rewriter.quantization.delay = 0
    assert not list(train_config.quantization_warnings(config))
    (warning,) = train_config.quantization_warnings(pipeline('graph_rewriter {}'))
    assert 'graph_rewriter: has no effect' in warning


@pytest.mark.slow
def test_two_stage_detectors():
    override = 'model { faster_rcnn { number_of_stages: 2 } }'
    config = tiny_models.tiny_pipeline(override, QUANTIZED)
    detector = detector_builder.build(config, is_training=False)
    ranges = detector.quantization.ranges
    for name in (
        'rpn/activation',
        'rpn/activation/call_2',
        'fpn/add_2',
        'box_classifier/dense_1',
        'box_head/classes_bn',
    ):
        assert f'{name}/moving_min' in ranges
    assert np.isfinite(detections(detector)['detection_scores']).all()


MASKS = """model { faster_rcnn { second_stage_box_predictor { mask_rcnn_box_predictor {
  convolve_then_upsample_masks: false mask_head_deconv: true mask_height: 28 mask_width: 28
} } } }"""
KEYPOINTS = """model { faster_rcnn { number_of_stages: 2 second_stage_box_predictor {
  mask_rcnn_box_predictor {
    predict_keypoints: true keypoint_head { num_keypoints: 3 num_convs: 1 conv_depth: 8 }
  }
} } }"""


def check_refusal(config, layer):
    (problem,) = validate.check_model(config)
    assert re.search(rf'graph_rewriter\.quantization: .*{layer} \(Conv2DTranspose\)', problem)
    with pytest.raises(ConfigError, match=re.escape(problem)):
        detector_builder.build(config, is_training=False)


@slow_cases.parametrize(
    1,
    ('override', 'layer'),
    [(MASKS, 'mask_head/deconv'), (KEYPOINTS, 'keypoint_head/keypoints')],
)
def test_transposed_convolutions_are_refused_by_name(override, layer):
    check_refusal(tiny_models.tiny_pipeline(override, QUANTIZED), layer)


@pytest.mark.slow
def test_transposed_convolutions_of_a_centernet_are_refused_by_name():
    config = TrainEvalPipelineConfig(
        model=test_center_net.parse("feature_extractor { type: 'mobilenet_v2' }")
    )
    text_format.Merge(QUANTIZED, config)
    check_refusal(config, 'fpn/doubling_0')
    config.model.center_net.feature_extractor.type = 'mobilenet_v2_fpn'
    assert not list(validate.check_model(config))
