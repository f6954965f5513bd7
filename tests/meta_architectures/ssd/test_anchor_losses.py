"""Every option of the losses of anchors, against numbers by hand."""

import pathlib
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf

from object_detection.builders import model_builder
from object_detection.config.reader import read_pipeline
from object_detection.core.groundtruth import Groundtruth
from object_detection.core.loss_sum import divide
from object_detection.errors import UserError
from object_detection.meta_architectures.ssd import build
from object_detection.meta_architectures.ssd.predictions import Predictions
from tests import rows, slow_cases
from tests.meta_architectures.ssd.configs import tiny

ROOT = pathlib.Path(__file__).resolve().parents[3]
LOCALIZATION, CLASSIFICATION = 'Loss/localization_loss', 'Loss/classification_loss'
# Four anchors in a row, the first two of them on objects of classes 2 and 0.
ANCHORS = np.array(
    [[0.0, 0.0, 0.2, 0.2], [0.0, 0.3, 0.2, 0.5], [0.5, 0.0, 0.7, 0.2], [0.5, 0.5, 0.7, 0.7]],
    np.float32,
)
OBJECTS = np.array([[0.0, 0.0, 0.2, 0.18], [0.0, 0.3, 0.2, 0.5]], np.float32)
SEEDS = np.array([[3, 1], [4, 1]], np.int32)
# Softmax has a column of background that is 1; sigmoids have none that is.
SOFTMAX = """
  encode_background_as_zeros: false
  loss { classification_loss { weighted_softmax {} } }"""
SIGMOID = 'loss { classification_loss { weighted_sigmoid {} } }'
NO_BACKGROUND = 'add_background_class: false '


def losses_of(changes: str):
    """Returns the losses of a detector with the fields of `changes`."""
    return build.build_losses(tiny(changes).ssd)


def predict(columns: int = 4, code_size: int = 4, seed: int = 0) -> Predictions:
    rng = np.random.default_rng(seed)
    return Predictions(
        images=tf.zeros([2, 64, 64, 3]),
        features=[],
        anchors=tf.constant(ANCHORS),
        box_codes=tf.constant(rng.normal(size=[2, 4, code_size]), tf.float32),
        class_logits=tf.constant(rng.normal(size=[2, 4, columns]), tf.float32),
    )


def objects(classes=None, **fields) -> Groundtruth:
    """Both images have the same objects."""
    classes = np.eye(3, dtype=np.float32)[[2, 0]] if classes is None else classes
    return Groundtruth.from_lists(
        boxes=[OBJECTS] * 2, classes=[np.array(classes, np.float32)] * 2, **fields
    )


def sigmoid_losses(logits, labels):
    return np.log1p(np.exp(-np.abs(logits))) + np.maximum(logits, 0) - logits * labels


def smooth_l1(codes, goals):
    distances = np.abs(codes - goals)
    return np.where(distances < 1, 0.5 * distances**2, distances - 0.5).sum(-1)


def compute(changes, predictions, groundtruth, training=False):
    """Returns the losses, and the targets."""
    losses = losses_of(changes)
    targets = losses.assign(predictions.anchors, groundtruth, training, SEEDS)
    named = divide(losses.compute(predictions, targets))
    return {name: float(loss) for name, loss in named.items()}, targets


def test_boxes_and_not_codes_are_compared_by_giou():
    predictions = predict()
    losses, targets = compute(
        'loss { localization_loss { weighted_giou {} } }', predictions, objects()
    )
    decoded = losses_of('').box_coder.decode(predictions.box_codes, ANCHORS).numpy()
    expected = []
    for image in range(2):
        for box, goal in zip(decoded[image][:2], OBJECTS, strict=True):
            low, high = np.maximum(box[:2], goal[:2]), np.minimum(box[2:], goal[2:])
            shared = np.prod(np.maximum(high - low, 0))
            union = np.prod(box[2:] - box[:2]) + np.prod(goal[2:] - goal[:2]) - shared
            hull = np.prod(np.maximum(box[2:], goal[2:]) - np.minimum(box[:2], goal[:2]))
            expected.append(1 - shared / union + (hull - union) / hull)
    assert losses[LOCALIZATION] == pytest.approx(np.mean(expected), rel=1e-4)
    np.testing.assert_array_equal(targets.matches, [[0, 1, -1, -1]] * 2)


