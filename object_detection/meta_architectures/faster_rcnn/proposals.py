"""The proposals of a batch, and the candidates from which the second stage samples regions."""

import dataclasses
from typing import Any, NamedTuple

import tensorflow as tf

from object_detection.core import boxes as box_ops
from object_detection.core.groundtruth import Groundtruth
from object_detection.core.post_processing import (
    NmsParams,
    Suppressed,
    batch_multiclass_non_max_suppression,
)
from object_detection.core.shapes import dimensions, smaller
from object_detection.core.suppression.nms import non_max_suppression
from object_detection.core.suppression.nms_tiles import NEVER, at_least_one_row, used_first


class Proposals(NamedTuple):
    """Proposals of a batch, padded to P rows.

    Attributes:
      boxes: float32 [B, P, 4], absolute; padding rows are zero.
      scores: float32 [B, P], objectness.
      count: int32 [B], number of rows with a proposal.
    """

    boxes: tf.Tensor
    scores: tf.Tensor
    count: tf.Tensor

    def is_valid(self) -> tf.Tensor:
        """bool [B, P]."""
        return tf.range(tf.shape(self.boxes)[1]) < self.count[:, tf.newaxis]


class Regions(NamedTuple):
    """Regions of a batch, in rows that may include padding.

    Attributes:
      boxes: float32 [B, N, 4], absolute.
      scores: float32 [B, N], objectness.
      is_valid: bool [B, N], False for padding.
    """

    boxes: tf.Tensor
    scores: tf.Tensor
    is_valid: tf.Tensor


@dataclasses.dataclass(frozen=True)
class ProposalLimits:
    """Limits of the number of boxes of an image at each step.

    Attributes:
      max_proposals: P, maximum number of proposals per image.
      topk_per_level: number of boxes per level to decode, those with the best logits; 0 = all.
      max_per_level: maximum number of boxes per level after suppression; 0 = no limit.
    """

    max_proposals: int
    topk_per_level: int = 0
    max_per_level: int = 0

    @property
    def is_per_level(self) -> bool:
        """Whether boxes are chosen within each level before all levels are combined."""
        return self.topk_per_level > 0 or self.max_per_level > 0


class BestOfLevels(NamedTuple):
    """The anchors of each level with the best logits: R rows in all, level by level.

    Attributes:
      rows: int32 [B, R], into the N anchors.
      levels: int32 [R].
      takes_part: bool [B, R]; a level may have fewer candidates than rows here.
    """

    rows: tf.Tensor
    levels: tf.Tensor
    takes_part: tf.Tensor


def best_of_levels(margins: tf.Tensor, sizes: list[Any], topk: int) -> BestOfLevels:
    """Returns the best anchors of each level.

    Args:
      margins: float32 [B, N], by which anchors are compared; minus infinity = no candidate.
      sizes: number of anchors of each level, integers or int32 scalars with sum N.
      topk: maximum number of anchors per level; 0 = all.
    """
    rows, levels, best, start = [], [], [], 0
    for level, size in enumerate(sizes):
        values = margins[:, start : start + size]
        if topk:
            values, order = tf.math.top_k(values, smaller(size, topk))
        else:
            order = tf.broadcast_to(tf.range(size), tf.shape(values))
        rows.append(order + start)
        levels.append(tf.fill([*dimensions(values, 1)], level))
        best.append(values)
        start += size
    return BestOfLevels(
        tf.concat(rows, axis=1), tf.concat(levels, axis=0), tf.concat(best, axis=1) > NEVER
    )


