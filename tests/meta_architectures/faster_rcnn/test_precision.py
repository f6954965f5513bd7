"""Detectors in 16 bits: what has to stay float32, and how near to float32 the rest comes."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from object_detection.core.loss_sum import divide
from object_detection.core.roi_align import SampleGrid
from object_detection.meta_architectures.faster_rcnn.croppers import (
    LevelRule,
    RoiAlignCropper,
    RoiCropper,
)
from object_detection.meta_architectures.faster_rcnn.predictions import RegionPredictions
from object_detection.meta_architectures.faster_rcnn.proposals import Proposals
from object_detection.models.normalization import BatchNorm, GroupNorm
from tests import rows, slow_cases
from tests import tiny_models as tiny

POLICIES = ['mixed_bfloat16', 'mixed_float16']
# The least difference of two numbers near 1.
STEP = {'mixed_bfloat16': 2.0**-7, 'mixed_float16': 2.0**-10}
GRADIENT_ERROR = {'mixed_bfloat16': 0.4, 'mixed_float16': 0.08}
# As the recipe of the Mask R-CNN systems: frozen norms, which do not enlarge the rounding of nearly
# equal crops. Every anchor is proposed and trained on: rounding chooses between none.
RECIPE = """
model {
  faster_rcnn {
    feature_extractor {
      batch_norm_trainable: false
      preprocess { scale: 0.01 mean: [1.2, 1.2, 1.2] std: [1, 1, 1] }
    }
    first_stage_anchor_generator {
      multiscale_anchor_generator { scales_per_octave: 1 }
    }
    first_stage_objectness_type: SIGMOID_1
    first_stage_nms_iou_threshold: 1.0
    first_stage_max_proposals: 84
    first_stage_minibatch_size: 84
    second_stage_batch_size: 84
    second_stage_balance_fraction: 1.0
    roi_align { output_size: 7 }
    mask_roi_align { output_size: 7 }
    second_stage_box_predictor {
      mask_rcnn_box_predictor { convolve_then_upsample_masks: false mask_head_deconv: true }
    }
    output_final_box_features: true
    return_raw_detections_during_predict: true
  }
}
"""


@pytest.fixture
def policy(request):
    keras.config.set_dtype_policy(request.param)
    yield request.param
    keras.config.set_dtype_policy('float32')


def results(policy: str):
    """Losses, gradients by name and detections of one detector, computed in `policy`."""
    keras.config.set_dtype_policy(policy)
    try:
        detector = tiny.tiny_detector(RECIPE)
    finally:
        keras.config.set_dtype_policy('float32')
    tiny.shrink_last_layers(detector)
    images, groundtruth = tiny.random_images(2)[:, :32, :32], tiny.random_groundtruth(2)
    trained = {id(variable.value) for variable in detector.trainable_variables}
    variables = {n: v for n, v in detector.named_variables().items() if id(v) in trained}

    def run():
        with tf.GradientTape() as tape:
            losses = tiny.train_losses(detector, images, groundtruth)
            # As a loss scale: else small gradients would be zero in float16.
            objective = 1024.0 * tf.add_n(list(losses.values()))
        gradients = tape.gradient(objective, variables, unconnected_gradients='zero')
        predictions = detector.predict(detector.normalize(images), tiny.shapes(images))
        return losses, gradients, detector.postprocess(predictions, tiny.shapes(images))

    return run()


@pytest.fixture(scope='module')
def exact():
    return results('float32')


@slow_cases.parametrize(1, 'name', POLICIES)
def test_losses_gradients_and_detections_are_near_those_of_float32(name, exact):
    losses, gradients, detections = results(name)
    step = STEP[name]
    for tensors in (losses, gradients, detections):
        assert {tensor.dtype for tensor in tensors.values()} == {tf.float32}
        assert all(np.isfinite(tensor).all() for tensor in tensors.values())
    for key, loss in exact[0].items():
        assert float(losses[key]) == pytest.approx(float(loss), rel=step), key
    for key, gradient in exact[1].items():
        # The rounding of all layers above adds up.
        limit = GRADIENT_ERROR[name] * np.linalg.norm(gradient)
        assert np.linalg.norm(gradients[key] - gradient) <= limit, key
    # Detections of nearly the same score may change places.
    scores, expected = detections['detection_scores'], exact[2]['detection_scores']
    assert (np.diff(scores) <= 0).all()
    np.testing.assert_allclose(scores, expected, atol=step)


@pytest.mark.parametrize('policy', POLICIES, indirect=True)
@pytest.mark.parametrize('kind', [BatchNorm, lambda: GroupNorm(4)], ids=['batch', 'group'])
@pytest.mark.parametrize('shape', [(2, 5, 5, 8), (1, 128, 128, 8)])
def test_norms_of_large_values_do_not_overflow(policy, kind, shape):
    rng = np.random.default_rng(0)
    maps = tf.constant(rng.normal(500, 300, shape), tf.float32)
    half = tf.cast(maps, keras.config.dtype_policy().compute_dtype)
    normed = kind()(half, training=True)
    assert normed.dtype == half.dtype
    keras.config.set_dtype_policy('float32')
    # Squares are beyond 65504.
    expected = kind()(tf.cast(half, tf.float32), training=True)
    np.testing.assert_allclose(tf.cast(normed, tf.float32), expected, atol=4 * STEP[policy])


@rows.parametrize('dtype', ['bfloat16', 'float16'])
@rows.parametrize('use_matmul', [False, True])
def test_boxes_of_many_pixels_are_cropped_where_they_are(dtype, use_matmul):
    # A map whose values are the columns' indices: what a crop holds is where it was taken.
    columns = tf.range(128, dtype=tf.float32)
    maps = tf.tile(columns[tf.newaxis, tf.newaxis, :, tf.newaxis], [1, 64, 1, 1])
    # Areas of a million square pixels; edges that 16 bits would round by several pixels.
    boxes = tf.constant([[[3.0, 130.5, 1023.0, 1901.25], [2.0, 1210.75, 1022.0, 2047.0]]])
    aligned = RoiAlignCropper(
        grid=SampleGrid((2, 4)), rule=LevelRule(4, 4), strides=[16], use_matmul=use_matmul
    )
    plain = RoiCropper(crop_size=4, use_matmul=use_matmul)
    for crop in (aligned, plain):
        found = crop([tf.cast(maps, dtype)], boxes, 1024, 2048)
        assert found.dtype == dtype
        expected = crop([maps], boxes, 1024, 2048)
        assert np.ptp(expected) > 30
        np.testing.assert_allclose(tf.cast(found, tf.float32), expected, rtol=2.0**-7)


def test_codes_of_a_class_are_not_multiplied_as_matrices():
    # GPUs would round them to the 10 bits of TF32.
    detector = tiny.tiny_detector()
    stage = detector.box_stages[0]

    @tf.function(autograph=False)
    def loss(codes, logits, boxes, scores, truth):
        groundtruth = tiny.random_groundtruth(2)
        proposals = Proposals(boxes, scores, tf.constant([8, 8]))
        targets = stage.assign(boxes, truth, groundtruth)
        return divide(stage.loss_sums(RegionPredictions(codes, logits), proposals, targets))

    arguments = [[16, 4, 4], [16, 5], [2, 8, 4], [2, 8], [2, 5, 4]]
    graph = loss.get_concrete_function(*(tf.TensorSpec(shape) for shape in arguments)).graph
    names = {operation.type for operation in graph.get_operations()}
    assert not names & {'MatMul', 'BatchMatMulV2', 'Einsum'}
