import functools

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format

from object_detection.builders import (
    box_coder_builder,
    matcher_builder,
    region_similarity_calculator_builder,
)
from object_detection.core import sampling
from object_detection.core.groundtruth import Groundtruth
from object_detection.protos import target_assigner_pb2
from object_detection.targets import assigners
from object_detection.targets import targets as targets_module
from object_detection.targets.assigners import Candidates, SimilarityAssigner
from object_detection.targets.box_coders import FasterRcnnBoxCoder, KeypointBoxCoder
from object_detection.targets.hungarian import HungarianMatcher
from object_detection.targets.matchers import ArgMaxMatcher, BipartiteMatcher
from object_detection.targets.similarities import (
    IouSimilarity,
    NegSqDistSimilarity,
    ThresholdedIouSimilarity,
)
from object_detection.targets.targets import Columns, encode_targets, gather_matched
from tests import goldens, slow_cases
from tests.rows import parametrize

ANCHORS = np.array([[0, 0, 4, 4], [0, 0, 4, 2], [8, 8, 9, 9], [0, 0, 4, 3]], np.float32)
BOXES = np.array([[[0, 0, 4, 4], [8, 8, 8, 8]], [[8, 8, 9, 9], [0, 0, 0, 0]]], np.float32)
LABELS = np.array([[[0, 1], [1, 0]], [[0, 2], [0, 0]]], np.float32)
WEIGHTS = np.array([[0.5, 0], [1, 0]], np.float32)
UNMATCHED_LABEL = np.array([7, 0], np.float32)


def _targets(
    similarity,
    matcher,
    coder,
    anchors,
    boxes,
    labels,
    weights,
    unmatched,
    keypoints=None,
    valid_anchors=None,
    unmatched_weight=1.0,
):
    assigner = SimilarityAssigner(similarity, matcher, labels_background=True)
    candidates = Candidates(anchors, is_valid=valid_anchors)
    groundtruth = Groundtruth(boxes, labels, weights, keypoints=keypoints)
    return encode_targets(
        assigner.assign(candidates, groundtruth),
        candidates,
        groundtruth,
        coder,
        Columns(labels, unmatched, unmatched_weight),
        matcher.use_matmul_gather,
    )


def _assigner(unmatched_weight=1.0, similarity=None, coder=None, **matcher):
    return functools.partial(
        _targets,
        similarity or IouSimilarity(),
        ArgMaxMatcher(**matcher),
        coder or FasterRcnnBoxCoder(),
        unmatched_weight=unmatched_weight,
    )


@pytest.mark.parametrize('batched', [False, True])
def test_anchors_that_are_not_valid_are_ignored_and_forced_on_nothing(batched):
    assigner = _assigner(
        matched_threshold=0.7, unmatched_threshold=0.3, force_match_for_each_row=True
    )
    valid = np.array([False, True, True, True])
    arguments = (ANCHORS, BOXES, LABELS, np.ones_like(WEIGHTS), UNMATCHED_LABEL)
    targets = assigner(*arguments, valid_anchors=np.stack([valid] * 2) if batched else valid)
    # As if there were the other three alone; the second objects overlap none of them.
    few = assigner(ANCHORS[1:], *arguments[1:])
    np.testing.assert_array_equal(targets.matches[:, 0], [-2, -2])
    np.testing.assert_array_equal(targets.matches[:, 1:], few.matches)
    np.testing.assert_array_equal(targets.class_weights[:, 0], [0, 0])
    np.testing.assert_allclose(targets.box_targets[:, 1:], few.box_targets)
    assert np.all(np.isfinite(targets.box_targets))


def test_no_anchor_may_be_valid():
    assigner = _assigner(matched_threshold=0.7, force_match_for_each_row=True)
    targets = assigner(
        ANCHORS, BOXES, LABELS, WEIGHTS, UNMATCHED_LABEL, valid_anchors=np.zeros(4, bool)
    )
    np.testing.assert_array_equal(targets.matches, np.full((2, 4), -2))
    assert not np.any(targets.class_weights)


