"""The losses of the second stage as configured, against NumPy; hard examples among them."""

import numpy as np
import pytest
import tensorflow as tf

from object_detection.builders import model_builder
from object_detection.core.groundtruth import Groundtruth
from object_detection.core.loss_sum import divide
from object_detection.meta_architectures.faster_rcnn.predictions import RegionPredictions
from object_detection.meta_architectures.faster_rcnn.proposals import Proposals
from object_detection.targets.targets import Targets
from tests import rows
from tests import tiny_models as tiny
from tests.losses.mining import mined

P, K = 12, tiny.NUM_CLASSES
COUNT = np.array([12, 9], np.int32)
LOCALIZATION = 'Loss/BoxClassifierLoss/localization_loss'
CLASSIFICATION = 'Loss/BoxClassifierLoss/classification_loss'
SEEDS = tf.constant([[3, 1], [4, 1]])


def second_stage(fields: str) -> str:
    """An override of a config."""
    return f'model {{ faster_rcnn {{ {fields} }} }}'


TWO_STAGES = second_stage(
    'number_of_stages: 2 second_stage_localization_loss_weight: 2.0 '
    'second_stage_classification_loss_weight: 3.0 second_stage_box_predictor '
    '{ mask_rcnn_box_predictor { predict_instance_masks: false } }'
)


def box_stage(fields: str):
    pipeline = tiny.tiny_pipeline(TWO_STAGES, second_stage(fields))
    return model_builder.build(pipeline.model).box_stages[0]


@pytest.fixture(scope='module')
def example():
    """Logits [2, P, K + 1], codes [2, P, K, 4], proposals and targets; a third is positive."""
    rng = np.random.default_rng(0)
    corner = rng.uniform(0, 40, (2, P, 2))
    boxes = np.concatenate([corner, corner + rng.uniform(10, 24, corner.shape)], axis=-1)
    labels = np.where(rng.uniform(size=(2, P)) < 0.4, rng.integers(1, K + 1, (2, P)), 0)
    is_positive = labels > 0
    assert 2 < np.sum(is_positive[0]) < P - 4
    weights = np.ones([2, P], np.float32)
    weights[0, 3] = 0.5
    proposals = Proposals(tf.constant(boxes, tf.float32), tf.zeros([2, P]), tf.constant(COUNT))
    targets = Targets(
        class_targets=tf.one_hot(labels, K + 1),
        class_weights=tf.constant(weights),
        box_targets=tf.constant(rng.normal(size=(2, P, 4)) * is_positive[..., None], tf.float32),
        box_weights=tf.constant(weights * is_positive),
        matches=tf.constant(np.where(is_positive, 0, -1), tf.int32),
    )
    logits = rng.normal(size=(2, P, K + 1)).astype(np.float32)
    codes = rng.normal(size=(2, P, K, 4)).astype(np.float32)
    return logits, codes, proposals, targets


def predictions_of(logits, codes):
    return RegionPredictions(
        box_codes=tf.reshape(codes, [-1, K, 4]), class_logits=tf.reshape(logits, [-1, K + 1])
    )


def shares():
    """What a proposal counts, [2, P]: padding 0, and images alike."""
    return (np.arange(P) < COUNT[:, None]) / COUNT[:, None] / 2


def localization_losses(codes, targets):
    """[2, P]."""
    labels = np.argmax(targets.class_targets, axis=-1)
    own = np.take_along_axis(codes, np.maximum(labels - 1, 0)[..., None, None], axis=2)[:, :, 0]
    error = np.abs(own - targets.box_targets)
    losses = np.sum(np.where(error < 1, error**2 / 2, error - 0.5), axis=-1)
    return losses * targets.box_weights * shares()


def softmax(logits):
    powers = np.exp(logits)
    return powers / np.sum(powers, axis=-1, keepdims=True)


def sigmoid(logits):
    return 1 / (1 + np.exp(-logits))


def cross_entropy(logits, targets):
    p = sigmoid(logits)
    return -np.sum(targets * np.log(p) + (1 - targets) * np.log(1 - p), axis=-1)


def focal(logits, targets):
    right = np.where(targets > 0, sigmoid(logits), 1 - sigmoid(logits))
    alpha = np.where(targets > 0, 0.25, 0.75)
    return -np.sum(alpha * (1 - right) ** 1.5 * np.log(right), axis=-1)


