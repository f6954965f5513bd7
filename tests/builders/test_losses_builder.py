"""What Loss protos build, against golden numbers."""

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format

from object_detection.builders import losses_builder
from object_detection.config import ranges, warnings
from object_detection.losses import classification as class_losses
from object_detection.losses.localization import fill_nan_targets
from object_detection.protos import losses_pb2
from object_detection.protos.post_processing_pb2 import PostProcessing
from tests import goldens, rows
from tests.schema import missing_options

LOCALIZATION = ('l2', 'smooth_l1', 'l1', 'iou', 'giou')
# Faster R-CNN of the reference silently builds softmax where bootstrapped sigmoid is configured.
OTHER_LOSS = ('frcnn_unsupported_bootstrap',)


def build(case_name, case):
    if case_name.startswith('frcnn_'):
        config = text_format.Parse(case.config, losses_pb2.ClassificationLoss())
        return losses_builder.build_second_stage_classification(config)
    config = text_format.Parse(case.config, losses_pb2.Loss())
    if case_name.startswith(LOCALIZATION):
        return losses_builder.build_localization(config.localization_loss)
    return losses_builder.build(config).classification


@goldens.rows('losses')
def test_losses_equal_the_reference(case_name):
    case = goldens.load('losses', case_name)
    if case.raises:
        with pytest.raises(ValueError, match=r'Received|not supported'):
            build(case_name, case)(tf.zeros([1, 2, 4]), tf.zeros([1, 2, 4]), tf.zeros([1, 2]))
        return
    inputs = case.inputs
    predictions, targets = tf.constant(inputs['prediction']), tf.constant(inputs['target'])
    weights = inputs['weights']
    if case.params.get('ignore_nan_targets'):
        targets = fill_nan_targets(targets, predictions)
    # The reference's options to mask images and classes are weights.
    if 'losses_mask' in inputs:
        weights = weights * inputs['losses_mask'].reshape([-1] + [1] * (weights.ndim - 1))
    if 'class_indices' in inputs:
        weights = weights * np.isin(np.arange(weights.shape[-1]), inputs['class_indices'])
    losses = build(case_name, case)(predictions, targets, tf.constant(weights, tf.float32))
    if case_name in OTHER_LOSS:
        assert losses.shape == predictions.shape != case.outputs['loss'].shape
        return
    # The reference flattens the IoU loss to [B * N].
    expected = case.outputs['loss'].reshape(losses.shape)
    np.testing.assert_allclose(losses, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ('message', 'oneof'),
    [
        (losses_pb2.LocalizationLoss, 'localization_loss'),
        (losses_pb2.ClassificationLoss, 'classification_loss'),
    ],
)
def test_every_option_is_built(message, oneof):
    assert not missing_options(message, oneof, losses_builder.LOSSES)


def test_weights_are_read():
    losses = losses_builder.build(
        text_format.Parse(
            'localization_loss { weighted_l2 {} } classification_loss { weighted_sigmoid {} } '
            'localization_weight: 2.0 classification_weight: 0.5 expected_loss_weights: NONE',
            losses_pb2.Loss(),
        )
    )
    assert losses.localization_weight == 2.0
    assert losses.classification_weight == 0.5


BOTH = 'localization_loss { weighted_l2 {} } classification_loss { weighted_sigmoid {} } '


def build_loss(text: str) -> losses_builder.Losses:
    return losses_builder.build(text_format.Parse(text, losses_pb2.Loss()))


@goldens.parametrize('expected_loss')
def test_expected_losses_which_the_reference_cannot_build(case_name):
    assert goldens.load('expected_loss', case_name).raises == 'AttributeError'
    losses = build_loss(
        f'{BOTH} expected_loss_weights: {case_name} desired_negative_sampling_ratio: 2 '
        'min_num_negative_samples: 1'
    )
    _, background = losses.expected_loss_weights(tf.constant([[1.0, 0.5, 0.0], [0.0, 0.0, 0.0]]))
    expected = {
        'EXPECTED_SAMPLING': [[0, 0.5, 1], [1 / 3] * 3],
        'REWEIGHTING_UNMATCHED_ANCHORS': [[0, 1, 2], [1 / 3] * 3],
    }
    np.testing.assert_allclose(background, expected[case_name], rtol=1e-6)


