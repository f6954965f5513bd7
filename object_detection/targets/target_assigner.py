"""Computes training targets of anchors (or proposals) from their matches to ground truth.

Classification targets from labels with confidences, some of which say what is not there.

Boxes on crowds, which are regions of many objects without separate annotations.
"""

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from object_detection.core import boxes as box_ops
from object_detection.core import sampling, tracing
from object_detection.core.groundtruth import Groundtruth
from object_detection.core.shapes import dimensions
from object_detection.core.suppression.nms_tiles import at_least_one_row, used_first
from object_detection.errors import UserError
from object_detection.targets.matchers import IGNORED, UNMATCHED, ArgMaxMatcher, Matcher
from object_detection.targets.similarities import IouSimilarity

# Up to this number (16 MiB), all pairs of ground truth and anchors are compared at once.
_MAX_PAIRS = 2**22
# Maximum number of columns of the one-hot matrix when gathering by matrix products.
_GATHERED_AT_ONCE = 2**14


class Targets(NamedTuple):
    """The training targets of N anchors.

    Attributes:
      class_targets: float32 [B, N, K']; the label of the matched object, or the unmatched label.
      class_weights: float32 [B, N]; the object's weight where matched, the negative class weight
        where unmatched, 0 where ignored.
      box_targets: float32 [B, N, D], codes relative to the anchors; 0 where not matched.
      box_weights: float32 [B, N]; the object's weight where matched, else 0.
      matches: int32 [B, N]: index of the matched object, -1 unmatched, -2 ignored.
    """

    class_targets: tf.Tensor
    class_weights: tf.Tensor
    box_targets: tf.Tensor
    box_weights: tf.Tensor
    matches: tf.Tensor


