"""What the second stage's training sample is drawn from, and what is positive in it."""

import numpy as np
import pytest
import tensorflow as tf

from object_detection.core.groundtruth import Groundtruth
from object_detection.meta_architectures.faster_rcnn import build_second_stage
from object_detection.meta_architectures.faster_rcnn.box_stage import is_positive
from object_detection.meta_architectures.faster_rcnn.proposals import (
    Proposals,
    Regions,
    with_objects,
)
from tests import rows
from tests import tiny_models as tiny

OBJECT, CROWD, WEIGHTLESS = [0, 0, 32, 32], [32, 32, 64, 64], [0, 32, 32, 64]
OBJECT_BOXES = tf.constant([[OBJECT, CROWD, WEIGHTLESS, [0, 0, 0, 0]]], tf.float32)
GROUNDTRUTH = Groundtruth(
    boxes=OBJECT_BOXES / 64,
    classes=tf.one_hot([[0, 1, 2, 0]], tiny.NUM_CLASSES),
    weights=tf.constant([[1.0, 1.0, 0.0, 0.0]]),
    is_crowd=tf.constant([[False, True, False, False]]),
)


def part(ratio: float) -> list[float]:
    """A box within the object, of this intersection over union."""
    return [0, 0, 32, 32 * ratio]


def box_stage(fields: str):
    pipeline = tiny.tiny_pipeline(f'model {{ faster_rcnn {{ {fields} }} }}')
    head = tf.keras.layers.Identity()  # not used
    config = pipeline.model.faster_rcnn
    (stage,) = build_second_stage.build_box_stages(config, head, is_training=True, static=False)
    return stage


def proposals_of(*boxes) -> Proposals:
    """Proposals of one image, a row of padding last."""
    rows = tf.constant([[*boxes, [0, 0, 0, 0]]], tf.float32)
    scores = tf.range(len(boxes), -1, -1, tf.float32)[tf.newaxis] / 10
    return Proposals(rows, scores, tf.constant([len(boxes)]))


def test_objects_follow_the_candidates():
    candidates = Regions(
        tf.constant([[[1.0, 2.0, 3.0, 4.0]]]), tf.constant([[0.5]]), tf.constant([[True]])
    )
    boxes, scores, is_valid = with_objects(candidates, OBJECT_BOXES, GROUNDTRUTH)
    np.testing.assert_array_equal(boxes, [[[1, 2, 3, 4], OBJECT, [0] * 4, [0] * 4, [0] * 4]])
    np.testing.assert_array_equal(scores, [[0.5, 1, 0, 0, 0]])
    np.testing.assert_array_equal(is_valid, [[True, True, False, False, False]])
    crowds = with_objects(candidates, OBJECT_BOXES, GROUNDTRUTH._replace(is_crowd=None))
    np.testing.assert_array_equal(crowds.is_valid, [[True, True, True, False, False]])


@pytest.mark.parametrize('adds', [False, True])
def test_objects_join_the_sample(adds):
    stage = box_stage(f'second_stage_add_gt_as_proposals: {str(adds).lower()}')
    background = [40.0, 0.0, 60.0, 20.0]
    sample, _ = stage.sample(
        proposals_of(background, part(0.25)), OBJECT_BOXES, GROUNDTRUTH, tf.constant([[1, 2]])
    )
    assert sample.boxes.shape == (1, 8, 4)
    rows = [background, part(0.25)] + ([OBJECT] if adds else [])
    assert sample.count == len(rows)
    np.testing.assert_allclose(sample.boxes[0, : len(rows)], rows)
    assert not np.any(sample.boxes[0, len(rows) :])
    np.testing.assert_allclose(
        sample.scores[0], np.pad([0.2, 0.1] + [1.0] * adds, (0, 8 - len(rows))), rtol=1e-6
    )


