"""Every loss, matcher, similarity and coder of the schema within a single-shot detector."""

import numpy as np
import tensorflow as tf

from object_detection.builders import anchor_generator_builder
from object_detection.core import boxes as box_ops
from object_detection.core.groundtruth import Groundtruth
from object_detection.core.loss_sum import divide
from object_detection.losses.anchor_sampling import Expectation, ExpectedLossWeights
from object_detection.meta_architectures.ssd import build as builder
from object_detection.meta_architectures.ssd.anchor_losses import AnchorLosses
from object_detection.meta_architectures.ssd.predictions import Predictions
from tests import rows, slow_cases
from tests.meta_architectures.ssd.configs import tiny

LOCALIZATION, CLASSIFICATION = 'Loss/localization_loss', 'Loss/classification_loss'
BOXES = [[[0.1, 0.1, 0.6, 0.6], [0.5, 0.3, 0.95, 0.9]], [[0.2, 0.5, 0.7, 0.9], [0, 0, 0, 0]]]
CLASSES = [[1, 2], [0, 0]]
WEIGHTS = [[1.0, 0.5], [1.0, 0.0]]
SIGMOID = 'loss { classification_loss { weighted_sigmoid {} } } '
SOFTMAX = 'loss { classification_loss { weighted_softmax {} } } encode_background_as_zeros: false '


def losses_of(changes: str) -> tuple[AnchorLosses, tf.Tensor]:
    """Returns the losses that a message describes, and the anchors, [N, 4]."""
    config = tiny(changes).ssd
    generator = anchor_generator_builder.build(config.anchor_generator)
    anchors = tf.concat(generator.generate([(4, 4), (2, 2), (1, 1)], 64, 64), axis=0)
    return builder.build_losses(config), anchors


def groundtruth(num_keypoints: int = 0) -> Groundtruth:
    keypoints = None
    if num_keypoints:
        centers = (np.array(BOXES)[..., :2] + np.array(BOXES)[..., 2:]) / 2
        keypoints = np.repeat(centers[:, :, np.newaxis], num_keypoints, axis=2)
    return Groundtruth.from_lists(
        boxes=list(np.array(BOXES, np.float32)),
        classes=list(np.eye(3, dtype=np.float32)[np.array(CLASSES)]),
        weights=list(np.array(WEIGHTS, np.float32)),
        keypoints=keypoints if keypoints is None else list(keypoints.astype(np.float32)),
    )


def predictions_of(codes: tf.Tensor, logits: tf.Tensor, anchors: tf.Tensor) -> Predictions:
    return Predictions(
        images=tf.zeros([2, 64, 64, 3]),
        features=[],
        anchors=anchors,
        box_codes=codes,
        class_logits=logits,
    )


