"""Single-shot detectors against numbers by hand."""

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format

from object_detection.builders import model_builder
from object_detection.core.groundtruth import Groundtruth
from object_detection.meta_architectures.ssd import build
from tests import slow_cases
from tests.meta_architectures.ssd.configs import small_extractor, tiny

pytestmark = pytest.mark.usefixtures('graphs_as_they_are')
_build_extractor = build.build_extractor

LOCALIZATION, CLASSIFICATION = 'Loss/localization_loss', 'Loss/classification_loss'


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setattr(build, 'build_extractor', small_extractor)


def run(changes='', objects=((0.1, 0.1, 0.6, 0.6),), training=False):
    """Returns a detector, its predictions and the ground truth of two images."""
    detector = model_builder.build(tiny(changes))
    images, shapes = detector.preprocess(
        tf.random.stateless_uniform([2, 64, 64, 3], (1, 2), 0.0, 255.0)
    )
    boxes = [np.array(objects, np.float32).reshape(-1, 4), np.zeros([0, 4], np.float32)]
    groundtruth = Groundtruth.from_lists(
        boxes=boxes, classes=[np.eye(3, dtype=np.float32)[[1] * len(rows)] for rows in boxes]
    )
    seeds = tf.constant([[1, 2], [3, 4]])
    predictions = detector.predict(images, shapes, training, groundtruth, seeds)
    # Comparisons of losses and scores prove something.
    for outputs in (predictions.box_codes, predictions.class_logits):
        assert np.std(outputs) > 0.1
    return detector, predictions, groundtruth, shapes


def test_detections_have_the_names_and_shapes_of_the_reference():
    detector, predictions, _, shapes = run('return_raw_detections_during_predict: true')
    detections = detector.postprocess(predictions, shapes)
    # Maps of 4 x 4, 2 x 2 and 1 x 1 cells with 3, 4 and 4 boxes each.
    count = 16 * 3 + 4 * 4 + 4
    assert {name: tuple(value.shape) for name, value in detections.items()} == {
        'detection_boxes': (2, 10, 4),
        'detection_scores': (2, 10),
        'detection_classes': (2, 10),
        'detection_multiclass_scores': (2, 10, 4),
        'detection_anchor_indices': (2, 10),
        'num_detections': (2,),
        'raw_detection_boxes': (2, count, 4),
        'raw_detection_scores': (2, count, 4),
    }
    named = predictions.to_dict()
    np.testing.assert_array_equal(named['raw_detection_boxes'], detections['raw_detection_boxes'])
    levels = named['raw_detection_feature_map_indices'][1]
    np.testing.assert_array_equal(np.bincount(levels), [48, 16, 4])


@slow_cases.parametrize(1, 'by_matches', [True, False])
def test_losses_are_sums_over_anchors_by_the_matches_of_the_batch(by_matches):
    detector, predictions, groundtruth, _ = run(
        f'normalize_loss_by_num_matches: {str(by_matches).lower()} '
        'normalize_loc_loss_by_codesize: true '
        'loss { classification_weight: 2 localization_weight: 3 '
        'classification_loss { weighted_sigmoid {} } }'
    )
    targets = detector._anchor_losses.assign(predictions.anchors, groundtruth)
    weights = targets.box_weights.numpy()
    assert weights.sum() >= 1
    divisor = weights.sum() if by_matches else 1.0
    differences = np.abs(predictions.box_codes.numpy() - targets.box_targets.numpy())
    smooth = np.where(differences < 1, 0.5 * differences**2, differences - 0.5).sum(-1)
    logits, labels = predictions.class_logits.numpy(), targets.class_targets.numpy()
    crossed = np.log1p(np.exp(-np.abs(logits))) + np.maximum(logits, 0) - logits * labels
    losses = detector.loss(predictions, groundtruth)
    np.testing.assert_allclose(
        losses[LOCALIZATION], 3 * (smooth * weights).sum() / divisor / 4, rtol=1e-5
    )
    np.testing.assert_allclose(losses[CLASSIFICATION], 2 * crossed.sum() / divisor, rtol=1e-5)


def test_without_objects_the_losses_are_finite():
    detector, predictions, groundtruth, _ = run(objects=())
    losses = detector.loss(predictions, groundtruth)
    assert losses[LOCALIZATION] == 0
    assert np.isfinite(losses[CLASSIFICATION])


def test_penalties_of_kernels_are_among_the_losses_of_keras(monkeypatch):
    monkeypatch.setattr(build, 'build_extractor', _build_extractor)
    detector = model_builder.build(tiny())
    detector.build_variables()
    assert detector.losses
    assert all(penalty > 0 for penalty in detector.losses)


