"""For each column of a matrix of similarities its best row, and the rows that claim columns."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from object_detection.core.shapes import dimensions
from object_detection.matchers.matcher import UNMATCHED


class BestRows(NamedTuple):
    """What decides about the columns of similarities [B, M, N].

    Attributes:
      similarities: float32 [B, N], the largest of each column; minus infinity without rows.
      rows: int32 [B, N], the first row that has it; 0 without rows.
      claims: int32 [B, N], the first valid row of which a column is the most similar one (of
        equally similar columns the first), -1 for none. None where nobody asked.
    """

    similarities: tf.Tensor
    rows: tf.Tensor
    claims: tf.Tensor | None


def best_rows(similarity: tf.Tensor, valid_rows: tf.Tensor, with_claims: bool) -> BestRows:
    """Finds the best rows of a matrix.

    Args:
      similarity: float32 [B, M, N], M at least 1.
      valid_rows: bool [B, M], those that may claim columns.
      with_claims: whether claims are asked for.
    """
    return BestRows(
        similarities=tf.reduce_max(similarity, axis=1),
        rows=tf.argmax(similarity, axis=1, output_type=tf.int32),
        claims=_claims(similarity, valid_rows) if with_claims else None,
    )


def best_rows_one_by_one(
    similarity_of: Callable[[tf.Tensor], tf.Tensor],
    num_rows: int | tf.Tensor,
    valid_rows: tf.Tensor,
    num_columns: int | tf.Tensor,
    with_claims: bool,
) -> BestRows:
    """Finds the same as `best_rows`, of a matrix of which there is only one row at a time.

    Its memory does not depend on M, and what a row needs stays in a processor's cache: it is faster
    than the whole matrix where that is large. No gradients flow.

    Args:
      similarity_of: `(row, an int32 scalar) -> float32 [B, N]`.
      num_rows: the rows to visit, 0 to M; the others are all as the last one, or less similar to
        every column than another, and do not claim.
      valid_rows: bool [B, M].
      num_columns: N.
      with_claims: as of `best_rows`.
    """
    (batch,) = dimensions(valid_rows, 0)
    # Float32 throughout, as TensorFlow compares int32 on the host; the numbers are exact.
    columns = tf.range(tf.cast(num_columns, tf.float32))
    unclaimed = float(UNMATCHED)

    def visit(
        row: tf.Tensor, best: tf.Tensor, rows: tf.Tensor, claims: tf.Tensor
    ) -> tuple[tf.Tensor, ...]:
        similarity = tf.ensure_shape(similarity_of(row), best.shape)
        number = tf.cast(row, tf.float32)
        rows = tf.where(similarity > best, number, rows)
        if with_claims:
            most = tf.reduce_max(similarity, axis=1, keepdims=True)
            claimed = tf.where(similarity == most, columns, np.inf)
            is_claimed = columns == tf.reduce_min(claimed, axis=1, keepdims=True)
            is_claimed &= tf.gather(valid_rows, row, axis=1)[:, tf.newaxis]
            claims = tf.where(is_claimed & (claims == unclaimed), number, claims)
        return row + 1, tf.maximum(best, similarity), rows, claims

    def filled(value: float) -> tf.Tensor:
        return tf.fill([batch, num_columns], value)

    start = (0, filled(-np.inf), filled(0.0), filled(unclaimed) if with_claims else 0.0)
    _, best, rows, claims = tf.while_loop(lambda row, *_: row < num_rows, visit, start)
    return BestRows(
        similarities=best,
        rows=tf.cast(rows, tf.int32),
        claims=tf.cast(claims, tf.int32) if with_claims else None,
    )


def _claims(similarity: tf.Tensor, valid_rows: tf.Tensor) -> tf.Tensor:
    """It scatters the M claims of an image rather than compare all M x N pairs."""
    shape = tf.shape(similarity)
    num_images, num_rows, num_columns = shape[0], shape[1], shape[2]
    # There is no arg max without a column.
    missing = tf.maximum(1 - num_columns, 0)
    similarity = tf.pad(similarity, [[0, 0], [0, 0], [0, missing]], constant_values=-np.inf)
    claimed = tf.argmax(similarity, axis=2, output_type=tf.int32)  # [B, M]
    images = tf.broadcast_to(tf.range(num_images)[:, tf.newaxis], [num_images, num_rows])
    # Float32 as TensorFlow scatters int32 on the host; row numbers are exact. Rows that are not
    # valid claim with the number that stands for no row.
    none = tf.cast(num_rows, tf.float32)
    claims = tf.where(valid_rows, tf.range(num_rows, dtype=tf.float32), none)
    first = tf.tensor_scatter_nd_min(
        tf.fill([num_images, num_columns + missing], none),
        tf.stack([images, claimed], axis=-1),
        claims,
    )[:, :num_columns]
    return tf.where(first < none, tf.cast(first, tf.int32), UNMATCHED)
