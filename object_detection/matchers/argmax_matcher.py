"""Matching of columns (anchors) to rows (ground truth) by the largest similarity."""

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from object_detection.core.shapes import dimensions
from object_detection.matchers.best_rows import BestRows, best_rows, best_rows_one_by_one
from object_detection.matchers.matcher import IGNORED, UNMATCHED


class ArgMaxMatcher:
    """Matches each column to the row most similar to it, if similar enough.

    A column is matched from `matched_threshold` on, unmatched (a negative) below
    `unmatched_threshold` and ignored in between. Of equally similar rows the first is taken.

    Args:
      matched_threshold: None matches every column, however small its similarity.
      unmatched_threshold: at most `matched_threshold`; None = the same.
      negatives_lower_than_unmatched: False exchanges the roles: unmatched in between, ignored
        below.
      force_match_for_each_row: whether each valid row also gets the column most similar to it,
        whatever the thresholds say; of equally similar columns the first, of several rows that
        claim a column the first.
      ignored_below: a column less similar than it to every row is ignored, whatever the other
        thresholds say; one that there are no rows for too, if it is above 0.
      use_matmul_gather: how what belongs to the matched rows is to be gathered where XLA compiles,
        see `core.sampling.gather_rows`; the numbers are the same.

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
            raise ValueError(
                'ArgMaxMatcher: unmatched_threshold needs a matched_threshold. ' + received
            )
        if matched_threshold is not None and unmatched_threshold > matched_threshold:
            raise ValueError(
                'ArgMaxMatcher: unmatched_threshold must not be above matched_threshold. '
                + received
            )
        if not negatives_lower_than_unmatched and matched_threshold == unmatched_threshold:
            raise ValueError(
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
        self.use_matmul_gather = use_matmul_gather

    def match(self, similarity: tf.Tensor, valid_rows: tf.Tensor) -> tf.Tensor:
        """Returns the row that each column is matched to.

        Args:
          similarity: float32 [B, M, N]; M may be 0, then all columns are unmatched, or ignored
            where `ignored_below` is above 0; N too.
          valid_rows: bool [B, M], rows that may be forced. The others are matched by similarity
            as well; it is for the caller to give them no weight.

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
        matches = self._decide(best_rows(similarity, valid_rows, self._force_match))
        return tf.where(num_rows > 0, matches, self._without_rows(shape[0], shape[2]))

    def match_one_by_one(
        self,
        similarity_of: Callable[[tf.Tensor], tf.Tensor],
        num_rows: int | tf.Tensor,
        valid_rows: tf.Tensor,
        num_columns: int | tf.Tensor,
    ) -> tf.Tensor:
        """Returns the same as `match`, by `best_rows_one_by_one`, whose arguments these are.

        Matches are equal to the bit where similarities are; XLA may round those differently.
        """
        best = best_rows_one_by_one(
            similarity_of, num_rows, valid_rows, num_columns, self._force_match
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
        if best.claims is not None:
            rows = tf.where(best.claims >= 0, best.claims, rows)
        return rows