@parametrize('use_matmul_gather', [False, True])
@parametrize('batched_anchors', [False, True])
def test_by_hand(use_matmul_gather, batched_anchors):
    assigner = _assigner(
        unmatched_weight=0.3,
        matched_threshold=0.7,
        unmatched_threshold=0.3,
        use_matmul_gather=use_matmul_gather,
    )
    anchors = np.stack([ANCHORS, ANCHORS]) if batched_anchors else ANCHORS
    targets = assigner(anchors, BOXES, LABELS, WEIGHTS, UNMATCHED_LABEL)
    np.testing.assert_array_equal(targets.matches, [[0, -2, -1, 0], [-1, -1, 0, -1]])
    np.testing.assert_allclose(targets.class_weights, [[0.5, 0, 0.3, 0.5], [0.3, 0.3, 1, 0.3]])
    np.testing.assert_allclose(targets.box_weights, [[0.5, 0, 0, 0.5], [0, 0, 1, 0]])
    np.testing.assert_array_equal(
        targets.class_targets, [[[0, 1], [7, 0], [7, 0], [0, 1]], [[7, 0], [7, 0], [0, 2], [7, 0]]]
    )
    expected = np.zeros([2, 4, 4])
    expected[0, 3] = [0, 10 * 0.5 / 3, 0, 5 * np.log(4 / 3)]
    np.testing.assert_allclose(targets.box_targets, expected, atol=1e-5)


def test_anchors_on_ignored_ground_truth_are_no_negatives():
    weights = np.zeros([2, 2], np.float32)
    targets = _assigner(matched_threshold=0.5)(ANCHORS, BOXES, LABELS, weights, UNMATCHED_LABEL)
    np.testing.assert_array_equal(targets.matches[1], [-1, -1, 0, -1])
    np.testing.assert_array_equal(targets.class_weights[1], [1, 1, 0, 1])
    np.testing.assert_array_equal(targets.box_weights, np.zeros([2, 4]))


def test_padding_rows_change_nothing():
    assigner = _assigner(matched_threshold=0.5, force_match_for_each_row=True)
    rows = [BOXES, LABELS, WEIGHTS]
    padded = [np.concatenate([row, np.zeros_like(row)], axis=1) for row in rows]
    expected = assigner(ANCHORS, *rows, UNMATCHED_LABEL)
    for actual, value in zip(assigner(ANCHORS, *padded, UNMATCHED_LABEL), expected, strict=True):
        np.testing.assert_array_equal(actual, value)


def test_gradients_flow_to_anchors_through_box_targets_alone():
    anchors = tf.Variable(ANCHORS)
    with tf.GradientTape(persistent=True) as tape:
        targets = _assigner(matched_threshold=0.5)(anchors, BOXES, LABELS, WEIGHTS, UNMATCHED_LABEL)
    others = [targets.class_targets, targets.class_weights, targets.box_weights]
    assert [tape.gradient(other, anchors) for other in others] == [None] * 3
    assert tape.gradient(targets.box_targets, anchors).numpy().any()


def _random_batch(num_rows):
    random = np.random.default_rng(num_rows)
    corners = random.uniform(0, 0.6, [2, num_rows, 2])
    boxes = np.concatenate([corners, corners + random.uniform(0.1, 0.4, corners.shape)], axis=-1)
    weights = random.integers(0, 3, [2, num_rows]) / 2
    # Rows of weight 0 are zero size boxes, as padding is.
    boxes *= (weights > 0)[..., np.newaxis]
    labels = np.eye(5)[random.integers(1, 5, [2, num_rows])]
    seeds = np.array([[0, 1], [5, 2]], np.int32)
    return [*(array.astype(np.float32) for array in (boxes, labels, weights)), seeds]


def _grid_anchors():
    y, x = np.meshgrid(np.arange(0.1, 1, 0.1), np.arange(0.1, 1, 0.1), indexing='ij')
    centers = np.stack([y.ravel(), x.ravel()], axis=-1)
    return np.concatenate([centers - 0.12, centers + 0.12], axis=-1).astype(np.float32)


def _assign_and_sample(assigner):
    def function(boxes, labels, weights, seeds):
        anchors = tf.constant(_grid_anchors())
        unmatched_label = tf.one_hot(0, 5)
        targets = assigner(anchors, boxes, labels, weights, unmatched_label)
        noise = sampling.sampling_noise(seeds, tf.shape(anchors)[0])
        sampled = sampling.sample_balanced(
            targets.class_weights > 0, targets.matches >= 0, 16, 0.25, noise
        )
        indices, valid = sampling.sampled_indices(sampled, 16)
        codes = sampling.gather_rows(targets.box_targets, indices)
        return *targets, sampled, indices, valid, codes

    return function


