"""Soft non-maximum suppression (https://arxiv.org/abs/1704.04503), batched over all classes."""

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from object_detection.core import boxes as box_ops
from object_detection.core.suppression.nms import MulticlassSelection
from object_detection.core.suppression.nms_tiles import (
    NEVER,
    at_least_one_row,
    canonical_boxes,
    eligible_scores,
    used_first,
)


class _State(NamedTuple):
    """The loop's variables; `capacity` slots hold what is kept.

    Attributes:
      scores: float32 [B, K, N], decayed so far; minus infinity = never taken (again).
      indices, classes: int32 [B, capacity].
      kept_scores: float32 [B, capacity].
      is_counted: bool [B, capacity].
      num_kept, num_counted: int32 [B].
      num_of_class: int32 [B, K].
      is_done: bool [B].
    """

    scores: tf.Tensor
    indices: tf.Tensor
    classes: tf.Tensor
    kept_scores: tf.Tensor
    is_counted: tf.Tensor
    num_kept: tf.Tensor
    num_counted: tf.Tensor
    num_of_class: tf.Tensor
    is_done: tf.Tensor


def soft_non_max_suppression(
    boxes: tf.Tensor,
    scores: tf.Tensor,
    *,
    sigma: float,
    max_outputs: int,
    max_outputs_per_class: int,
    score_threshold: float,
    num_valid: tf.Tensor | None = None,
    is_counted: Callable[[tf.Tensor], tf.Tensor] | None = None,
) -> MulticlassSelection:
    """Takes (box, class) pairs one by one, best first; each lowers the scores it overlaps.

    A pair that is taken multiplies the scores of its class by exp(-IoU^2 / (2 sigma)).

    Args:
      boxes: float32 [B, N, q, 4]; q = K, or 1 where the classes share boxes.
      scores: float32 [B, N, K].
      sigma: width of the decay, positive; the wider, the less overlapping scores fall.
      max_outputs: T, the most pairs an image keeps.
      max_outputs_per_class: the most pairs a class of an image keeps.
      score_threshold: only scores above it, after the decay, take part.
      num_valid: int32 [B], rows that take part; None = all.
      is_counted: boxes, float32 [B, n, 4] -> bool [B, n]; False for boxes that lower others and
        count for their class's limit, but are not among the outputs. None = all are.

    Returns:
      MulticlassSelection of T slots, with the decayed scores.
    """
    boxes = at_least_one_row(boxes)
    scores = eligible_scores(at_least_one_row(scores, NEVER), score_threshold, num_valid)
    batch, num_classes = tf.shape(scores)[0], scores.shape[2]
    capacity = max_outputs
    if is_counted is None:
        counted = tf.ones(tf.shape(boxes)[:3], tf.bool)
    else:
        capacity = max(max_outputs, num_classes * max_outputs_per_class)
        flags = is_counted(tf.reshape(boxes, [batch, -1, 4]))
        counted = tf.reshape(flags, tf.shape(boxes)[:3])
    boxes = canonical_boxes(boxes)
    state = _State(
        scores=tf.transpose(scores, [0, 2, 1]),
        indices=tf.zeros([batch, capacity], tf.int32),
        classes=tf.zeros([batch, capacity], tf.int32),
        kept_scores=tf.zeros([batch, capacity]),
        is_counted=tf.zeros([batch, capacity], tf.bool),
        num_kept=tf.zeros([batch], tf.int32),
        num_counted=tf.zeros([batch], tf.int32),
        num_of_class=tf.zeros([batch, num_classes], tf.int32),
        is_done=tf.zeros([batch], tf.bool),
    )

    def step(state: _State) -> tuple[_State]:
        state = _take_best(state, boxes, counted, sigma, score_threshold)
        is_full = state.num_of_class >= max_outputs_per_class
        return (
            state._replace(
                scores=tf.where(is_full[:, :, tf.newaxis], NEVER, state.scores),
                is_done=state.is_done | (state.num_counted >= max_outputs),
            ),
        )

    state = tf.while_loop(lambda state: tf.reduce_any(~state.is_done), step, (state,))[0]
    is_valid, order = used_first(state.is_counted, max_outputs)

    def take(rows: tf.Tensor) -> tf.Tensor:
        rows = tf.gather(rows, order, batch_dims=1)
        return tf.where(is_valid, rows, tf.zeros_like(rows))

    return MulticlassSelection(
        take(state.indices), take(state.classes), take(state.kept_scores), is_valid
    )


def _take_best(
    state: _State, boxes: tf.Tensor, is_counted: tf.Tensor, sigma: float, score_threshold: float
) -> _State:
    """Takes the best pair of each image that has one left, and lowers the scores it overlaps."""
    batch, num_classes, num_rows = tf.unstack(tf.shape(state.scores))
    flat_scores = tf.reshape(state.scores, [batch, -1])
    # Of equal scores, the lowest class's lowest row comes first.
    best = tf.argmax(flat_scores, axis=1, output_type=tf.int32)
    best_score = tf.gather(flat_scores, best, batch_dims=1)
    takes = ~state.is_done & (best_score > NEVER)
    best_class, best_row = best // num_rows, best % num_rows
    columns = tf.zeros_like(best_class) if boxes.shape[2] == 1 else best_class
    class_boxes = tf.gather(boxes, columns, axis=2, batch_dims=1)  # [B, N, 4]
    class_counted = tf.gather(is_counted, columns, axis=2, batch_dims=1)
    counts = tf.gather(class_counted, best_row, batch_dims=1)
    best_box = tf.gather(class_boxes, best_row, batch_dims=1)
    overlaps = box_ops.iou(best_box[:, tf.newaxis], class_boxes)  # [B, 1, N]
    lowered = state.scores * tf.exp(tf.square(overlaps) * (-0.5 / sigma))
    # A product of minus infinity and zero is NaN, which no threshold lets through either.
    lowered = tf.where(lowered > score_threshold, lowered, NEVER)
    is_best_row = tf.range(num_rows) == best_row[:, tf.newaxis]
    lowered = tf.where(is_best_row[:, tf.newaxis], NEVER, lowered)
    is_class = (tf.range(num_classes) == best_class[:, tf.newaxis]) & takes[:, tf.newaxis]
    capacity = state.indices.shape[1]
    is_slot = (tf.range(capacity) == state.num_kept[:, tf.newaxis]) & takes[:, tf.newaxis]

    def put(rows: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
        return tf.where(is_slot, values[:, tf.newaxis], rows)

    return _State(
        scores=tf.where(is_class[:, :, tf.newaxis], lowered, state.scores),
        indices=put(state.indices, best_row),
        classes=put(state.classes, best_class),
        kept_scores=put(state.kept_scores, best_score),
        is_counted=put(state.is_counted, counts),
        num_kept=state.num_kept + tf.cast(takes, tf.int32),
        num_counted=state.num_counted + tf.cast(takes & counts, tf.int32),
        num_of_class=state.num_of_class + tf.cast(is_class, tf.int32),
        is_done=state.is_done | ~takes,
    )
