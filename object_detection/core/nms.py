"""Non-maximum suppression: exact, batched, over all classes at once.

Candidates are processed in the order of their scores (for equal scores, by class, then by index). A
candidate is kept unless its IoU with a kept candidate of its class is above the threshold, or its
class has reached its limit.

The loop is in `nms_tiles`. (The reference runs class by class over all candidates.)
"""

from typing import NamedTuple

import tensorflow as tf

from object_detection.core.nms_tiles import (
    NEVER,
    Candidates,
    Limits,
    NmsSelection,
    at_least_one_row,
    eligible_scores,
    select,
)
from object_detection.core.shapes import dimensions


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
    is_counted: tf.Tensor | None = None,
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
      is_counted: bool [B, N, q]; False for boxes that suppress others and count for the limit of
        their class, but are not returned. None returns all.

    Returns:
      MulticlassSelection of T slots.
    """
    boxes, scores = at_least_one_row(boxes), at_least_one_row(scores, NEVER)
    num_classes, boxes_per_row = scores.shape[2], boxes.shape[2]
    (num_rows,) = dimensions(boxes, 1)
    scores = eligible_scores(scores, score_threshold, num_valid)
    # Candidate `class * N + row`, so that of equal scores the lowest class comes first.
    flat_scores = _merge(tf.transpose(scores, [0, 2, 1]))
    flat_boxes = _merge(boxes)

    def box_of(indices: tf.Tensor) -> tf.Tensor:
        if boxes_per_row == 1:
            return indices % num_rows
        return indices % num_rows * boxes_per_row + indices // num_rows

    flat_counted = None if is_counted is None else _merge(at_least_one_row(is_counted, False))
    candidates = Candidates(
        scores=flat_scores,
        boxes=lambda indices: tf.gather(flat_boxes, box_of(indices), batch_dims=1),
        classes=lambda indices: indices // num_rows,
        is_counted=flat_counted
        if flat_counted is None
        else lambda indices: tf.gather(flat_counted, box_of(indices), batch_dims=1),
    )
    capacity = max_outputs
    if is_counted is not None:
        kept_at_most = num_classes * max_outputs_per_class
        if flat_scores.shape[1] is not None:
            kept_at_most = min(kept_at_most, flat_scores.shape[1])
        capacity = max(max_outputs, kept_at_most)
    limits = Limits(iou_threshold, max_outputs, max_outputs_per_class, capacity)
    indices, is_valid = select(candidates, limits)
    chosen = tf.gather(flat_scores, indices, batch_dims=1)
    return MulticlassSelection(
        indices=tf.where(is_valid, indices % num_rows, 0),
        classes=tf.where(is_valid, indices // num_rows, 0),
        scores=tf.where(is_valid, chosen, 0.0),
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

    indices, count = tf.map_fn(select, (boxes, scores), fn_output_signature=(tf.int32, tf.int32))
    indices = tf.reshape(indices, [-1, max_outputs])  # Also for a batch of none.
    is_valid = tf.range(max_outputs) < count[:, tf.newaxis]
    return NmsSelection(tf.where(is_valid, indices, 0), is_valid)


def _merge(rows: tf.Tensor) -> tf.Tensor:
    """[B, N, q, ...] -> [B, N * q, ...]."""
    dynamic = tf.shape(rows)
    length = -1 if None in rows.shape[1:3] else rows.shape[1] * rows.shape[2]
    return tf.reshape(rows, tf.concat([dynamic[:1], [length], dynamic[3:]], axis=0))
