"""Suppression against a greedy loop in NumPy, and each execution against the other."""

import numpy as np
import pytest
import tensorflow as tf

from object_detection.core import tracing
from object_detection.core.suppression import nms, nms_tiles
from tests import goldens, slow_cases
from tests.rows import parametrize


@pytest.fixture
def small_tiles(monkeypatch):
    """Tiles of 8, so that small inputs need many."""
    monkeypatch.setattr(nms_tiles, '_TILE', 8)


def random_boxes(rng, shape, spread=0.5):
    centers = rng.uniform(0, spread, (*shape, 2))
    sizes = rng.uniform(0.1, 0.5, (*shape, 2))
    return np.concatenate([centers - sizes / 2, centers + sizes / 2], -1).astype(np.float32)


def iou_of(box, other):
    sides = np.minimum(box[2:], other[2:]) - np.maximum(box[:2], other[:2])
    shared = np.prod(np.maximum(sides, 0))
    union = np.prod(box[2:] - box[:2]) + np.prod(other[2:] - other[:2]) - shared
    return shared / union if union > 0 else 0.0


def greedy(boxes, scores, classes, *, max_outputs, iou_threshold, score_threshold, per_class):
    """One image; boxes [C, 4] of C candidates; returns the kept candidates in order."""
    kept = []
    for i in np.argsort(-scores, kind='stable'):
        rivals = [j for j in kept if classes[j] == classes[i]]
        if (
            len(kept) < max_outputs
            and scores[i] > score_threshold
            and len(rivals) < per_class
            and all(iou_of(boxes[i], boxes[j]) <= iou_threshold for j in rivals)
        ):
            kept.append(i)
    return kept


def assert_selects(selection, expected):
    indices, is_valid = selection.indices.numpy(), selection.is_valid.numpy()
    for image, rows in enumerate(expected):
        np.testing.assert_array_equal(indices[image, : len(rows)], rows)
        np.testing.assert_array_equal(indices[image, len(rows) :], 0)
        np.testing.assert_array_equal(is_valid[image], np.arange(indices.shape[1]) < len(rows))


@pytest.mark.parametrize('native', [False, True])
@slow_cases.parametrize(
    2,
    ('iou_threshold', 'score_threshold', 'max_outputs'),
    [(0.5, 0.0, 10), (0.3, 0.4, 30), (0.7, -1.0, 60), (0.0, 0.0, 30), (1.0, 0.2, 50)],
)
def test_one_class_equals_a_greedy_loop(
    small_tiles, native, iou_threshold, score_threshold, max_outputs
):
    rng = np.random.default_rng(0)
    boxes = random_boxes(rng, [3, 50])
    scores = rng.choice(np.linspace(0, 1, 21), (3, 50)).astype(np.float32)  # Many ties.
    selection = nms.non_max_suppression(
        boxes,
        scores,
        max_outputs=max_outputs,
        iou_threshold=iou_threshold,
        score_threshold=score_threshold,
        native=native,
    )
    expected = [
        greedy(
            image_boxes,
            image_scores,
            np.zeros(50),
            max_outputs=max_outputs,
            iou_threshold=iou_threshold,
            score_threshold=score_threshold,
            per_class=50,
        )
        for image_boxes, image_scores in zip(boxes, scores, strict=True)
    ]
    assert_selects(selection, expected)


@pytest.mark.parametrize('per_class', [2, 5, 100])
def test_given_classes_equal_a_greedy_loop(small_tiles, per_class):
    rng = np.random.default_rng(1)
    boxes = random_boxes(rng, [2, 60], spread=0.3)
    scores = rng.choice(np.linspace(0, 1, 31), (2, 60)).astype(np.float32)
    classes = rng.integers(0, 4, (2, 60)).astype(np.int32)
    limits = {'max_outputs': 25, 'iou_threshold': 0.4, 'score_threshold': 0.1}
    selection = nms.non_max_suppression(
        boxes, scores, classes=tf.constant(classes), max_outputs_per_class=per_class, **limits
    )
    expected = [
        greedy(boxes[i], scores[i], classes[i], per_class=per_class, **limits) for i in range(2)
    ]
    assert_selects(selection, expected)