class TargetAssigner:
    """Matches anchors to ground truth (Faster R-CNN, https://arxiv.org/abs/1506.01497, sec. 3.1.2).

    Args:
      similarity: one of `object_detection.similarities`.
      matcher: its rows are ground truth, its columns anchors.
      box_coder: one of `object_detection.box_coders`.
      negative_class_weight: class weight of unmatched anchors.
    """

    def __init__(
        self,
        similarity: Any,
        matcher: Matcher,
        box_coder: Any,
        negative_class_weight: float = 1.0,
    ):
        self._similarity = similarity
        self._matcher = matcher
        self.box_coder = box_coder
        self._negative_class_weight = negative_class_weight

    def assign(
        self,
        anchors: tf.Tensor,
        boxes: tf.Tensor,
        labels: tf.Tensor,
        weights: tf.Tensor,
        unmatched_label: tf.Tensor,
        keypoints: tf.Tensor | None = None,
        valid_anchors: tf.Tensor | None = None,
    ) -> Targets:
        """Returns the targets of a batch; gradients reach the anchors by `box_targets` alone.

        Ground truth of weight 0 is matched too (but never forced), so that anchors on it are not
        negatives; they have weight 0. Padding consists of zero boxes of weight 0.

        Args:
          anchors: float32 [N, 4] or [B, N, 4].
          boxes: float32 [B, M, 4], in the anchors' frame; M may be 0.
          labels: float32 [B, M, K'] (or [B, M, ...], e.g. masks), with the background column if
            the classes have one. A similarity that uses scores gets 1 - labels[..., 0].
          weights: float32 [B, M].
          unmatched_label: float32 [K'] (or [...]), class target of unmatched anchors.
          keypoints: float32 [B, M, P, 2], (y, x) in the anchors' frame, for a box coder that
            encodes keypoints, else None.
          valid_anchors: bool [N] or [B, N]; invalid anchors are ignored and never forced matches.
            None means that all are valid. The matcher must accept similarities of minus infinity.
        """
        matches = self.match(anchors, boxes, labels, weights, valid_anchors)
        return self.targets(matches, anchors, boxes, labels, weights, unmatched_label, keypoints)

    def match(
        self,
        anchors: tf.Tensor,
        boxes: tf.Tensor,
        labels: tf.Tensor,
        weights: tf.Tensor,
        valid_anchors: tf.Tensor | None = None,
    ) -> tf.Tensor:
        """Returns the `matches` of `Targets`, int32 [B, N]; arguments as of `assign`."""
        scores = 1.0 - labels[:, :, 0] if len(labels.shape) == 3 else None
        match = self._match
        if isinstance(self._matcher, ArgMaxMatcher) and _are_many(anchors, boxes):
            match = self._match_one_by_one
        matches = match(anchors, boxes, scores, weights, valid_anchors)
        return matches if valid_anchors is None else tf.where(valid_anchors, matches, IGNORED)

    def targets(
        self,
        matches: tf.Tensor,
        anchors: tf.Tensor,
        boxes: tf.Tensor,
        labels: tf.Tensor,
        weights: tf.Tensor,
        unmatched_label: tf.Tensor,
        keypoints: tf.Tensor | None = None,
    ) -> Targets:
        """Returns the targets of anchors that are matched already; arguments as of `assign`.

        Args:
          matches: int32 [B, N], as `match` returns them.
        """
        box_weights = self._gather(weights, matches, 0.0)
        class_weights = tf.where(matches == UNMATCHED, self._negative_class_weight, box_weights)
        return Targets(
            class_targets=self._gather(labels, matches, unmatched_label),
            class_weights=class_weights,
            box_targets=self._box_targets(anchors, boxes, keypoints, matches),
            box_weights=box_weights,
            matches=matches,
        )

    def _match(
        self,
        anchors: tf.Tensor,
        boxes: tf.Tensor,
        scores: tf.Tensor | None,
        weights: tf.Tensor,
        valid_anchors: tf.Tensor | None,
    ) -> tf.Tensor:
        similarity = self._similarity.compare(boxes, anchors, scores)  # [B, M, N]
        if valid_anchors is not None:
            similarity = tf.where(valid_anchors[..., tf.newaxis, :], similarity, -np.inf)
        return self._matcher.match(similarity, valid_rows=weights > 0)

    def _match_one_by_one(
        self,
        anchors: tf.Tensor,
        boxes: tf.Tensor,
        scores: tf.Tensor | None,
        weights: tf.Tensor,
        valid_anchors: tf.Tensor | None,
    ) -> tf.Tensor:
        """Returns the same as `_match`, without a tensor of all pairs; gradients end here."""
        anchors = tf.stop_gradient(anchors)
        rows = [tf.stop_gradient(boxes)]
        if scores is not None:
            rows.append(tf.stop_gradient(scores))
        compare = self._similarity.compare_with(anchors)

        def similarity_of(row: tf.Tensor) -> tf.Tensor:
            box, *score = (tf.gather(values, row, axis=1)[:, tf.newaxis] for values in rows)
            similarity = compare(box, *score)[:, 0]
            if valid_anchors is None:
                return similarity
            return tf.where(valid_anchors, similarity, -np.inf)

        num_rows = dimensions(boxes, 1)[0]
        if isinstance(self._similarity, IouSimilarity):
            num_rows = _without_last_padding(boxes, weights)
        num_anchors = dimensions(anchors, -2)[0]
        return self._matcher.match_one_by_one(similarity_of, num_rows, weights > 0, num_anchors)

    def _box_targets(
        self,
        anchors: tf.Tensor,
        boxes: tf.Tensor,
        keypoints: tf.Tensor | None,
        matches: tf.Tensor,
    ) -> tf.Tensor:
        matched = [self._gather(boxes, matches, tf.zeros([4]))]
        if keypoints is not None:
            points = tf.stop_gradient(keypoints)
            matched.append(self._gather(points, matches, tf.zeros(tf.shape(points)[2:])))
        codes = self.box_coder.encode(matched[0], anchors, *matched[1:])
        return tf.where(matches[..., tf.newaxis] >= 0, codes, 0.0)

    def _gather(self, rows: tf.Tensor, matches: tf.Tensor, default: tf.Tensor | float) -> tf.Tensor:
        use_matmul = self._matcher.use_matmul_gather and tracing.is_compiled()
        return gather_matched(rows, matches, default, use_matmul)