def test_the_random_example_sampler():
    is_positive = tf.constant([[True] + [False] * 9])
    losses = build_loss(f'{BOTH} random_example_sampler {{ positive_sample_fraction: 0.25 }}')
    assert np.sum(losses.random_example_sampler(tf.ones([1, 10], bool), is_positive)) == 4
    # One positive for 99 negatives, as the schema has it.
    losses = build_loss(f'{BOTH} random_example_sampler {{}}')
    assert np.all(losses.random_example_sampler(tf.ones([1, 10], bool), is_positive))
    assert build_loss(BOTH).random_example_sampler is None


def test_an_equalization_loss_without_weight_changes_nothing():
    assert build_loss(f'{BOTH} equalization_loss {{ weight: 0 }}').expected_loss_weights is None


@rows.parametrize(
    ('text', 'message'),
    [
        (f'{BOTH} equalization_loss {{ weight: 0.5 }}', r'equalization_loss\.weight.*0\.5'),
        (
            f'{BOTH} random_example_sampler {{ positive_sample_fraction: 0 }}',
            r'Loss\.random_example_sampler: .*positive_sample_fraction',
        ),
        (
            f'{BOTH} expected_loss_weights: EXPECTED_SAMPLING min_num_negative_samples: -1',
            'min_num_negative_samples',
        ),
        (
            f'{BOTH} expected_loss_weights: EXPECTED_SAMPLING hard_example_miner {{}}',
            'expected hard_example_miner or expected_loss_weights',
        ),
        (
            'localization_loss { weighted_l2 {} } hard_example_miner {} '
            'classification_loss { weighted_dice_classification_loss {} }',
            'hard_example_miner needs a loss of each anchor',
        ),
    ],
)
def test_what_does_not_fit(text, message):
    with pytest.raises(ValueError, match=message):
        build_loss(text)


def test_localization_losses_are_of_anchors_and_of_codes_or_boxes():
    of_classes = 'classification_loss { weighted_sigmoid {} }'
    for name, compares_boxes in (
        ('l1_localization_loss', False),
        ('weighted_smooth_l1', False),
        ('weighted_giou', True),
    ):
        losses = build_loss(f'localization_loss {{ {name} {{}} }} {of_classes}')
        boxes = tf.constant([[[0.0, 0, 1, 1], [0, 0, 2, 2]]])
        found = losses.localization(boxes, boxes + 1, tf.constant([[1.0, 0]]))
        assert found.shape == (1, 2)
        assert found[0, 0] > 0
        assert found[0, 1] == 0
        assert losses.compares_boxes == compares_boxes


@rows.parametrize(
    ('loss_type', 'hardest'), [('BOTH', 2), ('CLASSIFICATION', 0), ('LOCALIZATION', 1)]
)
def test_the_miner_compares_the_losses_of_its_type(loss_type, hardest):
    losses = losses_builder.build(
        text_format.Parse(
            f'{BOTH} hard_example_miner {{ num_hard_examples: 1 loss_type: {loss_type} }} '
            'localization_weight: 2.0 classification_weight: 0.5',
            losses_pb2.Loss(),
        )
    )
    boxes = tf.constant([[[0.0, 0, 1, 1], [2, 2, 3, 3], [4, 4, 5, 5]]])
    # 2 * 1 + 4, 2 * 3 + 0, 2 * 2.9 + 3.5
    is_hard = losses.hard_example_miner(
        tf.constant([[1.0, 3, 2.9]]), tf.constant([[8.0, 0, 7]]), boxes
    )
    np.testing.assert_array_equal(np.flatnonzero(is_hard[0]), [hardest])


@pytest.mark.parametrize('limit', [0, -1])
def test_a_miner_without_bounds_keeps_what_does_not_overlap(limit):
    config = losses_pb2.HardExampleMiner(
        num_hard_examples=limit, max_negatives_per_positive=limit, min_negatives_per_image=limit
    )
    assert not ranges.find(config).errors
    miner = losses_builder.build_hard_example_miner(
        config, losses_pb2.ClassificationLoss(), 1.0, 1.0
    )
    boxes = tf.tile(tf.range(100.0)[:, tf.newaxis], [1, 4]) + [0.0, 0, 1, 1]
    losses = tf.ones([1, 100])
    assert np.all(miner(losses, losses, boxes[tf.newaxis]))
    default = losses_builder.build_hard_example_miner(
        losses_pb2.HardExampleMiner(), losses_pb2.ClassificationLoss(), 1.0, 1.0
    )
    assert np.sum(default(losses, losses, boxes[tf.newaxis])) == 64


