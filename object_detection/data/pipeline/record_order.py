"""The order of records: a function of seed, epoch and position, so that a run can resume it.

A *position* is one number, epoch * 2**40 + index in the epoch. Each epoch is a dataset of its own,
so epochs before a position are not read at all. In its own epoch, the records before it are skipped
as they lie in the files, before they are decoded.

A *cursor* int64 [R] is where a dataset is read from: one position (R = 1), or in a mixture of R - 1
sets the number of draws so far and the position of each set. The first number of a cursor says
which of two is earlier.

The iterator state: where an input pipeline resumes after a batch, carried as `STREAM_STATE`.

The state int64 [(1 + W) * R] is the cursor (`record_order`) from which the pipeline reads on,
followed by the cursors of W examples that were read but are buffered in a bucket until there are
enough of their size; -1 where none is buffered. W is 0 without several buckets.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from object_detection.core.fields import InputFields as F
from object_detection.data.objects import Example

EPOCH = 2**40
# More than anyone trains for; positions fit into 63 bits.
_MAX_EPOCHS = 2**22
# The position of a set that has ended.
_ENDED = _MAX_EPOCHS * EPOCH

# int64 seeds [2], or None for the order of the files -> the records of one epoch.
ReadEpoch = Callable[[tf.Tensor | None], tf.data.Dataset]
# (position, record) of one epoch, whether it is read from its beginning -> the wanted ones.
Keep = Callable[[tf.data.Dataset, tf.Tensor], tf.data.Dataset]


def key_of(seed: int, pipeline: int = 0, source: int = 0) -> int:
    """Makes one number of the seed of a run, an input pipeline and one of the sets it mixes."""
    return seed % 2**31 + pipeline * 2**31 + source * 2**47


def epochs(
    read: ReadEpoch,
    *,
    key: int,
    start: int = 0,
    num_epochs: int | None,
    keep: Keep | None = None,
    wanted: Callable[[tf.data.Dataset], tf.data.Dataset] = lambda records: records,
) -> tf.data.Dataset:
    """Reads epoch after epoch, until `num_epochs` or, with None, for ever.

    Args:
      read: reads one epoch; the same records for any seeds.
      key: of the order, see `key_of`.
      start: position of the first record.
      num_epochs: in all, not counted from `start`.
      keep: takes (position, record) of an epoch, shuffled, and returns the wanted ones. Positions
        count all records.
      wanted: returns the wanted ones of a dataset of records. Data without a wanted record have no
        epochs.

    Returns:
      (position int64, record) in order.
    """
    first, index = divmod(start, EPOCH)

    def records_of(epoch: tf.Tensor) -> tf.data.Dataset:
        # Of this function's graph alone: Dataset.shuffle would mix the global seed in.
        tf.random.set_seed(1)
        skipped = tf.where(epoch == first, tf.constant(index, tf.int64), 0)
        records = read(_seeds(key, epoch)).skip(skipped).enumerate(epoch * EPOCH + skipped)
        return records if keep is None else keep(records, skipped == 0)

    def has_records(epoch: tf.Tensor) -> tf.Tensor:
        return tf.cond(
            epoch > first,
            lambda: tf.constant(True),
            lambda: wanted(read(None)).take(1).reduce(False, lambda *_: True),
        )

    numbers = tf.data.Dataset.range(first, num_epochs or _MAX_EPOCHS)
    if num_epochs is None:
        # Otherwise empty epochs would follow each other for ever.
        numbers = numbers.take_while(has_records)
    return numbers.flat_map(records_of)


def shuffle(records: tf.data.Dataset, size: int, seed: tf.Tensor) -> tf.data.Dataset:
    """Shuffles one epoch, in `ReadEpoch`."""
    return records.shuffle(max(1, size), seed=seed, reshuffle_each_iteration=False)


def alone(source: Callable[[int], tf.data.Dataset], start: np.ndarray) -> tf.data.Dataset:
    """Adds the cursors to the records of one set.

    Args:
      source: position -> dataset of (position, record) from there.
      start: int64 [1 + W, 1], see `_resumed`.

    Returns:
      (cursors int64 [2, 1], record): where the dataset resumes with the record, and after it.
    """

    def with_cursors(position: tf.Tensor, record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return tf.stack([position, position + 1])[:, tf.newaxis], record

    return _resumed(lambda cursor: source(int(cursor[0])).map(with_cursors), start)


def mixture(
    sources: Sequence[Callable[[int], tf.data.Dataset]],
    weights: Sequence[float],
    *,
    key: int,
    start: np.ndarray,
) -> tf.data.Dataset:
    """Draws each record from one of several sets.

    Which one is a function of `key` and the number of draws before it. A set that has ended is
    skipped when it is drawn, until all have ended.

    Args:
      sources: position -> dataset of (position, record) from there.
      weights: one a set; a set with 0 is never drawn.
      key: of the draws.
      start: int64 [1 + W, 1 + sets], see `_resumed`.

    Returns:
      (cursors int64 [2, 1 + sets], record), as `alone`.
    """
    drawn = [index for index, weight in enumerate(weights) if weight > 0]
    logits = tf.math.log(tf.constant([[weights[index] for index in drawn]], tf.float32))

    def draw(number: tf.Tensor) -> tf.Tensor:
        seeds = tf.stack([tf.constant(key, tf.int64), number])
        return tf.random.stateless_categorical(logits, 1, seeds)[0, 0]

    def read(cursor: np.ndarray) -> tf.data.Dataset:
        sets = [_endless(sources[index](int(cursor[1 + index])), 1 + index) for index in drawn]
        draws = tf.data.Dataset.range(int(cursor[0]), np.iinfo(np.int64).max).map(draw)
        records = tf.data.Dataset.choose_from_datasets(sets, draws)
        records = records.scan(tf.constant(cursor), functools.partial(_advance, columns=drawn))
        records = records.take_while(lambda cursors, record, is_record, ended: ~ended)
        records = records.filter(lambda cursors, record, is_record, ended: is_record)
        return records.map(lambda cursors, record, is_record, ended: (cursors, record))

    return _resumed(read, start)


def _endless(records: tf.data.Dataset, column: int) -> tf.data.Dataset:
    """Yields (column of the cursor, (position, record)); then `_ENDED` for ever."""
    nothing = tf.data.Dataset.from_tensors((tf.constant(_ENDED, tf.int64), _no_record(records)))
    column = tf.data.Dataset.from_tensors(tf.constant(column, tf.int64)).repeat()
    return tf.data.Dataset.zip((column, records.concatenate(nothing.repeat())))


def _no_record(records: tf.data.Dataset) -> Any:
    def zero(spec: tf.TensorSpec) -> tf.Tensor:
        return tf.constant('') if spec.dtype == tf.string else tf.zeros(spec.shape, spec.dtype)

    return tf.nest.map_structure(zero, records.element_spec[1])


def _advance(
    cursor: tf.Tensor, drawn: tuple[Any, ...], columns: Sequence[int]
) -> tuple[tf.Tensor, tuple[tf.Tensor, ...]]:
    """Advances by one draw; gives (cursors, record, whether it is one, whether all sets ended)."""
    column, (position, record) = drawn
    is_record = position < _ENDED
    after = tf.where(is_record, position + 1, position)
    following = tf.tensor_scatter_nd_update(cursor, [[0], [column]], [cursor[0] + 1, after])
    ended = tf.reduce_all(tf.gather(following, [1 + index for index in columns]) == _ENDED)
    return following, (tf.stack([cursor, following]), record, is_record, ended)


def _resumed(read: Callable[[np.ndarray], tf.data.Dataset], start: np.ndarray) -> tf.data.Dataset:
    """Reads from `start` int64 [1 + W, R]: a cursor, and the cursors of W earlier records.

    These records were buffered when the run was stopped (`iterator_state`), and are read again.
    """
    records = read(earliest(start)[0])
    if len(start) == 1:
        return records
    return records.filter(lambda cursors, record: is_wanted(start, cursors))


def earliest(start: np.ndarray) -> np.ndarray:
    """Returns the earliest cursor of int64 [1 + W, R], see `_resumed`: int64 [1, R]."""
    return start[np.argmin(start[:, 0])][np.newaxis]


def is_wanted(start: np.ndarray, cursors: tf.Tensor) -> tf.Tensor:
    """Whether a record is to be read again or follows `start`, see `_resumed`: bool [].

    Args:
      start: int64 [1 + W, R].
      cursors: int64 [2, R], where the dataset resumes with the record, and after it.
    """
    number = cursors[0, 0]
    return (number >= start[0, 0]) | tf.reduce_any(number == start[1:, 0])


def _seeds(key: int, epoch: tf.Tensor) -> tf.Tensor:
    seeds = tf.stack([tf.constant(key, tf.int64), epoch])
    return tf.random.stateless_uniform([2], seeds, minval=None, maxval=None, dtype=tf.int64)


def with_buffered(
    examples: tf.data.Dataset, sizes: Sequence[tuple[int, int]], window: int, start: np.ndarray
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