def softmax_loss(logits, targets):
    return -np.sum(targets * np.log(softmax(logits)), axis=-1)


CLASSIFICATION_LOSSES = {
    '': softmax_loss,
    'second_stage_classification_loss {}': softmax_loss,
    'weighted_softmax { logit_scale: 2.0 }': lambda x, t: softmax_loss(x / 2, t),
    'weighted_sigmoid {}': cross_entropy,
    'weighted_sigmoid_focal { gamma: 1.5 alpha: 0.25 }': focal,
    'weighted_logits_softmax { logit_scale: 0.5 }': lambda x, t: softmax_loss(
        2 * x, softmax(2 * t)
    ),
    'bootstrapped_sigmoid { alpha: 0.75 }': lambda x, t: cross_entropy(
        x, 0.75 * t + 0.25 * sigmoid(x)
    ),
    'bootstrapped_sigmoid { alpha: 0.75 hard_bootstrap: true }': lambda x, t: cross_entropy(
        x, 0.75 * t + 0.25 * (x > 0)
    ),
}


def as_field(loss: str) -> str:
    if not loss or loss.startswith('second_stage'):
        return loss
    return f'second_stage_classification_loss {{ {loss} }}'


@rows.parametrize('loss', CLASSIFICATION_LOSSES)
def test_each_classification_loss(example, loss):
    logits, codes, proposals, targets = example
    losses = divide(
        box_stage(as_field(loss)).loss_sums(predictions_of(logits, codes), proposals, targets)
    )
    by_class = CLASSIFICATION_LOSSES[loss](logits, targets.class_targets.numpy())
    expected = 3 * np.sum(by_class * targets.class_weights * shares())
    np.testing.assert_allclose(losses[CLASSIFICATION], expected, rtol=1e-5)
    expected = 2 * np.sum(localization_losses(codes, targets))
    np.testing.assert_allclose(losses[LOCALIZATION], expected, rtol=1e-5)


LOCALIZATION_LOSSES = {
    '': lambda d: np.where(d < 1, d**2 / 2, d - 0.5),
    'weighted_smooth_l1 { delta: 0.25 }': lambda d: np.where(
        d < 0.25, d**2 / 2, 0.25 * d - 0.25**2 / 2
    ),
    'l1_localization_loss {}': lambda d: d,
    'weighted_l2 {}': lambda d: d**2 / 2,
}


@rows.parametrize('loss', LOCALIZATION_LOSSES)
@rows.parametrize('normalizer', ['NUM_ROIS', 'NUM_FG_COORDS'])
def test_each_localization_loss(example, loss, normalizer):
    logits, codes, proposals, targets = example
    fields = f'second_stage_localization_normalizer: {normalizer}'
    if loss:
        fields += f' second_stage_localization_loss {{ {loss} }}'
    losses = divide(box_stage(fields).loss_sums(predictions_of(logits, codes), proposals, targets))
    labels = np.argmax(targets.class_targets, axis=-1)
    own = np.take_along_axis(codes, np.maximum(labels - 1, 0)[..., None, None], axis=2)[:, :, 0]
    values = LOCALIZATION_LOSSES[loss](np.abs(own - targets.box_targets))
    # This one squares the weight too.
    weights = targets.box_weights.numpy() ** (2 if 'l2' in loss else 1)
    values = np.sum(values, axis=-1) * weights
    is_valid = np.arange(P) < COUNT[:, None]
    if normalizer == 'NUM_ROIS':
        expected = np.sum(values * shares())
    else:
        is_positive = is_valid & (labels > 0)
        expected = np.sum(values[is_positive]) / (4 * np.sum(is_positive))
    np.testing.assert_allclose(losses[LOCALIZATION], 2 * expected, rtol=1e-5)
    by_class = softmax_loss(logits, targets.class_targets.numpy())
    expected = 3 * np.sum(by_class * targets.class_weights * shares())
    np.testing.assert_allclose(losses[CLASSIFICATION], expected, rtol=1e-5)