def random_outputs(losses: AnchorLosses, anchors: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    count, size = len(anchors), losses.box_coder.code_size
    return (
        0.1 * tf.random.stateless_normal([2, count, size], [1, 2]),
        tf.random.stateless_normal([2, count, losses._target_options.num_columns], [3, 4]),
    )


LOCALIZATION_LOSSES = ('weighted_l2', 'l1_localization_loss', 'weighted_iou', 'weighted_giou')
CLASSIFICATION_LOSSES = (
    'weighted_sigmoid {}',
    'bootstrapped_sigmoid { alpha: 0.9 }',
    'penalty_reduced_logistic_focal_loss { alpha: 2 beta: 4 }',
    'weighted_dice_classification_loss {}',
    'weighted_logits_softmax {}',
)


@slow_cases.parametrize(
    6,
    'changes',
    [
        *(f'loss {{ localization_loss {{ {name} {{}} }} }}' for name in LOCALIZATION_LOSSES),
        *(f'loss {{ classification_loss {{ {name} }} }}' for name in CLASSIFICATION_LOSSES),
        f'{SOFTMAX} add_background_class: false explicit_background_class: true',
        f'{SIGMOID} add_background_class: false',
        f'{SIGMOID} loss {{ hard_example_miner {{ num_hard_examples: 20 }} }}',
        f'{SIGMOID} loss {{ random_example_sampler {{ positive_sample_fraction: 0.3 }} }}',
        f'{SIGMOID} loss {{ expected_loss_weights: EXPECTED_SAMPLING }}',
        f'{SOFTMAX} loss {{ expected_loss_weights: REWEIGHTING_UNMATCHED_ANCHORS }}',
        f'{SIGMOID} use_confidences_as_targets: true implicit_example_weight: 0.5',
    ],
)
def test_a_step_against_the_gradient_reduces_the_losses(changes):
    losses, anchors = losses_of(changes)
    seeds = tf.constant([[1, 2], [3, 4]])
    targets = losses.assign(anchors, groundtruth(), training=True, seeds=seeds)

    def compute(outputs):
        with tf.GradientTape() as tape:
            tape.watch(outputs)
            values = divide(losses.compute(predictions_of(*outputs, anchors), targets))
            total = tf.add_n(list(values.values()))
        return values, tape.gradient(total, outputs)

    outputs = random_outputs(losses, anchors)
    before, gradients = compute(outputs)
    assert all(np.all(np.isfinite(gradient)) for gradient in gradients)
    for i, name in enumerate((LOCALIZATION, CLASSIFICATION)):
        # The step is as long as reduces a linear function by 1 %.
        length = 0.01 * before[name] / tf.reduce_sum(gradients[i] ** 2)
        changed = list(outputs)
        changed[i] -= length * gradients[i]
        reduced = compute(changed)[0][name] / before[name]
        assert 0.985 < reduced < 0.995


PARTS = (
    'matcher { argmax_matcher { matched_threshold: 0.4 unmatched_threshold: 0.3 } }',
    'matcher { bipartite_matcher {} }',
    'matcher { hungarian_matcher {} }',
    'similarity_calculator { ioa_similarity {} }',
    'similarity_calculator { neg_sq_dist_similarity {} } '
    'matcher { argmax_matcher { matched_threshold: -0.1 unmatched_threshold: -0.2 } }',
    'similarity_calculator { thresholded_iou_similarity { iou_threshold: 0.3 } }',
    'box_coder { mean_stddev_box_coder { stddev: 0.1 } }',
    'box_coder { keypoint_box_coder { num_keypoints: 2 } }',
    'box_coder { square_box_coder {} }',
)


@rows.parametrize('changes', PARTS)
def test_perfect_codes_are_the_objects_that_anchors_match(changes):
    losses, anchors = losses_of(f'{changes} {SIGMOID}')
    coder = losses.box_coder
    objects = groundtruth(num_keypoints=getattr(coder, 'num_keypoints', 0))
    targets = losses.assign(anchors, objects)
    matches = targets.matches.numpy()
    assert np.all(np.any(matches == 0, axis=1))
    is_matched = matches >= 0
    weights = np.take_along_axis(np.array(WEIGHTS, np.float32), np.maximum(matches, 0), axis=1)
    np.testing.assert_allclose(targets.box_weights, np.where(is_matched, weights, 0))
    _, logits = random_outputs(losses, anchors)
    perfect = divide(losses.compute(predictions_of(targets.box_targets, logits, anchors), targets))
    assert perfect[LOCALIZATION] == 0
    decoded = coder.decode(targets.box_targets, anchors).numpy()
    expected = np.take_along_axis(
        np.array(BOXES, np.float32), np.maximum(matches, 0)[..., np.newaxis], axis=1
    )
    if 'square' in changes:
        # Of a box, this coder keeps the center and the area.
        decoded, expected = _centers_and_areas(decoded), _centers_and_areas(expected)
    np.testing.assert_allclose(decoded[is_matched], expected[is_matched], atol=1e-5)


def _centers_and_areas(boxes: np.ndarray) -> np.ndarray:
    center, size = np.split(box_ops.corners_to_center_size(boxes).numpy(), 2, axis=-1)
    return np.concatenate([center, np.prod(size, axis=-1, keepdims=True)], axis=-1)


def test_losses_that_compare_boxes_are_zero_for_boxes_of_the_objects():
    losses, anchors = losses_of('loss { localization_loss { weighted_giou {} } }')
    targets = losses.assign(anchors, groundtruth())
    codes, logits = random_outputs(losses, anchors)
    found = divide(losses.compute(predictions_of(targets.box_targets, logits, anchors), targets))
    np.testing.assert_allclose(found[LOCALIZATION], 0, atol=1e-5)
    # 1 - GIoU of decoded boxes, by the weights of the matched anchors.
    decode = losses.box_coder.decode
    giou = box_ops.matched_giou(decode(codes, anchors), decode(targets.box_targets, anchors))
    expected = tf.reduce_sum((1 - giou) * targets.box_weights) / tf.reduce_sum(targets.box_weights)
    found = divide(losses.compute(predictions_of(codes, logits, anchors), targets))
    np.testing.assert_allclose(found[LOCALIZATION], expected, rtol=1e-5)


def test_expected_losses_are_of_label_and_background_by_their_weights():
    changes = (
        f'{SOFTMAX} loss {{ expected_loss_weights: EXPECTED_SAMPLING '
        'desired_negative_sampling_ratio: 2 }'
    )
    losses, anchors = losses_of(changes)
    targets = losses.assign(anchors, groundtruth())
    codes, logits = random_outputs(losses, anchors)
    found = divide(losses.compute(predictions_of(codes, logits, anchors), targets))
    crossed = -tf.nn.log_softmax(logits).numpy()
    labels, weights = targets.class_targets.numpy(), targets.class_weights.numpy()[..., 0]
    expected_weights = ExpectedLossWeights(Expectation.SAMPLING, 2.0)
    objects, background = expected_weights(tf.constant(1.0 - labels[..., 0]))
    expected = weights * (objects * (labels * crossed).sum(-1) + background * crossed[..., 0])
    divisor = np.maximum(targets.box_weights.numpy().sum(), 1)
    np.testing.assert_allclose(found[CLASSIFICATION], expected.numpy().sum() / divisor, rtol=1e-5)


def test_the_random_sampler_keeps_the_losses_of_its_anchors():
    sampler = 'loss { random_example_sampler { positive_sample_fraction: 0.5 } }'
    losses, anchors = losses_of(f'{SIGMOID} {sampler}')
    whole, _ = losses_of(SIGMOID)
    targets = whole.assign(anchors, groundtruth())
    outputs = predictions_of(*random_outputs(losses, anchors), anchors)
    seeds = tf.constant([[1, 2], [3, 4]])
    found = divide(losses.compute(outputs, losses.assign(anchors, groundtruth(), seeds=seeds)))
    keep = losses._options.random_example_sampler(
        targets.class_weights[..., 0] != 0, targets.matches >= 0, seeds
    )
    kept = targets._replace(
        class_weights=targets.class_weights * tf.cast(keep, tf.float32)[..., tf.newaxis]
    )
    expected = divide(whole.compute(outputs, kept))
    assert np.sum(keep) == 2 * np.sum(targets.matches >= 0)
    np.testing.assert_allclose(found[CLASSIFICATION], expected[CLASSIFICATION], rtol=1e-5)
    np.testing.assert_allclose(found[LOCALIZATION], expected[LOCALIZATION], rtol=1e-5)


def test_the_miner_keeps_the_losses_of_the_hardest_anchors():
    miner = 'loss { hard_example_miner { num_hard_examples: 3 loss_type: CLASSIFICATION } }'
    losses, anchors = losses_of(f'{SIGMOID} {miner} normalize_loss_by_num_matches: false')
    targets = losses.assign(anchors, groundtruth())
    codes, logits = random_outputs(losses, anchors)
    # Codes of 0 are boxes at the anchors. Three of them that do not overlap are the hardest.
    decoded = losses.box_coder.decode(tf.zeros_like(codes), anchors)
    hardest = [0, 9, 39]
    assert np.max(box_ops.iou(*[tf.gather(decoded[0], hardest)] * 2) - np.eye(3)) < 0.7
    logits = logits.numpy()
    logits[:, hardest, 0] = 50 * np.array([3, 2, 1])
    found = divide(losses.compute(predictions_of(tf.zeros_like(codes), logits, anchors), targets))
    goals = targets.class_targets.numpy()
    crossed = np.log1p(np.exp(-np.abs(logits))) + np.maximum(logits, 0) - logits * goals
    weighted = crossed.sum(-1) * targets.class_weights.numpy()[..., 0]
    np.testing.assert_allclose(found[CLASSIFICATION], weighted[:, hardest].sum(), rtol=1e-5)
