"""The metrics of PASCAL VOC and of Open Images, for boxes and instance masks.

Curves of precision over recall, and the average precision below them.

Matches the detections of one image to its objects by the rules of PASCAL VOC and Open Images.

Each detection is compared only with the object of its class that it overlaps most: it is correct if
the overlap is large enough and no detection with a higher score has found that object, whether or
not another object is free (Everingham et al., The PASCAL Visual Object Classes Challenge). Boxes
that surround a group of objects follow the Open Images challenge
(https://storage.googleapis.com/openimages/web/evaluation.html).
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from pycocotools import mask as mask_api

from object_detection.core.fields import InputFields
from object_detection.errors import expected
from object_detection.metrics.coco import collecting
from object_detection.metrics.coco.collecting import CollectingEvaluator, Image, Searched
from object_detection.metrics.instances import Instances
from object_detection.metrics.pascal.options import PascalOptions


def precision_recall(
    scores: np.ndarray, is_correct: np.ndarray, num_objects: float
) -> tuple[np.ndarray, np.ndarray]:
    """Computes precision and recall of the detections above each score.

    Args:
      scores: float [n].
      is_correct: [n], 1 for a correct detection, 0 for a false one; between them for a part.
      num_objects: number of objects that are to be found, above 0.

    Returns:
      Precision float64 [n] and recall float64 [n], from the highest score to the lowest.

    Raises:
      ValueError: if more detections are correct than there are objects.
    """
    is_correct = np.asarray(is_correct, np.float64)
    if is_correct.sum() > num_objects:
        raise expected(
            'precision_recall', f'at most {num_objects:g} correct', f'{is_correct.sum():g}'
        )
    # As in the reference, the last of several equal scores comes first.
    ranked = is_correct[np.argsort(scores, kind='stable')[::-1]]
    correct = np.cumsum(ranked)
    return correct / (correct + np.cumsum(ranked <= 0)), correct / num_objects


def average_precision(precision: np.ndarray, recall: np.ndarray) -> float:
    """Returns the area below the curve after precision is made monotonic (VOC 2010 and later).

    Args:
      precision: float [n].
      recall: float [n], ascending.
    """
    recall = np.concatenate([[0.0], recall, [1.0]])
    precision = np.concatenate([[0.0], precision, [0.0]])
    envelope = np.maximum.accumulate(precision[::-1])[::-1]
    return float(np.sum(np.diff(recall) * envelope[1:]))


class Outcome(NamedTuple):
    """What the detections of one image, or of several, count for.

    Attributes:
      classes: int64 [n], 1-based ids; detections that do not count are left out.
      scores: float64 [n], in descending order within an image.
      is_correct: float64 [n]: 1 for a correct detection, 0 for a false one, and the weight of a
        group for the best detection in it.
      object_classes: int64 [m], 1-based ids of the objects that are to be found.
      object_weights: float64 [m]: 1, or the weight of a group.
    """

    classes: np.ndarray
    scores: np.ndarray
    is_correct: np.ndarray
    object_classes: np.ndarray
    object_weights: np.ndarray


def match(
    annotated: Instances,
    detected: Instances,
    size: tuple[int, int],
    *,
    iou_threshold: float = 0.5,
    group_of_weight: float = 0.0,
) -> Outcome:
    """Matches the detections of an image.

    Difficult objects need not be found, and detections of them do not count. The same is true of
    groups if their weight is 0; otherwise the best detection in a group is correct with that
    weight. A detection is in a group if the share of its area that lies there reaches the
    threshold.

    Args:
      annotated: the objects; masks are compared if it has some, otherwise boxes.
      detected: the detections, with scores, and with masks if the objects have some.
      size: (height, width) of the image in pixels.
      iou_threshold: the smallest overlap of a correct detection.
      group_of_weight: how much finding a group counts.
    """
    is_group = _flags(annotated.is_group_of, annotated)
    is_difficult = _flags(annotated.is_difficult, annotated)
    weights = np.where(is_group, group_of_weight, 1.0)
    counted = ~is_difficult & (weights > 0)
    detected = _ranked(detected)
    overlaps = _overlaps(annotated, detected, is_group, size)
    best, is_hit = _best(overlaps, ~is_group, iou_threshold)
    is_ignored = _at(is_difficult, best, is_hit)
    is_correct = _firsts(best, is_hit & ~is_ignored)
    group, is_inside = _best(overlaps, is_group, iou_threshold)
    is_inside &= ~is_ignored & ~is_correct
    # Detections are sorted by score, so the first one in a group is the best.
    is_finder = _at(counted, group, _firsts(group, is_inside)) & (detected.scores > 0)
    is_kept = ~is_ignored & ~is_inside
    found = np.concatenate([np.flatnonzero(is_kept), np.flatnonzero(is_finder)])
    return Outcome(
        detected.classes[found],
        np.asarray(detected.scores, np.float64)[found],
        np.concatenate([is_correct[is_kept], weights[group[is_finder]]]).astype(np.float64),
        annotated.classes[counted],
        weights[counted],
    )


def _ranked(detected: Instances) -> Instances:
    """Sorts detections by score, and leaves out those whose box has no area."""
    # As in the reference, the last of several equal scores comes first.
    order = np.argsort(detected.scores, kind='stable')[::-1]
    boxes = detected.boxes[order]
    return detected.where(order[np.all(boxes[:, 2:] > boxes[:, :2], axis=1)])


def _overlaps(
    annotated: Instances, detected: Instances, is_group: np.ndarray, size: tuple[int, int]
) -> np.ndarray:
    """Overlaps of detections and objects, float64 [n, m]; -1 where their classes differ.

    They are intersections over unions, or for groups over the area of the detection.
    """
    if not (len(annotated.classes) and len(detected.classes)):
        return np.full((len(detected.classes), len(annotated.classes)), -1.0)
    sides = [_regions(instances, size) for instances in (detected, annotated)]
    overlaps = mask_api.iou(*sides, is_group.astype(np.uint8))
    return np.where(detected.classes[:, np.newaxis] == annotated.classes, overlaps, -1.0)


def _regions(instances: Instances, size: tuple[int, int]) -> np.ndarray | list[dict]:
    """Boxes [n, 4], [x, y, width, height], or the encoded masks if there are some."""
    if instances.masks is not None:
        return [{'size': list(size), 'counts': counts} for counts in instances.masks]
    corners = instances.boxes[:, 1::-1]
    return np.concatenate([corners, instances.boxes[:, :1:-1] - corners], axis=1)


def _best(
    overlaps: np.ndarray, is_eligible: np.ndarray, threshold: float
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the object that each detection overlaps most, int64 [n], and whether enough."""
    if not is_eligible.any():
        return np.zeros(len(overlaps), np.int64), np.zeros(len(overlaps), bool)
    eligible = np.where(is_eligible, overlaps, -1.0)
    best = np.argmax(eligible, axis=1)
    return best, eligible[np.arange(len(best)), best] >= threshold