@pytest.mark.parametrize('native', [False, True])
def test_one_class_has_its_limit_too(native):
    boxes = tf.constant([[[0.0, 0, 1, 1], [2, 2, 3, 3], [4, 4, 5, 5]]])
    selection = nms.non_max_suppression(
        boxes,
        tf.constant([[0.1, 0.9, 0.5]]),
        max_outputs=4,
        max_outputs_per_class=2,
        iou_threshold=0.5,
        score_threshold=0.0,
        native=native,
    )
    assert_selects(selection, [[1, 2]])


@pytest.mark.parametrize('native', [False, True])
def test_rows_beyond_num_valid_and_nan_scores_take_no_part(native):
    boxes = np.tile(np.array([[0.0, 0, 1, 1]], np.float32), (2, 4, 1))
    scores = np.array([[0.2, np.nan, 0.9, 0.3], [0.2, 0.3, 0.4, 0.1]], np.float32)
    selection = nms.non_max_suppression(
        boxes,
        scores,
        max_outputs=3,
        iou_threshold=1.0,
        score_threshold=0.0,
        num_valid=tf.constant([2, 3]),
        native=native,
    )
    assert_selects(selection, [[0], [2, 1, 0]])


@pytest.mark.parametrize('native', [False, True])
def test_corners_may_come_in_any_order(native):
    boxes = tf.constant([[[1.0, 1, 0, 0], [0, 0.1, 1, 1], [0, 1, 1, 0]]])
    selection = nms.non_max_suppression(
        boxes,
        tf.constant([[0.9, 0.8, 0.7]]),
        max_outputs=3,
        iou_threshold=0.8,
        score_threshold=0.0,
        native=native,
    )
    assert_selects(selection, [[0]])


@parametrize('native', [False, True])
@parametrize('shape', [(2, 0), (0, 3), (1, 1)])
def test_hardly_any_boxes(native, shape):
    selection = nms.non_max_suppression(
        tf.ones([*shape, 4]),
        tf.ones(shape),
        max_outputs=5,
        iou_threshold=0.5,
        score_threshold=0.0,
        native=native,
    )
    assert_selects(selection, [list(range(shape[1]))] * shape[0])
    assert selection.indices.shape == (shape[0], 5)


def test_all_candidates_suppressed_by_one(small_tiles):
    # The loop has to look at every tile, and each tile finds nothing.
    boxes = tf.tile(tf.constant([[[0.0, 0, 1, 1]]]), [1, 100, 1])
    selection = nms.non_max_suppression(
        boxes,
        tf.range(100, dtype=tf.float32)[tf.newaxis],
        max_outputs=20,
        iou_threshold=0.5,
        score_threshold=-1.0,
    )
    assert_selects(selection, [[99]])


def _is_counted(boxes):
    """Some half of random boxes, [..., 4]."""
    return boxes[..., 0] * 20 % 2 < 1


