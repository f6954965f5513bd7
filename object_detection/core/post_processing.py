"""Computes the detections of a batch from boxes and scores of all anchors or proposals."""

import contextlib
import dataclasses
from collections.abc import Callable, Mapping
from typing import NamedTuple

import tensorflow as tf

from object_detection.core import boxes as box_ops
from object_detection.core import tracing
from object_detection.core.suppression.nms import (
    MulticlassSelection,
    multiclass_non_max_suppression,
    non_max_suppression,
)
from object_detection.core.suppression.nms_tiles import NEVER, at_least_one_row, used_first
from object_detection.core.suppression.soft_nms import soft_non_max_suppression
from object_detection.errors import UserError, expected


@dataclasses.dataclass(frozen=True)
class NmsParams:
    """Options of the suppression, with the names and defaults of `BatchNonMaxSuppression`.

    Attributes:
      score_threshold: only scores above it take part.
      iou_threshold: a box is suppressed by a better one of its class if their IoU is above it.
      max_detections_per_class: maximum number of detections per class and image.
      max_total_detections: T, maximum number of detections per image.
      use_class_agnostic_nms: boxes of all classes suppress each other; each box keeps its
        best classes only, and `max_detections_per_class` plays no role.
      max_classes_per_detection: with `use_class_agnostic_nms`, of how many classes a kept box is
        returned at most, each a detection of its own. The reference refuses more than one.
      soft_nms_sigma: above 0, overlapping scores decay by exp(-IoU^2 / (2 sigma)) rather than
        boxes being suppressed; `iou_threshold` plays no role then.
      use_hard_nms: suppress boxes and ignore `soft_nms_sigma`.
      change_coordinate_frame: express boxes relative to the clip window.
      use_combined_nms: as TensorFlow's combined operation, clip to [0, 1] where there is no window,
        and keep boxes outside of the window, whose opposite edges are then exchanged.
      use_cpu_nms: run on the CPU.
      clip_before_suppression: clip boxes before they suppress each other, where there is a window.

    Raises:
      ValueError: for numbers out of range.
    """

    score_threshold: float = 0.0
    iou_threshold: float = 0.6
    max_detections_per_class: int = 100
    max_total_detections: int = 100
    use_class_agnostic_nms: bool = False
    max_classes_per_detection: int = 1
    soft_nms_sigma: float = 0.0
    use_hard_nms: bool = False
    change_coordinate_frame: bool = True
    use_combined_nms: bool = False
    use_cpu_nms: bool = False
    clip_before_suppression: bool = False

    def __post_init__(self):
        self._check('iou_threshold', 0.0 <= self.iou_threshold <= 1.0, 'in [0, 1]')
        self._check('soft_nms_sigma', self.soft_nms_sigma >= 0.0, '0 or more')
        self._check('max_detections_per_class', self.max_detections_per_class > 0, 'positive')
        self._check(
            'max_total_detections',
            self.max_total_detections >= self.max_detections_per_class,
            f'max_detections_per_class ({self.max_detections_per_class}) or more',
        )
        is_one = self.max_classes_per_detection == 1
        self._check(
            'max_classes_per_detection',
            is_one or (self.use_class_agnostic_nms and self.max_classes_per_detection > 1),
            '1, or above it with use_class_agnostic_nms: true (without, each class is suppressed '
            'for itself, so that a box may be returned of several)',
        )

    def _check(self, name: str, is_right: bool, expected: str) -> None:
        if not is_right:
            raise UserError(
                f'Non-maximum suppression: {name} must be {expected}. '
                f'Received: {getattr(self, name)}.'
            )

    @property
    def is_soft(self) -> bool:
        """Returns whether scores decay."""
        return self.soft_nms_sigma > 0.0 and not self.use_hard_nms


class Suppressed(NamedTuple):
    """What is left of the boxes of B images, best first; unused slots are zero.

    Attributes:
      boxes: float32 [B, T, 4], in the frame of the inputs, or of the clip window.
      scores: float32 [B, T].
      classes: float32 [B, T], 0-based.
      masks: float32 [B, T, mask height, mask width], or None.
      additional_fields: name -> [B, T, ...].
      num_detections: int32 [B].
    """

    boxes: tf.Tensor
    scores: tf.Tensor
    classes: tf.Tensor
    masks: tf.Tensor | None
    additional_fields: dict[str, tf.Tensor]
    num_detections: tf.Tensor


