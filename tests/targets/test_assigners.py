import itertools

import numpy as np
import pytest
import tensorflow as tf

from object_detection.core import boxes as box_ops
from object_detection.core.groundtruth import Groundtruth
from object_detection.targets.assigners import (
    Candidates,
    HungarianAssigner,
    PointAssigner,
    SimilarityAssigner,
)
from object_detection.targets.matchers import ArgMaxMatcher
from object_detection.targets.similarities import ThresholdedIouSimilarity, center_size_l1
from tests import goldens
from tests.rows import parametrize


def objects(boxes, weights=None, classes=None) -> Groundtruth:
    boxes = np.array(boxes, np.float32)
    weights = np.ones(boxes.shape[:2], np.float32) if weights is None else weights
    classes = np.ones([*boxes.shape[:2], 1], np.float32) if classes is None else classes
    return Groundtruth(*(tf.constant(value, tf.float32) for value in (boxes, classes, weights)))


def cells(*sizes: tuple[int, float]) -> Candidates:
    """The cells of feature maps, [rows and columns, stride] each."""
    boxes = [
        [stride * y, stride * x, stride * (y + 1), stride * (x + 1)]
        for side, stride in sizes
        for y, x in itertools.product(range(side), repeat=2)
    ]
    counts = [side**2 for side, _ in sizes]
    return Candidates(tf.constant(boxes, tf.float32), tf.repeat(tf.range(len(sizes)), counts))


# Points at 5, 15, 25, 35 of the first level, at 10 and 30 of the second.
CELLS = cells((4, 10.0), (2, 20.0))
RANGES = ((0.0, 1.6), (0.8, np.inf))


def grid(matches: tf.Tensor) -> tuple[list, list]:
    """The matches of the two levels of one image."""
    rows = matches.numpy()[0]
    return rows[:16].reshape(4, 4).tolist(), rows[16:].reshape(2, 2).tolist()


def test_points_match_objects_of_the_size_of_their_level():
    # 20 high: the points at most 15 from each side. 34 high: none of the first level but two.
    small, large = [[0, 0, 20, 20]], [[2, 2, 36, 36]]
    fine, coarse = grid(PointAssigner(RANGES, radius=None).assign(CELLS, objects([small])))
    assert fine == [[0, 0, -1, -1], [0, 0, -1, -1], [-1] * 4, [-1] * 4]
    assert coarse == [[-1, -1], [-1, -1]]
    fine, coarse = grid(PointAssigner(RANGES, radius=None).assign(CELLS, objects([large])))
    assert fine == [[-1] * 4] * 4
    assert coarse == [[0, 0], [0, 0]]


def test_no_end_of_a_range_is_in_it():
    # The point at (5, 5) is 15 from the side, 1.5 cells; that at (10, 10) is 10 away, half a cell.
    box = [[[0.0, 0, 20, 20]]]
    for ranges, matched in (
        (((0, 1.5), (0.4, 0.5)), [0, 0]),
        (((0, 1.6), (0.4, 0.6)), [4, 1]),
        (((1.5, 2), (0.5, 0.6)), [0, 0]),
    ):
        fine, coarse = grid(PointAssigner(ranges, radius=None).assign(CELLS, objects(box)))
        assert [np.sum(np.array(level) >= 0) for level in (fine, coarse)] == matched


def test_points_on_a_side_are_not_in_the_box_in_any_frame():
    # (5, 5) and (5, 15) are on the upper side; (15, 5) and (15, 15) are within.
    boxes = np.array([[[5.0, 0, 25, 20], [5.0, 0, 25, 20]]])
    assigner = PointAssigner(((0.0, 1.6), (9.0, np.inf)), radius=None)
    for height, width in ((1.0, 1.0), (37.0, 91.0)):
        frame = np.array([height, width, height, width], np.float32)
        cells_in_frame = CELLS._replace(boxes=CELLS.boxes / frame)
        fine, _ = grid(assigner.assign(cells_in_frame, objects(boxes / frame)))
        assert fine == [[-1] * 4, [0, 0, -1, -1], [-1] * 4, [-1] * 4]