@pytest.mark.parametrize('boxes_per_row', [1, 3])
@slow_cases.parametrize(
    2,
    ('max_outputs', 'per_class', 'counts_all'),
    [(12, 12, True), (20, 4, True), (20, 4, False), (6, 6, False), (200, 150, True)],
)
def test_multiclass_equals_a_greedy_loop(
    small_tiles, boxes_per_row, max_outputs, per_class, counts_all
):
    rng = np.random.default_rng(2)
    boxes = random_boxes(rng, [2, 30, boxes_per_row], spread=0.4)
    scores = rng.choice(np.linspace(0, 1, 41), (2, 30, 3)).astype(np.float32)
    is_counted = np.ones(boxes.shape[:3], bool) if counts_all else _is_counted(boxes)
    limits = {'iou_threshold': 0.45, 'score_threshold': 0.05}
    selection = nms.multiclass_non_max_suppression(
        boxes,
        scores,
        max_outputs=max_outputs,
        max_outputs_per_class=per_class,
        is_counted=None if counts_all else _is_counted,
        **limits,
    )
    for i in range(2):
        # Candidates in class order, so that of equal scores the lowest class comes first.
        flat_boxes = np.broadcast_to(boxes[i], (30, 3, 4)).transpose(1, 0, 2).reshape(90, 4)
        counted = np.broadcast_to(is_counted[i], (30, 3)).T.reshape(90)
        kept = greedy(
            flat_boxes,
            scores[i].T.reshape(90),
            np.repeat([0, 1, 2], 30),
            max_outputs=90,
            per_class=per_class,
            **limits,
        )
        kept = np.array([k for k in kept if counted[k]][:max_outputs])
        count = len(kept)
        np.testing.assert_array_equal(selection.is_valid[i], np.arange(max_outputs) < count)
        np.testing.assert_array_equal(selection.indices[i, :count], kept % 30)
        np.testing.assert_array_equal(selection.classes[i, :count], kept // 30)
        np.testing.assert_array_equal(selection.scores[i, :count], scores[i].T.reshape(90)[kept])
        np.testing.assert_array_equal(selection.scores[i, count:], 0)


@goldens.parametrize('nms', names=('partitioned_padded',))
def test_equals_the_reference(case_name):
    case = goldens.load('nms', case_name)
    boxes, scores = case.inputs['boxes'], case.inputs['scores']
    # The reference's tiles take a box without any positive coordinate for a suppressed one.
    scores = np.where(np.all(boxes <= 0, axis=1), 0, scores)
    selection = nms.non_max_suppression(
        boxes[np.newaxis],
        scores[np.newaxis],
        max_outputs=case.params['max_output_size'],
        iou_threshold=case.params['iou_threshold'],
        score_threshold=case.params['score_threshold'],
    )
    count = case.outputs['num_valid']
    # The reference numbers boxes by their rank in the scores.
    expected = case.outputs['argsort_ids'][case.outputs['selected_indices'][:count]]
    assert_selects(selection, [expected])


def test_compiled_and_native_selections_are_the_same():
    rng = np.random.default_rng(3)
    boxes = random_boxes(rng, [2, 1500], spread=3.0)
    scores = rng.choice(np.linspace(0, 1, 301), (2, 1500)).astype(np.float32)
    limits = {'max_outputs': 200, 'iou_threshold': 0.5, 'score_threshold': 0.0}

    def select(native):
        return nms.non_max_suppression(boxes, scores, native=native, **limits)

    native = select(True)
    for other in (
        select(False),
        tf.function(lambda: select(False), jit_compile=True, autograph=False)(),
    ):
        np.testing.assert_array_equal(other.indices, native.indices)
        np.testing.assert_array_equal(other.is_valid, native.is_valid)


@pytest.mark.parametrize('native', [False, True])
@pytest.mark.parametrize('count', [0, 3, 40])
def test_unknown_dimensions_in_a_function(small_tiles, native, count):
    limits = {'max_outputs': 10, 'iou_threshold': 0.5, 'score_threshold': 0.0}

    @tf.function(
        input_signature=[tf.TensorSpec([None, None, 4]), tf.TensorSpec([None, None])],
        autograph=False,
    )
    def select(boxes, scores):
        return nms.non_max_suppression(boxes, scores, native=native, **limits)

    rng = np.random.default_rng(4)
    boxes = random_boxes(rng, [2, count])
    scores = rng.random((2, count)).astype(np.float32)
    selection = select(boxes, scores)
    eager = nms.non_max_suppression(boxes, scores, **limits)
    assert selection.indices.shape == (2, 10)
    np.testing.assert_array_equal(selection.indices, eager.indices)
    np.testing.assert_array_equal(selection.is_valid, eager.is_valid)


def test_multiclass_with_unknown_dimensions_in_a_function(small_tiles):
    @tf.function(
        input_signature=[tf.TensorSpec([None, None, 1, 4]), tf.TensorSpec([None, None, 3])],
        autograph=False,
    )
    def select(boxes, scores):
        return nms.multiclass_non_max_suppression(
            boxes,
            scores,
            max_outputs=10,
            max_outputs_per_class=5,
            iou_threshold=0.5,
            score_threshold=0.0,
            is_counted=lambda boxes: tf.ones(tf.shape(boxes)[:2], tf.bool),
        )

    rng = np.random.default_rng(5)
    for count in (0, 1, 30):
        boxes = random_boxes(rng, [2, count, 1])
        scores = rng.random((2, count, 3)).astype(np.float32)
        selection = select(boxes, scores)
        for field, eager in zip(selection, select.python_function(boxes, scores), strict=True):
            np.testing.assert_array_equal(field, eager)
        assert bool(tf.reduce_any(selection.is_valid)) == (count > 0)


def _some_pairs(kind):
    """Boxes [2, 60, q, 4], scores [2, 60, 3] and further arguments, as `kind` says."""
    rng = np.random.default_rng(3)
    boxes = random_boxes(rng, (2, 60, 3 if kind == 'boxes of classes' else 1), spread=2.0)
    scores = rng.uniform(0, 1, (2, 60, 3)).astype(np.float32)
    options = {}
    if kind == 'ties':
        scores = np.round(scores * 4) / 4
    elif kind == 'equal scores':
        scores[:] = 0.5
    elif kind == 'NaN':
        scores[0, ::7, 1] = np.nan
        scores[1, 5] = np.inf
    elif kind == 'few above the threshold':
        scores[:, 4:] *= -1
    elif kind == 'all suppressed':
        boxes[:] = boxes[:1, :1]
    elif kind == 'some rows':
        options['num_valid'] = tf.constant([40, 3])
    elif kind == 'uncounted':
        options['is_counted'] = _is_counted
    return boxes, scores, options


@pytest.fixture(scope='module')
def selecting():
    """(num_rows or None, options) -> a function of boxes and scores that searches so many first."""
    made = {}

    def make(num_rows, options, jit_compile):
        key = (num_rows, tuple(options), jit_compile)
        if key not in made:
            limits = {'max_outputs': 6, 'max_outputs_per_class': 5, 'iou_threshold': 0.6}
            made[key] = tf.function(
                lambda boxes, scores: nms.multiclass_non_max_suppression(
                    boxes, scores, score_threshold=0.0, **limits, **options
                ),
                jit_compile=jit_compile,
                autograph=False,
            )
        return made[key]

    return make


@slow_cases.parametrize(
    8,
    ('kind', 'num_rows'),
    [
        ('any', 12),
        ('boxes of classes', 12),
        ('ties', 4),
        ('equal scores', 12),
        ('NaN', 4),
        ('few above the threshold', 12),
        ('all suppressed', 4),
        ('some rows', 4),
        ('any', 4),
        ('ties', 12),
        ('equal scores', 4),
        ('NaN', 12),
        ('few above the threshold', 4),
        ('all suppressed', 12),
        ('uncounted', 12),
    ],
)
def test_the_best_rows_first_give_the_selection_from_all(
    small_tiles, monkeypatch, selecting, kind, num_rows
):
    boxes, scores, options = _some_pairs(kind)
    boxes, scores = tf.constant(boxes), tf.constant(scores)
    from_all = [field.numpy() for field in selecting(None, options, False)(boxes, scores)]
    assert from_all[-1].any()
    monkeypatch.setattr(nms, '_MAX_ROWS', num_rows)
    is_compiled = (kind, num_rows) == ('any', 12)
    selection = selecting(num_rows, options, is_compiled)(boxes, scores)
    for field, expected in zip(selection, from_all, strict=True):
        np.testing.assert_array_equal(field, expected)


def test_pairs_of_other_rows_come_before_those_of_the_last_of_the_best_rows(monkeypatch):
    monkeypatch.setattr(nms, '_MAX_ROWS', 2)
    starts = np.arange(3.0)
    boxes = np.stack([starts, starts, starts + 0.9, starts + 0.9], axis=1)[
        np.newaxis, :, np.newaxis
    ]
    # The best rows are the first two; of the pairs of score 0.5, that of class 0 comes first.
    selection = nms.multiclass_non_max_suppression(
        tf.constant(boxes, tf.float32),
        tf.constant([[[0.0, 0.9], [0.0, 0.5], [0.5, 0.0]]]),
        max_outputs=2,
        max_outputs_per_class=2,
        iou_threshold=0.5,
        score_threshold=0.1,
    )
    assert selection.indices.numpy().tolist() == [[0, 2]]
    assert selection.classes.numpy().tolist() == [[1, 0]]


# All rows at once; the best rows, which are enough; the best rows, which are not, and then all.
@pytest.mark.parametrize(
    ('most_rows', 'max_outputs', 'searched'), [(40, 30, [40]), (30, 6, [30]), (30, 30, [30, 40])]
)
@pytest.mark.parametrize('boxes_per_row', [1, 3])
@pytest.mark.parametrize('batch_size', [1, 2])
def test_basic_operations_select_the_same_pairs(
    batch_size, boxes_per_row, most_rows, max_outputs, searched, monkeypatch
):
    monkeypatch.setattr(nms, '_MAX_OPERATION_ROWS', most_rows)
    select, rows_searched = nms._select_by_operation, []

    def count(pairs, *limits):
        rows_searched.append(pairs.scores.shape[1])
        return select(pairs, *limits)

    monkeypatch.setattr(nms, '_select_by_operation', count)
    rng = np.random.default_rng(3)
    corners = rng.uniform(0, 0.8, (batch_size, 40, boxes_per_row, 2))
    boxes = np.concatenate([corners, corners + rng.uniform(0.05, 0.3, corners.shape)], axis=-1)
    arguments = {
        'boxes': tf.constant(boxes, tf.float32),
        'scores': tf.constant(rng.uniform(0, 1, (batch_size, 40, 3)), tf.float32),
        'max_outputs': max_outputs,
        'max_outputs_per_class': 8,
        'iou_threshold': 0.4,
        'score_threshold': 0.2,
        'is_counted': lambda boxes: boxes[..., 0] > 0.1,
    }
    expected = nms.multiclass_non_max_suppression(**arguments)
    with tracing.BasicOperations():
        found = nms.multiclass_non_max_suppression(**arguments)
    assert rows_searched == searched
    assert 5 < tf.reduce_sum(tf.cast(expected.is_valid[0], tf.int32)) < 30
    for name, values in expected._asdict().items():
        np.testing.assert_array_equal(getattr(found, name), values, err_msg=name)


def test_basic_operations_search_all_rows_for_ties_with_the_last_of_the_best(monkeypatch):
    monkeypatch.setattr(nms, '_MAX_OPERATION_ROWS', 4)
    starts = np.arange(8.0)
    boxes = np.stack([starts, starts, starts + 0.9, starts + 0.9], axis=1)[
        np.newaxis, :, np.newaxis
    ]
    # Three rows are better than the others, whose order is that of their indices.
    scores = np.array([0.5, 0.5, 0.9, 0.5, 0.8, 0.5, 0.5, 0.7])[np.newaxis, :, np.newaxis]
    arguments = {
        'boxes': tf.constant(boxes, tf.float32),
        'scores': tf.constant(scores, tf.float32),
        'max_outputs_per_class': 8,
        'iou_threshold': 0.5,
        'score_threshold': 0.1,
    }
    with tracing.BasicOperations():
        three = nms.multiclass_non_max_suppression(max_outputs=3, **arguments)
        five = nms.multiclass_non_max_suppression(max_outputs=5, **arguments)
    assert three.indices.numpy().tolist() == [[2, 4, 7]]
    assert five.indices.numpy().tolist() == [[2, 4, 7, 0, 1]]
