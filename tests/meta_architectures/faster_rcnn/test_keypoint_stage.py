"""Keypoints of regions: the loss by NumPy, and a detector with and without masks."""

import numpy as np
import pytest
import tensorflow as tf

from object_detection.core.fields import InputFields as F
from object_detection.core.groundtruth import Groundtruth
from object_detection.core.loss_sum import divide
from object_detection.core.roi_align import SampleGrid
from object_detection.errors import UserError
from object_detection.meta_architectures.faster_rcnn.croppers import LevelRule, RoiAlignCropper
from object_detection.meta_architectures.faster_rcnn.keypoint_stage import KeypointStage
from object_detection.meta_architectures.faster_rcnn.predictions import (
    BoxPredictions,
    KeypointPredictions,
    Predictions,
)
from object_detection.meta_architectures.faster_rcnn.proposals import Proposals
from object_detection.models.heads.keypoint_head import KeypointHead
from object_detection.models.hyperparams import LayerHyperparams
from object_detection.targets.targets import Targets
from tests import rows
from tests import tiny_models as tiny
from tests.tiny_models import shapes, train_losses

NAN = float('nan')
LOSS = 'Loss/BoxClassifierLoss/keypoint_loss'
COUNT = 3
HEAD = """
model {
  faster_rcnn {
    keypoint_roi_align { output_size: 4 canonical_size: 20 }
    second_stage_box_predictor {
      mask_rcnn_box_predictor {
        predict_keypoints: true
        keypoint_head { num_keypoints: 3 num_convs: 2 conv_depth: 8 }
      }
    }
  }
}
"""
NO_MASKS = """
model {
  faster_rcnn {
    number_of_stages: 2
    second_stage_box_predictor { mask_rcnn_box_predictor { predict_instance_masks: false } }
  }
}
"""


def stage(**options) -> KeypointStage:
    return KeypointStage(
        head=KeypointHead(2, hyperparams=LayerHyperparams(), num_convs=0),
        cropper=RoiAlignCropper(
            grid=SampleGrid((1, 1)), rule=LevelRule(2, 2), strides=[4], use_matmul=False
        ),
        **options,
    )


def with_keypoints(groundtruth: Groundtruth, seed: int = 0) -> Groundtruth:
    """Keypoints within the boxes; the last one of each object is not labelled."""
    rng = np.random.default_rng(seed)
    low, high = np.split(groundtruth.boxes.numpy()[:, :, np.newaxis], 2, axis=-1)
    shares = rng.uniform(0.2, 0.8, (*low.shape[:2], COUNT, 2))
    points = low + (high - low) * shares
    points[:, :, -1] = NAN
    return groundtruth._replace(keypoints=tf.constant(points, tf.float32))


def test_loss_by_numpy():
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(2 * 2, 2, 4, 4)).astype(np.float32)
    cells = np.array([[[3, 0], [15, 7]], [[1, 2], [0, 0]]], np.int32)
    weights = np.array([[[1, 0], [0.5, 1]], [[0, 2], [0, 0]]], np.float32)
    predictions = KeypointPredictions(
        tf.constant(logits), tf.zeros([2, 2], tf.int32), tf.constant(cells), tf.constant(weights)
    )
    losses = divide(tf.function(stage(loss_weight=3.0).loss_sums, autograph=False)(predictions))
    flat = logits.reshape(2, 2, 2, 16)
    log_shares = flat - np.log(np.exp(flat).sum(-1, keepdims=True))
    entropy = -np.take_along_axis(log_shares, cells[..., np.newaxis], -1)[..., 0]
    expected = 3.0 * (entropy * weights).sum() / weights.sum()
    np.testing.assert_allclose(losses[LOSS], expected, rtol=1e-5)
    nothing = predictions._replace(weights=tf.zeros_like(weights))
    assert divide(stage().loss_sums(nothing))[LOSS] == 0