def test_only_points_near_the_centre_match():
    box = [[[0.0, 0, 40, 40]]]
    everywhere = ((0.0, np.inf),) * 2
    fine, coarse = grid(PointAssigner(everywhere, radius=1.0).assign(CELLS, objects(box)))
    # The centre is (20, 20): less than 10 away, and less than 20.
    assert fine == [[-1] * 4, [-1, 0, 0, -1], [-1, 0, 0, -1], [-1] * 4]
    assert coarse == [[0, 0], [0, 0]]
    fine, coarse = grid(PointAssigner(everywhere, radius=0.5).assign(CELLS, objects(box)))
    assert (fine, coarse) == ([[-1] * 4] * 4, [[-1] * 2] * 2)


def test_the_smallest_object_wins():
    boxes = [[[0.0, 0, 30, 30], [0, 0, 20, 20], [0, 0, 20, 20], [0, 0, 0, 0]]]
    assigner = PointAssigner(((0.0, np.inf),) * 2, radius=None)
    weights = np.array([[1.0, 0, 1, 0]], np.float32)
    fine, _ = grid(assigner.assign(CELLS, objects(boxes, weights)))
    # Also if its weight is 0: its points are no negatives.
    assert fine == [[1, 1, 0, -1], [1, 1, 0, -1], [0, 0, 0, -1], [-1] * 4]


def test_points_without_objects_and_points_that_are_not_valid():
    assigner = PointAssigner(RANGES)
    assert np.all(assigner.assign(CELLS, objects(np.zeros([2, 0, 4]))) == -1)
    is_valid = tf.range(20) % 2 == 0
    matches = assigner.assign(CELLS._replace(is_valid=is_valid), objects([[[0, 0, 20, 20]]]))
    np.testing.assert_array_equal(matches[0, :6], [0, -2, -1, -2, 0, -2])


@pytest.mark.parametrize('num_rows', [0, 5])
def test_point_assignment_compiles_with_unknown_sizes(num_rows):
    rng = np.random.default_rng(0)
    corners = rng.uniform(0, 30, [2, num_rows, 2])
    boxes = np.concatenate([corners, corners + rng.uniform(4, 30, corners.shape)], -1)
    assigner = PointAssigner(RANGES)
    truth = objects(boxes.astype(np.float32))

    def assign(cells, boxes, classes, weights):
        candidates = CELLS._replace(boxes=cells)
        return assigner.assign(candidates, Groundtruth(boxes, classes, weights))

    signature = [
        tf.TensorSpec([20, 4]),
        *(tf.TensorSpec([None] * rank) for rank in (3, 3, 2)),
    ]
    signature[1] = tf.TensorSpec([None, None, 4])
    traced = tf.function(assign, input_signature=signature, jit_compile=True, autograph=False)
    matches = traced(CELLS.boxes, truth.boxes, truth.classes, truth.weights)
    np.testing.assert_array_equal(matches, assigner.assign(CELLS, truth))
    assert np.any(matches >= 0) == (num_rows > 0)


@parametrize(
    ('arguments', 'message'),
    [
        (([],), r'expected ranges \(low, high\)'),
        (([(0, 64), (64, 64)],), 'Received: .*64, 64'),
        (([(0, 64)], 0), 'radius above 0. Received: 0'),
    ],
)
def test_points_have_ranges_and_a_radius(arguments, message):
    with pytest.raises(ValueError, match=message):
        PointAssigner(*arguments)


def queries(boxes, scores) -> Candidates:
    boxes = tf.constant(boxes, tf.float32)
    return Candidates(boxes[0], scores=tf.constant(scores, tf.float32), predicted_boxes=boxes)