@slow_cases.parametrize(1, 'changes_frame', [True, False])
def test_keypoints_are_in_the_frame_of_their_boxes(changes_frame):
    detector = model_builder.build(
        tiny(
            'box_coder { keypoint_box_coder { num_keypoints: 2 } } '
            'box_predictor { convolutional_box_predictor { box_code_size: 8 } } '
            'post_processing { batch_non_max_suppression { '
            f'change_coordinate_frame: {str(changes_frame).lower()} }} }}'
        )
    )
    images, _ = detector.preprocess(tf.zeros([1, 64, 64, 3]))
    # The lower half of the image is padding.
    shapes = tf.constant([[32, 64, 3]])
    predictions = detector.predict(images, shapes)
    # Codes of zeros are boxes at the anchors, with keypoints at their centres.
    predictions = predictions._replace(box_codes=tf.zeros_like(predictions.box_codes))
    detections = detector.postprocess(predictions, shapes)
    count = int(detections['num_detections'][0])
    rows = tf.cast(detections['detection_anchor_indices'][0][:count], tf.int32)
    anchors = tf.gather(predictions.anchors, rows).numpy()
    centers = (anchors[:, :2] + anchors[:, 2:]) / 2 * ([2, 1] if changes_frame else [1, 1])
    assert count
    keypoints = detections['detection_keypoints'][0][:count]
    np.testing.assert_allclose(keypoints, np.stack([centers, centers], axis=1), atol=1e-5)


def test_a_predictor_converts_scores_in_inference_and_losses_take_logits():
    predictor = """
      box_predictor {
        weight_shared_convolutional_box_predictor {
          depth: 8
          num_layers_before_predictor: 1
          score_converter: %s
          conv_hyperparams { initializer { random_normal_initializer { stddev: 0.5 } } }
        }
      }
      anchor_generator {
        multiscale_anchor_generator { min_level: 4 max_level: 6 aspect_ratios: 1 }
      }"""
    tf.keras.utils.set_random_seed(1)
    _, plain, _, _ = run(predictor % 'IDENTITY')
    tf.keras.utils.set_random_seed(1)
    detector, predictions, groundtruth, shapes = run(
        predictor % 'SIGMOID' + 'post_processing { score_converter: IDENTITY }'
    )
    expected = tf.sigmoid(plain.class_logits)
    np.testing.assert_array_equal(
        predictions.to_dict()['class_predictions_with_background'], expected
    )
    detections = detector.postprocess(predictions, shapes)
    np.testing.assert_array_equal(detections['raw_detection_scores'], expected)
    losses, losses_of_plain = (
        detector.loss(values, groundtruth) for values in (predictions, plain)
    )
    assert losses[CLASSIFICATION] == losses_of_plain[CLASSIFICATION]


PYRAMID_ANCHORS = """
  anchor_generator {
    multiscale_anchor_generator { min_level: 4 max_level: 6 aspect_ratios: [1, 2] }
  }"""
BETWEEN = 'image_resizer { keep_aspect_ratio_resizer { min_dimension: 80 max_dimension: 112 %s } }'


@pytest.mark.parametrize(
    ('resizer', 'centers'),
    [
        # No side is a multiple of 32 pixels.
        (BETWEEN % 'pad_height: 80 pad_width: 112', [8, 0, 0]),
        (BETWEEN % '', [8, 16, 32]),
    ],
)
def test_anchors_of_a_pyramid_are_the_same_in_every_graph(resizer, centers):
    config = tiny()
    for field in ('anchor_generator', 'image_resizer'):
        config.ssd.ClearField(field)
    text_format.Merge(PYRAMID_ANCHORS + resizer, config.ssd)
    detector = model_builder.build(config)

    def anchors(images):
        return detector.predict(images, tf.constant([[80, 112, 3]])).anchors

    unknown = tf.function(anchors, autograph=False).get_concrete_function(
        tf.TensorSpec([1, None, None, 3])
    )
    images = tf.zeros([1, 80, 112, 3])
    pixels = anchors(images) * [80, 112, 80, 112]
    np.testing.assert_allclose(unknown(images) * [80, 112, 80, 112], pixels, rtol=1e-5, atol=1e-4)
    # Cells of the levels before, with four anchors each.
    firsts = pixels.numpy()[[0, 4 * 5 * 7, 4 * (5 * 7 + 3 * 4)]]
    expected = np.array(centers)[:, np.newaxis] * [1, 1]
    np.testing.assert_allclose((firsts[:, :2] + firsts[:, 2:]) / 2, expected, atol=1e-4)


