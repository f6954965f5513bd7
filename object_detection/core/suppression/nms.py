"""Non-maximum suppression: exact, batched, over all classes at once.

Candidates are processed in the order of their scores (for equal scores, by class, then by index). A
candidate is kept unless its IoU with a kept candidate of its class is above the threshold, or its
class has reached its limit.

The loop is in `nms_tiles`. (The reference runs class by class over all candidates.)
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from object_detection.core import tracing
from object_detection.core.shapes import dimensions, smaller
from object_detection.core.suppression.nms_tiles import (
    NEVER,
    Candidates,
    Limits,
    NmsSelection,
    at_least_one_row,
    eligible_scores,
    select,
    used_first,
)

# The number of rows that are searched first. More than the best rows are rarely needed, and all
# scores are then read only once.
_MAX_ROWS = 1024
# Of graphs of basic operations; see `_select_by_operation`.
_MAX_DROPPED, _MAX_OPERATION_ROWS = 256, 4096


class MulticlassSelection(NamedTuple):
    """The kept pairs of a box and a class, best first.

    Attributes:
      indices: int32 [B, max_outputs], rows of the boxes; 0 in unused slots.
      classes: int32 [B, max_outputs], columns of the scores; 0 in unused slots.
      scores: float32 [B, max_outputs]; 0 in unused slots.
      is_valid: bool [B, max_outputs]; used slots come first.
    """

    indices: tf.Tensor
    classes: tf.Tensor
    scores: tf.Tensor
    is_valid: tf.Tensor


def non_max_suppression(
    boxes: tf.Tensor,
    scores: tf.Tensor,
    *,
    max_outputs: int | tf.Tensor,
    iou_threshold: float,
    score_threshold: float,
    classes: tf.Tensor | None = None,
    max_outputs_per_class: int | None = None,
    num_valid: tf.Tensor | None = None,
    native: bool = False,
) -> NmsSelection:
    """Keeps the best boxes that do not overlap better ones of their class.

    Args:
      boxes: float32 [B, N, 4], in any frame. Opposite corners may come in any order.
      scores: float32 [B, N].
      max_outputs: T, maximum number of boxes per image; may be an int32 scalar.
      iou_threshold: a box is suppressed by a kept one if their IoU is above it.
      score_threshold: only scores above it take part.
      classes: int32 [B, N]; boxes of different classes do not suppress each other. None = one
        class.
      max_outputs_per_class: maximum number of boxes per class and image; None means no limit.
      num_valid: int32 [B], rows that take part; None = all.
      native: for a single class, use TensorFlow's kernel, which XLA does not compile. On CPUs it is
        up to twice as fast if most boxes are suppressed. The selection is the same.

    Returns:
      NmsSelection of T slots.
    """
    if max_outputs_per_class is None or max_outputs_per_class >= max_outputs:
        max_outputs_per_class = None
    elif classes is None:
        selection = non_max_suppression(
            boxes,
            scores,
            max_outputs=max_outputs_per_class,
            iou_threshold=iou_threshold,
            score_threshold=score_threshold,
            num_valid=num_valid,
            native=native,
        )
        slots = [[0, 0], [0, max_outputs - max_outputs_per_class]]
        return NmsSelection(*(tf.pad(field, slots) for field in selection))
    boxes, scores = at_least_one_row(boxes), at_least_one_row(scores, NEVER)
    scores = eligible_scores(scores, score_threshold, num_valid)
    if native and classes is None:
        return _select_natively(boxes, scores, max_outputs, iou_threshold)
    if classes is not None:
        classes = at_least_one_row(classes)
    candidates = Candidates(
        scores=scores,
        boxes=lambda indices: tf.gather(boxes, indices, batch_dims=1),
        classes=classes
        if classes is None
        else lambda indices: tf.gather(classes, indices, batch_dims=1),
        is_counted=None,
    )
    limits = Limits(iou_threshold, max_outputs, max_outputs_per_class, capacity=max_outputs)
    return select(candidates, limits)


def multiclass_non_max_suppression(
    boxes: tf.Tensor,
    scores: tf.Tensor,
    *,
    max_outputs: int,
    max_outputs_per_class: int,
    iou_threshold: float,
    score_threshold: float,
    num_valid: tf.Tensor | None = None,
    is_counted: Callable[[tf.Tensor], tf.Tensor] | None = None,
) -> MulticlassSelection:
    """Keeps the best (box, class) pairs that do not overlap better pairs of their class.

    Args:
      boxes: float32 [B, N, q, 4]; q = K, or 1 where the classes share boxes.
      scores: float32 [B, N, K].
      max_outputs: T, maximum number of pairs per image.
      max_outputs_per_class: maximum number of pairs per class and image.
      iou_threshold: a pair is suppressed by a kept one of its class if their IoU is above it.
      score_threshold: only scores above it take part.
      num_valid: int32 [B], rows that take part; None = all.
      is_counted: boxes, float32 [B, n, 4] -> bool [B, n]; False for boxes that suppress others and
        count for the limit of their class, but are not returned. None returns all. Only the boxes
        that are looked at are asked for.

    Returns:
      MulticlassSelection of T slots.
    """
    pairs = _Pairs(
        boxes=at_least_one_row(boxes), scores=at_least_one_row(scores, NEVER), is_counted=is_counted
    )
    limits = (max_outputs, max_outputs_per_class, iou_threshold)

    if tracing.BasicOperations.is_on():
        eligible = eligible_scores(pairs.scores, score_threshold, num_valid)
        return _select_by_operations(pairs._replace(scores=eligible), *limits)

    def select_from_all() -> MulticlassSelection:
        eligible = eligible_scores(pairs.scores, score_threshold, num_valid)
        return _select(pairs, _all_pairs(eligible), *limits)

    (num_rows,) = dimensions(pairs.boxes, 1)
    if isinstance(num_rows, int) and num_rows <= _MAX_ROWS:
        return select_from_all()
    best, is_all = _best_pairs(pairs.scores, score_threshold, num_valid)
    selection = _select(pairs, best, *limits)
    is_complete = is_all | tf.reduce_all(selection.is_valid, axis=1)
    return tf.cond(tf.reduce_all(is_complete), lambda: selection, select_from_all)


class _Pairs(NamedTuple):
    """The arguments of `multiclass_non_max_suppression` with at least one row."""

    boxes: tf.Tensor
    scores: tf.Tensor
    is_counted: Callable[[tf.Tensor], tf.Tensor] | None


class _Choice(NamedTuple):
    """C pairs per image: their scores, float32, rows and classes, int32, all [B or 1, C].

    Of equal scores, the lowest class comes first, then the first row.
    """

    scores: tf.Tensor
    rows: tf.Tensor
    classes: tf.Tensor


def _all_pairs(scores: tf.Tensor) -> _Choice:
    """Chooses all pairs; scores [B, N, K] of pairs that take no part are NEVER."""
    num_rows, num_classes = dimensions(scores, 1, 2)
    numbers = tf.range(num_rows * num_classes)[tf.newaxis]
    scores = _merge(tf.transpose(scores, [0, 2, 1]))
    return _Choice(scores, numbers % num_rows, numbers // num_rows)


def _best_pairs(
    scores: tf.Tensor, score_threshold: float, num_valid: tf.Tensor | None
) -> tuple[_Choice, tf.Tensor]:
    """Chooses the best pairs of the rows with the highest scores, which takes few passes over all.

    Returns:
      The pairs, best first, which are better than all others that take part; and bool [B], whether
      no other pair takes part.
    """
    count = smaller(dimensions(scores, 1)[0], _MAX_ROWS)
    best_of_row = eligible_scores(tf.reduce_max(scores, axis=2), score_threshold, num_valid)
    # A maximum may ignore NaN or what precedes it; a sum does neither. (A sum may be NaN without
    # one, of infinities of both signs; then all pairs are read, which gives the same.)
    has_nan = tf.math.is_nan(tf.reduce_sum(scores, axis=[1, 2]))
    best, rows = tf.math.top_k(best_of_row, count)
    # Another row may have pairs of this score that come before pairs of the same score here.
    bound = best[:, -1:]
    rows = tf.sort(rows, axis=1)
    scores = tf.transpose(tf.gather(scores, rows, batch_dims=1), [0, 2, 1])
    is_above = scores > tf.maximum(bound, score_threshold)[..., tf.newaxis]
    if num_valid is not None:
        is_above &= (rows < num_valid[:, tf.newaxis])[:, tf.newaxis]
    scores, numbers = tf.math.top_k(_merge(tf.where(is_above, scores, NEVER)), count)
    choice = _Choice(scores, tf.gather(rows, numbers % count, batch_dims=1), numbers // count)
    is_all = (bound[:, 0] == NEVER) & (scores[:, -1] == NEVER)
    # With NaN, the choice may be wrong: nothing of it is used.
    choice = choice._replace(scores=tf.where(has_nan[:, tf.newaxis], NEVER, choice.scores))
    return choice, is_all & ~has_nan


def _select(
    pairs: _Pairs,
    choice: _Choice,
    max_outputs: int,
    max_outputs_per_class: int,
    iou_threshold: float,
) -> MulticlassSelection:
    """Selects from a choice of pairs; see `multiclass_non_max_suppression`."""
    num_classes, boxes_per_row = pairs.scores.shape[2], pairs.boxes.shape[2]

    def lookup(values: tf.Tensor, indices: tf.Tensor) -> tf.Tensor:
        if values.shape[0] == 1:  # the same for all images
            return tf.gather(values[0], indices)
        return tf.gather(values, indices, batch_dims=1)

    def take(values: tf.Tensor, indices: tf.Tensor) -> tf.Tensor:
        positions = lookup(choice.rows, indices)
        if boxes_per_row > 1:
            positions = positions * boxes_per_row + lookup(choice.classes, indices)
        return tf.gather(_merge(values), positions, batch_dims=1)

    is_counted = pairs.is_counted
    capacity = max_outputs
    if is_counted is not None:
        kept_at_most = num_classes * max_outputs_per_class
        if choice.scores.shape[1] is not None:
            kept_at_most = min(kept_at_most, choice.scores.shape[1])
        capacity = max(max_outputs, kept_at_most)
    candidates = Candidates(
        scores=choice.scores,
        boxes=lambda indices: take(pairs.boxes, indices),
        classes=lambda indices: lookup(choice.classes, indices),
        is_counted=(
            None if is_counted is None else lambda indices: is_counted(take(pairs.boxes, indices))
        ),
    )
    limits = Limits(iou_threshold, max_outputs, max_outputs_per_class, capacity)
    indices, is_valid = select(candidates, limits)

    def chosen(values: tf.Tensor) -> tf.Tensor:
        values = lookup(values, indices)
        return tf.where(is_valid, values, tf.zeros([], values.dtype))

    return MulticlassSelection(
        indices=chosen(choice.rows),
        classes=chosen(choice.classes),
        scores=chosen(choice.scores),
        is_valid=is_valid,
    )


def _select_natively(
    boxes: tf.Tensor, scores: tf.Tensor, max_outputs: int, iou_threshold: float
) -> NmsSelection:
    """Selects boxes of one class by TensorFlow's kernel, image by image."""

    def select(image: tuple[tf.Tensor, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
        selected = tf.raw_ops.NonMaxSuppressionV5(
            boxes=image[0],
            scores=image[1],
            max_output_size=max_outputs,
            iou_threshold=iou_threshold,
            score_threshold=NEVER,
            soft_nms_sigma=0.0,
            pad_to_max_output_size=True,
        )
        return selected.selected_indices, selected.valid_outputs

    if tracing.SingleImages.is_on():
        indices, count = (each[tf.newaxis] for each in select((boxes[0], scores[0])))
    else:
        signature = (tf.int32, tf.int32)
        indices, count = tf.map_fn(select, (boxes, scores), fn_output_signature=signature)
    indices = tf.reshape(indices, [-1, max_outputs])  # Also for a batch of none.
    is_valid = tf.range(max_outputs) < count[:, tf.newaxis]
    return NmsSelection(tf.where(is_valid, indices, 0), is_valid)


def _select_by_operations(pairs: _Pairs, *limits: int | float) -> MulticlassSelection:
    """Selects as `_select` does by operations that all programs have.

    The best rows are searched first, and all where they are too few: the operation sorts all
    pairs that it gets, millions in a detector of 90 classes.
    """
    (num_rows,) = dimensions(pairs.scores, 1)
    count = _MAX_OPERATION_ROWS
    if not isinstance(num_rows, int) or num_rows <= count:
        return _select_by_operation(pairs, *limits)
    best_of_row = tf.reduce_max(pairs.scores, axis=2)
    # The operation sorts. That for the best k takes time in proportion to k in OpenVINO.
    no_boxes = tf.zeros_like(pairs.boxes[:, :, 0])
    best = _select_natively(no_boxes, best_of_row, count, iou_threshold=1.0)
    rows = best.indices
    # Pairs of other rows come before those that are not above the last of these rows.
    bound = tf.gather(best_of_row, rows[:, -1:], batch_dims=1)
    bound = tf.where(best.is_valid[:, -1:], bound, NEVER)
    scores = tf.gather(pairs.scores, rows, batch_dims=1)
    is_used = (scores > bound[..., tf.newaxis]) & best.is_valid[..., tf.newaxis]
    of_rows = pairs._replace(
        boxes=tf.gather(pairs.boxes, rows, batch_dims=1), scores=tf.where(is_used, scores, NEVER)
    )
    found = _select_by_operation(of_rows, *limits)
    found = found._replace(
        indices=tf.where(found.is_valid, tf.gather(rows, found.indices, batch_dims=1), 0)
    )
    is_complete = ~best.is_valid[:, -1] | tf.reduce_all(found.is_valid, axis=1)
    return tf.cond(
        tf.reduce_all(is_complete), lambda: found, lambda: _select_by_operation(pairs, *limits)
    )


def _select_by_operation(
    pairs: _Pairs, max_outputs: int, max_outputs_per_class: int, iou_threshold: float
) -> MulticlassSelection:
    """Selects as `_select` does by the operation for a single class, which all programs have.

    The classes lie in places of their own, so that no box overlaps one of another class. At most
    `_MAX_DROPPED` boxes are dropped for having no area or beyond the limit of their class.
    """
    (num_classes,) = dimensions(pairs.scores, 2)
    numbers = tf.range(num_classes)
    # A square of places: far from the origin, coordinates are less exact.
    columns = math.ceil(math.sqrt(num_classes))
    places = tf.stack([numbers // columns, numbers % columns] * 2, axis=1)
    span = tf.reduce_max(pairs.boxes) - tf.reduce_min(pairs.boxes) + 1.0
    places = tf.cast(places, tf.float32) * span
    boxes = _merge(pairs.boxes + places)
    scores = _merge(pairs.scores)
    selection = _select_natively(boxes, scores, max_outputs + _MAX_DROPPED, iou_threshold)
    rows, classes = selection.indices // num_classes, selection.indices % num_classes
    is_valid = selection.is_valid
    one_hot = tf.one_hot(classes, num_classes) * tf.cast(is_valid, tf.float32)[..., tf.newaxis]
    numbers = tf.reduce_sum(tf.cumsum(one_hot, axis=1) * one_hot, axis=2)
    is_valid &= numbers < max_outputs_per_class + 0.5
    if pairs.is_counted is not None:
        selected = tf.gather(boxes, selection.indices, batch_dims=1) - tf.gather(places, classes)
        is_valid &= pairs.is_counted(selected)
    is_valid, order = used_first(is_valid, max_outputs)

    def chosen(values: tf.Tensor) -> tf.Tensor:
        values = tf.gather(values, order, batch_dims=1)
        return tf.where(is_valid, values, tf.zeros([], values.dtype))

    scores = tf.gather(scores, selection.indices, batch_dims=1)
    return MulticlassSelection(chosen(rows), chosen(classes), chosen(scores), is_valid)


def _merge(rows: tf.Tensor) -> tf.Tensor:
    """[B, N, q, ...] -> [B, N * q, ...]."""
    dynamic = tf.shape(rows)
    length = -1 if None in rows.shape[1:3] else rows.shape[1] * rows.shape[2]
    return tf.reshape(rows, tf.concat([dynamic[:1], [length], dynamic[3:]], axis=0))
