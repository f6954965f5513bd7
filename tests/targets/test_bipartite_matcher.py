import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format

from object_detection.builders import matcher_builder
from object_detection.protos import matcher_pb2
from object_detection.targets.matchers import BipartiteMatcher
from tests import goldens, slow_cases

MATCHER = BipartiteMatcher()
SIMILARITY = np.array(
    [[[0.9, 0.8, 0.1, 0.0], [0.8, 0.7, 0.1, 0.6], [0.85, 0.0, 0.2, 0.2]]], np.float32
)


def test_the_most_similar_pairs_come_first():
    # 0.9 takes column 0 from rows 1 and 2, 0.7 is the largest of what is left, then 0.2.
    matches = MATCHER.match(SIMILARITY, np.ones([1, 3], bool))
    assert matches.dtype == tf.int32
    np.testing.assert_array_equal(matches, [[0, 1, 2, -1]])


def test_rows_that_are_not_valid_get_nothing():
    matches = MATCHER.match(SIMILARITY, np.array([[False, True, True]]))
    np.testing.assert_array_equal(matches, [[2, 1, -1, -1]])


def test_dissimilar_pairs_are_matched_too_and_rows_without_a_column_are_not():
    matches = MATCHER.match(-SIMILARITY[:, :, :2], np.ones([1, 3], bool))
    np.testing.assert_array_equal(matches, [[1, 2]])


def test_of_equally_similar_pairs_the_first_is_taken():
    matches = MATCHER.match(np.zeros([1, 2, 3], np.float32), np.ones([1, 2], bool))
    np.testing.assert_array_equal(matches, [[0, 1, -1]])


def test_what_is_no_number_is_not_matched():
    similarity = np.array([[[np.nan, np.nan], [0.3, np.nan]]], np.float32)
    np.testing.assert_array_equal(MATCHER.match(similarity, np.ones([1, 2], bool)), [[1, -1]])


def one_after_the_other(similarity, valid_rows):
    left = np.where(valid_rows[:, np.newaxis], similarity, -np.inf)
    matches = np.full(left.shape[1], -1)
    for _ in range(min(valid_rows.sum(), left.shape[1])):
        row, column = np.unravel_index(np.argmax(left), left.shape)
        matches[column] = row
        left[row], left[:, column] = -np.inf, -np.inf
    return matches


@slow_cases.parametrize(2, 'num_rows', [7, 0, 1, 15])
@pytest.mark.parametrize('mode', ['eager', 'graph', 'xla'])
def test_batches_agree_with_a_loop(num_rows, mode):
    random = np.random.default_rng(num_rows)
    # Few values, so that there are ties.
    similarity = (random.integers(-3, 9, [4, num_rows, 12]) / 10).astype(np.float32)
    valid_rows = random.uniform(size=[4, num_rows]) < 0.7
    match = MATCHER.match
    if mode != 'eager':
        signature = [tf.TensorSpec([None, None, None]), tf.TensorSpec([None, None], tf.bool)]
        match = tf.function(
            match, input_signature=signature, jit_compile=mode == 'xla', autograph=False
        )
    expected = [one_after_the_other(*image) for image in zip(similarity, valid_rows, strict=True)]
    np.testing.assert_array_equal(match(similarity, valid_rows), expected)


@goldens.parametrize('matchers', names=('bipartite_builder_tf2',))
def test_what_the_reference_refuses_is_built(case_name):
    case = goldens.load('matchers', case_name)
    assert case.raises == 'ValueError'
    matcher = matcher_builder.build(text_format.Parse(case.config, matcher_pb2.Matcher()))
    assert isinstance(matcher, BipartiteMatcher)
