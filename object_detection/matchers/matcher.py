"""The interface of all matchers, and the codes of columns that are not matched."""

from typing import Protocol

import tensorflow as tf

# The match of a column without a row, in place of the row's index.
UNMATCHED = -1
IGNORED = -2


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
