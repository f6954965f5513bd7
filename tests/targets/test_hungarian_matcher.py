import itertools

import numpy as np
import pytest
import tensorflow as tf

from object_detection.builders import matcher_builder
from object_detection.protos import matcher_pb2
from object_detection.targets import hungarian
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


def _least_cost(costs):
    """By trying all assignments."""
    if costs.shape[0] > costs.shape[1]:
        costs = costs.T
    rows = np.arange(len(costs))
    orders = itertools.permutations(range(costs.shape[1]), len(costs))
    return min(costs[rows, list(order)].sum() for order in orders)


@pytest.mark.parametrize(
    'options', [None, {}, {'jit_compile': True}], ids=['eager', 'graph', 'xla']
)
@pytest.mark.parametrize('shape', [(4, 5), (5, 3)])
def test_no_assignment_costs_less(options, shape):
    assign = hungarian.assign
    if options is not None:
        assign = tf.function(assign, autograph=False, **options)
    random = np.random.default_rng(3)
    costs = random.normal(size=[12, *shape]).astype(np.float32)
    # Ties; sums of whole numbers are exact.
    costs[::2] = np.round(3 * costs[::2])
    valid = random.uniform(size=costs.shape[:2]) < 0.8
    for cost, rows, row_of in zip(costs, valid, assign(costs, valid).numpy(), strict=True):
        columns = np.flatnonzero(row_of >= 0)
        used = row_of[columns]
        assert len(np.unique(used)) == len(used) == min(rows.sum(), shape[1])
        assert rows[used].all()
        # Sums in another order.
        total = cost[used, columns].astype(np.float64).sum()
        np.testing.assert_allclose(total, _least_cost(cost[rows].astype(np.float64)), atol=1e-12)