SIGNATURE = [
    tf.TensorSpec([None, None, 4]),
    tf.TensorSpec([None, None, 5]),
    tf.TensorSpec([None, None]),
    tf.TensorSpec([None, 2], tf.int32),
]


@pytest.mark.parametrize('num_rows', [0, 6])
@slow_cases.parametrize(
    1, ('mode', 'use_matmul_gather'), [('xla', False), ('graph', True), ('xla_static', True)]
)
def test_assignment_and_sampling_compile(num_rows, mode, use_matmul_gather):
    function = _assign_and_sample(
        _assigner(
            matched_threshold=0.5,
            unmatched_threshold=0.3,
            force_match_for_each_row=True,
            use_matmul_gather=use_matmul_gather,
        )
    )
    signature = None if mode == 'xla_static' else SIGNATURE
    traced = tf.function(
        function, input_signature=signature, jit_compile=mode != 'graph', autograph=False
    )
    batch = [tf.constant(array) for array in _random_batch(num_rows)]
    expected = function(*batch)
    assert np.sum(expected[5]) == 2 * 16
    if num_rows:
        assert np.sum(expected[4] >= 0) > 2
    for actual, value in zip(traced(*batch), expected, strict=True):
        np.testing.assert_allclose(actual, value, rtol=1e-5, atol=1e-5)


def test_matmul_gather_gives_identical_numbers():
    boxes, labels, weights, _ = _random_batch(6)
    results = [
        _assigner(matched_threshold=0.5, use_matmul_gather=use_matmul_gather)(
            _grid_anchors(),
            boxes,
            labels * np.float32(0.1),
            weights,
            UNMATCHED_LABEL.mean() * np.ones(5),
        )
        for use_matmul_gather in (False, True)
    ]
    for plain, matmul in zip(*results, strict=True):
        np.testing.assert_array_equal(plain, matmul)


def _from_config(config):
    config = text_format.Parse(config, target_assigner_pb2.TargetAssigner())
    return functools.partial(
        _targets,
        region_similarity_calculator_builder.build(config.similarity_calculator),
        matcher_builder.build(config.matcher),
        box_coder_builder.build(config.box_coder),
    )


UNSCALED = FasterRcnnBoxCoder((1, 1, 1, 1))
PROPOSAL = {
    'matched_threshold': 0.7,
    'unmatched_threshold': 0.3,
    'force_match_for_each_row': True,
}
# Prefix of the case's name -> its assigner; of several prefixes the longest.
GOLDEN_ASSIGNERS = {
    'proposal': _assigner(**PROPOSAL),
    'proposal_matmul': _assigner(**PROPOSAL, use_matmul_gather=True),
    'detection': _assigner(matched_threshold=0.5),
    'detection_neg0.3': _assigner(0.3, matched_threshold=0.5),
    'FastRCNN': _assigner(
        matched_threshold=0.5,
        unmatched_threshold=0.1,
        negatives_lower_than_unmatched=False,
        coder=UNSCALED,
    ),
    'ssd': _assigner(matched_threshold=0.5, force_match_for_each_row=True),
    'ssd_neg0.75_ignore': _assigner(0.75, matched_threshold=0.6, unmatched_threshold=0.3),
    'batch_assign_ssd': _assigner(matched_threshold=0.5, force_match_for_each_row=True),
    'keypoint_coder': _assigner(matched_threshold=0.5, coder=KeypointBoxCoder(3)),
    'thresholded_iou_scores': _assigner(
        matched_threshold=0.5, similarity=ThresholdedIouSimilarity(0.3), coder=UNSCALED
    ),
}


@goldens.rows('target_assigner', prefix=tuple(GOLDEN_ASSIGNERS))
def test_golden_target_assigner(case_name):
    case = goldens.load('target_assigner', case_name)
    prefix = max((name for name in GOLDEN_ASSIGNERS if case_name.startswith(name)), key=len)
    _check_golden(case, GOLDEN_ASSIGNERS[prefix])