def choose_per_level(
    boxes: tf.Tensor, scores: tf.Tensor, levels: tf.Tensor, nms: NmsParams, limits: ProposalLimits
) -> Proposals:
    """Suppresses boxes within their level, and takes the best remaining boxes of all levels.

    All levels run in one loop, as classes of one suppression, which ends with the last proposal.

    Args:
      boxes: float32 [B, R, 4], clipped, absolute.
      scores: float32 [B, R]; minus infinity for what must not be chosen.
      levels: int32 [R].
      nms: parameters with the thresholds.
      limits: limits of the proposals.
    """
    size = limits.max_proposals
    indices, is_valid = non_max_suppression(
        boxes,
        scores,
        max_outputs=size,
        iou_threshold=nms.iou_threshold,
        score_threshold=nms.score_threshold,
        classes=tf.broadcast_to(levels, tf.shape(scores)),
        max_outputs_per_class=limits.max_per_level or None,
    )
    boxes = tf.gather(at_least_one_row(boxes), indices, batch_dims=1)
    scores = tf.gather(at_least_one_row(scores), indices, batch_dims=1)
    return Proposals(
        boxes=tf.where(is_valid[..., tf.newaxis], boxes, 0.0),
        scores=tf.where(is_valid, scores, 0.0),
        count=tf.reduce_sum(tf.cast(is_valid, tf.int32), axis=1),
    )


def choose_of_all(
    boxes: tf.Tensor,
    scores: tf.Tensor,
    nms: NmsParams,
    max_proposals: int,
    windows: tf.Tensor,
    *,
    static: bool,
    keeps_empty: bool,
) -> Proposals:
    """Suppresses boxes of all levels together, then clips the remaining boxes.

    Args:
      boxes: float32 [B, N, 4], absolute.
      scores: float32 [B, N]; minus infinity for what must not be chosen.
      nms: parameters of the suppression.
      max_proposals: P.
      windows: float32 [B, 4], the true images.
      static: whether to use only operations that XLA compiles.
      keeps_empty: whether padding rows contain boxes without area in the images.
    """
    detections = batch_multiclass_non_max_suppression(
        boxes[:, :, tf.newaxis],
        scores[..., tf.newaxis],
        dataclasses.replace(
            nms, max_detections_per_class=max_proposals, max_total_detections=max_proposals
        ),
        clip_window=None if keeps_empty else windows,
        static=static,
    )
    if keeps_empty:
        return _clip_with_empty(detections, windows)
    return Proposals(detections.boxes, detections.scores, detections.num_detections)


def with_objects(
    candidates: Regions, groundtruth_boxes: tf.Tensor, groundtruth: Groundtruth
) -> Regions:
    """Appends the boxes of the objects, with a score of 1.

    Crowds and objects of weight 0 become padding: rows of zeros.

    Args:
      candidates: N per image.
      groundtruth_boxes: float32 [B, M, 4], absolute.
      groundtruth: ground truth with weights and crowds.

    Returns:
      N + M candidates per image.
    """
    is_valid = groundtruth.weights > 0
    if groundtruth.is_crowd is not None:
        is_valid &= ~groundtruth.is_crowd
    scores = tf.cast(is_valid, tf.float32)
    boxes = groundtruth_boxes * scores[..., tf.newaxis]
    objects = Regions(boxes, scores, is_valid)
    return Regions(*(tf.concat(rows, axis=1) for rows in zip(candidates, objects, strict=True)))


def is_large_enough(clipped: tf.Tensor, min_size: float) -> tf.Tensor:
    """Returns which boxes [..., 4] have an area and sides of at least `min_size` pixels."""
    sides = clipped[..., 2:] - clipped[..., :2]
    return tf.reduce_all((sides > 0) & (sides >= min_size), axis=-1)


def true_image_windows(true_shapes: tf.Tensor) -> tf.Tensor:
    """int32 [B, 3] true shapes -> float32 [B, 4] windows [0, 0, height, width]."""
    sizes = tf.cast(true_shapes[:, :2], tf.float32)
    return tf.concat([tf.zeros_like(sizes), sizes], axis=1)


def _clip_with_empty(detections: Suppressed, windows: tf.Tensor) -> Proposals:
    """Clips to the windows [B, 4]; what has no area there stays, behind the others, uncounted."""
    boxes = box_ops.clip(detections.boxes, windows)
    has_area, order = used_first(box_ops.area(boxes) > 0, boxes.shape[1])
    scores = tf.gather(detections.scores, order, batch_dims=1)
    return Proposals(
        boxes=tf.gather(boxes, order, batch_dims=1),
        scores=tf.where(has_area, scores, 0.0),
        count=tf.reduce_sum(tf.cast(has_area, tf.int32), axis=1),
    )
