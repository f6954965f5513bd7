"""COCO's metrics of boxes and of instance masks (https://cocodataset.org/#detection-eval)."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from object_detection.core.fields import DetectionFields
from object_detection.errors import expected
from object_detection.metrics.coco import limits
from object_detection.metrics.coco import metrics as coco_metrics
from object_detection.metrics.coco.collecting import MASKS, Image, Searched, StoringEvaluator
from object_detection.metrics.coco.metrics import CocoMetrics, Summary, mean

_PREFIXES = {'bbox': 'DetectionBoxes', 'segm': 'DetectionMasks'}


def _summaries(numbers: Sequence[int]) -> dict[str, Summary]:
    """Returns name -> what it is, of the metrics for these numbers of detections, ascending."""
    most = numbers[-1]
    ap = limits.named('Precision/mAP', most, limits.BOXES_AND_MASKS)
    areas = [area for area in coco_metrics.AREA_RANGES if area != 'all']
    return {
        ap: Summary('precision'),
        f'{ap}@.50IOU': Summary('precision', iou=0.5),
        f'{ap}@.75IOU': Summary('precision', iou=0.75),
        **{f'{ap} ({area})': Summary('precision', area=area) for area in areas},
        **{f'Recall/AR@{n}': Summary('recall', max_detections=n) for n in numbers},
        **{
            f'Recall/AR@{most} ({area})': Summary('recall', area=area, max_detections=most)
            for area in areas
        },
    }


class CocoEvaluator(StoringEvaluator):
    """Collects the detections of a data set and computes COCO's metrics.

    There are three differences from the reference implementation: where masks are scored, objects
    without a recorded area have the area of their mask; an image without a source id counts;
    metrics per category need no patched engine. Of a batch it reads the entries of
    `collecting.batch_instances`, and groundtruth_image_classes [B, K] where only labelled classes
    count. Without detection_classes (a detector of one stage) all objects count as one category.

    Args:
      categories: the label map's entries, {'id': 1-based, 'name': ...}.
      iou_type: 'bbox' scores boxes, 'segm' masks.
      per_category: whether to add `PerformanceByCategory/mAP/<name>`.
      all_per_category: whether to add all twelve metrics by category; implies `per_category`.
      super_categories: name -> names of its categories; adds the plain mean over them, in which,
        as in the reference, a category without annotations counts as -1.
      only_labeled: whether detections count only if their class was verified in the image, that is,
        if it is among the image's labels or has an object there.
      options: those of `StoringEvaluator`.

    Raises:
      ValueError: if `iou_type` is unknown, an id or a name occurs twice in `categories`, or a super
        category names a category that does not exist.
    """

    _published_limit = limits.BOXES_AND_MASKS
    _may_lack_classes = True

    def __init__(
        self,
        categories: Sequence[Mapping[str, Any]],
        *,
        iou_type: Literal['bbox', 'segm'] = 'bbox',
        per_category: bool = False,
        all_per_category: bool = False,
        super_categories: Mapping[str, Sequence[str]] | None = None,
        only_labeled: bool = False,
        **options: Any,
    ):
        if iou_type not in _PREFIXES:
            raise expected('CocoEvaluator: iou_type', "'bbox' or 'segm'", repr(iou_type))
        super().__init__(categories, **options)
        self._super_categories = {name: list(c) for name, c in (super_categories or {}).items()}
        _check_super_categories(self._categories, self._super_categories)
        self._prefix = _PREFIXES[iou_type]
        self._compared = MASKS if iou_type == 'segm' else None
        self._analysed_as = 'masks' if iou_type == 'segm' else ''
        self._per_category = per_category or all_per_category
        self._all_per_category = all_per_category
        self._only_labeled = only_labeled
        fewer = [number for number in coco_metrics.MAX_DETECTIONS[:-1] if number < self._limit]
        self._numbers = (*fewer, self._limit)
        self._metrics = _summaries(self._numbers)
        self._ap = next(iter(self._metrics))

    def clear(self) -> None:
        """Removes all images."""
        super().clear()
        self._values: CocoMetrics | None = None

    def evaluate(self) -> dict[str, float]:
        """Returns the metrics of the images added so far; -1 where there is nothing to measure."""
        values = self._values = self._measure()
        metrics = {f'{self._prefix}_{name}': mean(values, m) for name, m in self._metrics.items()}
        if self._class_agnostic:
            return metrics
        by_category = {
            category['name']: {name: mean(values, m, k) for name, m in self._metrics.items()}
            for k, category in enumerate(self._categories)
        }
        if self._per_category:
            for name in by_category:
                metrics |= self._of_group(
                    f'PerformanceByCategory/{self._ap.partition("/")[2]}/{name}',
                    f'ByCategory/{name}',
                    by_category[name],
                )
        for name, members in self._super_categories.items():
            means = {
                metric: float(np.mean([by_category[member][metric] for member in members]))
                for metric in self._metrics
            }
            metrics |= self._of_group(
                f'PerformanceBySuperCategory/{name}', f'BySuperCategory/{name}', means
            )
        return metrics

    def counts_by_score(self) -> dict[str, np.ndarray]:
        """Returns what a curve of precision over recall is drawn of, all categories together.

        Returns:
          Label -> int64 [3, S], the numbers of true positives, false positives and missed objects,
          if only detections with at least a score count, for S scores evenly spaced from 0 to 1;
          for IoUs of 0.5 and 0.75; of the last `evaluate`, {} if that had no images.
        """
        if self._values is None:
            return {}
        counts = self._values.counts['all']
        return {
            f'{self._prefix} IoU {iou:.2f}': counts[np.isclose(coco_metrics.IOU_THRESHOLDS, iou)][0]
            for iou in (0.5, 0.75)
        }

    def _check_entries(self, batch: Mapping[str, Any], detections: Mapping[str, Any]) -> None:
        lacks_classes = detections.get(DetectionFields.CLASSES) is None
        if lacks_classes and (self._per_category or self._super_categories):
            self._report('agnostic', 'Detections have no classes: no metrics by category.')
        super()._check_entries(batch, detections)

    def _stored(self, image: Image, searched: Searched) -> Image:
        if not self._only_labeled or self._class_agnostic:
            return image
        return image._replace(counts=searched.found(image))

    def _of_group(self, key: str, suffix: str, values: Mapping[str, float]) -> dict[str, float]:
        """Names the metrics of a category or a super category."""
        metrics = {f'{self._prefix}_{key}': values[self._ap]}
        if self._all_per_category:
            metrics |= {f'{self._prefix}_{name} {suffix}': each for name, each in values.items()}
        return metrics


def _check_super_categories(
    categories: Sequence[Mapping[str, Any]], super_categories: Mapping[str, Sequence[str]]
) -> None:
    names = {category['name'] for category in categories}
    for super_category, members in super_categories.items():
        if not members or not names.issuperset(members):
            raise expected(
                f'super category {super_category!r}', f'some of {sorted(names)}', list(members)
            )