@goldens.parametrize('target_assigner', names=('batch_get_targets',))
@pytest.mark.parametrize('use_matmul', [False, True])
def test_golden_gathering(case_name, use_matmul):
    case = goldens.load('target_assigner', case_name)
    for output, rows in (('target', 'tensors'), ('weight', 'weights')):
        default = case.inputs['unmatched_' + ('value' if output == 'target' else 'weight')]
        gathered = gather_matched(
            tf.constant(_padded(case.inputs, rows)), case.inputs['match'], default, use_matmul
        )
        np.testing.assert_allclose(gathered, case.outputs[f'{output}s'], rtol=1e-6)


@goldens.parametrize('target_assigner', names=('target_assigner_builder',))
def test_golden_target_assigner_from_a_config(case_name):
    case = goldens.load('target_assigner', case_name)
    _check_golden(case, _from_config(case.config))


def _check_golden(case, assigner):
    inputs = dict(case.inputs)
    anchors = inputs.pop('anchors')
    if 'gt_boxes.0' not in inputs:
        # One image: the outputs have no batch dimension.
        names = ('gt_boxes', 'labels', 'weights')
        inputs |= {f'{name}.0': inputs[name] for name in names if name in inputs}
    boxes = _padded(inputs, 'gt_boxes')
    labels = _padded(inputs, 'labels')
    weights = _padded(inputs, 'weights')
    if labels is None:
        labels = np.ones([*boxes.shape[:2], 1], np.float32)
    if weights is None:
        weights = np.ones(boxes.shape[:2], np.float32)
    unmatched_label = inputs.get('unmatched_class_label', np.zeros(1, np.float32))
    extra = [inputs['keypoints'][None]] if 'keypoints' in inputs else []
    targets = assigner(anchors, boxes, labels, weights, unmatched_label, *extra)
    class_weights = np.asarray(targets.class_weights)
    dimensions = tuple(range(2, np.ndim(targets.class_targets)))
    actual = {
        'match': targets.matches,
        'cls_targets': targets.class_targets,
        # The reference repeats them for each class.
        'cls_weights': np.broadcast_to(
            np.expand_dims(class_weights, dimensions), targets.class_targets.shape
        ),
        'reg_targets': targets.box_targets,
        'reg_weights': targets.box_weights,
    }
    for name, value in actual.items():
        expected = case.outputs[name].reshape(value.shape)
        np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-5, err_msg=name)


def _padded(inputs, name):
    """Stacks `name.0`, `name.1`, ... to [B, M, ...], padded with zeros; None without any."""
    arrays = []
    while f'{name}.{len(arrays)}' in inputs:
        arrays.append(inputs[f'{name}.{len(arrays)}'])
    if not arrays:
        return None
    size = max(len(array) for array in arrays)
    return np.stack([np.pad(a, [(0, size - len(a))] + [(0, 0)] * (a.ndim - 1)) for a in arrays])


@pytest.mark.parametrize('matcher', [BipartiteMatcher(), HungarianMatcher()])
def test_one_to_one_matchers(matcher):
    assigner = functools.partial(_targets, IouSimilarity(), matcher, FasterRcnnBoxCoder())
    targets = assigner(ANCHORS, BOXES, LABELS, WEIGHTS, UNMATCHED_LABEL)
    # Each object of positive weight has one anchor, all others are negatives.
    np.testing.assert_array_equal(targets.matches, [[0, -1, -1, -1], [-1, -1, 0, -1]])
    np.testing.assert_array_equal(targets.class_weights, [[0.5, 1, 1, 1], [1, 1, 1, 1]])
    np.testing.assert_array_equal(targets.box_weights, [[0.5, 0, 0, 0], [0, 0, 1, 0]])


def test_other_similarities_take_part():
    assigner = _assigner(matched_threshold=-10.0, similarity=NegSqDistSimilarity())
    targets = assigner(ANCHORS, BOXES, LABELS, WEIGHTS, UNMATCHED_LABEL)
    np.testing.assert_array_equal(targets.matches[0], [0, 0, 1, 0])


