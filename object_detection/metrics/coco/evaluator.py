"""COCO's metrics of boxes and of instance masks (https://cocodataset.org/#detection-eval)."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from object_detection.core.fields import DetectionFields, InputFields
from object_detection.errors import UserError
from object_detection.metrics import detections as image_detections
from object_detection.metrics.coco import limits, metrics
from object_detection.metrics.coco import metrics as coco_metrics
from object_detection.metrics.coco.collecting import (
    CollectingEvaluator,
    Image,
    Searched,
    batch_instances,
    labels,
    mask_entry,
    mask_instances,
)
from object_detection.metrics.coco.metrics import IOU_THRESHOLDS, CocoMetrics, Summary, mean
from object_detection.metrics.instances import Instances, box_areas

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


class CocoEvaluator(CollectingEvaluator):
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
      options: those of `CollectingEvaluator`.

    Raises:
      ValueError: if `iou_type` is unknown, an id or a name occurs twice in `categories`, or a super
        category names a category that does not exist.
    """

    _published_limit = limits.BOXES_AND_MASKS

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
            raise UserError(
                f"CocoEvaluator: `iou_type` must be 'bbox' or 'segm'. Received: {iou_type!r}."
            )
        super().__init__(categories, **options)
        self._super_categories = {name: list(c) for name, c in (super_categories or {}).items()}
        _check_super_categories(self._categories, self._super_categories)
        self._iou_type = iou_type
        self._compared = 'masks' if iou_type == 'segm' else None
        self._per_category = per_category or all_per_category
        self._all_per_category = all_per_category
        self._only_labeled = only_labeled
        fewer = [number for number in coco_metrics.MAX_DETECTIONS[:-1] if number < self._limit]
        self._rules = coco_metrics.Rules(max_detections=(*fewer, self._limit))
        self._metrics = _summaries(self._rules.max_detections)
        self._ap = next(iter(self._metrics))

    def clear(self) -> None:
        """Removes all images."""
        super().clear()
        self._values: CocoMetrics | None = None

    def evaluate(self) -> dict[str, float]:
        """Returns the metrics of the images added so far; -1 where there is nothing to measure."""
        values = self._values = self._measure() if self._images else None
        prefix = _PREFIXES[self._iou_type]
        metrics = {
            f'{prefix}_{name}': mean(values, metric) for name, metric in self._metrics.items()
        }
        if self._class_agnostic:
            return metrics
        ordered = sorted(self._categories, key=lambda category: category['id'])
        by_category = {
            category['name']: {name: mean(values, m, k) for name, m in self._metrics.items()}
            for k, category in enumerate(ordered)
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
        counts, prefix = self._values.counts['all'], _PREFIXES[self._iou_type]
        return {
            f'{prefix} IoU {iou:.2f}': counts[np.isclose(IOU_THRESHOLDS, iou)][0]
            for iou in (0.5, 0.75)
        }

    def _entry(self, image: Image, row: int) -> dict[str, Any]:
        if self._iou_type == 'segm':
            return mask_entry(image, row)
        return {'bbox': image_detections.box_to_coco(image.detected.boxes[row])}

    def _check_entries(self, batch: Mapping[str, Any], detections: Mapping[str, Any]) -> None:
        class_agnostic = detections.get(DetectionFields.CLASSES) is None
        if self._class_agnostic not in (None, class_agnostic):
            raise UserError(
                f'CocoEvaluator: some batches have `{DetectionFields.CLASSES}` and some do not. '
                f'Received now: {sorted(detections)}.'
            )
        if class_agnostic and (self._per_category or self._super_categories):
            self._report('agnostic', 'Detections have no classes: no metrics by category.')
        self._class_agnostic = class_agnostic
        if self._only_labeled:
            self._need(batch, [InputFields.GROUNDTRUTH_IMAGE_CLASSES], detected=False)
        if self._iou_type == 'segm':
            self._need(detections, [DetectionFields.MASKS], detected=True)
            if self._annotations is None:
                self._need(batch, [InputFields.EVALUATION_MASKS], detected=False)

    def _annotated(self, batch: Mapping[str, Any], row: int, image_id: Any) -> Instances:
        if self._annotations is not None:
            return self._of_annotations(image_id)
        instances = batch_instances(batch, row, image_id, with_masks=self._iou_type == 'segm')
        return self._known_objects(instances)

    def _of_annotations(self, image_id: Any) -> Instances:
        instances = self._annotations.instances(image_id, with_masks=self._iou_type == 'segm')
        return self._known_objects(instances)

    def _detected(self, found: image_detections.ImageDetections) -> Instances:
        if found.classes is None:
            found = found._replace(classes=np.ones(len(found.scores), np.int64))
        if self._iou_type == 'segm':
            instances = mask_instances(found, self._paste_method)
        else:
            areas = box_areas(found.boxes)
            instances = Instances(found.boxes, found.classes, areas, scores=found.scores)
        return self._known_detections(instances)

    def _searched(self, batch: Mapping[str, Any], row: int, image_id: Any) -> Searched:
        searched = super()._searched(batch, row, image_id)
        if not self._only_labeled:
            return searched
        classes = labels(batch, InputFields.GROUNDTRUTH_IMAGE_CLASSES, row)
        return searched._replace(classes=classes)

    def _counted(self, image: Image, searched: Searched) -> Image:
        if not self._only_labeled or self._class_agnostic:
            return image
        classes = np.concatenate([searched.classes, image.annotated.classes])
        return image._replace(counts=np.isin(image.detected.classes, classes))

    def _of_group(self, key: str, suffix: str, values: Mapping[str, float]) -> dict[str, float]:
        """Names the metrics of a category or a super category."""
        prefix = _PREFIXES[self._iou_type]
        metrics = {f'{prefix}_{key}': values[self._ap]}
        if self._all_per_category:
            metrics |= {f'{prefix}_{name} {suffix}': value for name, value in values.items()}
        return metrics

    def _measure(self) -> CocoMetrics:
        images = self._all_images()
        return coco_metrics.measure(
            [image.annotated for image in images],
            [image.counted for image in images],
            [1] if self._class_agnostic else self._category_ids,
            compare=(
                metrics.masks([image[1:3] for image in images])
                if self._iou_type == 'segm'
                else metrics.boxes
            ),
            rules=self._rules,
        )


def _check_super_categories(
    categories: Sequence[Mapping[str, Any]], super_categories: Mapping[str, Sequence[str]]
) -> None:
    names = {category['name'] for category in categories}
    for super_category, members in super_categories.items():
        if not members or not names.issuperset(members):
            raise UserError(
                f'CocoEvaluator: super category {super_category!r} must list names of '
                f'categories: {sorted(names)}. Received: {list(members)}.'
            )