def test_costs_by_hand():
    # Equal; moved by 1; the score is that of the object's class.
    candidates = queries([[[0, 0, 2, 2], [0, 1, 2, 3]]], [[[9, 0.5], [9, 0.25]]])
    truth = objects([[[0, 0, 2, 2]]], classes=[[[0, 1]]])
    similarity = HungarianAssigner(2.0, 10.0, 3.0).similarity(candidates, truth)
    np.testing.assert_allclose(similarity, [[[1.0, 0.5 - 10 - 3 * (1 - 1 / 3)]]], rtol=1e-6)


@goldens.parametrize('similarity', names=('detr',))
def test_golden_costs(case_name):
    case = goldens.load('similarity', case_name)
    assigner = HungarianAssigner(
        l1_cost=case.params['l1_weight'], giou_cost=case.params['giou_weight']
    )
    candidates = queries(case.inputs['boxes2'][None], case.inputs['classes2'][None])
    truth = objects(case.inputs['boxes1'][None], classes=case.inputs['classes1'][None])
    similarity = assigner.similarity(candidates, truth)[0]
    np.testing.assert_allclose(similarity, case.outputs['similarity'], rtol=1e-5, atol=2e-6)


def random_boxes(rng, *shape):
    corners = rng.uniform(0, 0.6, [*shape, 2])
    return np.concatenate([corners, corners + rng.uniform(0.05, 0.4, corners.shape)], -1)


@pytest.mark.parametrize('jit_compile', [False, True])
def test_queries_have_the_lowest_total_cost_of_all_assignments(jit_compile):
    rng = np.random.default_rng(0)
    boxes, others = random_boxes(rng, 3, 4), random_boxes(rng, 3, 6)
    weights = np.array([[1, 1, 1, 1], [1, 0, 0.5, 1], [0] * 4], np.float32)
    scores = rng.uniform(size=[3, 6, 4])
    truth = objects(boxes, weights, np.eye(4)[rng.integers(0, 4, [3, 4])])
    assigner = HungarianAssigner()
    assign = tf.function(assigner.assign, jit_compile=jit_compile, autograph=False)
    matches = assign(queries(others, scores), truth).numpy()
    for image in range(3):
        rows = np.flatnonzero(weights[image])
        objects_of, predicted = truth.boxes[image].numpy()[rows], others[image].astype('f')
        costs = (
            -truth.classes[image].numpy()[rows] @ scores[image].T
            + 5 * center_size_l1(objects_of, predicted).numpy()
            - 2 * box_ops.giou(objects_of, predicted).numpy()
        )
        numbers = np.arange(len(rows))
        best = min(
            itertools.permutations(range(6), len(rows)),
            key=lambda columns: costs[numbers, list(columns)].sum(),
        )
        expected = np.full(6, -1)
        expected[list(best)] = rows
        np.testing.assert_array_equal(matches[image], expected)


def test_matches_depend_on_predictions_and_not_on_queries_that_are_not_valid():
    truth = objects([[[0, 0, 0.4, 0.4], [0.5, 0.5, 0.9, 0.9]]])
    predicted = [[0.5, 0.5, 0.9, 0.9], [0, 0, 0.4, 0.4], [0, 0, 0.4, 0.3]]
    candidates = queries([predicted], np.ones([1, 3, 1]))
    np.testing.assert_array_equal(HungarianAssigner().assign(candidates, truth), [[1, 0, -1]])
    fewer = candidates._replace(is_valid=tf.constant([[True, False, True]]))
    np.testing.assert_array_equal(HungarianAssigner().assign(fewer, truth), [[1, -2, 0]])


def test_scores_of_objects_count_if_their_first_class_is_background():
    boxes = [[[0.0, 0, 1, 1], [0, 0, 1, 1]]]
    truth = objects(boxes, classes=[[[0.75, 0.25], [0.25, 0.75]]])
    matcher = ArgMaxMatcher(0.5)
    matches = [
        SimilarityAssigner(ThresholdedIouSimilarity(), matcher, flag).assign(
            Candidates(truth.boxes[0, :1]), truth
        )
        for flag in (False, True)
    ]
    np.testing.assert_array_equal(matches, [[[0]], [[1]]])
