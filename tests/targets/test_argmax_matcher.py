import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format

from object_detection.builders import matcher_builder
from object_detection.core import sampling
from object_detection.protos import matcher_pb2
from object_detection.targets.matchers import ArgMaxMatcher
from tests import goldens
from tests.rows import parametrize
from tests.targets.golden_matches import check_golden_matches

SIMILARITY = np.array(
    [[[0.9, 0.1, 0.4, 0.2, 0.6], [0.3, 0.1, 0.5, 0.2, 0.6], [0.0, 0.2, 0.1, 0.2, 0.0]]], np.float32
)


def _match(similarity, valid_rows=None, **arguments):
    if valid_rows is None:
        valid_rows = np.ones(similarity.shape[:2], bool)
    return ArgMaxMatcher(**arguments).match(similarity, valid_rows).numpy()


def test_thresholds_by_hand():
    # Column 2 is on the lower threshold, column 4 on the upper, where the first row wins.
    matches = _match(SIMILARITY, matched_threshold=0.6, unmatched_threshold=0.5)
    assert matches.dtype == np.int32
    np.testing.assert_array_equal(matches, [[0, -1, -2, -1, 0]])
    matches = _match(
        SIMILARITY,
        matched_threshold=0.6,
        unmatched_threshold=0.5,
        negatives_lower_than_unmatched=False,
    )
    np.testing.assert_array_equal(matches, [[0, -2, -1, -2, 0]])


def test_dissimilar_columns_are_ignored():
    # Column 2 is on the threshold; columns 1 and 3 are below it.
    arguments = {'matched_threshold': 0.6, 'ignored_below': 0.5}
    np.testing.assert_array_equal(_match(SIMILARITY, **arguments), [[0, -2, -1, -2, 0]])
    for rows in (0, None):
        matcher = ArgMaxMatcher(**arguments)
        signature = [tf.TensorSpec([1, rows, 2]), tf.TensorSpec([1, rows], tf.bool)]
        match = tf.function(matcher.match, input_signature=signature, autograph=False)
        np.testing.assert_array_equal(match(np.zeros([1, 0, 2]), np.ones([1, 0])), [[-2, -2]])


def test_without_thresholds_every_column_is_matched():
    np.testing.assert_array_equal(_match(SIMILARITY, matched_threshold=None), [[0, 2, 1, 0, 0]])


@parametrize('one_by_one', [False, True])
def test_low_quality_matches_by_hand(one_by_one):
    # Row 2 has two columns, of which column 3 is as similar to row 0; column 4, that of row 1, goes
    # to row 0. A row that is like no column gets none.
    similarity = np.concatenate([SIMILARITY, np.zeros([1, 1, 5], np.float32)], axis=1)
    valid_rows = np.ones([1, 4], bool)

    def match(valid_rows):
        matcher = ArgMaxMatcher(0.7, 0.5, force_match_for_each_row=True, low_quality_matches=True)
        if not one_by_one:
            return matcher.match(tf.constant(similarity), valid_rows).numpy()
        return matcher.match_one_by_one(
            lambda row: tf.gather(similarity, row, axis=1), 4, valid_rows, 5
        ).numpy()

    np.testing.assert_array_equal(match(valid_rows), [[0, 2, -2, 0, 0]])
    valid_rows = np.array([[True, True, False, True]])
    np.testing.assert_array_equal(match(valid_rows), [[0, -1, -2, -1, 0]])


def test_forced_rows_by_hand():
    # Row 1 is forced into column 4, which row 0 would have had; row 2 into the first of its two.
    matches = _match(SIMILARITY, matched_threshold=0.6, force_match_for_each_row=True)
    np.testing.assert_array_equal(matches, [[0, 2, -1, -1, 1]])
    valid_rows = np.array([[True, False, False]])
    matches = _match(SIMILARITY, valid_rows, matched_threshold=0.6, force_match_for_each_row=True)
    np.testing.assert_array_equal(matches, [[0, -1, -1, -1, 0]])


def test_of_rows_forced_on_a_column_the_first_valid_one_gets_it():
    similarity = np.array([[[0.1, 0.5], [0.1, 0.6], [0.1, 0.7]]], np.float32)
    arguments = {'matched_threshold': 0.9, 'force_match_for_each_row': True}
    np.testing.assert_array_equal(_match(similarity, **arguments), [[-1, 0]])
    valid_rows = np.array([[False, True, True]])
    np.testing.assert_array_equal(_match(similarity, valid_rows, **arguments), [[-1, 1]])


