import numpy as np
import tensorflow as tf

from object_detection.builders import matcher_builder
from object_detection.protos import matcher_pb2
from object_detection.targets.hungarian import HungarianMatcher
from tests import goldens
from tests.targets.golden_matches import check_golden_matches


def test_the_sum_counts_not_the_best_pair():
    matches = HungarianMatcher().match(
        np.array([[[0.9, 0.8, 0.0], [0.8, 0.1, 0.0]]], np.float32), np.ones([1, 2], bool)
    )
    assert matches.dtype == tf.int32
    np.testing.assert_array_equal(matches, [[1, 0, -1]])


@goldens.parametrize('matchers', prefix='hungarian')
def test_golden_matches(case_name):
    case = goldens.load('matchers', case_name)
    similarity, valid_rows = case.inputs['similarity'], case.inputs['valid_rows']
    matcher = matcher_builder.build(matcher_pb2.Matcher(hungarian_matcher={}))
    matches = matcher.match(similarity[np.newaxis], valid_rows[np.newaxis])[0].numpy()
    # The reference numbers the valid rows alone.
    assert valid_rows[matches[matches >= 0]].all()
    numbers = np.cumsum(valid_rows) - 1
    check_golden_matches(np.where(matches >= 0, numbers[matches], matches), case)
