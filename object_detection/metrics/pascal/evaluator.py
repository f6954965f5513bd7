"""The metrics of PASCAL VOC and of Open Images, for boxes and instance masks.

Curves of precision over recall, and the average precision below them.

Matches the detections of one image to its objects by the rules of PASCAL VOC and Open Images.

Each detection is compared only with the object of its class that it overlaps most: it is correct if
the overlap is large enough and no detection with a higher score has found that object, whether or
not another object is free (Everingham et al., The PASCAL Visual Object Classes Challenge). Boxes
that surround a group of objects follow the Open Images challenge
(https://storage.googleapis.com/openimages/web/evaluation.html).
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from pycocotools import mask as mask_api

from object_detection.core.fields import DetectionFields, InputFields
from object_detection.errors import UserError
from object_detection.metrics import detections as image_detections
from object_detection.metrics.coco.annotations import CocoAnnotations
from object_detection.metrics.instances import Instances, box_areas, encode_png
from object_detection.metrics.mask_pasting import PasteMethod
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
        raise UserError(
            f'precision_recall: expected at most as many correct detections as objects. Received: '
            f'{is_correct.sum():g} correct detections and {num_objects:g} objects.'
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

    They are intersections over unions, but for groups over the area of the detection.
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


_LOG = logging.getLogger(__name__)

# Entry of a batch -> the field of the reader that loads it.
_OPTIONS_OF_ENTRIES = {
    InputFields.EVALUATION_MASKS: 'load_instance_masks',
    InputFields.GROUNDTRUTH_IMAGE_CLASSES: 'load_image_labels',
}


class Curve(NamedTuple):
    """Precision and recall of a category, float64 [n], from the highest score to the lowest."""

    precision: np.ndarray
    recall: np.ndarray
    average_precision: float


class _Image(NamedTuple):
    source_id: str
    outcome: Outcome


class PascalEvaluator:
    """Collects the detections of a data set and computes average precision at one overlap.

    Each image is matched when it is added; only the scores and outcomes of its detections are
    stored. Images count in the order of their ids, so that results do not depend on how images are
    distributed among workers.

    Args:
      categories: the label map's entries, {'id': 1-based, 'name': ...}.
      options: what counts.
      annotations: ground truth of a COCO file that replaces the boxes, classes and masks of the
        batches; it has neither difficult objects nor groups.
      paste_method: how detected masks are pasted into their images.
    """

    notes: Sequence[str] = ()

    def __init__(
        self,
        categories: Sequence[Mapping[str, Any]],
        options: PascalOptions,
        *,
        annotations: CocoAnnotations | None = None,
        paste_method: PasteMethod = PasteMethod.UNCROP,
    ):
        self._names = {int(c['id']): str(c['name']) for c in categories}
        self._options = options
        self._annotations = annotations
        self._paste_method = paste_method
        self.clear()

    def clear(self) -> None:
        """Removes all images."""
        self._images: list[_Image] = []
        self._ids: set[Any] = set()
        self._class_agnostic: bool | None = None
        self._reported: set[str] = set()

    def add_batch(self, batch: Mapping[str, Any], detections: Mapping[str, Any]) -> None:
        """Adds the images of a batch; repeated images are ignored and named in the log.

        Args:
          batch: numpy arrays under `InputFields`: source_id [B], original_image_spatial_shape
            [B, 2] and the evaluation_* entries: boxes [B, G, 4] normalized to the original image,
            classes [B, G] 1-based, num_evaluation_boxes [B], and where the options need them
            difficult and group_of bool [B, G] and masks [B, G] encoded PNG; where only labelled
            classes count, groundtruth_image_classes [B, K], above 0 for the labels of the image.
          detections: what `postprocess` returns: boxes normalized to the image, classes 0-based.

        Raises:
          ValueError: if an entry that is needed is absent, or a mask has another size than its
            image.
        """
        self._class_agnostic = detections.get(DetectionFields.CLASSES) is None
        if self._options.masks and detections.get(DetectionFields.MASKS) is None:
            raise UserError(
                f'{self._options.prefix}: masks are to be scored, but the detections have no '
                f'`{DetectionFields.MASKS}`; they need a model with a mask head '
                f'(number_of_stages: 3). Received: {sorted(detections)}.'
            )
        shapes = np.asarray(batch[InputFields.ORIGINAL_IMAGE_SPATIAL_SHAPE])
        found = image_detections.unbatch(detections, shapes)
        for row, source_id in enumerate(batch[InputFields.SOURCE_ID]):
            annotated = self._annotated(batch, row)
            labels = None
            if self._options.only_labeled:
                vectors = self._entry(batch, InputFields.GROUNDTRUTH_IMAGE_CLASSES)
                labels = np.flatnonzero(vectors[row]) + 1
            size = found[row].height, found[row].width
            source_id = image_detections.source_text(source_id)
            self.add_image(source_id, size, annotated, self._detected(found[row]), labels)

    def add_image(
        self,
        source_id: str,
        size: tuple[int, int],
        annotated: Instances,
        detected: Instances,
        image_classes: np.ndarray | None = None,
        not_exhaustive_classes: np.ndarray | None = None,
    ) -> None:
        """Adds one image; an image that was added before is ignored and named in the log.

        Args:
          source_id: id of the image; '' counts in any case.
          size: (height, width) in pixels.
          annotated: its objects.
          detected: its detections, with scores.
          image_classes: int64 [n], 1-based ids of the classes of which it was verified whether the
            image contains them; read only if the options say so.
          not_exhaustive_classes: not read, see `Evaluator`.
        """
        del not_exhaustive_classes
        if source_id and source_id in self._ids:
            _LOG.warning(
                'Image with source id %r was evaluated before; this one is ignored. Source ids '
                'must be unique.',
                source_id,
            )
            return
        self._ids.add(source_id)
        annotated, detected = self._in_categories(annotated), self._in_categories(detected)
        if self._options.only_labeled:
            detected = self._labeled(annotated, detected, image_classes)
        self._images.append(_Image(source_id, self._match(annotated, detected, size)))

    def part(self) -> Any:
        """Returns the images added so far as a picklable value for `merge`."""
        return self._class_agnostic, self._images

    def merge(self, part: Any) -> None:
        """Adds the images of an evaluator with the same arguments; repeated images are ignored."""
        class_agnostic, images = part
        self._class_agnostic = (
            class_agnostic if class_agnostic is not None else self._class_agnostic
        )
        for image in images:
            if not image.source_id or image.source_id not in self._ids:
                self._ids.add(image.source_id)
                self._images.append(image)

    def evaluate(self) -> dict[str, float]:
        """Returns the metrics of the images added so far; NaN where there is nothing to find.

        The mean of a set that is not weighted leaves such categories out.
        """
        categories = self.curves()
        precisions = np.array([curve.average_precision for curve in categories.values()])
        mean = np.nan
        if self._options.is_weighted:
            mean = self._curve(self._outcome(), list(self._names)).average_precision
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
        return {name: self._curve(outcome, [label]) for label, name in self._sorted_names()}

    def _sorted_names(self) -> list[tuple[int, str]]:
        return [(1, 'object')] if self._class_agnostic else sorted(self._names.items())

    def _outcome(self) -> Outcome:
        """The outcomes of all images, sorted by id."""
        images = sorted(self._images, key=lambda image: image.source_id)
        outcomes = [image.outcome for image in images] + self._missed()
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

    def _match(self, annotated: Instances, detected: Instances, size: tuple[int, int]) -> Outcome:
        weight = self._options.group_of_weight
        annotated = annotated._replace(
            is_difficult=annotated.is_difficult if self._options.ignores_difficult else None,
            is_group_of=annotated.is_group_of if weight is not None else None,
            masks=annotated.masks if self._options.masks else None,
        )
        if not self._options.masks:
            detected = detected._replace(masks=None)
        threshold = self._options.iou_threshold
        return match(
            annotated, detected, size, iou_threshold=threshold, group_of_weight=weight or 0.0
        )

    def _missed(self) -> list[Outcome]:
        """Outcomes of the images of the annotation file that were not evaluated."""
        if self._annotations is None:
            return []
        evaluated = {self._annotations.image_id(source_id) for source_id in self._ids}
        outcomes = []
        for image_id in self._annotations.not_evaluated(evaluated):
            annotated = self._in_categories(self._of_file(image_id))
            nothing = annotated.where(np.zeros(0, int))._replace(scores=np.zeros(0))
            outcomes.append(self._match(annotated, nothing, self._annotations.size(image_id)))
        return outcomes

    def _annotated(self, batch: Mapping[str, Any], row: int) -> Instances:
        shape = [int(size) for size in batch[InputFields.ORIGINAL_IMAGE_SPATIAL_SHAPE][row]]
        source_id = image_detections.source_text(batch[InputFields.SOURCE_ID][row])
        if self._annotations is not None:
            image_id = self._annotations.image_id(source_id)
            self._annotations.check_size(image_id, *shape)
            return self._of_file(image_id)
        count = int(batch[InputFields.NUM_EVALUATION_BOXES][row])

        def rows(name: str) -> np.ndarray:
            return np.asarray(self._entry(batch, name)[row][:count])

        boxes = image_detections.boxes_to_absolute(rows(InputFields.EVALUATION_BOXES), *shape)
        masks = is_difficult = is_group_of = None
        if self._options.masks:
            pngs = rows(InputFields.EVALUATION_MASKS)
            masks = [encode_png(png, *shape, source_id) for png in pngs]
        if self._options.ignores_difficult:
            is_difficult = rows(InputFields.EVALUATION_DIFFICULT).astype(bool)
        if self._options.group_of_weight is not None:
            is_group_of = rows(InputFields.EVALUATION_GROUP_OF).astype(bool)
        return Instances(
            boxes,
            rows(InputFields.EVALUATION_CLASSES).astype(np.int64),
            box_areas(boxes),
            masks,
            is_difficult=is_difficult,
            is_group_of=is_group_of,
        )

    def _of_file(self, image_id: Any) -> Instances:
        return self._annotations.instances(image_id, with_masks=self._options.masks)

    def _detected(self, found: image_detections.ImageDetections) -> Instances:
        classes = np.ones(len(found.scores), np.int64) if found.classes is None else found.classes
        masks = None
        if self._options.masks:
            masks = image_detections.encode_masks(found, self._paste_method)
        return Instances(found.boxes, classes, box_areas(found.boxes), masks, scores=found.scores)

    def _entry(self, batch: Mapping[str, Any], name: str) -> Any:
        if batch.get(name) is None:
            option = _OPTIONS_OF_ENTRIES.get(name)
            hint = f'; set `{option}: true` in eval_input_reader' if option else ''
            raise UserError(
                f'{self._options.prefix}: the batch has no `{name}`{hint}. '
                f'Received: {sorted(batch)}.'
            )
        return batch[name]

    def _in_categories(self, instances: Instances) -> Instances:
        """Keeps the objects of known categories; without classes, all have the same category."""
        if self._class_agnostic:
            return instances._replace(classes=np.ones_like(instances.classes))
        known = np.isin(instances.classes, list(self._names))
        if known.all():
            return instances
        unknown = sorted(set(instances.classes[~known].tolist()))
        if 'classes' not in self._reported:
            self._reported.add('classes')
            _LOG.warning(
                'There are objects or detections of classes that the label map lacks; they do not '
                'count. First: %s.',
                unknown,
            )
        return instances.where(known)

    def _labeled(
        self, annotated: Instances, detected: Instances, image_classes: np.ndarray | None
    ) -> Instances:
        """Keeps the detections of classes that the image was searched for."""
        if self._class_agnostic:
            return detected
        labels = np.zeros(0, np.int64) if image_classes is None else image_classes
        searched = np.concatenate([labels, annotated.classes])
        return detected.where(np.isin(detected.classes, searched))
