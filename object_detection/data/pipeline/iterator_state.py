"""The iterator state: where an input pipeline resumes after a batch, carried as `STREAM_STATE`.

The state int64 [(1 + W) * R] is the cursor (`record_order`) from which the pipeline reads on,
followed by the cursors of W examples that were read but are buffered in a bucket until there are
enough of their size; -1 where none is buffered. W is 0 without several buckets.
"""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from object_detection.core.fields import InputFields as F
from object_detection.data.objects import Example


def with_buffered(
    examples: tf.data.Dataset,
    sizes: Sequence[tuple[int, int]],
    window: int,
    start: np.ndarray,
) -> tf.data.Dataset:
    """Replaces the cursors of examples by the state after each, for `transform.batch_by_size`.

    Args:
      examples: whose `STREAM_STATE` is int64 [2, R], the cursors before and after the example.
      sizes: (height, width) of the images, one a bucket.
      window: examples that leave a bucket together.
      start: int64 [1 + W, R] that the examples are read from.

    Returns:
      The examples, with `STREAM_STATE` int64 [(1 + buckets * window) * R]. It holds for the last
      example of a window.
    """
    buckets = len(sizes)
    known = tf.constant(sizes, tf.int32)
    cursor_size = start.shape[1]

    def add(
        state: tuple[tf.Tensor, ...], example: Example
    ) -> tuple[tuple[tf.Tensor, ...], Example]:
        following, counts, buffered = state
        before, after = tf.unstack(example[F.STREAM_STATE])
        # Examples that were buffered at the start are read again, earlier than `following`.
        following = tf.where(after[0] > following[0], after, following)
        fits = tf.reduce_all(tf.shape(example[F.IMAGE])[:2] == known, axis=1)
        bucket = tf.argmax(fits, output_type=tf.int32)
        count = counts[bucket]
        buffered = tf.tensor_scatter_nd_update(buffered, [[bucket, count]], before[tf.newaxis])
        is_full = count + 1 == window
        counts = tf.tensor_scatter_nd_update(counts, [[bucket]], [tf.where(is_full, 0, count + 1)])
        leaving = is_full & (tf.range(buckets) == bucket)
        buffered = tf.where(leaving[:, tf.newaxis, tf.newaxis], tf.constant(-1, tf.int64), buffered)
        cursors = tf.concat(
            [following[tf.newaxis], tf.reshape(buffered, [-1, cursor_size])], axis=0
        )
        example = {**example, F.STREAM_STATE: tf.reshape(cursors, [-1])}
        return (following, counts, buffered), example

    nothing = (
        tf.constant(start[0]),
        tf.zeros([buckets], tf.int32),
        tf.fill([buckets, window, cursor_size], tf.constant(-1, tf.int64)),
    )
    return examples.scan(nothing, add)


def cursors_of(state: np.ndarray, cursor_size: int) -> np.ndarray:
    """Returns the cursors int64 [1 + w, R] of a state, without padding, for `record_order`."""
    found = np.reshape(state, [-1, cursor_size])
    return found[(found >= 0).any(axis=1)]


def of_batch(batch: Example) -> Example:
    """Gives a batch the state of its last example."""
    return {**batch, F.STREAM_STATE: batch[F.STREAM_STATE][-1]}


def without_left_over(
    batches: tf.data.Dataset, sizes: Sequence[tuple[int, int]], size: int, cursor_size: int
) -> tf.data.Dataset:
    """Corrects the states of the batches that are not full, which the end of the data leaves.

    The examples of such a batch are not buffered any more. There is at most one of each bucket, in
    any order, so the last of them must have the state after all of them.

    Args:
      batches: batches of `transform.batch_by_size`, after `of_batch`; of one replica.
      sizes: (height, width) of the images, one a bucket.
      size: images of a full batch.
      cursor_size: R.
    """
    known = tf.constant(sizes, tf.int32)
    shape_of_state = batches.element_spec[F.STREAM_STATE].shape

    def correct(
        state: tuple[tf.Tensor, tf.Tensor], batch: Example
    ) -> tuple[tuple[tf.Tensor, tf.Tensor], Example]:
        following, has_left = state
        cursors = tf.reshape(batch[F.STREAM_STATE], [-1, cursor_size])
        following = tf.where(cursors[0, 0] > following[0], cursors[0], following)
        shape = tf.shape(batch[F.IMAGE])
        has_left |= tf.reduce_all(shape[1:3] == known, axis=1) & (shape[0] < size)
        buffered = tf.reshape(cursors[1:], [len(sizes), -1, cursor_size])
        buffered = tf.where(
            has_left[:, tf.newaxis, tf.newaxis], tf.constant(-1, tf.int64), buffered
        )
        cursors = tf.concat(
            [following[tf.newaxis], tf.reshape(buffered, [-1, cursor_size])], axis=0
        )
        return (following, has_left), {**batch, F.STREAM_STATE: tf.reshape(cursors, shape_of_state)}

    return batches.scan((tf.zeros([cursor_size], tf.int64), tf.fill([len(sizes)], False)), correct)


def counted(batches: tf.data.Dataset, start: int) -> tf.data.Dataset:
    """Leaves out the first `start` batches of an endless dataset, and counts them all as state."""

    def add(index: tf.Tensor, batch: Example) -> Example:
        return {**batch, F.STREAM_STATE: index[tf.newaxis] + 1}

    return batches.skip(start).enumerate(start).map(add)