def one_image() -> tuple[Predictions, Groundtruth]:
    """Four regions: background, two that match the object, the latter all of it, and padding."""
    boxes = [[0.0, 0.0, 1.0, 1.0], [0.0, 0.0, 0.5, 0.5], [0.0, 0.0, 1.0, 1.0], [0.0] * 4]
    proposals = Proposals(
        tf.constant([boxes]) * 64.0, tf.constant([[4.0, 3.0, 2.0, 0.0]]), tf.constant([3])
    )
    targets = Targets(
        class_targets=tf.one_hot([[0, 1, 1, 1]], 2),
        class_weights=tf.ones([1, 4]),
        box_targets=tf.zeros([1, 4, 4]),
        box_weights=tf.constant([[0.0, 1.0, 1.0, 1.0]]),
        matches=tf.constant([[-1, 0, 0, 0]]),
    )
    features = np.random.default_rng(0).normal(size=(1, 16, 16, 2))
    predictions = Predictions(
        image_shape=tf.constant([1, 64, 64, 3]),
        features=[tf.constant(features, tf.float32)],
        anchors=None,
        proposals=proposals,
        proposals_normalized=tf.constant([boxes]),
        final_anchors=None,
        box_stages=[BoxPredictions(proposals, None, targets)],
    )
    # The second keypoint is outside of the smaller region.
    points = tf.constant([[[[0.1, 0.49], [0.9, 0.6]]]])
    return predictions, tiny.random_groundtruth(1, rows=1)._replace(keypoints=points)


def test_targets_of_positive_regions_by_hand():
    predictions, truth = one_image()
    found = stage().predict(predictions, truth, training=True, max_positives=4)
    assert found.logits.shape == (1 * 4, 2, 4, 4)
    np.testing.assert_array_equal(found.rows, [[0, 1, 2, 3]])
    np.testing.assert_array_equal(found.weights, [[[0, 0], [1, 0], [1, 1], [0, 0]]])
    np.testing.assert_array_equal(found.cells[0, 1:3], [[0 * 4 + 3, 0], [0 * 4 + 1, 3 * 4 + 2]])
    assert stage().loss_sums(found)[LOSS].normalizer == 3
    # One region only: the first with a keypoint. Weights of keypoints have a part in it.
    heavy = truth._replace(fields={F.GROUNDTRUTH_KEYPOINT_WEIGHTS: tf.constant([[[0.0, 2.0]]])})
    limited = stage(max_regions=1).predict(predictions, truth, training=True, max_positives=4)
    np.testing.assert_array_equal(limited.rows, [[1]])
    limited = stage(max_regions=1).predict(predictions, heavy, training=True, max_positives=4)
    np.testing.assert_array_equal(limited.rows, [[2]])
    np.testing.assert_array_equal(limited.weights, [[[0, 2]]])
    # No limit applies to an evaluation, which has as many rows as an image needs.
    all_of_them = stage(max_regions=1).predict(predictions, truth, training=False, max_positives=1)
    np.testing.assert_array_equal(all_of_them.rows, [[1, 2]])


@pytest.fixture(scope='module', params=[(), (NO_MASKS,)], ids=['masks', 'no_masks'])
def detector(request):
    return tiny.tiny_detector(HEAD, *request.param)


def test_a_step_down_the_gradient_lowers_the_loss(detector, images, groundtruth):
    truth = with_keypoints(groundtruth)
    variables = detector.trainable_variables
    with tf.GradientTape() as tape:
        losses = train_losses(detector, images, truth)
        total = losses[LOSS]
    assert set(losses) == set(detector.loss_names())
    head = [v for v in variables if v.path.startswith('keypoint_head/')]
    gradients = tape.gradient(total, [v.value for v in head])
    # A uniform softmax over 16 x 16 cells has a loss of about log(256).
    assert 0 < total < 3 * np.log(256)
    before = [v.numpy() for v in head]
    for variable, gradient in zip(head, gradients, strict=True):
        variable.assign_sub(0.05 * gradient)
    assert train_losses(detector, images, truth)[LOSS] < total
    for variable, value in zip(head, before, strict=True):
        variable.assign(value)