def batch_multiclass_non_max_suppression(
    boxes: tf.Tensor,
    scores: tf.Tensor,
    params: NmsParams,
    *,
    clip_window: tf.Tensor | None = None,
    change_coordinate_frame: bool | None = None,
    num_valid_boxes: tf.Tensor | None = None,
    masks: tf.Tensor | None = None,
    additional_fields: Mapping[str, tf.Tensor] | None = None,
    static: bool = False,
) -> Suppressed:
    """Chooses the detections of each image.

    Boxes are clipped after the suppression, as the reference does: what a box suppresses does not
    depend on the window unless `clip_before_suppression`. Boxes without area, in the window if
    there is one, suppress others and count for their class's limit, but are dropped (not so with
    `use_combined_nms`). Scores below 0 are never returned.

    Args:
      boxes: float32 [B, N, q, 4]; q = K, or 1 where the classes share boxes.
      scores: float32 [B, N, K], without background.
      params: the numbers.
      clip_window: float32 [4] or [B, 4], in the boxes' frame, e.g. the true image; None = no
        clipping.
      change_coordinate_frame: replaces the value of `params`, if not None.
      num_valid_boxes: int32 [B], rows in use; None = all.
      masks: float32 [B, N, q, mask height, mask width], carried along.
      additional_fields: name -> [B, N, ...], carried along.
      static: run only what XLA compiles. The numbers are the same.

    Returns:
      The detections.

    Raises:
      ValueError: if shapes disagree, or the frame is to change and there is no clip window.
    """
    if change_coordinate_frame is None:
        change_coordinate_frame = params.change_coordinate_frame
    _check_arguments(boxes, scores, clip_window, change_coordinate_frame)
    if params.score_threshold < 0:
        scores = tf.where(scores >= 0, scores, NEVER)
    window = None
    if clip_window is not None:
        window = tf.broadcast_to(clip_window, [tf.shape(boxes)[0], 4])
        if params.clip_before_suppression:
            boxes = box_ops.clip(boxes, window[:, tf.newaxis])
    candidates = _Candidates(
        boxes=boxes,
        scores=scores,
        num_valid=num_valid_boxes,
        is_counted=None if params.use_combined_nms else lambda boxes: _has_area(boxes, window),
    )
    with tf.device('CPU:0') if params.use_cpu_nms else contextlib.nullcontext():
        selection = _choose(candidates, params, static)
    chosen_boxes = _take_pairs(boxes, selection)
    if params.use_combined_nms:
        chosen_boxes = _clip_as_combined(chosen_boxes, window)
    elif window is not None:
        chosen_boxes = box_ops.clip(chosen_boxes, window)
    if change_coordinate_frame:
        chosen_boxes = box_ops.change_frame(chosen_boxes, window)
    return Suppressed(
        boxes=_zero_unused(chosen_boxes, selection),
        scores=selection.scores,
        classes=tf.cast(selection.classes, tf.float32),
        masks=None if masks is None else _zero_unused(_take_pairs(masks, selection), selection),
        additional_fields={
            name: _zero_unused(_take_rows(rows, selection), selection)
            for name, rows in (additional_fields or {}).items()
        },
        num_detections=tf.reduce_sum(tf.cast(selection.is_valid, tf.int32), axis=1),
    )


class _Candidates(NamedTuple):
    """The candidates of the detections; see `batch_multiclass_non_max_suppression`.

    Attributes:
      is_counted: boxes, float32 [B, n, 4] -> bool [B, n]; the others are not returned. None returns
        all.
    """

    boxes: tf.Tensor
    scores: tf.Tensor
    num_valid: tf.Tensor | None
    is_counted: Callable[[tf.Tensor], tf.Tensor] | None

    def rows_counted(self, indices: tf.Tensor) -> tf.Tensor:
        """Returns which boxes of some rows are returned: int32 [B, T] -> bool [B, T, q]."""
        rows = tf.gather(at_least_one_row(self.boxes), indices, batch_dims=1)
        shape = tf.shape(rows)[:3]
        if self.is_counted is None:
            return tf.ones(shape, tf.bool)
        return tf.reshape(self.is_counted(tf.reshape(rows, [shape[0], -1, 4])), shape)


