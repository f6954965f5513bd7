import itertools

import numpy as np
import pytest
import tensorflow as tf

from object_detection.targets import hungarian
from tests import slow_cases


def check_cheapest(row_of, costs, valid_rows):
    """The rows [N] are a one-to-one assignment, and none costs less."""
    rows, columns = np.flatnonzero(valid_rows), np.flatnonzero(row_of >= 0)
    num_pairs = min(len(rows), len(row_of))
    assert len(columns) == len(set(row_of[columns])) == num_pairs
    assert set(row_of[columns]) <= set(rows)
    ways = itertools.product(
        itertools.combinations(rows, num_pairs),
        itertools.permutations(range(len(row_of)), num_pairs),
    )
    least = min(costs[list(some), list(order)].sum() for some, order in ways)
    np.testing.assert_allclose(costs[row_of[columns], columns].sum(), least, rtol=1e-9)


def random_costs(seed, num_rows, num_columns):
    random = np.random.default_rng(seed)
    costs = random.normal(size=[3, num_rows, num_columns])
    # Of few values in one image, so that there are ties; far apart in another.
    costs[1] = np.round(costs[1])
    costs[2] *= 1000
    return costs.astype(np.float32), random.uniform(size=[3, num_rows]) < 0.8


@pytest.mark.parametrize('mode', ['eager', 'graph', 'xla'])
@slow_cases.parametrize(2, ('num_rows', 'num_columns'), [(3, 5), (5, 3), (0, 3), (5, 5)])
def test_no_assignment_costs_less(num_rows, num_columns, mode):
    assign = hungarian.assign
    if mode != 'eager':
        signature = [tf.TensorSpec([None, None, None]), tf.TensorSpec([None, None], tf.bool)]
        assign = tf.function(
            assign, input_signature=signature, jit_compile=mode == 'xla', autograph=False
        )
    for seed in range(2 if mode == 'eager' else 8):
        costs, valid_rows = random_costs(seed, num_rows, num_columns)
        row_of = assign(costs, valid_rows).numpy()
        assert row_of.shape == (3, num_columns)
        for image in range(3):
            check_cheapest(row_of[image], costs[image].astype(np.float64), valid_rows[image])


def test_rows_move_for_later_ones():
    # Each row takes the first column while it can, and moves on for the next row.
    costs = np.array([[[0.0, 1, 2, 3], [0, 2, 4, 6], [0, 3, 6, 9], [0, 4, 8, 12]]], np.float32)
    row_of = hungarian.assign(costs, np.ones([1, 4], bool))
    np.testing.assert_array_equal(row_of, [[3, 2, 1, 0]])


def test_invalid_rows_may_hold_anything():
    costs = np.array([[[np.nan, np.inf], [2, 1]]], np.float32)
    row_of = hungarian.assign(costs, np.array([[False, True]]))
    np.testing.assert_array_equal(row_of, [[-1, 1]])


def test_costs_that_are_no_numbers_end():
    costs = np.full([1, 3, 4], np.nan, np.float32)
    assert hungarian.assign(costs, np.ones([1, 3], bool)).shape == (1, 4)
