"""Assigners: which object an anchor, a point or a query is trained on."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import tensorflow as tf

from object_detection.core import boxes as box_ops
from object_detection.core.groundtruth import Groundtruth
from object_detection.core.shapes import dimensions
from object_detection.core.suppression.nms_tiles import at_least_one_row
from object_detection.errors import UserError, expected
from object_detection.targets import hungarian
from object_detection.targets.box_coders import DistanceBoxCoder
from object_detection.targets.matchers import IGNORED, UNMATCHED, ArgMaxMatcher, Matcher
from object_detection.targets.similarities import IouSimilarity, center_size_l1

# Up to this number (16 MiB), all pairs of ground truth and anchors are compared at once.
_MAX_PAIRS = 2**22
# Similarity to a query that is not valid, less than that of any other.
_NO_QUERY = -1e6
# In sizes of a cell, what rounding of normalized coordinates may change: with 500 cells a side, the
# last digit of a coordinate is 3e-5 of a cell.
_NEAR = 1e-4
# Relative, of areas of normalized boxes of equal size.
_EQUAL = 1e-5
# Least probability whose logarithm is taken.
_TINY = 1e-8


class Candidates(NamedTuple):
    """What objects are matched to: N anchors, points or queries of an image, in order.

    Attributes:
      boxes: float32 [N, 4], or [B, N, 4] with separate boxes for each image: anchors, or cells with
        the points in their centres.
      levels: None, or int32 [N], the index of the feature map.
      is_valid: None for all, or bool [N] or [B, N]; the others are ignored.
      scores: None, or float32 [B, N, K], predicted probabilities of the classes, without gradient.
      predicted_boxes: None, or float32 [B, N, 4] in the frame of the ground truth, without
        gradient.
    """

    boxes: tf.Tensor
    levels: tf.Tensor | None = None
    is_valid: tf.Tensor | None = None
    scores: tf.Tensor | None = None
    predicted_boxes: tf.Tensor | None = None

    def matches(self, matches: tf.Tensor) -> tf.Tensor:
        """Returns matches, int32 [B, N], in which candidates that are not valid are ignored."""
        return matches if self.is_valid is None else tf.where(self.is_valid, matches, IGNORED)


class Assigner(Protocol):
    """Matches candidates to objects."""

    def assign(self, candidates: Candidates, groundtruth: Groundtruth) -> tf.Tensor:
        """Returns the matches of a batch, without gradient.

        Args:
          candidates: an assigner says which of the optional values it needs.
          groundtruth: boxes float32 [B, M, 4] in the candidates' frame; M may be 0. Padding
            consists of zero boxes of weight 0. Crowds are objects, see `targets.without_crowds`.

        Returns:
          int32 [B, N]: an object's index, -1 (`UNMATCHED`) or -2 (`IGNORED`).
        """
        ...


class SimilarityAssigner:
    """Matches by similarity (Faster R-CNN, https://arxiv.org/abs/1506.01497, sec. 3.1.2).

    Objects of weight 0 are matched too (but never forced), so that anchors on them are not
    negatives; `targets.encode_targets` gives them weight 0.

    Args:
      similarity: one of `targets.similarities`.
      matcher: its rows are ground truth, its columns candidates. If candidates are not valid, it
        must accept similarities of minus infinity.
      labels_background: whether the first class of the ground truth is background. The score of an
        object, which some similarities use, is 1 less that class; otherwise it is 1.
    """

    def __init__(self, similarity: Any, matcher: Matcher, labels_background: bool = False):
        self._similarity = similarity
        self._matcher = matcher
        self._labels_background = labels_background

    def assign(self, candidates: Candidates, groundtruth: Groundtruth) -> tf.Tensor:
        """Returns the matches, int32 [B, N]; see `Assigner`."""
        scores = 1.0 - groundtruth.classes[:, :, 0] if self._labels_background else None
        match = self._match
        is_row_by_row = isinstance(self._matcher, ArgMaxMatcher)
        if is_row_by_row and _are_many(candidates.boxes, groundtruth.boxes):
            match = self._match_one_by_one
        return candidates.matches(match(candidates, groundtruth, scores))

    def _match(
        self, candidates: Candidates, groundtruth: Groundtruth, scores: tf.Tensor | None
    ) -> tf.Tensor:
        similarity = self._similarity.compare(groundtruth.boxes, candidates.boxes, scores)
        if candidates.is_valid is not None:
            similarity = tf.where(candidates.is_valid[..., tf.newaxis, :], similarity, -np.inf)
        return self._matcher.match(similarity, valid_rows=groundtruth.weights > 0)

    def _match_one_by_one(
        self, candidates: Candidates, groundtruth: Groundtruth, scores: tf.Tensor | None
    ) -> tf.Tensor:
        """Returns the same as `_match`, without a tensor of all pairs [B, M, N]."""
        boxes, weights = groundtruth.boxes, groundtruth.weights
        rows = [tf.stop_gradient(boxes)]
        if scores is not None:
            rows.append(tf.stop_gradient(scores))
        compare = self._similarity.compare_with(tf.stop_gradient(candidates.boxes))

        def similarity_of(row: tf.Tensor) -> tf.Tensor:
            box, *score = (tf.gather(values, row, axis=1)[:, tf.newaxis] for values in rows)
            similarity = compare(box, *score)[:, 0]
            if candidates.is_valid is None:
                return similarity
            return tf.where(candidates.is_valid, similarity, -np.inf)

        num_rows = dimensions(boxes, 1)[0]
        if isinstance(self._similarity, IouSimilarity):
            num_rows = _without_last_padding(boxes, weights)
        num_columns = dimensions(candidates.boxes, -2)[0]
        return self._matcher.match_one_by_one(similarity_of, num_rows, weights > 0, num_columns)


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


class HungarianAssigner:
    """Matches one to one, at the lowest total cost (DETR, https://arxiv.org/abs/2005.12872, eq. 1).

    The cost of an object and a query with `scores` and `predicted_boxes` is

        - class_cost * score of the object's class + l1_cost * L1 + giou_cost * (1 - GIoU)

    L1 is the distance of the boxes as [y_center, x_center, height, width]. Each object of positive
    weight gets a query as long as there are any; all other queries are unmatched.

    Args:
      class_cost, l1_cost, giou_cost: factors of the parts of the cost.
      class_value: what takes the place of scores [B, N, K], such as `focal_values`.
    """

    def __init__(
        self,
        class_cost: float = 1.0,
        l1_cost: float = 5.0,
        giou_cost: float = 2.0,
        class_value: Callable[[tf.Tensor], tf.Tensor] = lambda scores: scores,
    ):
        self._class_value = class_value
        self._class_cost = class_cost
        self._l1_cost = l1_cost
        self._giou_cost = giou_cost

    def assign(self, candidates: Candidates, groundtruth: Groundtruth) -> tf.Tensor:
        """Returns the matches, int32 [B, N]; see `Assigner`."""
        similarity = self.similarity(candidates, groundtruth)
        if candidates.is_valid is not None:
            similarity = tf.where(candidates.is_valid[..., tf.newaxis, :], similarity, _NO_QUERY)
        return candidates.matches(hungarian.assign(-similarity, groundtruth.weights > 0))

    def similarity(self, candidates: Candidates, groundtruth: Groundtruth) -> tf.Tensor:
        """Returns minus the costs, float32 [B, M, N]."""
        boxes, others = groundtruth.boxes, candidates.predicted_boxes
        values = self._class_value(candidates.scores)
        scores = tf.matmul(groundtruth.classes, values, transpose_b=True)
        far = self._l1_cost * center_size_l1(boxes, others)
        apart = self._giou_cost * (1.0 - box_ops.giou(boxes, others))
        return self._class_cost * scores - far - apart


def focal_values(scores: tf.Tensor, alpha: float, gamma: float) -> tf.Tensor:
    """Returns by how much a match would change the focal loss of queries, float32 [B, N, K].

    It is the cost of a negative minus that of a positive (https://arxiv.org/abs/2010.04159).

    Args:
      scores: float32 [B, N, K], probabilities.
      alpha, gamma: of the focal loss.
    """
    negative = (1.0 - alpha) * tf.pow(scores, gamma) * -tf.math.log(1.0 - scores + _TINY)
    positive = alpha * tf.pow(1.0 - scores, gamma) * -tf.math.log(scores + _TINY)
    return negative - positive


class PointAssigner:
    """Matches the points within an object to it (FCOS, https://arxiv.org/abs/1904.01355, sec. 3).

    The points are the centres of the candidates' boxes, and distances are measured in heights and
    widths of these boxes, so that any frame does in which boxes are square in the image. A point is
    matched if it is within the object's box, near its centre, and if the longest of its distances
    to the four sides is in the range of its level. Of several objects, the one with the smallest
    area is matched; of equal ones the first. `levels` of the candidates are needed.

    No end of a range is in it, as in torchvision, nor is anything so near to it that rounding
    decides: a point on the side of a box is not in the box.

    Args:
      ranges: the shortest and the longest distance of each level.
      radius: points whose vertical and horizontal distance from the centre of the object are both
        below this are near it; None: all points are.

    Raises:
      UserError: for a range that holds no distance, or a radius that is not positive.
    """

    def __init__(self, ranges: Sequence[tuple[float, float]], radius: float | None = 1.5):
        if not ranges or not all(0 <= low < high for low, high in ranges):
            raise expected('PointAssigner', 'ranges (low, high) with 0 <= low < high', list(ranges))
        if radius is not None and radius <= 0:
            raise UserError(f'PointAssigner: expected a radius above 0. Received: {radius:g}.')
        self._ranges = np.array(ranges, np.float32)
        self._radius = radius

    def assign(self, candidates: Candidates, groundtruth: Groundtruth) -> tf.Tensor:
        """Returns the matches, int32 [B, N]; see `Assigner`."""
        boxes = at_least_one_row(groundtruth.boxes)[..., tf.newaxis, :]  # [B, M, 1, 4]
        cells = tf.stop_gradient(candidates.boxes)[..., tf.newaxis, :, :]
        # Each [B, M, N].
        top, left, bottom, right = tf.unstack(DistanceBoxCoder().encode(boxes, cells), axis=-1)
        shortest = tf.minimum(tf.minimum(top, left), tf.minimum(bottom, right))
        longest = tf.maximum(tf.maximum(top, left), tf.maximum(bottom, right))
        low, high = tf.unstack(tf.gather(self._ranges, candidates.levels), axis=-1)
        is_match = (shortest > _NEAR) & (longest > low + _NEAR) & (longest < high - _NEAR)
        if self._radius is not None:
            # Half the difference of opposite distances is that from the centre.
            off_center = tf.maximum(tf.abs(top - bottom), tf.abs(left - right)) / 2
            is_match &= off_center < self._radius - _NEAR
        areas = tf.where(is_match, box_ops.area(boxes), np.inf)
        least = tf.reduce_min(areas, axis=1, keepdims=True)
        is_smallest = tf.cast(is_match & (areas <= least * (1 + _EQUAL)), tf.int32)
        matches = tf.where(
            tf.reduce_any(is_match, axis=1),
            tf.argmax(is_smallest, axis=1, output_type=tf.int32),
            UNMATCHED,
        )
        return candidates.matches(matches)
