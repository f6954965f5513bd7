"""What Loss protos build, against golden numbers."""

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format

from object_detection.builders import losses_builder
from object_detection.builders.oneof import missing_options
from object_detection.losses.localization import fill_nan_targets
from object_detection.protos import losses_pb2
from tests import goldens

LOCALIZATION = ('l2', 'smooth_l1', 'l1', 'iou', 'giou')
# Faster R-CNN of the reference silently builds softmax where bootstrapped sigmoid is configured.
OTHER_LOSS = ('frcnn_unsupported_bootstrap',)


def build(case_name, case):
    if case_name.startswith('frcnn_'):
        config = text_format.Parse(case.config, losses_pb2.ClassificationLoss())
        return losses_builder.build_second_stage_classification(config)
    losses = losses_builder.build(text_format.Parse(case.config, losses_pb2.Loss()))
    return losses.localization if case_name.startswith(LOCALIZATION) else losses.classification


@goldens.parametrize('losses')
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
    ('message', 'oneof', 'table'),
    [
        (losses_pb2.LocalizationLoss, 'localization_loss', losses_builder.LOCALIZATION),
        (losses_pb2.ClassificationLoss, 'classification_loss', losses_builder.CLASSIFICATION),
    ],
)
def test_every_option_is_built(message, oneof, table):
    assert not missing_options(message, oneof, table)


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


@pytest.mark.parametrize(
    'text',
    [
        'random_example_sampler {}',
        'equalization_loss {}',
        'expected_loss_weights: EXPECTED_SAMPLING',
    ],
)
def test_options_that_choose_anchors_are_rejected(text):
    with pytest.raises(ValueError, match=rf'protos\.Loss\.{text.split()[0].strip(":")} is not'):
        losses_builder.build(text_format.Parse(text, losses_pb2.Loss()))


MINED = 'localization_loss { weighted_l2 {} } classification_loss { weighted_sigmoid {} } '


@pytest.mark.parametrize(
    ('loss_type', 'hardest'), [('BOTH', 2), ('CLASSIFICATION', 0), ('LOCALIZATION', 1)]
)
def test_the_miner_compares_the_losses_of_its_type(loss_type, hardest):
    losses = losses_builder.build(
        text_format.Parse(
            f'{MINED} hard_example_miner {{ num_hard_examples: 1 loss_type: {loss_type} }} '
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


def test_a_miner_without_bounds_keeps_what_does_not_overlap():
    miner = losses_builder.build_hard_example_miner(
        losses_pb2.HardExampleMiner(num_hard_examples=0), losses_pb2.ClassificationLoss(), 1.0, 1.0
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


def test_errors_name_the_message():
    with pytest.raises(ValueError, match=r'protos\.WeightedSmoothL1LocalizationLoss: .*delta'):
        losses_builder.build_localization(
            text_format.Parse('weighted_smooth_l1 { delta: 0.0 }', losses_pb2.LocalizationLoss())
        )