def _firsts(objects: np.ndarray, is_hit: np.ndarray) -> np.ndarray:
    """Returns which detections are the first ones that hit their object, bool [n]."""
    rows = np.flatnonzero(is_hit)
    firsts = np.zeros(len(objects), bool)
    firsts[rows[np.unique(objects[rows], return_index=True)[1]]] = True
    return firsts


def _at(flags: np.ndarray, objects: np.ndarray, is_hit: np.ndarray) -> np.ndarray:
    """Returns the flags of the objects that are hit, bool [n]; False for other detections."""
    values = np.zeros(len(objects), bool)
    values[is_hit] = flags[objects[is_hit]]
    return values


def _flags(flags: np.ndarray | None, instances: Instances) -> np.ndarray:
    return np.zeros(len(instances.classes), bool) if flags is None else flags


class Curve(NamedTuple):
    """Precision and recall of a category, float64 [n], from the highest score to the lowest."""

    precision: np.ndarray
    recall: np.ndarray
    average_precision: float


class _Image(NamedTuple):
    image_id: Any
    outcome: Outcome


class PascalEvaluator(CollectingEvaluator):
    """Collects the detections of a data set and computes average precision at one overlap.

    Each image is matched when it is added; only the scores and outcomes of its detections are
    stored. Images count in the order of their ids, so that results do not depend on how images are
    distributed among workers.

    Of a batch it reads the entries of `collecting.batch_instances`, and where the options need them
    difficult and group_of bool [B, G]; where only labelled classes count,
    groundtruth_image_classes [B, K], above 0 for the labels of the image.

    Args:
      categories: the label map's entries, {'id': 1-based, 'name': ...}.
      options: what counts.
      others: `annotations`, which have neither difficult objects nor groups, and `paste_method` of
        `CollectingEvaluator`.
    """

    _may_lack_classes = True

    def __init__(
        self, categories: Sequence[Mapping[str, Any]], options: PascalOptions, **others: Any
    ):
        super().__init__(categories, name=options.prefix, **others)
        self._options = options
        self._compared = collecting.MASKS if options.masks else None
        self._only_labeled = options.only_labeled
        # Field of `Instances` that is read -> its entry of a batch.
        self._flags = {}
        if options.ignores_difficult:
            self._flags['is_difficult'] = InputFields.EVALUATION_DIFFICULT
        if options.group_of_weight is not None:
            self._flags['is_group_of'] = InputFields.EVALUATION_GROUP_OF

    def evaluate(self) -> dict[str, float]:
        """Returns the metrics of the images added so far; NaN where there is nothing to find.

        The mean of a set that is not weighted leaves such categories out.
        """
        categories = self.curves()
        precisions = np.array([curve.average_precision for curve in categories.values()])
        mean = np.nan
        if self._options.is_weighted:
            mean = self._curve(self._outcome(), self._category_ids).average_precision
        elif not np.isnan(precisions).all():
            mean = float(np.nanmean(precisions))
        prefix, threshold = self._options.prefix, f'@{self._options.iou_threshold}IOU'
        metrics = {self._options.mean_name: mean}
        if self._class_agnostic:
            return metrics
        for name, curve in categories.items():
            key = f'{prefix}_PerformanceByCategory/AP{threshold}/{name}'
            metrics[key] = curve.average_precision
        return metrics

    def curves(self) -> dict[str, Curve]:
        """Returns the curve of each category, within the bounds of recall."""
        outcome = self._outcome()
        names = {category['name']: category['id'] for category in self._categories}
        names = {'object': 1} if self._class_agnostic else names
        return {name: self._curve(outcome, [label]) for name, label in names.items()}

    def _outcome(self) -> Outcome:
        """The outcomes of all images, sorted by id."""
        outcomes = [image.outcome for image in self._all_images()]
        # Without any image, each column is empty.
        columns = zip(*outcomes, strict=True) if outcomes else [()] * len(Outcome._fields)
        return Outcome(*(np.concatenate([np.zeros(0), *rows]) for rows in columns))

    def _curve(self, outcome: Outcome, labels: Sequence[int]) -> Curve:
        """Computes the curve of some categories together; those without objects are left out."""
        labels = np.intersect1d(labels, outcome.object_classes)
        rows = np.flatnonzero(np.isin(outcome.classes, labels))
        # As in the reference, equal scores are ranked by class and then by image.
        rows = rows[np.argsort(outcome.classes[rows], kind='stable')]
        num_objects = outcome.object_weights[np.isin(outcome.object_classes, labels)].sum()
        if not num_objects:
            return Curve(np.zeros(0), np.zeros(0), float('nan'))
        precision, recall = precision_recall(
            outcome.scores[rows], outcome.is_correct[rows], num_objects
        )
        low, high = self._options.recall_bounds
        within = (recall >= low) & (recall <= high)
        precision, recall = precision[within], recall[within]
        return Curve(precision, recall, average_precision(precision, recall))

    def _batch_entries(self) -> list[str]:
        flags = [] if self._annotations else list(self._flags.values())
        return super()._batch_entries() + flags

    def _of_batch(self, batch: Mapping[str, Any], row: int, source_id: str) -> Instances:
        flags = {
            field: collecting.batch_rows(batch, name, row, bool)
            for field, name in self._flags.items()
        }
        return super()._of_batch(batch, row, source_id)._replace(**flags)

    def _stored(self, image: Image, searched: Searched) -> _Image:
        annotated, detected = image.annotated, image.detected
        if self._only_labeled and not self._class_agnostic:
            detected = detected.where(searched.found(image))
        unread = dict.fromkeys({'is_difficult', 'is_group_of'} - self._flags.keys())
        if not self._options.masks:
            unread['masks'] = None
            detected = detected._replace(masks=None)
        outcome = match(
            annotated._replace(**unread),
            detected,
            (image.height, image.width),
            iou_threshold=self._options.iou_threshold,
            group_of_weight=self._options.group_of_weight or 0.0,
        )
        return _Image(image.image_id, outcome)