@pytest.mark.slow
def test_padding_of_regions_does_not_change_the_loss(images, groundtruth):
    truth = with_keypoints(groundtruth)
    unpadded = HEAD + 'model { faster_rcnn { pad_keypoint_rois: false } }'
    losses = [
        train_losses(tiny.tiny_detector(text), images, truth)[LOSS] for text in (HEAD, unpadded)
    ]
    np.testing.assert_allclose(*losses, rtol=1e-5)


def test_detections_have_keypoints(detector, images):
    predictions = detector.predict(detector.normalize(images), shapes(images))
    detections = detector.postprocess(predictions, shapes(images))
    points, scores = detections['detection_keypoints'], detections['detection_keypoint_scores']
    assert points.shape == (2, 6, COUNT, 2)
    assert scores.shape == (2, 6, COUNT)
    assert ('detection_masks' in detections) == detector.needs_masks
    low, high = np.split(detections['detection_boxes'].numpy()[:, :, np.newaxis], 2, axis=-1)
    assert np.all((low - 1e-5 <= points) & (points <= high + 1e-5))
    assert np.all((scores > 0) & (scores <= 1))


def test_unused_slots_and_classes_without_keypoints_are_zero(images):
    keypoints = stage(of_classes=[[0, 1], [], [1]])
    detections = {
        'detection_boxes': tf.constant([[[0.1, 0.1, 0.9, 0.9]] * 4]),
        'detection_scores': tf.ones([1, 4]),
        'detection_classes': tf.constant([[0.0, 1.0, 2.0, 0.0]]),
        'num_detections': tf.constant([3.0]),
    }
    maps = [tf.random.normal([1, 16, 16, 2])]
    boxes = detections['detection_boxes'] * 64
    found = keypoints.detect(maps, boxes, detections, (64, 64))
    has_keypoint = np.array([[[1, 1], [0, 0], [0, 1], [0, 0]]], bool)
    np.testing.assert_array_equal(found['detection_keypoint_scores'] > 0, has_keypoint)
    np.testing.assert_array_equal(np.all(found['detection_keypoints'] > 0, axis=-1), has_keypoint)


@rows.parametrize('in_pixels', [False, True])
def test_xla_compiles_it(in_pixels):
    keypoints = stage(of_classes=[[0, 1], [1]], in_pixels=in_pixels)
    predictions, truth = one_image()
    detections = {
        'detection_boxes': tf.constant([[[0.1, 0.1, 0.9, 0.9], [0.2, 0.3, 0.5, 0.9]]]),
        'detection_scores': tf.ones([1, 2]),
        'detection_classes': tf.constant([[0.0, 1.0]]),
        'num_detections': tf.constant([2.0]),
    }

    def run():
        found = keypoints.predict(predictions, truth, training=True, max_positives=4)
        boxes = detections['detection_boxes'] * 64
        detected = keypoints.detect(predictions.features, boxes, detections, (64, 64))
        return divide(keypoints.loss_sums(found))[LOSS], detected['detection_keypoints']

    loss, points = run()
    compiled_loss, compiled_points = tf.function(run, jit_compile=True, autograph=False)()
    np.testing.assert_allclose(compiled_loss, loss, rtol=1e-4)
    np.testing.assert_allclose(compiled_points, points, atol=1e-4)


@rows.parametrize('count', [None, 2])
def test_ground_truth_without_the_keypoints(images, groundtruth, detector, count):
    truth = groundtruth
    if count:
        truth = with_keypoints(groundtruth)
        truth = truth._replace(keypoints=truth.keypoints[:, :, :count])
    message = f'num_keypoints of the input reader: expected 3, .* Received: {count or "none"}.'
    with pytest.raises(UserError, match=message):
        train_losses(detector, images, truth)


def test_a_config_of_other_layers_is_refused():
    with pytest.raises(UserError, match=r'keypoint_head\.num_keypoints: expected at least 1'):
        tiny.tiny_detector(HEAD.replace('num_keypoints: 3', 'num_keypoints: 0'))
