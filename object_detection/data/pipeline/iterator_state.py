"""From where an input pipeline goes on after a batch: what batches carry as `STREAM_STATE`.

The state int64 [(1 + W) * R] is a row (`record_order`), from which the pipeline reads on, and the
rows of W examples that were read but wait in a bucket for others of their size; -1 where none
waits. W is 0 without several buckets.
"""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from object_detection.core.fields import InputFields as F
from object_detection.data.objects import Example


def with_waiting(
    examples: tf.data.Dataset,
    sizes: Sequence[tuple[int, int]],
    window: int,
    start: np.ndarray,
) -> tf.data.Dataset:
    """Replaces the rows of examples by the state after each, for `pipeline.batch_by_size`.

    Args:
      examples: whose `STREAM_STATE` is int64 [2, R], the rows before and after the example.
      sizes: (height, width) of the images, one a bucket.
      window: examples that leave a bucket together.
      start: int64 [1 + W, R] that the examples are read from.

    Returns:
      The examples, with `STREAM_STATE` int64 [(1 + buckets * window) * R]. It holds for the last
      example of a window.
    """
    buckets = len(sizes)
    known = tf.constant(sizes, tf.int32)
    row_size = start.shape[1]

    def add(
        state: tuple[tf.Tensor, ...], example: Example
    ) -> tuple[tuple[tf.Tensor, ...], Example]:
        following, counts, waiting = state
        before, after = tf.unstack(example[F.STREAM_STATE])
        # What had waited at the start is read again, before its time.
        following = tf.where(after[0] > following[0], after, following)
        fits = tf.reduce_all(tf.shape(example[F.IMAGE])[:2] == known, axis=1)
        bucket = tf.argmax(fits, output_type=tf.int32)
        count = counts[bucket]
        waiting = tf.tensor_scatter_nd_update(waiting, [[bucket, count]], before[tf.newaxis])
        is_full = count + 1 == window
        counts = tf.tensor_scatter_nd_update(counts, [[bucket]], [tf.where(is_full, 0, count + 1)])
        leaving = is_full & (tf.range(buckets) == bucket)
        waiting = tf.where(leaving[:, tf.newaxis, tf.newaxis], tf.constant(-1, tf.int64), waiting)
        rows = tf.concat([following[tf.newaxis], tf.reshape(waiting, [-1, row_size])], axis=0)
        example = {**example, F.STREAM_STATE: tf.reshape(rows, [-1])}
        return (following, counts, waiting), example

    nothing = (
        tf.constant(start[0]),
        tf.zeros([buckets], tf.int32),
        tf.fill([buckets, window, row_size], tf.constant(-1, tf.int64)),
    )
    return examples.scan(nothing, add)


def rows(state: np.ndarray, row_size: int) -> np.ndarray:
    """Returns int64 [1 + w, R] of a state: what `record_order` starts from, without padding."""
    found = np.reshape(state, [-1, row_size])
    return found[(found >= 0).any(axis=1)]


def of_batch(batch: Example) -> Example:
    """Gives a batch the state of its last example."""
    return {**batch, F.STREAM_STATE: batch[F.STREAM_STATE][-1]}


def without_left_over(
    batches: tf.data.Dataset, sizes: Sequence[tuple[int, int]], size: int, row_size: int
) -> tf.data.Dataset:
    """Corrects the states of the batches that are not full, which the end of the data leaves.

    What such a batch holds does not wait any more. There is one of each bucket at most, in any
    order, so that the last of them has to have the place of all.

    Args:
      batches: of `pipeline.batch_by_size`, after `of_batch`; of one replica.
      sizes: (height, width) of the images, one a bucket.
      size: images of a full batch.
      row_size: R.
    """
    known = tf.constant(sizes, tf.int32)
    shape_of_state = batches.element_spec[F.STREAM_STATE].shape

    def correct(
        state: tuple[tf.Tensor, tf.Tensor], batch: Example
    ) -> tuple[tuple[tf.Tensor, tf.Tensor], Example]:
        following, has_left = state
        rows = tf.reshape(batch[F.STREAM_STATE], [-1, row_size])
        following = tf.where(rows[0, 0] > following[0], rows[0], following)
        shape = tf.shape(batch[F.IMAGE])
        has_left |= tf.reduce_all(shape[1:3] == known, axis=1) & (shape[0] < size)
        waiting = tf.reshape(rows[1:], [len(sizes), -1, row_size])
        waiting = tf.where(has_left[:, tf.newaxis, tf.newaxis], tf.constant(-1, tf.int64), waiting)
        rows = tf.concat([following[tf.newaxis], tf.reshape(waiting, [-1, row_size])], axis=0)
        return (following, has_left), {**batch, F.STREAM_STATE: tf.reshape(rows, shape_of_state)}

    return batches.scan((tf.zeros([row_size], tf.int64), tf.fill([len(sizes)], False)), correct)


def counted(batches: tf.data.Dataset, start: int) -> tf.data.Dataset:
    """Leaves out the first `start` batches of an endless dataset, and counts them all as state."""

    def add(index: tf.Tensor, batch: Example) -> Example:
        return {**batch, F.STREAM_STATE: index[tf.newaxis] + 1}

    return batches.skip(start).enumerate(start).map(add)
