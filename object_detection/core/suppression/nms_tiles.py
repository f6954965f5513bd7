"""The loop of non-maximum suppression: exact, lazy, batched, of static shapes.

It processes tiles of the best few hundred remaining candidates and stops as soon as every image
has its outputs. Within a tile, all pairs are compared at once, and the greedy selection is the
fixed point of "a candidate is kept if no better kept one suppresses it". XLA compiles it.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from object_detection.core import boxes as box_ops
from object_detection.core.shapes import dimensions, smaller

# The score of candidates that are never taken.
NEVER = float('-inf')
# Maximum number of candidates compared at once. Larger tiles waste comparisons beyond the last
# output, smaller tiles search the scores more often.
_TILE = 512
# Below it, a tile is about twice as large as the number of outputs.
_MIN_TILE = 128


class NmsSelection(NamedTuple):
    """The kept candidates, best first.

    Attributes:
      indices: int32 [B, max_outputs], rows of the boxes; 0 in unused slots.
      is_valid: bool [B, max_outputs]; used slots come first.
    """

    indices: tf.Tensor
    is_valid: tf.Tensor


class Candidates(NamedTuple):
    """The C candidates of each image, addressed by indices int32 [B, T].

    Attributes:
      scores: float32 [B, C]; minus infinity means never taken.
      boxes: indices -> float32 [B, T, 4].
      classes: indices -> int32 [B, T]; None means one class.
      is_counted: indices -> bool [B, T], False for candidates that suppress others but fill no
        slot; None means that all fill one.
    """

    scores: tf.Tensor
    boxes: Callable[[tf.Tensor], tf.Tensor]
    classes: Callable[[tf.Tensor], tf.Tensor] | None
    is_counted: Callable[[tf.Tensor], tf.Tensor] | None


class Limits(NamedTuple):
    """Limits of the loop: `capacity` includes kept candidates that fill no slot.

    Sizes may be int32 scalars.
    """

    iou_threshold: float
    max_outputs: int | tf.Tensor
    max_outputs_per_class: int | None
    capacity: int | tf.Tensor


class _State(NamedTuple):
    """The variables of the loop.

    Attributes:
      last_score, last_index: float32 and int32 [B], the last candidate processed.
      kept: int32 [B, capacity], candidates, best first.
      num_kept, num_counted: int32 [B].
      is_done: bool [B].
    """

    last_score: tf.Tensor
    last_index: tf.Tensor
    kept: tf.Tensor
    num_kept: tf.Tensor
    num_counted: tf.Tensor
    is_done: tf.Tensor


def select(candidates: Candidates, limits: Limits) -> NmsSelection:
    """Runs the loop over tiles."""
    batch = tf.shape(candidates.scores)[0]
    (total,) = dimensions(candidates.scores, 1)
    tile = smaller(total, _tile_size(limits.max_outputs))
    state = _State(
        last_score=tf.fill([batch], float('inf')),
        last_index=tf.fill([batch], -1),
        kept=tf.zeros([batch, limits.capacity], tf.int32),
        num_kept=tf.zeros([batch], tf.int32),
        num_counted=tf.zeros([batch], tf.int32),
        is_done=tf.zeros([batch], tf.bool),
    )
    state = tf.while_loop(
        lambda state: tf.reduce_any(~state.is_done),
        lambda state: (_visit_tile(state, candidates, limits, tile),),
        (state,),
    )[0]
    return _outputs(state, candidates, limits)


def _tile_size(max_outputs: int | tf.Tensor) -> int:
    """Returns the number of candidates that are compared at once if there are enough."""
    if not isinstance(max_outputs, int):
        return _TILE
    return min(_TILE, max(_MIN_TILE, 2 ** (2 * max_outputs).bit_length()))


def _visit_tile(state: _State, candidates: Candidates, limits: Limits, tile: Any) -> _State:
    """Processes the best of the remaining candidates."""
    scores, indices = _next_tile(candidates.scores, state, tile)
    last_score = scores[:, -1]
    boxes = canonical_boxes(candidates.boxes(indices))  # [B, tile, 4]
    classes = None if candidates.classes is None else candidates.classes(indices)
    is_hit, num_of_class = _compare_with_kept(boxes, classes, state, candidates, limits)
    is_alive = (scores > NEVER) & ~state.is_done[:, tf.newaxis] & ~is_hit
    is_before = _is_before(tf.shape(boxes)[1])
    is_same = is_before if classes is None else is_before & _is_equal(classes, classes)
    is_over = box_ops.iou(boxes, boxes) > limits.iou_threshold
    is_alive = _greedy(is_alive, is_over & is_same)
    if limits.max_outputs_per_class is not None:
        is_alive &= num_of_class + _count_before(is_alive, is_same) < limits.max_outputs_per_class
    is_counted = is_alive
    if candidates.is_counted is not None:
        is_counted &= candidates.is_counted(indices)
    slots = state.num_counted[:, tf.newaxis] + _rank(is_counted)
    is_alive &= slots < limits.max_outputs
    is_counted &= is_alive
    num_counted = state.num_counted + _sum(is_counted)
    return _State(
        last_score=last_score,
        last_index=indices[:, -1],
        kept=_append(state.kept, state.num_kept, indices, is_alive),
        num_kept=state.num_kept + _sum(is_alive),
        num_counted=num_counted,
        is_done=state.is_done | (last_score == NEVER) | (num_counted >= limits.max_outputs),
    )


def _next_tile(scores: tf.Tensor, state: _State, tile: Any) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns scores and indices [B, tile] of the best candidates after the last one seen."""
    last_score = state.last_score[:, tf.newaxis]
    order = tf.range(tf.shape(scores)[1])
    is_left = (scores < last_score) | (
        (scores == last_score) & (order > state.last_index[:, tf.newaxis])
    )
    return tuple(tf.math.top_k(tf.where(is_left, scores, NEVER), tile))