def test_without_positives_the_mean_over_coordinates_is_zero(example):
    logits, codes, proposals, targets = example
    nothing = targets._replace(box_weights=tf.zeros([2, P]))
    stage = box_stage('second_stage_localization_normalizer: NUM_FG_COORDS')
    losses = divide(stage.loss_sums(predictions_of(logits, codes), proposals, nothing))
    assert losses[LOCALIZATION] == 0


def test_the_box_coder_encodes_and_decodes():
    stage = box_stage(
        'second_stage_box_coder { faster_rcnn_box_coder '
        '{ y_scale: 1 x_scale: 2 height_scale: 3 width_scale: 4 } }'
    )
    proposal, box = [[[0.0, 0.0, 10.0, 20.0]]], [[[0.0, 2.0, 12.0, 20.0]]]
    groundtruth = Groundtruth(
        boxes=tf.constant(box) / 64, classes=tf.one_hot([[1]], K), weights=tf.ones([1, 1])
    )
    targets = stage.assign(tf.constant(proposal), tf.constant(box), groundtruth)
    # The centre (6, 11) is 1 / 10 and 1 / 20 of the proposal's sides from (5, 10).
    wanted = [0.1, 2 * 0.05, 3 * np.log(1.2), 4 * np.log(0.9)]
    np.testing.assert_allclose(targets.box_targets[0, 0], wanted, rtol=1e-5)
    codes = tf.tile(targets.box_targets[0][:, tf.newaxis], [1, K, 1])
    proposals = Proposals(tf.constant(proposal), tf.ones([1, 1]), tf.constant([1]))
    decoded = stage.decode(codes, proposals)
    np.testing.assert_allclose(decoded[0, 0, 1], box[0][0], atol=1e-4)


@pytest.mark.parametrize(
    'name', ['weighted_dice_classification_loss', 'penalty_reduced_logistic_focal_loss']
)
def test_losses_of_pixels_are_refused(name):
    with pytest.raises(ValueError, match=rf'ClassificationLoss\.{name} is a loss of pixels'):
        box_stage(as_field(f'{name} {{}}'))


@pytest.mark.parametrize(
    ('miner', 'loss', 'weights', 'limits'),
    [
        ('num_hard_examples: 4', '', (2, 3), {'num_hard_examples': 4}),
        (
            'num_hard_examples: 5 iou_threshold: 0.2 loss_type: LOCALIZATION',
            'weighted_sigmoid {}',
            (1, 0),
            {'num_hard_examples': 5, 'iou_threshold': 0.2},
        ),
        (
            'num_hard_examples: 0 loss_type: CLASSIFICATION max_negatives_per_positive: 1',
            '',
            (0, 1),
            {'num_hard_examples': None, 'max_negatives_per_positive': 1},
        ),
    ],
)
def test_only_hard_examples_of_every_image_train(example, miner, loss, weights, limits):
    logits, codes, proposals, targets = example
    stage = box_stage(f'{as_field(loss)} hard_example_miner {{ {miner} }}')
    of_boxes = localization_losses(codes, targets)
    of_classes = CLASSIFICATION_LOSSES[loss](logits, targets.class_targets.numpy())
    of_classes *= targets.class_weights * shares()
    is_hard = np.zeros([2, P], bool)
    for image, count in enumerate(COUNT):
        hardness = weights[0] * of_boxes[image] + weights[1] * of_classes[image]
        rows = (hardness, proposals.boxes[image].numpy(), targets.matches[image].numpy())
        is_hard[image, mined(*(row[:count] for row in rows), **limits)] = True
    assert np.all(np.sum(is_hard, axis=1) < COUNT)
    predictions = predictions_of(logits, codes)
    with tf.GradientTape() as tape:
        tape.watch(predictions.class_logits)
        losses = divide(stage.loss_sums(predictions, proposals, targets))
    np.testing.assert_allclose(losses[LOCALIZATION], 2 * np.sum(of_boxes * is_hard), rtol=1e-5)
    np.testing.assert_allclose(losses[CLASSIFICATION], 3 * np.sum(of_classes * is_hard), rtol=1e-5)
    gradient = tape.gradient(losses[CLASSIFICATION], predictions.class_logits)
    trains = np.any(gradient.numpy() != 0, axis=1)
    np.testing.assert_array_equal(trains.reshape(2, P), is_hard)