def test_a_box_without_weight_that_overflows_has_no_gradient():
    predictions = predict()
    codes = tf.tensor_scatter_nd_update(predictions.box_codes, [[0, 3, 2]], [1e4])
    losses = losses_of('loss { localization_loss { weighted_iou {} } }')
    targets = losses.assign(predictions.anchors, objects())
    with tf.GradientTape() as tape:
        tape.watch(codes)
        loss = divide(losses.compute(predictions._replace(box_codes=codes), targets))[LOCALIZATION]
    gradients = tape.gradient(loss, codes).numpy()
    assert np.isfinite(gradients).all()
    assert np.any(gradients[:, :2] != 0)
    assert not gradients[:, 2:].any()


def test_only_the_hardest_anchors_have_losses():
    changes = SIGMOID + (
        'loss { hard_example_miner { num_hard_examples: 3 iou_threshold: 0.99 '
        'max_negatives_per_positive: 1 loss_type: CLASSIFICATION } }'
    )
    predictions = predict()
    losses, targets = compute(changes, predictions, objects())
    logits = predictions.class_logits.numpy()
    by_class = sigmoid_losses(logits, targets.class_targets.numpy()).sum(-1)
    by_box = smooth_l1(predictions.box_codes.numpy(), targets.box_targets.numpy())
    expected = np.zeros(2)
    for image in range(2):
        chosen = list(np.argsort(-by_class[image])[:3])
        limit = sum(anchor < 2 for anchor in chosen)
        negatives = [anchor for anchor in chosen if anchor >= 2][limit:]
        chosen = [anchor for anchor in chosen if anchor not in negatives]
        expected += by_class[image][chosen].sum(), by_box[image][[a for a in chosen if a < 2]].sum()
    # The normalizer counts all matched anchors.
    assert losses[CLASSIFICATION] == pytest.approx(expected[0] / 4, rel=1e-5)
    assert losses[LOCALIZATION] == pytest.approx(expected[1] / 4, rel=1e-5)


@rows.parametrize('background', ['', NO_BACKGROUND, SOFTMAX])
def test_a_sample_has_all_objects_and_as_many_others_as_its_fraction_leaves(background):
    changes = background + 'loss { random_example_sampler { positive_sample_fraction: 0.67 } }'
    losses = losses_of(changes)
    targets = losses.assign(tf.constant(ANCHORS), objects(), seeds=tf.constant(SEEDS))
    chosen = targets.class_weights.numpy()[..., 0]
    np.testing.assert_array_equal(chosen[:, :2], 1)
    np.testing.assert_array_equal(chosen.sum(axis=1), 2)
    again = losses.assign(tf.constant(ANCHORS), objects(), seeds=tf.constant(SEEDS))
    np.testing.assert_array_equal(again.class_weights, targets.class_weights)


def test_classes_of_their_own_count_as_anchors_in_expected_losses():
    changes = SIGMOID + 'loss { expected_loss_weights: REWEIGHTING_UNMATCHED_ANCHORS }'
    predictions = predict(columns=3)
    losses, targets = compute(NO_BACKGROUND + changes, predictions, objects())
    logits, labels = predictions.class_logits.numpy(), targets.class_targets.numpy()
    # Of 12 values of an image, 2 are 1; all others weigh as much as three times these.
    weights = np.where(labels == 1, 1.0, 3 * 2 / 10)
    expected = (weights * sigmoid_losses(logits, labels)).sum() / 4
    assert losses[CLASSIFICATION] == pytest.approx(expected, rel=1e-5)
    by_box = smooth_l1(predictions.box_codes.numpy(), targets.box_targets.numpy())[:, :2]
    assert losses[LOCALIZATION] == pytest.approx(by_box.sum() / 4, rel=1e-5)


@rows.parametrize('background', ['', NO_BACKGROUND])
def test_classes_that_are_not_sampled_have_no_loss_in_training(background):
    """Of the three classes, two have objects in each image."""
    federated = 'loss { classification_loss { federated_loss { num_classes: 2 } } }'
    columns = 3 if background else 4
    predictions = predict(columns=columns)
    losses, targets = compute(background + SIGMOID + federated, predictions, objects(), True)
    weights = np.ones(columns)
    weights[-2] = 0
    np.testing.assert_array_equal(targets.class_weights, np.tile(weights, [2, 4, 1]))
    logits, labels = predictions.class_logits.numpy(), targets.class_targets.numpy()
    expected = (sigmoid_losses(logits, labels) * weights).sum() / 4
    assert losses[CLASSIFICATION] == pytest.approx(expected, rel=1e-5)
    losses, _ = compute(background + SIGMOID + federated, predictions, objects())
    expected = sigmoid_losses(logits, labels).sum() / 4
    assert losses[CLASSIFICATION] == pytest.approx(expected, rel=1e-5)