def _compare_with_kept(
    boxes: tf.Tensor,
    classes: tf.Tensor | None,
    state: _State,
    candidates: Candidates,
    limits: Limits,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Compares a tile with the kept candidates, block by block, for all blocks in use.

    Returns:
      bool [B, tile], whether a kept candidate suppresses it; int32 [B, tile], kept candidates of
      the same class.
    """
    size = smaller(limits.capacity, _TILE)
    # Blocks must not extend past the end; where one would, it starts earlier and contains
    # some rows again, which `is_new` leaves out.
    last_start = limits.capacity - size

    def visit(block: tf.Tensor, is_hit: tf.Tensor, num_of_class: tf.Tensor):
        start = tf.minimum(block * size, last_start)
        slots = start + tf.range(size)
        indices = tf.gather(state.kept, slots, axis=1)
        is_new = (slots >= block * size) & (slots < state.num_kept[:, tf.newaxis])
        is_rival = is_new[:, :, tf.newaxis]  # [B, size, 1]
        if classes is not None:
            is_rival &= _is_equal(candidates.classes(indices), classes)
        is_over = box_ops.iou(canonical_boxes(candidates.boxes(indices)), boxes)
        is_over = is_rival & (is_over > limits.iou_threshold)
        is_hit |= tf.reduce_any(is_over, axis=1)
        if limits.max_outputs_per_class is not None:
            num_of_class += tf.reduce_sum(tf.cast(is_rival, tf.int32), axis=1)
        return block + 1, is_hit, num_of_class

    most = tf.reduce_max(state.num_kept)
    shape = tf.shape(boxes)[:2]
    _, is_hit, num_of_class = tf.while_loop(
        lambda block, *_: block * size < most,
        visit,
        (0, tf.zeros(shape, tf.bool), tf.zeros(shape, tf.int32)),
    )
    return is_hit, num_of_class


def _greedy(is_alive: tf.Tensor, suppresses: tf.Tensor) -> tf.Tensor:
    """Keeps the candidates that no better kept candidate suppresses.

    Args:
      is_alive: bool [B, T], which candidates take part.
      suppresses: bool [B, T, T], [b, i, j]: i is better than j and suppresses it if kept.

    Returns:
      bool [B, T]. Each pass settles at least the best candidate not settled yet, so the loop ends.
    """
    matrix = tf.cast(suppresses, tf.float32)

    def step(now: tf.Tensor, _: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        killers = tf.matmul(tf.cast(now, tf.float32)[:, tf.newaxis], matrix)[:, 0]
        return is_alive & (killers < 0.5), now

    return tf.while_loop(
        lambda now, before: tf.reduce_any(now != before), step, step(is_alive, is_alive)
    )[0]


def _append(
    kept: tf.Tensor, num_kept: tf.Tensor, indices: tf.Tensor, is_alive: tf.Tensor
) -> tf.Tensor:
    """Appends the remaining candidates of a tile to the candidates kept before."""
    batch, capacity = tf.unstack(tf.shape(kept))
    slots = num_kept[:, tf.newaxis] + _rank(is_alive)
    # The other candidates are written to a column that is removed again.
    slots = tf.where(is_alive, slots, capacity)
    images = tf.broadcast_to(tf.range(batch)[:, tf.newaxis], tf.shape(slots))
    padded = tf.pad(kept, [[0, 0], [0, 1]])
    padded = tf.tensor_scatter_nd_update(padded, tf.stack([images, slots], axis=-1), indices)
    return tf.ensure_shape(padded[:, :-1], kept.shape)


def _outputs(state: _State, candidates: Candidates, limits: Limits) -> NmsSelection:
    """Returns the kept candidates that fill a slot."""
    is_valid = tf.range(limits.capacity) < state.num_kept[:, tf.newaxis]
    indices = state.kept
    if candidates.is_counted is not None:
        is_valid &= candidates.is_counted(indices)
        is_valid, order = used_first(is_valid, limits.max_outputs)
        indices = tf.gather(indices, order, batch_dims=1)
    return NmsSelection(tf.where(is_valid, indices, 0), is_valid)


def canonical_boxes(boxes: tf.Tensor) -> tf.Tensor:
    """Orders the corners of boxes [..., 4], as TensorFlow's kernels do before they compare."""
    first, second = tf.split(boxes, 2, axis=-1)
    return tf.concat([tf.minimum(first, second), tf.maximum(first, second)], axis=-1)


def at_least_one_row(rows: tf.Tensor, fill: float | bool = 0) -> tf.Tensor:
    """Adds a row of `fill` to [B, N, ...] if N is 0, since kernels cannot index empty tensors."""
    rows = tf.convert_to_tensor(rows)
    if rows.shape[1]:
        return rows
    missing = tf.maximum(1 - tf.shape(rows)[1], 0)
    widths = [[0, 0], [0, missing]] + [[0, 0]] * (rows.shape.rank - 2)
    return tf.pad(rows, widths, constant_values=tf.cast(fill, rows.dtype))


def used_first(is_used: tf.Tensor, size: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Moves used slots to the front, in their order.

    Args:
      is_used: bool [B, T].
      size: at most T.

    Returns:
      bool [B, size] and int32 [B, size]: whether each new slot is used, and its old index.
    """
    # Of equal values, the first comes first.
    flags, order = tf.math.top_k(tf.cast(is_used, tf.int32), size)
    return flags > 0, order


def eligible_scores(
    scores: tf.Tensor, score_threshold: float, num_valid: tf.Tensor | None
) -> tf.Tensor:
    """Excludes candidates by a score of minus infinity.

    Args:
      scores: float32 [B, N] or [B, N, K].
      score_threshold: only scores above it stay; NaN does not.
      num_valid: int32 [B], rows that stay; None = all.

    Returns:
      float32, the scores' shape.
    """
    takes_part = scores > score_threshold
    if num_valid is not None:
        is_row = tf.range(tf.shape(scores)[1]) < num_valid[:, tf.newaxis]
        takes_part &= is_row if scores.shape.rank == 2 else is_row[:, :, tf.newaxis]
    return tf.where(takes_part, scores, NEVER)


def _is_equal(classes: tf.Tensor, others: tf.Tensor) -> tf.Tensor:
    """int32 [B, N], [B, M] -> bool [B, N, M]."""
    return classes[:, :, tf.newaxis] == others[:, tf.newaxis]


def _is_before(length: tf.Tensor) -> tf.Tensor:
    """bool [T, T], [i, j]: i < j."""
    order = tf.range(length)
    return order[:, tf.newaxis] < order


def _rank(flags: tf.Tensor) -> tf.Tensor:
    """bool [B, T] -> int32 [B, T]: how many are set before each."""
    return tf.cumsum(tf.cast(flags, tf.int32), axis=1, exclusive=True)


def _sum(flags: tf.Tensor) -> tf.Tensor:
    """bool [B, T] -> int32 [B]."""
    return tf.reduce_sum(tf.cast(flags, tf.int32), axis=1)


def _count_before(flags: tf.Tensor, is_same: tf.Tensor) -> tf.Tensor:
    """bool [B, T] and [B, T, T] -> int32 [B, T]: how many i are set with [i, j]."""
    return tf.reduce_sum(tf.cast(flags[:, :, tf.newaxis] & is_same, tf.int32), axis=1)