def test_a_miner_with_a_focal_loss_is_refused():
    with pytest.raises(ValueError, match=r'hard_example_miner or .* Received: both'):
        box_stage(as_field('weighted_sigmoid_focal {}') + ' hard_example_miner {}')


def test_a_detector_mines_among_all_its_proposals():
    # Ten proposals in place of a sample of eight.
    detector = tiny.tiny_detector(
        second_stage('first_stage_max_proposals: 10 hard_example_miner { num_hard_examples: 3 }')
    )
    images, groundtruth = tiny.random_images(2), tiny.random_groundtruth(2)
    arguments = (detector.normalize(images), tf.constant([[64, 64, 3]] * 2), True)
    first = detector.predict(*arguments, groundtruth, SEEDS)
    # Objects where the detector proposes some, so that there are positives.
    groundtruth = Groundtruth(
        **{**groundtruth._asdict(), 'boxes': first.proposals_normalized[:, :5]}
    )
    with tf.GradientTape() as tape:
        predictions = detector.predict(*arguments, groundtruth, SEEDS)
        losses = detector.loss(predictions, groundtruth, SEEDS)
    assert predictions.proposals.boxes.shape == (2, 10, 4)
    np.testing.assert_array_equal(predictions.proposals.count, first.proposals.count)
    assert predictions.masks.rows.shape == (2, 10)
    assert losses['Loss/BoxClassifierLoss/mask_loss'] > 0
    logits = predictions.regions.class_logits
    gradient = tape.gradient(losses[CLASSIFICATION], logits).numpy().reshape(2, 10, -1)
    np.testing.assert_array_equal(np.sum(np.any(gradient != 0, axis=2), axis=1), [3, 3])


CASCADE = """
second_stage_box_predictor { mask_rcnn_box_predictor { box_head { num_fcs: 1 fc_depth: 16 } } }
cascade_stages { iou_threshold: 0.6 } second_stage_add_gt_as_proposals: true
"""


@pytest.mark.parametrize(
    'fields',
    [
        pytest.param(CASCADE, marks=pytest.mark.slow),
        'hard_example_miner { num_hard_examples: 6 }',
    ],
    ids=['cascade', 'miner'],
)
def test_classes_that_are_not_sampled_have_no_gradient(fields):
    loss = as_field('weighted_sigmoid {} federated_loss { num_classes: 2 }')
    detector = tiny.tiny_detector(second_stage(f'{loss} {fields}'))
    images, groundtruth = tiny.random_images(2), tiny.random_groundtruth(2)
    # The objects of the images are of the classes 0 and 3.
    groundtruth = groundtruth._replace(
        classes=tf.tile(tf.one_hot([[0], [3]], K), [1, groundtruth.boxes.shape[1], 1])
    )
    arguments = (detector.normalize(images), tf.constant([[64, 64, 3]] * 2), True)
    with tf.GradientTape(persistent=True) as tape:
        predictions = detector.predict(*arguments, groundtruth, SEEDS)
        losses = detector.loss(predictions, groundtruth, SEEDS)
    assert losses['Loss/BoxClassifierLoss/mask_loss'] >= 0
    for number, stage in enumerate(predictions.box_stages):
        name = CLASSIFICATION + (f'_{number + 1}' if number else '')
        gradient = tape.gradient(losses[name], stage.regions.class_logits).numpy()
        trains = np.any(gradient.reshape(2, -1, K + 1) != 0, axis=1)
        assert trains[:, 0].all()
        assert trains[0, 1]
        assert trains[1, 4]
        np.testing.assert_array_equal(trains[:, 1:].sum(1), 2)
    again = detector.predict(*arguments, groundtruth, SEEDS).targets.class_weights
    np.testing.assert_array_equal(again, predictions.targets.class_weights)
    # In evaluation all classes have losses.
    evaluated = detector.predict(*arguments[:2], False, groundtruth)
    assert evaluated.targets.class_weights.shape.rank == 2


def test_a_federated_softmax_is_refused():
    message = (
        r'federated_loss: expected a loss of each class for itself.*Received: weighted_softmax'
    )
    with pytest.raises(ValueError, match=message):
        box_stage(as_field('weighted_softmax {} federated_loss {}'))
