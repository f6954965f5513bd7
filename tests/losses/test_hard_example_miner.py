"""The choice of hard examples against golden numbers, a NumPy oracle, and by hand."""

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format

from object_detection.builders import losses_builder
from object_detection.losses.hard_example_miner import HardExampleMiner
from object_detection.protos import losses_pb2
from tests import goldens, rows
from tests.losses.mining import mined


def random_examples(batch, count, seed=0):
    """Losses of boxes, losses of classes, boxes, matches."""
    rng = np.random.default_rng(seed)
    corner = rng.uniform(0, 0.5, (batch, count, 2))
    boxes = np.concatenate([corner, corner + rng.uniform(0.2, 0.5, corner.shape)], axis=-1)
    losses = rng.uniform(0, 3, (2, batch, count))
    matches = rng.integers(-2, 4, (batch, count), np.int32)
    return (*losses.astype(np.float32), boxes.astype(np.float32), matches)


@goldens.rows('hard_example_miner')
def test_sums_of_losses_equal_the_reference(case_name):
    case = goldens.load('hard_example_miner', case_name)
    miner = losses_builder.build_hard_example_miner(
        text_format.Parse(case.config, losses_pb2.HardExampleMiner()),
        losses_pb2.ClassificationLoss(),
        **case.params,
    )
    inputs, expected = case.inputs, case.outputs
    matches = None
    if 'match.0' in inputs:
        matches = np.stack([inputs['match.0'], inputs['match.1']])
    is_hard = miner(
        inputs['location_losses'],
        inputs['cls_losses'],
        np.stack([inputs['decoded_boxes.0'], inputs['decoded_boxes.1']]),
        matches=matches,
    ).numpy()
    sums = [np.sum(inputs[name] * is_hard) for name in ('location_losses', 'cls_losses')]
    np.testing.assert_allclose(sums[0], expected['mined_location_loss'], rtol=1e-5)
    np.testing.assert_allclose(sums[1], expected['mined_cls_loss'], rtol=1e-5)
    if 'num_positives' in expected:
        is_positive = matches >= 0
        counts = [np.sum(is_hard & choice, axis=1) for choice in (is_positive, ~is_positive)]
        np.testing.assert_array_equal(counts[0], expected['num_positives'])
        # The reference counts ignored examples among the negatives.
        np.testing.assert_array_equal(counts[1], expected['num_negatives'])


@rows.parametrize(
    'options',
    [
        {'num_hard_examples': 6},
        {'num_hard_examples': None, 'iou_threshold': 0.2},
        {'num_hard_examples': 20, 'max_negatives_per_positive': 0.5},
        {'max_negatives_per_positive': 1, 'min_negatives_per_image': 4},
        # As in SSD, nothing is left out by its overlap.
        {'num_hard_examples': None, 'iou_threshold': 1.0, 'max_negatives_per_positive': 3},
        {'num_hard_examples': 30, 'iou_threshold': 1.0},
    ],
)
def test_equals_the_oracle(options):
    localization, classification, boxes, matches = random_examples(3, 40)
    matches[2] = -1
    num_valid = np.array([40, 25, 30])
    miner = HardExampleMiner(classification_weight=2.0, localization_weight=0.5, **options)
    is_hard = miner(localization, classification, boxes, matches=matches, num_valid=num_valid)
    hardness = 2.0 * classification + 0.5 * localization
    options = {'num_hard_examples': 64, 'iou_threshold': 0.7, **options}
    for image, count in enumerate(num_valid):
        expected = mined(
            hardness[image, :count], boxes[image, :count], matches[image, :count], **options
        )
        np.testing.assert_array_equal(np.flatnonzero(is_hard[image]), expected)


UNKNOWN = [
    *[tf.TensorSpec([None, None])] * 2,
    tf.TensorSpec([None, None, 4]),
    tf.TensorSpec([None, None], tf.int32),
]


@pytest.mark.slow
@pytest.mark.parametrize('iou_threshold', [0.7, 1.0])
@pytest.mark.parametrize(
    'options',
    [
        pytest.param({'input_signature': UNKNOWN}, id='unknown_dimensions'),
        pytest.param({'jit_compile': True}, id='xla', marks=pytest.mark.slow),
    ],
)
def test_traced_gives_the_same(options, iou_threshold):
    *inputs, matches = random_examples(2, 30)
    matches[:, 8:] = -1
    arguments = (*inputs, matches)
    miner = HardExampleMiner(
        num_hard_examples=None, iou_threshold=iou_threshold, max_negatives_per_positive=1
    )

    def mine(localization, classification, boxes, matches):
        return miner(localization, classification, boxes, matches=matches)

    eager = mine(*arguments)
    assert 0 < np.sum(eager) < 60
    np.testing.assert_array_equal(tf.function(mine, **options)(*arguments), eager)


def test_a_loss_that_is_no_number_is_mined_first():
    localization, classification, boxes, _ = random_examples(1, 10)
    classification[0, 7] = np.nan
    is_hard = HardExampleMiner(num_hard_examples=1)(localization, classification, boxes)
    np.testing.assert_array_equal(np.flatnonzero(is_hard[0]), [7])


def test_no_gradient_flows_through_the_choice():
    localization, classification, boxes, _ = random_examples(1, 10)
    losses = tf.constant(classification)
    miner = HardExampleMiner(num_hard_examples=3)
    with tf.GradientTape() as tape:
        tape.watch(losses)
        is_hard = miner(localization, losses, boxes)
        total = tf.reduce_sum(tf.where(is_hard, losses, 0.0))
    np.testing.assert_array_equal(tape.gradient(total, losses), tf.cast(is_hard, tf.float32))


@rows.parametrize(
    'options',
    [
        {'num_hard_examples': 0},
        {'iou_threshold': 1.5},
        {'max_negatives_per_positive': -1},
        {'min_negatives_per_image': -1},
    ],
)
def test_numbers_out_of_range_raise(options):
    (name,) = options
    with pytest.raises(ValueError, match=f'HardExampleMiner: {name} must be.*Received'):
        HardExampleMiner(**options)