@rows.parametrize(
    ('changes', 'message'),
    [
        (SOFTMAX, 'a loss of each class for itself'),
        (f'{SIGMOID} explicit_background_class: true', 'explicit_background_class: expected false'),
        (
            f'{SIGMOID} loss {{ expected_loss_weights: EXPECTED_SAMPLING }}',
            'federated_loss or expected_loss_weights',
        ),
    ],
)
def test_what_federated_losses_do_not_fit(changes, message):
    with pytest.raises(ValueError, match=message):
        losses_of(f'loss {{ classification_loss {{ federated_loss {{}} }} }} {changes}')


@pytest.mark.parametrize('kind', ['weighted_softmax', 'weighted_sigmoid'])
def test_a_background_class_tells_of_the_whole_anchor_in_expected_losses(kind):
    changes = (
        f'encode_background_as_zeros: false loss {{ classification_loss {{ {kind} {{}} }} '
        'expected_loss_weights: EXPECTED_SAMPLING desired_negative_sampling_ratio: 0.5 }'
    )
    predictions = predict()
    losses, targets = compute(changes, predictions, objects())
    logits, labels = predictions.class_logits.numpy(), targets.class_targets.numpy()
    if kind == 'weighted_softmax':
        of_anchors = -(labels * tf.nn.log_softmax(logits).numpy()).sum(-1)
    else:
        of_anchors = sigmoid_losses(logits, labels).sum(-1)
    # An unmatched anchor sees two objects, of which 0.5 * 2 negatives of 4 - 2 are expected.
    expected = (of_anchors * [1, 1, 0.5, 0.5]).sum() / 4
    assert losses[CLASSIFICATION] == pytest.approx(expected, rel=1e-5)


def test_confidences_are_targets_in_training_alone():
    changes = SIGMOID + 'use_confidences_as_targets: true implicit_example_weight: 0.25'
    # The first object is none of class 1; nothing is known of its other classes.
    groundtruth = objects([[0, -1, 0], [1, 0, 0]])
    _, targets = compute(changes, predict(), groundtruth, training=True)
    np.testing.assert_array_equal(targets.box_weights, [[0, 1, 0, 0]] * 2)
    np.testing.assert_array_equal(
        targets.class_targets[0], [[1, 0, 0, 0], [0, 1, 0, 0]] + [[1, 0, 0, 0]] * 2
    )
    np.testing.assert_array_equal(
        targets.class_weights[0],
        [[0.25, 0.25, 1, 0.25], [1, 1, 0.25, 0.25], [0.25] * 4, [0.25] * 4],
    )
    _, targets = compute(changes, predict(), objects())
    np.testing.assert_array_equal(targets.class_weights, np.ones([2, 4, 1]))


def test_confidences_need_the_objects_where_a_training_predicts():
    detector = model_builder.build(tiny('use_confidences_as_targets: true'))
    images, shapes = detector.preprocess(tf.zeros([1, 64, 64, 3]))
    with pytest.raises(UserError, match='use_confidences_as_targets'):
        detector.predict(images, shapes, training=True)


@rows.parametrize(
    ('changes', 'first'),
    [
        ('explicit_background_class: true encode_background_as_zeros: false', 1),
        ('explicit_background_class: true encode_background_as_zeros: true', 0),
        # There is no column that could be the background's.
        ('explicit_background_class: false encode_background_as_zeros: false', 0),
    ],
)
def test_the_target_of_background_without_an_added_column(changes, first):
    _, targets = compute(NO_BACKGROUND + changes, predict(columns=3), objects())
    np.testing.assert_array_equal(targets.class_targets[0, 2:], [[first, 0, 0]] * 2)
    np.testing.assert_array_equal(targets.class_targets[0, :2], [[0, 0, 1], [1, 0, 0]])


def test_weights_of_objects_and_of_background():
    weights = np.array([[0.5, 0.0]] * 2, np.float32)
    groundtruth = objects(weights=weights)
    _, targets = compute('negative_class_weight: 0.125', predict(), groundtruth)
    np.testing.assert_array_equal(targets.box_weights, [[0.5, 0, 0, 0]] * 2)
    # An anchor on an object without weight is no background.
    np.testing.assert_array_equal(targets.class_weights[..., 0], [[0.5, 0, 0.125, 0.125]] * 2)


