"""Panoptic quality of instance masks (https://arxiv.org/abs/1801.00868)."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from pycocotools import mask as mask_api

from object_detection.metrics.coco.collecting import MASKS, Image, StoringEvaluator
from object_detection.metrics.coco.metrics import UNDEFINED
from object_detection.metrics.instances import Instances


class PanopticEvaluator(StoringEvaluator):
    """Collects instance masks and computes their panoptic quality as segments.

    Each detection is a segment at any score, and segments may overlap, as in the reference:
    a detector should give only what it is sure of, by `score_threshold` of its post-processing. In
    the order in which they come, as in the reference, segments are matched to the object of their
    class that they overlap most, of those that are not matched yet, if their IoU is above the
    threshold. Unmatched segments of which more than a share lies in a crowd of their class do not
    count.

    The quality of a class is its sum of IoUs of matched segments over (matched segments + half of
    the unmatched segments + half of the unmatched objects); of the data set, it is the mean over
    the classes that have objects or segments.

    Of a batch it reads the entries of `collecting.batch_instances`, with masks.

    Args:
      categories: the label map's entries, {'id': 1-based, 'name': ...}.
      per_category: whether to add the quality of each class.
      iou_threshold: a matched segment overlaps its object by more than this.
      crowd_threshold: share of the area of a segment.
      options: `annotations` and `paste_method` of `StoringEvaluator`.
    """

    _compared = MASKS

    def __init__(
        self,
        categories: Sequence[Mapping[str, Any]],
        *,
        per_category: bool = False,
        iou_threshold: float = 0.5,
        crowd_threshold: float = 0.5,
        **options: Any,
    ):
        super().__init__(categories, **options)
        self._per_category = per_category
        self._iou_threshold = iou_threshold
        self._crowd_threshold = crowd_threshold

    def evaluate(self) -> dict[str, float]:
        """Returns the metrics of the images added so far; -1 where there is nothing to measure."""
        counts = np.zeros((len(self._category_ids), 4))
        for image in self._all_images():
            for k, label in enumerate(self._category_ids):
                counts[k] += self._match(image, label)
        ious, matched, wrong, missed = counts.T
        is_valid = counts[:, 1:].any(axis=1)
        segmentation = np.divide(ious, matched, out=np.zeros_like(ious), where=matched > 0)
        recognition = np.divide(
            matched, matched + (wrong + missed) / 2, out=np.zeros_like(ious), where=is_valid
        )
        qualities = {
            'PanopticQuality': segmentation * recognition,
            'SegmentationQuality': segmentation,
            'RecognitionQuality': recognition,
        }
        threshold = f'@{self._iou_threshold:.2f}IOU'
        metrics = {}
        if self._per_category:
            for k, category in enumerate(self._categories):
                value = float(qualities['PanopticQuality'][k]) if is_valid[k] else UNDEFINED
                metrics[f'PanopticQuality{threshold}_ByCategory/{category["name"]}'] = value
        for name, values in qualities.items():
            mean = float(values[is_valid].mean()) if is_valid.any() else UNDEFINED
            metrics[f'{name}{threshold}'] = mean
        metrics['NumValidClasses'] = float(is_valid.sum())
        metrics['NumTotalClasses'] = float(len(is_valid))
        return metrics

    def _match(self, image: Image, label: int) -> tuple[float, int, int, int]:
        """Returns the sum of IoUs, and the matched and unmatched segments and missed objects."""
        detected = image.detected.where(image.detected.classes == label)
        annotated = image.annotated.where(image.annotated.classes == label)
        crowds = annotated.where(annotated.is_crowd)
        annotated = annotated.where(~annotated.is_crowd)
        num_segments, num_objects = len(detected.classes), len(annotated.classes)
        ious = _overlaps(image, detected, annotated)
        is_matched, total = np.zeros(num_segments, bool), 0.0
        for row in range(num_segments if num_objects else 0):
            best = ious[row].argmax()
            if ious[row, best] > self._iou_threshold:
                total += ious[row, best]
                is_matched[row] = True
                ious[:, best] = 0.0
        others = detected.where(~is_matched)
        in_crowd = _overlaps(image, others, crowds).max(axis=1, initial=0.0)
        matched = int(is_matched.sum())
        wrong = int((in_crowd <= self._crowd_threshold).sum())
        return total, matched, wrong, num_objects - matched


def _overlaps(image: Image, detected: Instances, annotated: Instances) -> np.ndarray:
    """Returns IoUs, float64 [n, m]; for crowds, the shares of the segments that lie in them."""
    sides = [
        [{'size': [image.height, image.width], 'counts': mask} for mask in instances.masks]
        for instances in (detected, annotated)
    ]
    shape = [len(side) for side in sides]
    if not all(shape):
        return np.zeros(shape)
    return mask_api.iou(*sides, annotated.is_crowd.astype(np.uint8))