def _overlapping_batch():
    """Ground truth with equal rows, ignored rows, padding between others and at the end."""
    boxes, labels, weights, _ = _random_batch(7)
    boxes[0, 1] = boxes[0, 4]  # Equally similar rows.
    boxes[0, 5], weights[0, 5] = boxes[0, 4], 0  # Ignored, without being padding.
    boxes[1, 2:], weights[1, 2:] = 0, 0
    boxes[1, 4], weights[1, 4] = [2, 2, 3, 3], 1  # Overlaps nothing, between rows of padding.
    return boxes, labels, weights


MATCHERS = {
    'forced': {
        'matched_threshold': 0.5,
        'unmatched_threshold': 0.3,
        'force_match_for_each_row': True,
    },
    'not_forced': {'matched_threshold': 0.3},
    'no_threshold': {'matched_threshold': None, 'force_match_for_each_row': True},
    'dissimilar_ignored': {'matched_threshold': 0.3, 'ignored_below': 0.1},
    'distances': {
        'similarity': NegSqDistSimilarity(),
        'matched_threshold': -0.05,
        'force_match_for_each_row': True,
    },
}


@pytest.mark.parametrize('matcher', MATCHERS)
@pytest.mark.parametrize('valid', ['all', 'shared', 'batched'])
def test_row_by_row_gives_identical_targets(monkeypatch, matcher, valid):
    assigner = _assigner(**MATCHERS[matcher])
    anchors = np.concatenate([_grid_anchors()] * 2)  # Each column occurs twice.
    flags = np.arange(len(anchors)) % 3 > 0
    flags = {'all': None, 'shared': flags, 'batched': np.stack([flags, ~flags])}[valid]
    arguments = (anchors, *_overlapping_batch(), np.full(5, 3.5), None, flags)
    whole = assigner(*arguments)
    assert len(np.unique(whole.matches)) > 3
    monkeypatch.setattr(assigners, '_MAX_PAIRS', 1)
    for actual, expected in zip(assigner(*arguments), whole, strict=True):
        np.testing.assert_array_equal(actual, expected)


def test_thresholded_scores_row_by_row(monkeypatch):
    boxes, labels, weights = _overlapping_batch()
    labels = labels * 0.7 + 0.1
    assigner = _assigner(similarity=ThresholdedIouSimilarity(0.2), matched_threshold=0.5)
    whole = assigner(_grid_anchors(), boxes, labels, weights, np.ones(5))
    assert np.any(whole.matches.numpy() >= 0)
    monkeypatch.setattr(assigners, '_MAX_PAIRS', 1)
    rows = assigner(_grid_anchors(), boxes, labels, weights, np.ones(5))
    np.testing.assert_array_equal(rows.matches, whole.matches)


@slow_cases.parametrize(1, 'use_matmul_gather', [False, True])
def test_row_by_row_compiles_without_a_tensor_of_all_pairs(monkeypatch, use_matmul_gather):
    monkeypatch.setattr(assigners, '_MAX_PAIRS', 1)
    monkeypatch.setattr(targets_module, '_GATHERED_AT_ONCE', 10)
    assigner = _assigner(**MATCHERS['forced'], use_matmul_gather=use_matmul_gather)
    boxes, labels, weights = (tf.constant(values) for values in _overlapping_batch())

    def assign(boxes, labels, weights):
        return assigner(_grid_anchors(), boxes, labels, weights, tf.one_hot(0, 5))

    traced = tf.function(assign, jit_compile=True, autograph=False)
    for actual, expected in zip(
        traced(boxes, labels, weights), assign(boxes, labels, weights), strict=True
    ):
        assert actual.shape == expected.shape
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)
    program = traced.experimental_get_compiler_ir(boxes, labels, weights)(stage='hlo')
    # 7 rows and 81 anchors: of all pairs in either order, and of what is gathered from 8 rows.
    for pairs in ('f32[2,7,81]', 'f32[2,81,7]', 'f32[2,81,8]'):
        assert pairs not in program
    assert ('f32[2,10,8]' in program) == use_matmul_gather


def test_gradients_row_by_row(monkeypatch):
    monkeypatch.setattr(assigners, '_MAX_PAIRS', 1)
    anchors = tf.Variable(ANCHORS)
    with tf.GradientTape() as tape:
        targets = _assigner(matched_threshold=0.5)(anchors, BOXES, LABELS, WEIGHTS, UNMATCHED_LABEL)
    assert tape.gradient(targets.box_targets, anchors).numpy().any()
