"""What all matchers share: the numbers of columns without a row, and their interface."""

from typing import Protocol

import tensorflow as tf

# What a column that is matched to no row has in place of the row's index.
UNMATCHED = -1
IGNORED = -2


class Matcher(Protocol):
    """Matches columns (anchors) to rows (ground truth).

    Attributes:
      use_matmul_gather: how what belongs to the matched rows is to be gathered where XLA compiles,
        see `core.sampling.gather_rows`; the numbers are the same.
    """

    use_matmul_gather: bool

    def match(self, similarity: tf.Tensor, valid_rows: tf.Tensor) -> tf.Tensor:
        """Returns the row that each column is matched to.

        Args:
          similarity: float32 [B, M, N]; M may be 0, then all columns are unmatched.
          valid_rows: bool [B, M], rows that are no padding.

        Returns:
          int32 [B, N]: a row's index, -1 for unmatched, -2 for ignored columns.
        """
        ...
