"""Matchers: which object an anchor is trained on."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np
import tensorflow as tf

from object_detection.core.shapes import dimensions
from object_detection.errors import UserError

# The match of a column without a row, in place of the row's index.
UNMATCHED = -1
IGNORED = -2
# Share in which the overlaps of one box with two of the same size may differ, where their edges are
# fractions of an image: half of 2**-23 by a side of a hundredth of it.
_ROUNDING = 1e-5


class Matcher(Protocol):
    """Matches columns (anchors) to rows (ground truth).

    Attributes:
      use_matmul_gather: whether entries of matched rows are gathered by matrix products under XLA,
        see `core.sampling.gather_rows`; the results are the same.
    """

    use_matmul_gather: bool

    def match(self, similarity: tf.Tensor, valid_rows: tf.Tensor) -> tf.Tensor:
        """Returns the row that each column is matched to.

        Args:
          similarity: float32 [B, M, N]; M may be 0, then all columns are unmatched.
          valid_rows: bool [B, M], whether each row is not padding.

        Returns:
          int32 [B, N]: a row's index, -1 for unmatched, -2 for ignored columns.
        """
        ...


class BestRows(NamedTuple):
    """The most similar rows of each column of similarities [B, M, N].

    Attributes:
      similarities: float32 [B, N], the largest of each column; minus infinity without rows.
      rows: int32 [B, N], the first row that has it; 0 without rows.
      forced_rows: int32 [B, N], the first valid row whose most similar column it is (the first one
        among equally similar columns), -1 for none; or, for low-quality matches, `rows` where it is
        the most similar column of a valid row, or one of several. None unless forced matches are
        requested.
    """

    similarities: tf.Tensor
    rows: tf.Tensor
    forced_rows: tf.Tensor | None


class ArgMaxMatcher:
    """Matches each column to the row most similar to it, if similar enough.

    A column is matched from `matched_threshold` on, unmatched (a negative) below
    `unmatched_threshold` and ignored in between. Among equally similar rows the first one is
    matched.

    Args:
      matched_threshold: None matches every column, regardless of its similarity.
      unmatched_threshold: at most `matched_threshold`; None means the same value.
      negatives_lower_than_unmatched: False exchanges the roles: columns between the thresholds are
        unmatched, columns below are ignored.
      force_match_for_each_row: whether each valid row is also matched to the column most similar to
        it, regardless of the thresholds; ties are resolved in favour of the first column, and of
        the first row if several rows have the same column.
      low_quality_matches: whether, in place of that, all columns that are most similar to a valid
        row, if they are similar at all, are matched to the row most similar to them, as by
        torchvision and detectron2.
      ignored_below: a column whose similarity to every row is below this value is ignored,
        regardless of the other thresholds; if it is above 0, so are all columns without any rows.
      use_matmul_gather: whether entries of matched rows are gathered by matrix products under XLA,
        see `core.sampling.gather_rows`; the results are the same.

    Raises:
      ValueError: for thresholds in the wrong order, one without the other, or
        `negatives_lower_than_unmatched=False` where nothing is in between.
    """

    def __init__(
        self,
        matched_threshold: float | None,
        unmatched_threshold: float | None = None,
        *,
        negatives_lower_than_unmatched: bool = True,
        force_match_for_each_row: bool = False,
        low_quality_matches: bool = False,
        ignored_below: float = 0.0,
        use_matmul_gather: bool = False,
    ):
        if unmatched_threshold is None:
            unmatched_threshold = matched_threshold
        received = (
            f'Received: matched_threshold={matched_threshold}, '
            f'unmatched_threshold={unmatched_threshold}.'
        )
        if matched_threshold is None and unmatched_threshold is not None:
            raise UserError(
                'ArgMaxMatcher: unmatched_threshold needs a matched_threshold. ' + received
            )
        if matched_threshold is not None and unmatched_threshold > matched_threshold:
            raise UserError(
                'ArgMaxMatcher: unmatched_threshold must not be above matched_threshold. '
                + received
            )
        if not negatives_lower_than_unmatched and matched_threshold == unmatched_threshold:
            raise UserError(
                'ArgMaxMatcher: negatives_lower_than_unmatched=False makes negatives of what is '
                'between the thresholds, so unmatched_threshold must be below matched_threshold. '
                + received
            )
        self._matched_threshold = matched_threshold
        self._unmatched_threshold = unmatched_threshold
        codes = (UNMATCHED, IGNORED)
        self._below, self._between = codes if negatives_lower_than_unmatched else codes[::-1]
        self._ignored_below = ignored_below
        self._force_match = force_match_for_each_row
        self._low_quality = low_quality_matches
        self.use_matmul_gather = use_matmul_gather

    def match(self, similarity: tf.Tensor, valid_rows: tf.Tensor) -> tf.Tensor:
        """Returns the row that each column is matched to.

        Args:
          similarity: float32 [B, M, N]; M may be 0, then all columns are unmatched, or ignored
            where `ignored_below` is above 0; N too.
          valid_rows: bool [B, M], rows that may be forced. The others are also matched by
            similarity; the caller should give them weight 0.

        Returns:
          int32 [B, N]: a row's index, -1 for unmatched, -2 for ignored columns.
        """
        shape = tf.shape(similarity)
        if similarity.shape[1] == 0:
            return self._without_rows(shape[0], shape[2])
        num_rows = shape[1]
        if similarity.shape[1] is None:
            # There is no arg max without a row. Not a tf.cond: XLA compiles both branches.
            missing = [[0, 0], [0, tf.maximum(1 - num_rows, 0)]]
            similarity = tf.pad(similarity, [*missing, [0, 0]], constant_values=-np.inf)
            valid_rows = tf.pad(valid_rows, missing)
        best = best_rows(similarity, valid_rows, self._force_match, self._low_quality)
        matches = self._decide(best)
        return tf.where(num_rows > 0, matches, self._without_rows(shape[0], shape[2]))

    def match_one_by_one(
        self,
        similarity_of: Callable[[tf.Tensor], tf.Tensor],
        num_rows: int | tf.Tensor,
        valid_rows: tf.Tensor,
        num_columns: int | tf.Tensor,
    ) -> tf.Tensor:
        """Returns the same as `match`, using `best_rows_one_by_one`, which has the same arguments.

        Matches are equal if the similarities are bitwise equal; XLA may round similarities
        differently.
        """
        best = best_rows_one_by_one(
            similarity_of, num_rows, valid_rows, num_columns, self._force_match, self._low_quality
        )
        (batch,) = dimensions(valid_rows, 0)
        return tf.where(num_rows > 0, self._decide(best), self._without_rows(batch, num_columns))

    def _without_rows(self, num_images: int | tf.Tensor, num_columns: int | tf.Tensor) -> tf.Tensor:
        return tf.fill([num_images, num_columns], IGNORED if self._ignored_below > 0 else UNMATCHED)

    def _decide(self, best: BestRows) -> tf.Tensor:
        rows = best.rows
        if self._matched_threshold is not None:
            most = best.similarities
            missed = tf.where(most >= self._unmatched_threshold, self._between, self._below)
            if self._ignored_below > 0:
                missed = tf.where(most >= self._ignored_below, missed, IGNORED)
            rows = tf.where(most >= self._matched_threshold, rows, missed)
        if best.forced_rows is not None:
            rows = tf.where(best.forced_rows >= 0, best.forced_rows, rows)
        return rows


def best_rows(
    similarity: tf.Tensor, valid_rows: tf.Tensor, with_forced: bool, low_quality: bool = False
) -> BestRows:
    """Finds the best rows of a matrix.

    Args:
      similarity: float32 [B, M, N], M at least 1.
      valid_rows: bool [B, M], the rows that may be forced.
      with_forced: whether to compute `forced_rows`.
      low_quality: whether these are of low-quality matches.
    """
    rows, forced = tf.argmax(similarity, axis=1, output_type=tf.int32), None
    if with_forced and low_quality:
        is_most = _is_most(similarity) & valid_rows[:, :, tf.newaxis]
        forced = tf.where(tf.reduce_any(is_most, axis=1), rows, UNMATCHED)
    elif with_forced:
        forced = _forced_rows(similarity, valid_rows)
    return BestRows(tf.reduce_max(similarity, axis=1), rows, forced)


def _is_most(similarity: tf.Tensor) -> tf.Tensor:
    """Returns which columns, the last axis, are the most similar ones, and similar at all."""
    most = tf.reduce_max(similarity, axis=-1, keepdims=True)
    return (similarity >= most * (1 - _ROUNDING)) & (similarity > 0)


def best_rows_one_by_one(
    similarity_of: Callable[[tf.Tensor], tf.Tensor],
    num_rows: int | tf.Tensor,
    valid_rows: tf.Tensor,
    num_columns: int | tf.Tensor,
    with_forced: bool,
    low_quality: bool = False,
) -> BestRows:
    """Returns the same as `best_rows`, but computes the rows of the matrix one at a time.

    Memory does not depend on M, and a row stays in the processor's cache, so for large matrices
    this is faster than the whole matrix. No gradients flow.

    Args:
      similarity_of: `(row, an int32 scalar) -> float32 [B, N]`.
      num_rows: number of rows to compute, 0 to M. Further rows must equal the last one, or be less
        similar to every column than another row; they are never forced.
      valid_rows: bool [B, M].
      num_columns: N.
      with_forced: whether to compute `forced_rows`.
      low_quality: whether these are of low-quality matches.
    """
    (batch,) = dimensions(valid_rows, 0)
    # Float32 throughout, since TensorFlow compares int32 on the host; the numbers are exact.
    columns = tf.range(tf.cast(num_columns, tf.float32))
    unforced = float(UNMATCHED)

    def visit(
        row: tf.Tensor, best: tf.Tensor, rows: tf.Tensor, forced: tf.Tensor
    ) -> tuple[tf.Tensor, ...]:
        similarity = tf.ensure_shape(similarity_of(row), best.shape)
        number = tf.cast(row, tf.float32)
        rows = tf.where(similarity > best, number, rows)
        if with_forced and low_quality:
            is_forced = _is_most(similarity) & tf.gather(valid_rows, row, axis=1)[:, tf.newaxis]
            forced = tf.where(is_forced, 0.0, forced)
        elif with_forced:
            most = tf.reduce_max(similarity, axis=1, keepdims=True)
            best_columns = tf.where(similarity == most, columns, np.inf)
            is_forced = columns == tf.reduce_min(best_columns, axis=1, keepdims=True)
            is_forced &= tf.gather(valid_rows, row, axis=1)[:, tf.newaxis]
            forced = tf.where(is_forced & (forced == unforced), number, forced)
        return row + 1, tf.maximum(best, similarity), rows, forced

    def filled(value: float) -> tf.Tensor:
        return tf.fill([batch, num_columns], value)

    start = (0, filled(-np.inf), filled(0.0), filled(unforced) if with_forced else 0.0)
    _, best, rows, forced = tf.while_loop(lambda row, *_: row < num_rows, visit, start)
    if low_quality:
        forced = tf.where(forced == unforced, unforced, rows)
    return BestRows(
        similarities=best,
        rows=tf.cast(rows, tf.int32),
        forced_rows=tf.cast(forced, tf.int32) if with_forced else None,
    )


def _forced_rows(similarity: tf.Tensor, valid_rows: tf.Tensor) -> tf.Tensor:
    """Computes `BestRows.forced_rows` by scattering M rows instead of comparing M x N pairs."""
    shape = tf.shape(similarity)
    num_images, num_rows, num_columns = shape[0], shape[1], shape[2]
    # There is no arg max without a column.
    missing = tf.maximum(1 - num_columns, 0)
    similarity = tf.pad(similarity, [[0, 0], [0, 0], [0, missing]], constant_values=-np.inf)
    best_columns = tf.argmax(similarity, axis=2, output_type=tf.int32)  # [B, M]
    images = tf.broadcast_to(tf.range(num_images)[:, tf.newaxis], [num_images, num_rows])
    # Float32 as TensorFlow scatters int32 on the host; row numbers are exact. Rows that are not
    # valid scatter the number that stands for no row.
    none = tf.cast(num_rows, tf.float32)
    rows = tf.where(valid_rows, tf.range(num_rows, dtype=tf.float32), none)
    first = tf.tensor_scatter_nd_min(
        tf.fill([num_images, num_columns + missing], none),
        tf.stack([images, best_columns], axis=-1),
        rows,
    )[:, :num_columns]
    return tf.where(first < none, tf.cast(first, tf.int32), UNMATCHED)


class BipartiteMatcher:
    """Matches the most similar pair, then the most similar remaining pair, and so on.

    Among equally similar pairs, the first row is matched, then the first column. Each valid row
    gets a column as long as there are any; all other columns are unmatched, none is ignored. (The
    reference has this matcher under TensorFlow 1 only, where it numbers the rows after it has moved
    invalid rows to the end.)

    Args:
      use_matmul_gather: see `Matcher`.
    """

    def __init__(self, *, use_matmul_gather: bool = False):
        self.use_matmul_gather = use_matmul_gather

    def match(self, similarity: tf.Tensor, valid_rows: tf.Tensor) -> tf.Tensor:
        """Returns the row that each column is matched to.

        In each round, all pairs that are the best of both their row and their column are matched.
        The result is the same as matching one pair after the other, in a few rounds.

        Args:
          similarity: float32 [B, M, N]; M may be 0. NaN is never matched.
          valid_rows: bool [B, M]; invalid rows are not matched.

        Returns:
          int32 [B, N]: a row's index, -1 for unmatched columns.
        """
        is_pair = valid_rows[:, :, tf.newaxis] & ~tf.math.is_nan(similarity)
        # An additional row and column, so that a maximum exists even without rows or columns.
        left = tf.pad(
            tf.where(is_pair, similarity, -float('inf')),
            [[0, 0], [0, 1], [0, 1]],
            constant_values=-float('inf'),
        )
        shape = tf.shape(left)
        matches = tf.fill([shape[0], shape[2]], UNMATCHED)
        _, matches = tf.while_loop(
            lambda left, _: tf.reduce_any(left > -float('inf')),
            _match_mutual_bests,
            (left, matches),
        )
        return matches[:, :-1]


def _match_mutual_bests(left: tf.Tensor, matches: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """One round, given [B, M, N] similarities of remaining pairs (else -inf) and matches [B, N]."""
    shape = tf.shape(left)
    best_column = tf.argmax(left, axis=2, output_type=tf.int32)  # [B, M]
    best_row = tf.argmax(left, axis=1, output_type=tf.int32)  # [B, N]
    is_mutual = tf.gather(best_column, best_row, batch_dims=1) == tf.range(shape[2])
    is_matched = is_mutual & (tf.reduce_max(left, axis=1) > -float('inf'))  # [B, N]
    is_row_matched = tf.gather(is_matched, best_column, batch_dims=1) & (
        tf.gather(best_row, best_column, batch_dims=1) == tf.range(shape[1])
    )
    is_gone = is_row_matched[:, :, tf.newaxis] | is_matched[:, tf.newaxis, :]
    return tf.where(is_gone, -float('inf'), left), tf.where(is_matched, best_row, matches)
