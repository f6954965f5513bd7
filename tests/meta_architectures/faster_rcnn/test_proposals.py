import numpy as np
import tensorflow as tf

from object_detection.core.post_processing import NmsParams
from object_detection.meta_architectures.faster_rcnn.proposals import (
    ProposalLimits,
    best_of_levels,
    choose_per_level,
    is_large_enough,
)
from tests import slow_cases

NEVER = -np.inf


def test_best_of_levels_by_hand():
    margins = tf.constant([[1.0, 3, 2, 5, NEVER, 7], [4, 4, 9, NEVER, NEVER, 0]])
    best = best_of_levels(margins, [3, 2, 1], topk=2)
    np.testing.assert_array_equal(best.rows, [[1, 2, 3, 4, 5], [2, 0, 3, 4, 5]])
    np.testing.assert_array_equal(best.levels, [0, 0, 1, 1, 2])
    np.testing.assert_array_equal(best.takes_part, [[1, 1, 1, 0, 1], [1, 1, 0, 0, 1]])
    all_rows = best_of_levels(margins, [3, 2, 1], topk=0)
    np.testing.assert_array_equal(all_rows.rows, [range(6)] * 2)
    np.testing.assert_array_equal(all_rows.levels, [0, 0, 0, 1, 1, 2])


def test_sizes_of_levels_may_be_tensors():
    margins = tf.constant([[1.0, 3, 2, 5]])

    @tf.function(input_signature=[tf.TensorSpec([], tf.int32)] * 3, autograph=False)
    def rows(*sizes):
        return best_of_levels(margins, list(sizes), topk=2).rows

    np.testing.assert_array_equal(rows(3, 0, 1), [[1, 2, 3]])


@slow_cases.parametrize(
    2,
    ('max_per_level', 'max_proposals', 'jit_compile'),
    [(0, 200, False), (6, 200, False), (6, 11, True), (40, 25, False)],
)
def test_choice_per_level_against_an_oracle(jit_compile, max_per_level, max_proposals):
    rng = np.random.default_rng(1)
    levels = np.repeat([0, 1, 2], [50, 30, 7])
    boxes = rng.uniform(0, 20, (2, len(levels), 4))
    boxes[..., 2:] = boxes[..., :2] + 5 + boxes[..., 2:] / 2
    boxes = boxes.astype(np.float32)
    scores = rng.permutation(2 * len(levels)).reshape(2, -1).astype(np.float32) / 200
    scores[rng.uniform(size=scores.shape) < 0.1] = NEVER
    limits = ProposalLimits(max_proposals, 0, max_per_level)
    nms = NmsParams(score_threshold=0.05, iou_threshold=0.4)
    proposals = tf.function(choose_per_level, jit_compile=jit_compile, autograph=False)(
        boxes, scores, levels, nms, limits
    )
    assert proposals.boxes.shape == (2, max_proposals, 4)
    for image in range(2):
        rows = oracle(boxes[image], scores[image], levels, max_per_level, max_proposals)
        count = len(rows)
        assert count > 3
        assert proposals.count[image] == count
        np.testing.assert_array_equal(proposals.scores[image, :count], scores[image, rows])
        np.testing.assert_array_equal(proposals.boxes[image, :count], boxes[image, rows])
        assert not np.any(proposals.boxes[image, count:])
        assert not np.any(proposals.scores[image, count:])


def oracle(boxes, scores, levels, max_per_level, max_proposals):
    """Level by level, then the best of all."""
    kept = []
    for level in np.unique(levels):
        mine = []
        for row in np.argsort(-scores):
            takes_part = levels[row] == level and scores[row] > 0.05
            if takes_part and all(iou(boxes[row], boxes[other]) <= 0.4 for other in mine):
                mine.append(row)
        kept += mine[: max_per_level or None]
    return sorted(kept, key=lambda row: -scores[row])[:max_proposals]


def iou(box, other):
    sides = np.minimum(box[2:], other[2:]) - np.maximum(box[:2], other[:2])
    shared = np.prod(np.maximum(sides, 0))
    return shared / (np.prod(box[2:] - box[:2]) + np.prod(other[2:] - other[:2]) - shared)


def test_no_boxes_at_all():
    proposals = choose_per_level(
        tf.zeros([2, 0, 4]),
        tf.zeros([2, 0]),
        tf.zeros([0], tf.int32),
        NmsParams(),
        ProposalLimits(5, 3, 0),
    )
    np.testing.assert_array_equal(proposals.count, [0, 0])
    assert not np.any(proposals.boxes)


def test_smallest_size():
    boxes = tf.constant([[0.0, 0, 2, 2], [0, 0, 1.9, 9], [3, 3, 3, 9], [5, 5, 4, 4]])
    np.testing.assert_array_equal(is_large_enough(boxes, 2.0), [True, False, False, False])
    np.testing.assert_array_equal(is_large_enough(boxes, 0.0), [True, True, False, False])