def test_a_miner_with_numbers_out_of_range_names_its_message():
    config = losses_pb2.HardExampleMiner(iou_threshold=-1.0)
    with pytest.raises(ValueError, match=r'protos\.HardExampleMiner: .*iou_threshold'):
        losses_builder.build_hard_example_miner(config, losses_pb2.ClassificationLoss(), 1.0, 1.0)


@pytest.mark.parametrize(
    'name', ['penalty_reduced_logistic_focal_loss', 'weighted_dice_classification_loss']
)
def test_losses_of_pixels_do_not_fit_proposals(name):
    config = losses_pb2.ClassificationLoss()
    getattr(config, name).SetInParent()
    with pytest.raises(ValueError, match=rf'ClassificationLoss\.{name} is a loss of pixels'):
        losses_builder.build_second_stage_classification(config)


@rows.parametrize(
    ('kind', 'loss'),
    [
        ('weighted_sigmoid', class_losses.SigmoidLoss),
        ('weighted_sigmoid_focal', class_losses.SigmoidFocalLoss),
        ('weighted_softmax', class_losses.SoftmaxLoss),
    ],
)
def test_label_smoothing_is_read_and_refused_for_maps(kind, loss):
    config = losses_pb2.ClassificationLoss(**{kind: {'label_smoothing': 0.5}})
    arguments = tf.constant([[[2.0, -1.0]]]), tf.constant([[[1.0, 0.0]]]), tf.ones([1, 1, 1])
    for build in (
        losses_builder.build_classification,
        losses_builder.build_second_stage_classification,
    ):
        expected = loss(label_smoothing=0.5)(*arguments)
        np.testing.assert_array_equal(build(config)(*arguments), expected)
    getattr(config, kind).label_smoothing = 0.0
    hard = losses_builder.build_classification_of_pixels(config)(*arguments)
    np.testing.assert_array_equal(hard, loss()(*arguments))
    assert (hard != expected).numpy().all()
    getattr(config, kind).label_smoothing = 0.25
    message = rf'{kind}\.label_smoothing: expected 0, as the targets are maps\. Received: 0\.25'
    with pytest.raises(ValueError, match=message):
        losses_builder.build_classification_of_pixels(config)


def test_federated_losses_are_refused_for_maps():
    config = losses_pb2.ClassificationLoss(weighted_sigmoid={}, federated_loss={})
    with pytest.raises(ValueError, match='federated_loss: expected none, as it is for single-shot'):
        losses_builder.build_classification_of_pixels(config)
    assert losses_builder.build_federated(config) is not None
    config.ClearField('federated_loss')
    assert losses_builder.build_federated(config) is None


def test_errors_name_the_message():
    with pytest.raises(ValueError, match=r'protos\.WeightedSmoothL1LocalizationLoss: .*delta'):
        losses_builder.build_localization(
            text_format.Parse('weighted_smooth_l1 { delta: 0.0 }', losses_pb2.LocalizationLoss())
        )


@rows.parametrize(
    ('loss', 'converter'),
    [
        ('weighted_softmax {}', PostProcessing.SOFTMAX),
        ('weighted_logits_softmax {}', PostProcessing.SOFTMAX),
        ('weighted_sigmoid {}', PostProcessing.SIGMOID),
        ('weighted_sigmoid_focal {}', PostProcessing.SIGMOID),
        ('bootstrapped_sigmoid { alpha: 0.5 }', PostProcessing.SIGMOID),
        ('penalty_reduced_logistic_focal_loss {}', None),
        ('weighted_dice_classification_loss {}', None),
        ('plugin { name: "any" }', None),
        ('', None),
    ],
)
def test_converter_of_the_scores_that_a_loss_trains(loss, converter):
    config = text_format.Parse(loss, losses_pb2.ClassificationLoss())
    assert warnings.converter_of(config) == converter