def test_only_the_best_pairs_of_each_level_are_suppressed():
    detector, predictions, _, _ = run('pre_nms_topk_per_level: 2')
    logits = predictions.class_logits.numpy()
    scores = detector._of_objects(tf.sigmoid(logits)).numpy()
    rows, kept = detector._best_of_levels(tf.constant(scores), predictions.features)
    # Maps of 4 x 4, 2 x 2 and 1 x 1 cells with 3, 4 and 4 boxes each; two boxes of each are enough.
    assert rows.shape == (2, 6)
    assert np.all(np.diff(rows) > 0)
    found = np.full_like(scores, -1.0)
    np.put_along_axis(found, rows.numpy()[..., np.newaxis], kept.numpy(), axis=1)
    expected = np.full_like(scores, -1.0)
    for level in (slice(48), slice(48, 64), slice(64, None)):
        least = np.sort(scores[:, level].reshape(2, -1), axis=1)[:, -2, np.newaxis, np.newaxis]
        expected[:, level] = np.where(scores[:, level] >= least, scores[:, level], -1.0)
    assert (expected >= 0).sum() == 12
    np.testing.assert_array_equal(found, expected)
    traced = tf.function(detector._best_of_levels).get_concrete_function(
        tf.TensorSpec([None, None, scores.shape[2]]), [tf.TensorSpec([None, None, None, 64])] * 3
    )
    again = traced(tf.constant(scores), predictions.features)
    for ours, wanted in zip(again, (rows, kept), strict=True):
        np.testing.assert_array_equal(ours, wanted)


def test_detections_of_the_best_pairs_are_those_of_all_boxes():
    detector, predictions, _, shapes = run('pre_nms_topk_per_level: 2')
    found = detector.postprocess(predictions, shapes)
    logits = predictions.class_logits.numpy()
    objects = detector._of_objects(tf.constant(logits)).numpy()
    others = np.full_like(objects, -100.0)
    rows, kept = detector._best_of_levels(tf.sigmoid(objects), predictions.features)
    for image, row, column in np.argwhere(kept.numpy() >= 0):
        at = image, rows[image, row], column
        others[at] = objects[at]
    logits[..., -objects.shape[2] :] = others
    without, _, _, _ = run()
    expected = without.postprocess(predictions._replace(class_logits=tf.constant(logits)), shapes)
    assert 0 < found['num_detections'].numpy().min() <= found['num_detections'].numpy().max() <= 6
    for image, count in enumerate(found['num_detections'].numpy().astype(int)):
        for name in (
            'detection_boxes',
            'detection_scores',
            'detection_classes',
            'detection_anchor_indices',
        ):
            np.testing.assert_array_equal(
                found[name][image, :count], expected[name][image, :count], err_msg=name
            )
        assert expected['detection_scores'][image, count] < 1e-30
    np.testing.assert_array_equal(found['raw_detection_boxes'], expected['raw_detection_boxes'])


def test_only_the_best_boxes_of_each_class_are_suppressed():
    detector, predictions, _, shapes = run('pre_nms_topk_per_class: 2')
    scores = detector._of_objects(tf.sigmoid(predictions.class_logits)).numpy()
    kept = detector._best_of_classes(tf.constant(scores)).numpy()
    best = np.sort(scores, axis=1)[:, -2:]
    np.testing.assert_array_equal(np.sort(kept, axis=1)[:, -2:], best)
    assert np.all(np.sort(kept, axis=1)[:, :-2] == -1)
    found = detector.postprocess(predictions, shapes)
    assert np.all(found['num_detections'] <= 2 * scores.shape[-1])
    traced = tf.function(detector._best_of_classes).get_concrete_function(
        tf.TensorSpec([None, None, None])
    )
    np.testing.assert_array_equal(traced(tf.constant(scores)), kept)


def test_background_is_detected_as_a_class():
    detector, predictions, _, shapes = run('detect_background: true')
    logits = predictions.class_logits.numpy()
    logits[..., 0] += 9
    found = detector.postprocess(predictions._replace(class_logits=tf.constant(logits)), shapes)
    assert set(found['detection_classes'].numpy()[0, :5]) == {-1.0}
    without, _, _, _ = run()
    others = without.postprocess(predictions, shapes)['detection_classes'].numpy()
    assert others.min() >= 0


def test_losses_of_images_are_averaged():
    detector, predictions, groundtruth, _ = run('normalize_loss_per_image: true')
    sums, _, _, _ = run('normalize_loss_by_num_matches: false')
    losses = detector.loss(predictions, groundtruth)
    expected = 0.0
    counts = []
    for image in range(2):
        one = predictions._replace(
            targets=None,
            box_codes=predictions.box_codes[image : image + 1],
            class_logits=predictions.class_logits[image : image + 1],
        )
        truth = Groundtruth.from_lists(
            boxes=[np.array([[0.1, 0.1, 0.6, 0.6]], np.float32)[: 1 - image]],
            classes=[np.eye(3, dtype=np.float32)[[1]][: 1 - image]],
        )
        targets = sums._anchor_losses.assign(one.anchors, truth)
        counts.append(float(tf.reduce_sum(targets.box_weights)))
        expected += sums.loss(one, truth)[CLASSIFICATION] / max(counts[-1], 1) / 2
    assert counts[0] >= 1
    assert counts[1] == 0
    np.testing.assert_allclose(losses[CLASSIFICATION], expected, rtol=1e-5)
