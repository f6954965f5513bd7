"""The linear assignment problem: assigns a distinct column to each row at minimum total cost.

One-to-one matching of rows (ground truth) to columns with the largest total similarity.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from object_detection.core.shapes import dimensions

_NONE = -1
_INFINITE = np.float64('inf')


class _State(NamedTuple):
    """An assignment of some rows with minimum total cost.

    Attributes:
      row_of: int32 [B, N], the row of each column, -1 for a free column.
      prices: float64 [B, N], dual variables. The column assigned to a row has the lowest cost minus
        price of that row.
    """

    row_of: tf.Tensor
    prices: tf.Tensor


class _Search(NamedTuple):
    """Shortest paths from a row, over columns and the rows assigned to them, to a free column.

    Attributes:
      row: int32 [B], the row from which paths are extended.
      offset: float64 [B], number that is added to the costs of that row.
      distance: float64 [B, N], length of the shortest known path.
      before: int32 [B, N], the row before each column on that path.
      is_final: bool [B, N], columns whose distance is final.
      end: int32 [B], the free column that was reached, -1 for none so far.
      is_over: bool [B]
    """

    row: tf.Tensor
    offset: tf.Tensor
    distance: tf.Tensor
    before: tf.Tensor
    is_final: tf.Tensor
    end: tf.Tensor
    is_over: tf.Tensor


def assign(costs: tf.Tensor, valid_rows: tf.Tensor) -> tf.Tensor:
    """Assigns columns to rows by shortest augmenting paths (Jonker and Volgenant,
    https://doi.org/10.1007/BF02278710), for all matrices of a batch in parallel.

    As many valid rows as possible get a column; among all such assignments, the total cost is
    minimal. The loops consist of graph operations that XLA can compile.

    Args:
      costs: float [B, M, N], finite in valid rows.
      valid_rows: bool [B, M]; the others get no column.

    Returns:
      int32 [B, N]: the row of each column, -1 for none.
    """
    batch, num_rows, num_columns = dimensions(costs, 0, 1, 2)
    # Float64, since the lengths of paths are sums of differences.
    costs = tf.where(valid_rows[:, :, tf.newaxis], tf.cast(costs, tf.float64), 0.0)
    costs = _with_a_column_for_each_row(costs)
    # An additional invalid row, so that there is at least one row.
    costs = tf.pad(costs, [[0, 0], [0, 1], [0, 0]])
    valid_rows = tf.pad(valid_rows, [[0, 0], [0, 1]])
    (width,) = dimensions(costs, 2)
    state = _State(
        row_of=tf.fill([batch, width], _NONE), prices=tf.zeros([batch, width], tf.float64)
    )
    _, state = tf.while_loop(
        lambda row, _: row < num_rows,
        lambda row, state: (row + 1, _add_row(costs, valid_rows, row, state)),
        (tf.constant(0), state),
    )
    return state.row_of[:, :num_columns]


def _with_a_column_for_each_row(costs: tf.Tensor) -> tf.Tensor:
    """If there are more rows than columns, adds columns that cost more than any other path.

    Differences between costs below about 1e-13 * M of the largest cost are then lost by rounding.
    """
    batch, num_rows, num_columns = dimensions(costs, 0, 1, 2)
    if isinstance(num_rows, int) and isinstance(num_columns, int) and num_rows <= num_columns:
        return costs
    largest = tf.reduce_max(tf.abs(costs), axis=[1, 2], keepdims=True)
    # Without a column the largest is that of nothing, minus infinity.
    dear = (tf.maximum(largest, 0.0) + 1.0) * 4.0 * (tf.cast(num_rows, tf.float64) + 1.0)
    spare = tf.maximum(num_rows - num_columns, 0)
    return tf.concat([costs, tf.broadcast_to(dear, [batch, num_rows, spare])], axis=2)


def _add_row(costs: tf.Tensor, valid_rows: tf.Tensor, row: tf.Tensor, state: _State) -> _State:
    """Assigns a column to one valid row of each matrix; other rows may be reassigned."""
    is_valid = valid_rows[:, row]
    search = _search(costs, state, row, is_over=~is_valid)
    end = tf.where(is_valid, search.end, _NONE)
    length = tf.gather(search.distance, tf.maximum(end, 0), batch_dims=1)[:, tf.newaxis]
    change = tf.where(search.is_final & (end >= 0)[:, tf.newaxis], length - search.distance, 0.0)
    return _State(_shift(state.row_of, search.before, row, end), state.prices - change)


def _search(costs: tf.Tensor, state: _State, row: tf.Tensor, is_over: tf.Tensor) -> _Search:
    """Finds the shortest path (Dijkstra) from `row` to a free column, unless `is_over`."""
    batch, width = dimensions(costs, 0, 2)
    start = _Search(
        row=tf.fill([batch], row),
        offset=tf.zeros([batch], tf.float64),
        distance=tf.fill([batch, width], _INFINITE),
        before=tf.fill([batch, width], row),
        is_final=tf.fill([batch, width], False),
        end=tf.fill([batch], _NONE),
        is_over=is_over,
    )
    # Each step makes a column final, so that the loop terminates even with NaN.
    (search,) = tf.while_loop(
        lambda search: ~tf.reduce_all(search.is_over),
        lambda search: (_extend(costs, state, search),),
        (start,),
        maximum_iterations=width,
    )
    return search


def _extend(costs: tf.Tensor, state: _State, search: _Search) -> _Search:
    """Extends paths from the row of the nearest column that is not final."""
    through = tf.gather(costs, search.row, batch_dims=1) - state.prices + search.offset[:, None]
    is_shorter = (through < search.distance) & ~search.is_final
    distance = tf.where(is_shorter, through, search.distance)
    before = tf.where(is_shorter, search.row[:, tf.newaxis], search.before)
    nearest = tf.argmin(
        tf.where(search.is_final, _INFINITE, distance), axis=1, output_type=tf.int32
    )
    row = tf.gather(state.row_of, nearest, batch_dims=1)
    next_row = tf.maximum(row, 0)

    def at_nearest(values: tf.Tensor) -> tf.Tensor:
        return tf.gather(values, nearest, batch_dims=1)

    # A path back over an assigned pair subtracts its cost and price.
    costs_back = at_nearest(tf.gather(costs, next_row, batch_dims=1)) - at_nearest(state.prices)
    extended = _Search(
        row=next_row,
        offset=at_nearest(distance) - costs_back,
        distance=distance,
        before=before,
        is_final=search.is_final | tf.one_hot(nearest, tf.shape(distance)[1], True, False),
        end=tf.where(row == _NONE, nearest, _NONE),
        is_over=row == _NONE,
    )
    return _Search(
        *(
            tf.where(tf.reshape(search.is_over, [-1] + [1] * (new.shape.rank - 1)), old, new)
            for old, new in zip(search, extended, strict=True)
        )
    )


def _shift(row_of: tf.Tensor, before: tf.Tensor, row: tf.Tensor, end: tf.Tensor) -> tf.Tensor:
    """Assigns each column on the path from `row` to `end` [B] to the row before it on the path."""

    def step(column: tf.Tensor, shifted: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        is_here = tf.one_hot(column, tf.shape(row_of)[1], True, False)  # None of column -1.
        taker = tf.gather(before, tf.maximum(column, 0), batch_dims=1)
        given_up = tf.argmax(row_of == taker[:, tf.newaxis], axis=1, output_type=tf.int32)
        is_last = (column == _NONE) | (taker == row)
        return (
            tf.where(is_last, _NONE, given_up),
            tf.where(is_here, taker[:, tf.newaxis], shifted),
        )

    _, shifted = tf.while_loop(
        lambda column, _: tf.reduce_any(column >= 0),
        step,
        (end, row_of),
        maximum_iterations=tf.shape(row_of)[1],
    )
    return shifted


class HungarianMatcher:
    """Matches one to one so that the sum of similarities is largest (DETR,
    https://arxiv.org/abs/2005.12872, sec. 3.1).

    Each valid row gets a column as long as there are any; all other columns are unmatched, none is
    ignored. (The reference numbers only the valid rows.)

    Args:
      use_matmul_gather: see `Matcher`.
    """

    def __init__(self, *, use_matmul_gather: bool = False):
        self.use_matmul_gather = use_matmul_gather

    def match(self, similarity: tf.Tensor, valid_rows: tf.Tensor) -> tf.Tensor:
        """Returns the row that each column is matched to.

        Args:
          similarity: float32 [B, M, N], finite in valid rows; M may be 0.
          valid_rows: bool [B, M]; invalid rows are not matched.

        Returns:
          int32 [B, N]: a row's index, -1 for unmatched columns.
        """
        return assign(-similarity, valid_rows)