def _has_area(boxes: tf.Tensor, window: tf.Tensor | None) -> tf.Tensor:
    """Returns whether boxes, float32 [B, n, 4], have an area in the window, [B, 4]: bool [B, n]."""
    if window is not None:
        boxes = box_ops.clip(boxes, window)
    return box_ops.area(boxes) > 0


def _check_arguments(
    boxes: tf.Tensor, scores: tf.Tensor, clip_window: tf.Tensor | None, changes_frame: bool
) -> None:
    num_classes, boxes_per_row = scores.shape[2], boxes.shape[2]
    if num_classes is None or boxes_per_row not in (1, num_classes):
        raise UserError(
            'batch_multiclass_non_max_suppression: expected boxes [B, N, q, 4] and scores '
            '[B, N, K] with q = 1 or q = K, both static. '
            f'Received: boxes {boxes.shape}, scores {scores.shape}.'
        )
    if changes_frame and clip_window is None:
        raise expected(
            'batch_multiclass_non_max_suppression', 'a clip_window with change_coordinate_frame'
        )


def _clip_as_combined(boxes: tf.Tensor, window: tf.Tensor | None) -> tf.Tensor:
    """[B, T, 4]: low edges from below and high ones from above; without a window to [0, 1]."""
    if window is None:
        return tf.clip_by_value(boxes, 0.0, 1.0)
    boxes_low, boxes_high = tf.split(boxes, 2, axis=-1)
    low, high = tf.split(window[:, tf.newaxis], 2, axis=-1)
    return tf.concat([tf.maximum(boxes_low, low), tf.minimum(boxes_high, high)], axis=-1)


def _choose(candidates: _Candidates, params: NmsParams, static: bool) -> MulticlassSelection:
    """Chooses pairs of a row and a class."""
    if params.use_class_agnostic_nms:
        return _choose_of_any_class(candidates, params, static)
    if candidates.scores.shape[2] == 1 and not params.is_soft:
        return _choose_of_one_class(candidates, params, static)
    limits = {
        'max_outputs': params.max_total_detections,
        'max_outputs_per_class': params.max_detections_per_class,
        'score_threshold': params.score_threshold,
    }
    if params.is_soft:
        return soft_non_max_suppression(
            **candidates._asdict(), **limits, sigma=params.soft_nms_sigma
        )
    return multiclass_non_max_suppression(
        **candidates._asdict(), **limits, iou_threshold=params.iou_threshold
    )


def _choose_of_any_class(
    candidates: _Candidates, params: NmsParams, static: bool
) -> MulticlassSelection:
    """Chooses as `_choose` does, with boxes that suppress boxes of all classes."""
    boxes, scores, num_valid, is_counted = candidates
    best = tf.argmax(scores, axis=2, output_type=tf.int32)  # [B, N]
    best_scores = tf.reduce_max(scores, axis=2, keepdims=True)
    best_boxes = boxes
    if boxes.shape[2] > 1:
        best_boxes = tf.gather(boxes, best, axis=2, batch_dims=2)[:, :, tf.newaxis]
    of_one_class = dataclasses.replace(
        params,
        use_class_agnostic_nms=False,
        max_classes_per_detection=1,
        max_detections_per_class=params.max_total_detections,
    )
    of_best = _Candidates(best_boxes, best_scores, num_valid, is_counted)
    selection = _choose(of_best, of_one_class, static)
    if params.max_classes_per_detection > 1:
        return _with_more_classes(selection, candidates, params)
    return selection._replace(classes=_zero_unused(_take_rows(best, selection), selection))


