"""One-to-one matching of rows (ground truth) to columns with the largest total similarity."""

import tensorflow as tf

from object_detection.matchers import assignment


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
        return assignment.assign(-similarity, valid_rows)