def gather_matched(
    rows: tf.Tensor, matches: tf.Tensor, default: tf.Tensor | float, use_matmul: bool = False
) -> tf.Tensor:
    """Gathers entries of the matched ground truth.

    Args:
      rows: [B, M, ...], an entry for each object; M may be 0.
      matches: int32 [B, N]: an object's index, or a negative number.
      default: [...], entry for negative matches.
      use_matmul: see `core.sampling.gather_rows`.

    Returns:
      [B, N, ...] of the dtype of `rows`.
    """
    # The default is put before the rows, so that gathering works without ground truth.
    shape = tf.shape(rows)
    default = tf.broadcast_to(
        tf.cast(default, rows.dtype), tf.concat([shape[:1], [1], shape[2:]], axis=0)
    )
    default = tf.ensure_shape(default, [rows.shape[0], 1, *rows.shape[2:]])
    indices = tf.maximum(matches, UNMATCHED) + 1
    rows = tf.concat([default, rows], axis=1)
    if use_matmul and indices.shape[1] is not None and indices.shape[1] > _GATHERED_AT_ONCE:
        return _gather_in_chunks(rows, indices)
    return sampling.gather_rows(rows, indices, use_matmul)


def _gather_in_chunks(rows: tf.Tensor, indices: tf.Tensor) -> tf.Tensor:
    """Gathers by matrix products with one-hot matrices of limited size; gradients end here."""
    count = -(-indices.shape[1] // _GATHERED_AT_ONCE)
    (batch,) = dimensions(indices, 0)
    missing = count * _GATHERED_AT_ONCE - indices.shape[1]
    padded = tf.pad(indices, [[0, 0], [0, missing]])
    chunks = tf.transpose(tf.reshape(padded, [batch, count, _GATHERED_AT_ONCE]), [1, 0, 2])
    rows = tf.stop_gradient(rows)
    gathered = tf.map_fn(
        lambda chunk: sampling.gather_rows(rows, chunk, use_matmul=True),
        chunks,
        fn_output_signature=rows.dtype,
        parallel_iterations=1,
    )
    inner = dimensions(rows, *range(2, rows.shape.rank))
    gathered = tf.transpose(gathered, [1, 0, *range(2, gathered.shape.rank)])
    gathered = tf.reshape(gathered, [batch, count * _GATHERED_AT_ONCE, *inner])
    return gathered[:, : indices.shape[1]]


def _are_many(anchors: tf.Tensor, boxes: tf.Tensor) -> bool:
    """Whether there are, or may be, too many pairs to compare all at once."""
    sizes = (boxes.shape[1], anchors.shape[-2])
    return None in sizes or (boxes.shape[0] or 1) * sizes[0] * sizes[1] > _MAX_PAIRS


def _without_last_padding(boxes: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """Returns the number of rows that matching by IoU has to compare, an int32 scalar.

    Of the padding at the end, one row is sufficient: padding has no IoU with any anchor, and no
    forced matches.
    """
    is_padding = (weights <= 0) & tf.reduce_all(tf.equal(boxes, 0.0), axis=-1)  # [B, M]
    (num_rows,) = dimensions(boxes, 1)
    numbers = tf.range(1, num_rows + 1)
    last = tf.reduce_max(tf.where(is_padding, 0, numbers))
    return tf.minimum(tf.maximum(last, 0) + 1, num_rows)


def confidence_targets(
    targets: Targets, *, has_background: bool, implicit_weight: float = 1.0
) -> Targets:
    """Turns targets whose labels are confidences into those of verified and unverified classes.

    A label of an object is positive for its classes, negative for classes that it is known not to
    be of, and 0 where nothing is known. Both known cases are explicit examples of weight 1; all
    others, including anchors that match no object, are implicit negatives. An anchor whose object
    has no positive label is background. As in the reference, the weights of objects matter only
    for the matching.

    Args:
      targets: as `TargetAssigner.assign` returns them for labels float32 [B, M, K'] of such
        confidences.
      has_background: whether the first column is background.
      implicit_weight: class weight of implicit examples.

    Returns:
      Targets with `class_weights` float32 [B, N, K'], a weight for each class.
    """
    labels = targets.class_targets[..., 1:] if has_background else targets.class_targets
    is_explicit = tf.cast(labels != 0.0, tf.float32)
    is_object = tf.cast(tf.reduce_any(labels > 0.0, axis=-1), tf.float32)
    class_targets = tf.maximum(labels, 0.0)
    if has_background:
        is_object_column = is_object[..., tf.newaxis]
        is_explicit = tf.concat([is_object_column, is_explicit], axis=-1)
        class_targets = tf.concat([1.0 - is_object_column, class_targets], axis=-1)
    return targets._replace(
        class_targets=class_targets,
        class_weights=implicit_weight + (1.0 - implicit_weight) * is_explicit,
        box_targets=targets.box_targets * is_object[..., tf.newaxis],
        box_weights=is_object,
    )


class WithoutCrowds(NamedTuple):
    """Ground truth in which crowds are replaced by padding.

    Attributes:
      boxes: float32 [B, M, 4], zero for crowds.
      weights: float32 [B, M], zero for crowds.
      is_on_crowd: bool [B, N], whether a region to match is on a crowd.
    """

    boxes: tf.Tensor
    weights: tf.Tensor
    is_on_crowd: tf.Tensor


def without_crowds(
    regions: tf.Tensor,
    groundtruth_boxes: tf.Tensor,
    groundtruth: Groundtruth,
    ioa_threshold: float,
) -> WithoutCrowds:
    """Replaces crowds by padding, and finds the regions that are on crowds.

    Args:
      regions: float32 [N, 4], or [B, N, 4] with separate regions for each image.
      groundtruth_boxes: float32 [B, M, 4], in the same frame.
      groundtruth: ground truth with the weights and `is_crowd`.
      ioa_threshold: a region is on a crowd that covers at least this share of its area; above 0.

    Raises:
      ValueError: if the ground truth has no `is_crowd`.
    """
    is_crowd = groundtruth.is_crowd
    if is_crowd is None:
        raise UserError(
            f'Regions on crowds are to be ignored (crowd_ioa_threshold {ioa_threshold:g}): '
            'expected groundtruth.is_crowd, bool [B, M]. Received: None.'
        )
    return WithoutCrowds(
        boxes=tf.where(is_crowd[..., tf.newaxis], 0.0, groundtruth_boxes),
        weights=tf.where(is_crowd, 0.0, groundtruth.weights),
        is_on_crowd=is_on_crowd(regions, groundtruth_boxes, is_crowd, ioa_threshold),
    )


def is_on_crowd(
    boxes: tf.Tensor, groundtruth_boxes: tf.Tensor, is_crowd: tf.Tensor, ioa_threshold: float
) -> tf.Tensor:
    """Returns which boxes have at least a given share of their area on one crowd.

    It compares crowd by crowd, since images have few; all pairs would need as much memory as the
    matching.

    Args:
      boxes: float32 [N, 4], or [B, N, 4].
      groundtruth_boxes: float32 [B, M, 4], in the same frame.
      is_crowd: bool [B, M]; False for padding.
      ioa_threshold: the minimum share, above 0.

    Returns:
      bool [B, N].
    """
    is_crowd = at_least_one_row(is_crowd, False)
    batch, rows = dimensions(is_crowd, 0, 1)
    (count,) = dimensions(boxes, -2)
    is_used, order = used_first(is_crowd, rows)
    crowds = tf.gather(at_least_one_row(groundtruth_boxes), order, batch_dims=1)
    crowds = tf.where(is_used[..., tf.newaxis], crowds, 0.0)
    most = tf.reduce_max(tf.reduce_sum(tf.cast(is_crowd, tf.int32), axis=1))

    def visit(row: tf.Tensor, shares: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        crowd = tf.gather(crowds, row, axis=1)[:, tf.newaxis]  # [B, 1, 4]
        on_crowd = box_ops.ioa(crowd, boxes)[:, 0]
        return row + 1, tf.ensure_shape(tf.maximum(shares, on_crowd), shares.shape)

    _, shares = tf.while_loop(lambda row, _: row < most, visit, (0, tf.zeros([batch, count])))
    return shares >= ioa_threshold