def _with_more_classes(
    selection: MulticlassSelection, candidates: _Candidates, params: NmsParams
) -> MulticlassSelection:
    """Adds the next best classes of the boxes that were chosen by their best one.

    Args:
      selection: of T rows by their best class.
      candidates: the rows.
      params: the numbers.
    """
    scores = candidates.scores
    count = min(params.max_classes_per_detection, scores.shape[2])
    rows = tf.gather(at_least_one_row(scores), selection.indices, batch_dims=1)  # [B, T, K]
    best = tf.reduce_max(rows, axis=2, keepdims=True)
    flags = candidates.rows_counted(selection.indices)
    is_used = selection.is_valid[..., tf.newaxis] & flags & (rows > params.score_threshold)
    if params.is_soft:
        # The decay of the score of a box's best class also applies to its other scores.
        decay = tf.math.divide_no_nan(selection.scores[..., tf.newaxis], best)
        rows *= decay
        is_used &= rows > params.score_threshold
    top_scores, classes = tf.math.top_k(tf.where(is_used, rows, NEVER), count)  # [B, T, count]
    shape = tf.shape(classes)
    indices = tf.broadcast_to(selection.indices[..., tf.newaxis], shape)
    flat = [shape[0], shape[1] * shape[2]]
    chosen, order = tf.math.top_k(tf.reshape(top_scores, flat), params.max_total_detections)
    is_valid = chosen > NEVER

    def take(values: tf.Tensor) -> tf.Tensor:
        return tf.where(is_valid, tf.gather(tf.reshape(values, flat), order, batch_dims=1), 0)

    return MulticlassSelection(
        indices=take(indices),
        classes=take(classes),
        scores=tf.where(is_valid, chosen, 0.0),
        is_valid=is_valid,
    )


def _choose_of_one_class(
    candidates: _Candidates, params: NmsParams, static: bool
) -> MulticlassSelection:
    """Chooses as `_choose` does, for K = 1, where a kernel of TensorFlow may be used."""
    boxes, scores, num_valid, _ = candidates
    # The kernel exists for CPUs only: with a GPU, boxes would be copied to the CPU and back.
    on_cpu = params.use_cpu_nms or not tf.config.list_logical_devices('GPU')
    indices, is_valid = non_max_suppression(
        boxes[:, :, 0],
        scores[:, :, 0],
        max_outputs=params.max_total_detections,
        max_outputs_per_class=params.max_detections_per_class,
        iou_threshold=params.iou_threshold,
        score_threshold=params.score_threshold,
        num_valid=num_valid,
        native=on_cpu and not static and not tracing.is_compiled(),
    )
    is_valid &= candidates.rows_counted(indices)[:, :, 0]
    is_valid, order = used_first(is_valid, params.max_total_detections)
    indices = tf.where(is_valid, tf.gather(indices, order, batch_dims=1), 0)
    chosen = tf.gather(at_least_one_row(scores[:, :, 0]), indices, batch_dims=1)
    return MulticlassSelection(
        indices=indices,
        classes=tf.zeros_like(indices),
        scores=tf.where(is_valid, chosen, 0.0),
        is_valid=is_valid,
    )


def _take_rows(rows: tf.Tensor, selection: MulticlassSelection) -> tf.Tensor:
    """[B, N, ...] -> [B, T, ...]."""
    return tf.gather(at_least_one_row(rows), selection.indices, batch_dims=1)


def _take_pairs(rows: tf.Tensor, selection: MulticlassSelection) -> tf.Tensor:
    """[B, N, q, ...] -> [B, T, ...]."""
    rows = at_least_one_row(rows)
    columns = selection.classes if rows.shape[2] > 1 else tf.zeros_like(selection.classes)
    return tf.gather_nd(rows, tf.stack([selection.indices, columns], axis=-1), batch_dims=1)


def _zero_unused(rows: tf.Tensor, selection: MulticlassSelection) -> tf.Tensor:
    """Sets unused slots of [B, T, ...] to zero."""
    shape = tf.concat([tf.shape(selection.is_valid), [1] * (rows.shape.rank - 2)], axis=0)
    return tf.where(tf.reshape(selection.is_valid, shape), rows, tf.zeros_like(rows))