def test_proposals_on_crowds_do_not_train():
    """The crowd is no object, and what lies on it neither object nor background."""
    on_crowd, half = [34, 34, 60, 62], [32, 16, 64, 48]
    proposals = proposals_of(part(0.7), on_crowd, half, CROWD)
    for fields, weights, positives in (
        ('', [1, 1, 1, 1, 1], [1, 1, 0, 1, 0]),
        ('first_stage_crowd_ioa_threshold: 0.6', [1, 0, 1, 0, 1], [1, 0, 0, 0, 0]),
        ('first_stage_crowd_ioa_threshold: 0.5', [1, 0, 0, 0, 1], [1, 0, 0, 0, 0]),
    ):
        stage = box_stage(f'second_stage_balance_fraction: 1.0 {fields}')
        targets = stage.assign(proposals.boxes, OBJECT_BOXES, GROUNDTRUTH)
        np.testing.assert_array_equal(targets.class_weights, [weights])
        np.testing.assert_array_equal(targets.box_weights, [positives])
        np.testing.assert_array_equal(is_positive(targets), [np.array(positives, bool)])
        np.testing.assert_array_equal(targets.matches[0] == -2, np.equal(weights, 0))
        sample, of_sample = stage.sample(
            proposals, OBJECT_BOXES, GROUNDTRUTH, tf.constant([[1, 2]])
        )
        again = stage.assign(sample.boxes, OBJECT_BOXES, GROUNDTRUTH)
        for found, wanted in zip(of_sample, again, strict=True):
            np.testing.assert_array_equal(found, wanted)
        assert sample.count == sum(weights[:4])
    with pytest.raises(ValueError, match=r'expected groundtruth.is_crowd, bool \[B, M\]'):
        stage.assign(proposals.boxes, OBJECT_BOXES, GROUNDTRUTH._replace(is_crowd=None))


def test_a_sample_without_room_for_a_positive_is_rejected():
    with pytest.raises(ValueError, match=r'of at least 1, .* Received: 8 \* 0.12 = 0.96'):
        box_stage('second_stage_balance_fraction: 0.12')
    box_stage('second_stage_balance_fraction: 0.125')
    box_stage('second_stage_balance_fraction: 0.12 hard_example_miner {}')


RATIOS = (0.05, 0.2, 0.35, 0.45, 0.55, 0.7)


@rows.parametrize(
    ('thresholds', 'positives', 'negatives'),
    [
        ('', (0.55, 0.7), (0.05, 0.2, 0.35, 0.45)),
        ('second_stage_fg_iou_threshold: 0.6', (0.7,), (0.05, 0.2, 0.35, 0.45)),
        ('second_stage_bg_iou_threshold_hi: 0.4', (0.55, 0.7), (0.05, 0.2, 0.35)),
        ('second_stage_bg_iou_threshold_lo: 0.1', (0.55, 0.7), (0.2, 0.35, 0.45)),
        (
            'second_stage_fg_iou_threshold: 0.6 second_stage_bg_iou_threshold_hi: 0.4 '
            'second_stage_bg_iou_threshold_lo: 0.3',
            (0.7,),
            (0.35,),
        ),
    ],
)
def test_thresholds(thresholds, positives, negatives):
    stage = box_stage(f'{thresholds} second_stage_balance_fraction: 1.0')
    proposals = proposals_of(*map(part, RATIOS))
    sample, _ = stage.sample(proposals, OBJECT_BOXES, GROUNDTRUTH, tf.constant([[1, 2]]))
    count = int(sample.count[0])
    kept = sample.boxes[0, :count, 3].numpy() / 32
    np.testing.assert_allclose(kept, [r for r in RATIOS if r in positives + negatives], rtol=1e-5)
    targets = stage.assign(sample.boxes, OBJECT_BOXES, GROUNDTRUTH)
    is_positive = targets.box_weights[0, :count].numpy() > 0
    np.testing.assert_allclose(kept[is_positive], positives, rtol=1e-5)


def test_without_objects_background_needs_a_lower_threshold_of_zero():
    proposals = proposals_of(part(0.2), part(0.7))
    for num_rows in (0, 2):
        empty = Groundtruth(
            boxes=tf.zeros([1, num_rows, 4]),
            classes=tf.zeros([1, num_rows, tiny.NUM_CLASSES]),
            weights=tf.zeros([1, num_rows]),
        )
        for fields, count in (('', 2), ('second_stage_bg_iou_threshold_lo: 0.1', 0)):
            sample, _ = box_stage(fields).sample(proposals, empty.boxes, empty, None)
            assert sample.count == count


@rows.parametrize(
    ('fields', 'message'),
    [
        ('second_stage_fg_iou_threshold: 0.4', r'Received: 0, 0.5 and 0.4'),
        ('second_stage_bg_iou_threshold_lo: 0.6', r'Received: 0.6, 0.5 and 0.5'),
        (
            'second_stage_add_gt_as_proposals: true hard_example_miner {}',
            'expected one or the other. Received: both',
        ),
        ('second_stage_box_coder { square_box_coder {} }', 'Received: square_box_coder'),
        ('second_stage_box_coder {}', 'box_coder_oneof is not set'),
        ('second_stage_localization_loss { weighted_giou {} }', 'compares boxes, not their codes'),
        ('second_stage_localization_loss {}', 'localization_loss is not set'),
    ],
)
def test_errors(fields, message):
    with pytest.raises(ValueError, match=message):
        box_stage(fields)