def _match_oracle(similarity, valid_rows, matched, unmatched, force):
    num_rows, num_columns = similarity.shape
    matches = np.full(num_columns, -1)
    for column in range(num_columns if num_rows else 0):
        row = np.argmax(similarity[:, column])
        best = similarity[row, column]
        matches[column] = row if best >= matched else -2 if best >= unmatched else -1
    for row in reversed(range(num_rows)):
        if force and valid_rows[row]:
            matches[np.argmax(similarity[row])] = row
    return matches


MATCHER = ArgMaxMatcher(0.7, 0.3, force_match_for_each_row=True)


@parametrize('num_rows', [0, 1, 6])
@parametrize('mode', ['eager', 'graph', 'xla'])
def test_batches_agree_with_a_loop(num_rows, mode):
    random = np.random.default_rng(num_rows)
    # Few values, so that there are ties.
    similarity = (random.integers(0, 10, [3, num_rows, 12]) / 10).astype(np.float32)
    valid_rows = random.uniform(size=[3, num_rows]) < 0.7
    match = MATCHER.match
    if mode != 'eager':
        signature = [tf.TensorSpec([None, None, None]), tf.TensorSpec([None, None], tf.bool)]
        match = tf.function(
            match, input_signature=signature, jit_compile=mode == 'xla', autograph=False
        )
    expected = [
        _match_oracle(matrix, valid, 0.7, 0.3, True)
        for matrix, valid in zip(similarity, valid_rows, strict=True)
    ]
    np.testing.assert_array_equal(match(similarity, valid_rows), expected)


def test_what_is_no_number_is_not_matched():
    similarity = np.array([[[np.nan, 0.9]]], np.float32)
    np.testing.assert_array_equal(_match(similarity, matched_threshold=0.5), [[-1, 0]])


@parametrize(
    'arguments',
    [
        {'matched_threshold': 0.3, 'unmatched_threshold': 0.5},
        {'matched_threshold': None, 'unmatched_threshold': 0.5},
        {'matched_threshold': 0.5, 'negatives_lower_than_unmatched': False},
        {'matched_threshold': None, 'negatives_lower_than_unmatched': False},
    ],
)
def test_thresholds_that_do_not_fit_are_rejected(arguments):
    with pytest.raises(ValueError, match=r'Received: matched_threshold'):
        ArgMaxMatcher(**arguments)


def _golden_match(case, matcher):
    similarity = case.inputs['similarity'][None]
    valid_rows = case.inputs.get('valid_rows', np.ones(similarity.shape[1], bool))[None]
    return matcher.match(similarity, valid_rows)


@goldens.rows('matchers', prefix=('argmax_m', 'argmax_proto', 'empty'))
def test_golden_configs(case_name):
    case = goldens.load('matchers', case_name)
    config = text_format.Parse(case.config, matcher_pb2.Matcher())
    if case.raises:
        with pytest.raises(ValueError, match=r'Received'):
            matcher_builder.build(config)
        return
    matcher = matcher_builder.build(config)
    assert matcher.use_matmul_gather == config.argmax_matcher.use_matmul_gather
    check_golden_matches(_golden_match(case, matcher)[0].numpy(), case)


@goldens.parametrize('matchers', prefix='argmax_empty')
def test_golden_empty_rows(case_name):
    case = goldens.load('matchers', case_name)
    check_golden_matches(_golden_match(case, MATCHER)[0].numpy(), case)


@goldens.parametrize('matchers', names=('argmax_unmatched_gt_matched',))
def test_golden_thresholds_that_do_not_fit(case_name):
    assert goldens.load('matchers', case_name).raises == 'ValueError'
    config = matcher_pb2.Matcher()
    config.argmax_matcher.unmatched_threshold = 0.7
    with pytest.raises(ValueError, match=r'must not be above.*Received'):
        matcher_builder.build(config)


@goldens.parametrize('matchers', names=('gather_based_on_match',))
@pytest.mark.parametrize('use_matmul', [False, True])
def test_golden_gather_based_on_match(case_name, use_matmul):
    case = goldens.load('matchers', case_name)
    params = [case.params['ignored_value'], case.params['unmatched_value'], *case.inputs['values']]
    matches = _golden_match(case, MATCHER)
    rows = sampling.gather_rows(
        tf.constant(np.stack(params)[None], tf.float32), matches + 2, use_matmul
    )
    np.testing.assert_array_equal(rows[0], case.outputs['gathered'])
