"""Greedy one-to-one matching of rows (ground truth) to columns (anchors)."""

import tensorflow as tf

from object_detection.matchers.matcher import UNMATCHED


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
