"""The losses of sets of boxes: each object is learned by one query of a set."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import NamedTuple

import tensorflow as tf

from object_detection.core import boxes as corner_ops
from object_detection.core.groundtruth import Groundtruth
from object_detection.core.loss_sum import LossSum
from object_detection.core.shapes import dimensions
from object_detection.losses.classification import SigmoidFocalLoss
from object_detection.meta_architectures.detr import boxes as box_ops
from object_detection.meta_architectures.detr import fine_distributions as fine
from object_detection.meta_architectures.detr import loss_names
from object_detection.meta_architectures.detr.predictions import Layer, Predictions
from object_detection.targets.assigners import Candidates, HungarianAssigner
from object_detection.targets.matchers import IGNORED, UNMATCHED
from object_detection.targets.targets import gather_matched

# Of the softened distributions that are compared (D-FINE).
_TEMPERATURE = 5.0
# Least target of LW-DETR's focal loss.
_LEAST_QUALITY = 0.01


class PredictedSet(NamedTuple):
    """Predictions that are matched to the objects by themselves.

    Attributes:
      suffix: of the names of its losses.
      class_logits: float32 [B, N, columns].
      boxes: float32 [B, N, 4], (x, y, width, height).
      distributions: None, or float32 [B, N, 4, bins + 1].
      teacher: None, or the predictions that its distributions approach.
      origin: with distributions, the boxes [B, N, 4] from which they measure.
    """

    suffix: str
    class_logits: tf.Tensor
    boxes: tf.Tensor
    distributions: tf.Tensor | None = None
    teacher: Layer | None = None
    origin: tf.Tensor | None = None


class Matched(NamedTuple):
    """The objects of the queries of a set.

    Attributes:
      boxes: float32 [B, N, 4], (x, y, width, height); 0 without an object.
      corners: float32 [B, N, 4], the same boxes as [ymin, xmin, ymax, xmax].
      classes: float32 [B, N, K]; 0 without an object.
      weights: float32 [B, N], of the object, 0 without one.
      is_used: float32 [B, N], 0 for queries that learn nothing.
      iou: float32 [B, N], of the predicted box, without gradient; 0 without an object.
    """

    boxes: tf.Tensor
    corners: tf.Tensor
    classes: tf.Tensor
    weights: tf.Tensor
    is_used: tf.Tensor
    iou: tf.Tensor


# Losses [B, N] or [B, N, K] of class logits, and what divides their sum; None is the objects.
ClassLoss = Callable[[tf.Tensor, Matched], tuple[tf.Tensor, tf.Tensor | None]]


@dataclasses.dataclass(frozen=True)
class Varifocal:
    """Scores learn the IoU of the box (https://arxiv.org/abs/2008.13367, eq. 2)."""

    alpha: float = 0.75
    gamma: float = 2.0

    def __call__(self, logits: tf.Tensor, matched: Matched) -> tuple[tf.Tensor, None]:
        scores = tf.stop_gradient(tf.sigmoid(logits))
        targets = matched.classes * matched.iou[..., tf.newaxis]
        others = self.alpha * tf.pow(scores, self.gamma) * (1.0 - matched.classes)
        weights = (others + targets) * matched.is_used[..., tf.newaxis]
        return weights * tf.nn.sigmoid_cross_entropy_with_logits(targets, logits), None


@dataclasses.dataclass(frozen=True)
class IouAware:
    """Scores learn a mean of themselves and the IoU (https://arxiv.org/abs/2406.03459)."""

    alpha: float = 0.25
    gamma: float = 2.0

    def __call__(self, logits: tf.Tensor, matched: Matched) -> tuple[tf.Tensor, None]:
        scores = tf.sigmoid(logits)
        iou = matched.iou[..., tf.newaxis]
        quality = tf.pow(scores, self.alpha) * tf.pow(iou, 1.0 - self.alpha)
        quality = tf.stop_gradient(tf.maximum(quality, _LEAST_QUALITY)) * matched.classes
        others = (1.0 - matched.classes) * tf.pow(scores, self.gamma) + matched.classes - quality
        losses = -quality * tf.math.log_sigmoid(logits) - others * tf.math.log_sigmoid(-logits)
        return losses * matched.is_used[..., tf.newaxis], None


@dataclasses.dataclass(frozen=True)
class Focal:
    """The focal loss (https://arxiv.org/abs/1708.02002)."""

    alpha: float = 0.25
    gamma: float = 2.0

    def __call__(self, logits: tf.Tensor, matched: Matched) -> tuple[tf.Tensor, None]:
        loss = SigmoidFocalLoss(alpha=self.alpha, gamma=self.gamma)
        return loss(logits, matched.classes, matched.is_used[..., tf.newaxis]), None


@dataclasses.dataclass(frozen=True)
class Softmax:
    """Cross entropy with a last column of background, a weighted mean over all queries."""

    background_weight: float = 0.1

    def __call__(self, logits: tf.Tensor, matched: Matched) -> tuple[tf.Tensor, tf.Tensor]:
        is_object = tf.reduce_max(matched.classes, axis=-1)
        targets = tf.concat([matched.classes, 1.0 - is_object[..., tf.newaxis]], axis=-1)
        weights = is_object + (1.0 - is_object) * self.background_weight
        weights *= matched.is_used
        losses = tf.nn.softmax_cross_entropy_with_logits(targets, logits)
        return losses * weights, tf.reduce_sum(weights)


@dataclasses.dataclass(frozen=True)
class Weights:
    """Factors of the losses."""

    classes: float = 1.0
    l1: float = 5.0
    giou: float = 2.0
    fine_grained: float = 0.15
    distillation: float = 1.5


class SetLosses:
    """Matches predictions to objects, and computes the losses.

    All sets are matched at once.

    Args:
      assigner: gives each object a query.
      classification: the loss of class logits.
      weights: factors of the losses.
      score_converter: class logits -> scores [..., K] by which objects are matched.
      auxiliary: whether other sets than that of the detections have losses.
      fine_options: of distributions; None without.
      pairs_layers, unites_matches: see the message DetrLoss.
    """

    def __init__(
        self,
        *,
        assigner: HungarianAssigner,
        classification: ClassLoss,
        weights: Weights,
        score_converter: Callable[[tf.Tensor], tf.Tensor],
        auxiliary: bool = True,
        fine_options: fine.FineOptions | None = None,
        pairs_layers: bool = True,
        unites_matches: bool = False,
    ):
        self._assigner = assigner
        self._classification = classification
        self._weights = weights
        self._score_converter = score_converter
        self._auxiliary = auxiliary
        self._fine = fine_options
        self._pairs_layers = pairs_layers
        self._unites_matches = unites_matches

    def compute(self, predictions: Predictions, groundtruth: Groundtruth) -> dict[str, LossSum]:
        """Returns the losses by name: sums over queries, which the number of objects divides.

        Args:
          predictions: of the detector.
          groundtruth: boxes in the frame of the predictions; crowds are padding.
        """
        noisy = predictions.noisy
        num_noisy = 0 if noisy is None else noisy.matches.shape[1]
        sets = self._sets(predictions, num_noisy)
        matches = self._match(sets, groundtruth, predictions.num_groups)
        count = tf.math.count_nonzero(groundtruth.weights, dtype=tf.float32)
        count *= predictions.num_groups
        united = union(matches, groundtruth) if self._unites_matches else None
        sums = {}
        for each, of_set in zip(sets, matches, strict=True):
            sums |= self._losses(each, of_set, groundtruth, count, united)
        if noisy is not None and self._auxiliary:
            count = tf.math.count_nonzero(noisy.matches >= 0, dtype=tf.float32)
            for each in self._noisy_sets(predictions, num_noisy):
                sums |= self._losses(each, noisy.matches, groundtruth, count)
        return sums

    def _sets(self, predictions: Predictions, num_noisy: int) -> list[PredictedSet]:
        layers = [_part(each, slice(num_noisy, None)) for each in predictions.layers]
        last = layers[-1]
        result = [PredictedSet('', last.class_logits, last.boxes)]
        first = origin = None
        if self._fine is not None:
            first = _part(predictions.first, slice(num_noisy, None))
            origin = tf.stop_gradient(first.boxes)
            if self._pairs_layers:
                result = [PredictedSet('', *last, origin=origin)]
        if not self._auxiliary:
            return result
        pairs = self._pairs(layers, first)[:-1]
        teacher = None if self._fine is None else last
        result += [
            PredictedSet(loss_names.auxiliary(i), *pair, teacher, origin)
            for i, pair in enumerate(pairs)
        ]
        if self._fine is not None and self._pairs_layers:
            result.append(PredictedSet(loss_names.FIRST, first.class_logits, first.boxes))
        selection = predictions.selection
        if selection is not None:
            found = (selection.class_logits, selection.boxes)
            result.append(PredictedSet(loss_names.SELECTION, *found))
        return result

    def _pairs(self, layers: Sequence[Layer], first: Layer | None) -> list[Layer]:
        """Returns the predictions that losses take together; see `DetrLoss.pairs_layers`."""
        if self._fine is None or self._pairs_layers:
            return list(layers)
        before = [first, *layers[:-1]]
        return [
            Layer(each.class_logits, each.boxes, layer.distributions)
            for each, layer in zip(before, layers, strict=True)
        ]

    def _noisy_sets(self, predictions: Predictions, num_noisy: int) -> list[PredictedSet]:
        own = slice(None, num_noisy)
        layers = [_part(each, own) for each in predictions.layers]
        first = origin = None
        if self._fine is not None:
            first = _part(predictions.first, own)
            origin = tf.stop_gradient(first.boxes)
        pairs, sets = self._pairs(layers, first), []
        for i, pair in enumerate(pairs):
            is_last = i == len(pairs) - 1 and self._pairs_layers
            teacher = None if self._fine is None or is_last else layers[-1]
            sets.append(PredictedSet(loss_names.denoising(i), *pair, teacher, origin))
        return sets

    def _match(
        self, sets: Sequence[PredictedSet], groundtruth: Groundtruth, num_groups: int
    ) -> list[tf.Tensor]:
        """Returns int32 [B, N] of each set, matched group by group."""
        logits, boxes = (
            tf.stop_gradient(tf.stack([getattr(each, name) for each in sets]))  # [S, B, N, ...]
            for name in ('class_logits', 'boxes')
        )
        if self._fine is not None:
            boxes = tf.clip_by_value(boxes, 0.0, 1.0)
        (batch, count), times = dimensions(logits, 1, 2), len(sets)
        size, rows = count // num_groups, times * batch * num_groups
        scores = self._score_converter(logits)
        repeated = groundtruth._replace(
            **{
                name: _repeat(getattr(groundtruth, name), times, num_groups)
                for name in ('boxes', 'classes', 'weights')
            }
        )
        corners = tf.reshape(box_ops.to_corners(boxes), [rows, size, 4])
        scores = tf.reshape(scores, [rows, size, scores.shape[-1]])
        candidates = Candidates(boxes=corners, scores=scores, predicted_boxes=corners)
        matches = self._assigner.assign(candidates, repeated)
        return tf.unstack(tf.reshape(matches, [times, batch, count]), num=times)

    def _losses(
        self,
        predicted: PredictedSet,
        matches: tf.Tensor,
        groundtruth: Groundtruth,
        count: tf.Tensor,
        united: tf.Tensor | None = None,
    ) -> dict[str, LossSum]:
        """Returns the losses of a set.

        Args:
          predicted: the set.
          matches: int32 [B, N].
          groundtruth: the objects.
          count: of the objects, float32.
          united: int32 [B, N], the matches of all losses but that of classes; None takes `matches`.
        """
        boxes = predicted.boxes
        if self._fine is not None:
            boxes = tf.clip_by_value(boxes, 0.0, 1.0)
        corners = box_ops.to_corners(boxes)
        matched, factors = _matched(corners, matches, groundtruth), self._weights
        losses, divisor = self._classification(predicted.class_logits, matched)
        divisor = count if divisor is None else divisor
        sums = {loss_names.CLASS: LossSum(factors.classes * tf.reduce_sum(losses), divisor)}
        if united is not None:
            matched = _matched(corners, united, groundtruth)
            count = tf.math.count_nonzero(matched.weights, dtype=tf.float32)
        l1 = tf.reduce_sum(tf.abs(boxes - matched.boxes), axis=-1) * matched.weights
        giou = (1.0 - corner_ops.matched_giou(corners, matched.corners)) * matched.weights
        sums[loss_names.L1] = LossSum(factors.l1 * tf.reduce_sum(l1), count)
        sums[loss_names.GIOU] = LossSum(factors.giou * tf.reduce_sum(giou), count)
        if predicted.distributions is not None:
            sums |= self._fine_losses(predicted, matched, count)
        return {loss_names.full_name(kind, predicted.suffix): each for kind, each in sums.items()}

    def _fine_losses(
        self, predicted: PredictedSet, matched: Matched, count: tf.Tensor
    ) -> dict[str, LossSum]:
        """Returns the losses of distributions (https://arxiv.org/abs/2410.13842, eq. 5 and 6)."""
        factors = self._weights
        targets = tf.stop_gradient(fine.encode(predicted.origin, matched.boxes, self._fine))
        logs = tf.nn.log_softmax(predicted.distributions)
        edges = -tf.reduce_sum(targets * logs, axis=[-2, -1]) * matched.iou
        total = factors.fine_grained * tf.reduce_sum(edges)
        sums = {loss_names.FINE_GRAINED: LossSum(total, count)}
        if predicted.teacher is not None:
            sums[loss_names.DISTILLATION] = self._distillation(predicted, matched)
        return sums

    def _distillation(self, predicted: PredictedSet, matched: Matched) -> LossSum:
        """Distributions approach those of the last layer, a mean over images."""
        teacher = predicted.teacher
        ours, theirs = (
            tf.nn.log_softmax(each / _TEMPERATURE)
            for each in (predicted.distributions, tf.stop_gradient(teacher.distributions))
        )
        apart = tf.reduce_sum(tf.exp(theirs) * (theirs - ours), axis=-1) * _TEMPERATURE**2
        best = tf.reduce_max(tf.sigmoid(tf.stop_gradient(teacher.class_logits)), axis=-1)
        is_matched = tf.cast(matched.weights > 0, tf.float32)
        apart = tf.reduce_sum(apart, axis=-1) * tf.where(is_matched > 0, matched.iou, best)
        (batch,) = dimensions(apart, 0)
        batch = tf.cast(batch, tf.float32)
        total = weight = 0.0
        for mask in (is_matched, (1.0 - is_matched) * matched.is_used):
            edges = 4.0 * tf.reduce_sum(mask)
            share = tf.sqrt(edges / batch)
            total += share * tf.math.divide_no_nan(tf.reduce_sum(apart * mask), edges)
            weight += share
        loss = tf.math.divide_no_nan(total, weight)
        return LossSum(self._weights.distillation * loss * batch, batch)


def union(matches: Sequence[tf.Tensor], groundtruth: Groundtruth) -> tf.Tensor:
    """Returns the matches of several sets as one (D-FINE, https://arxiv.org/abs/2410.13842).

    Args:
      matches: int32 [B, N] of each set, of the same queries.
      groundtruth: M objects.

    Returns:
      int32 [B, N]: the object that a query is matched with in most sets, of several the first;
      `UNMATCHED` where it is never matched. Several queries may have the same object.
    """
    (objects,) = dimensions(groundtruth.weights, 1)
    counts = sum(tf.one_hot(each, objects, dtype=tf.int32) for each in matches)  # [B, N, M]
    # Of equal numbers the first counts, which is that of no object.
    counts = tf.pad(counts, [[0, 0], [0, 0], [1, 0]])
    return tf.argmax(counts, axis=-1, output_type=tf.int32) + UNMATCHED


def _matched(corners: tf.Tensor, matches: tf.Tensor, groundtruth: Groundtruth) -> Matched:
    """Returns the objects of predicted boxes [B, N, 4] by their matches [B, N]."""
    found = gather_matched(groundtruth.boxes, matches, 0.0)
    return Matched(
        boxes=box_ops.from_corners(found),
        corners=found,
        classes=gather_matched(groundtruth.classes, matches, 0.0),
        weights=gather_matched(groundtruth.weights, matches, 0.0),
        is_used=tf.cast(matches != IGNORED, tf.float32),
        iou=tf.stop_gradient(corner_ops.matched_iou(corners, found)),
    )


def without_crowds(groundtruth: Groundtruth) -> Groundtruth:
    """Returns the ground truth in which crowds are padding."""
    if groundtruth.is_crowd is None:
        return groundtruth
    return groundtruth._replace(weights=tf.where(groundtruth.is_crowd, 0.0, groundtruth.weights))


def _part(layer: Layer, queries: slice) -> Layer:
    return Layer(*(None if each is None else each[:, queries] for each in layer))


def _repeat(values: tf.Tensor, times: int, num_groups: int) -> tf.Tensor:
    """[B, ...] -> [times * B * num_groups, ...]: each image for all its groups, then all again."""
    values = tf.repeat(values, num_groups, axis=0) if num_groups > 1 else values
    return tf.concat([values] * times, axis=0)