def test_keypoints_without_a_label_have_no_loss():
    changes = """
      box_coder { keypoint_box_coder { num_keypoints: 2 } }
      box_predictor { convolutional_box_predictor { box_code_size: 8 } }"""
    points = np.full([2, 2, 2, 2], np.nan, np.float32)
    points[:, 0, 0] = (0.1, 0.1)
    predictions = predict(code_size=8)
    losses, targets = compute(changes, predictions, objects(keypoints=points))
    codes, goals = predictions.box_codes.numpy(), targets.box_targets.numpy()
    assert np.isnan(goals).any()
    weights = targets.box_weights.numpy()
    expected = (smooth_l1(codes, np.where(np.isnan(goals), codes, goals)) * weights).sum() / 4
    assert losses[LOCALIZATION] == pytest.approx(expected, rel=1e-5)
    with pytest.raises(UserError, match='keypoint'):
        losses_of(changes).assign(predictions.anchors, objects())


@pytest.mark.parametrize('by_matches', [True, False])
def test_the_losses_of_parts_add_up_to_those_of_the_batch(by_matches):
    """The second image has no object, but counts all the same."""
    losses = losses_of(f'normalize_loss_by_num_matches: {str(by_matches).lower()}')
    predictions = predict()
    weights = np.array([[1, 1], [0, 0]], np.float32)
    boxes = [OBJECTS, np.zeros([2, 4], np.float32)]
    classes = [np.eye(3, dtype=np.float32)[[2, 0]]] * 2

    def part(image):
        groundtruth = Groundtruth.from_lists([boxes[image]], [classes[image]], [weights[image]])
        own = predictions._replace(
            box_codes=predictions.box_codes[image : image + 1],
            class_logits=predictions.class_logits[image : image + 1],
        )
        return losses.compute(own, losses.assign(own.anchors, groundtruth))

    parts = [part(image) for image in range(2)]
    whole = losses.compute(
        predictions,
        losses.assign(predictions.anchors, Groundtruth.from_lists(boxes, classes, weights)),
    )
    for name, each in whole.items():
        np.testing.assert_allclose(each, np.sum([own[name] for own in parts], axis=0), rtol=1e-5)


@slow_cases.parametrize(1, 'training', [True, False])
def test_groundtruth_is_matched_once(training):
    detector = model_builder.build(tiny())
    images, shapes = detector.preprocess(tf.zeros([2, 64, 64, 3]))
    assigner = detector._anchor_losses.assigner
    with mock.patch.object(assigner, 'assign', side_effect=assigner.assign) as match:
        predictions = detector.predict(images, shapes, training, objects(), SEEDS)
        losses = detector.loss(predictions, objects(), SEEDS)
    assert match.call_count == 1
    later = detector.predict(images, shapes, False, None, SEEDS)
    for name, loss in detector.loss(later, objects(), SEEDS).items():
        if not training:
            np.testing.assert_array_equal(loss, losses[name])


@rows.parametrize(('end', 'localization'), [('', 0.8490558862686157), ('_v2', 0.4871599078178406)])
def test_losses_of_samples_are_those_that_torchvision_computes(end, localization):
    """Recorded with RetinaNetHead.compute_loss of torchvision 0.29, in pixels of 40 x 40."""
    sample = (
        ROOT / f'object_detection/samples/configs/torchvision_retinanet_resnet50_fpn{end}.config'
    )
    config = read_pipeline(str(sample)).model.ssd
    config.num_classes = 3
    # x, y, width and height there.
    order = [1, 0, 3, 2]
    anchors = [[0, 0, 10, 10], [2, 0, 12, 10], [0, 0, 20, 20], [20, 20, 40, 40], [22, 22, 40, 40]]
    anchors = np.array([*anchors, [30, 0, 40, 10]], np.float32)[:, order] / 40
    boxes = [[[0, 0, 11, 10], [20, 22, 40, 40], [32, 2, 35, 4]], [[0, 1, 18, 20]]]
    rng = np.random.default_rng(0)
    codes = (rng.normal(size=[2, 6, 4]) * 0.3).astype(np.float32)
    predictions = predict()._replace(
        anchors=tf.constant(anchors),
        box_codes=tf.constant(codes[..., order]),
        class_logits=tf.constant(rng.normal(size=[2, 6, 4]).astype(np.float32)),
    )
    groundtruth = Groundtruth.from_lists(
        boxes=[np.array(each, np.float32)[:, order] / 40 for each in boxes],
        classes=[np.eye(3, dtype=np.float32)[each] for each in ([0, 2, 1], [1])],
    )
    losses = build.build_losses(config)
    named = divide(losses.compute(predictions, losses.assign(predictions.anchors, groundtruth)))
    np.testing.assert_allclose(named[LOCALIZATION], localization, rtol=1e-5)
    np.testing.assert_allclose(named[CLASSIFICATION], 4.6027421951293945, rtol=1e-5)
