"""LVIS's metrics of instance masks (https://arxiv.org/abs/1908.03195)."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

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
from object_detection.metrics.coco.metrics import Rules, Summary, mean
from object_detection.metrics.instances import Instances

_PREFIX = 'DetectionMasks'
_PRECISION = {
    'AP': Summary('precision'),
    'AP50': Summary('precision', iou=0.5),
    'AP75': Summary('precision', iou=0.75),
    'APs': Summary('precision', area='small'),
    'APm': Summary('precision', area='medium'),
    'APl': Summary('precision', area='large'),
}
# In how many images of the training set a category is: rare, common, frequent.
_FREQUENCIES = ('r', 'c', 'f')
_RECALL = {'AR': 'all', 'ARs': 'small', 'ARm': 'medium', 'ARl': 'large'}


class LvisEvaluator(CollectingEvaluator):
    """Collects the detections of a federated data set and computes LVIS's metrics of masks.

    An image was not searched for all classes. Detections count only if their class has objects in
    the image or is verified to be absent; of classes whose objects are not all annotated, those
    that match nothing do not count. The best 300 detections of an image are taken, or
    `max_detections`, of all classes together. As in the `lvis` package, objects and detections
    without area are left out, and crowds are objects like others.

    Of a batch it reads the entries of `collecting.batch_instances`, with masks, and
    groundtruth_verified_neg_classes and groundtruth_not_exhaustive_classes [B, K], above 0 for the
    classes of the lists; with `annotations`, the file's neg_category_ids and
    not_exhaustive_category_ids.

    Args:
      categories: the label map's entries, {'id': 1-based, 'name': ..., 'frequency': 'r', 'c' or
        'f'}.
      per_category: whether to add `PerformanceByCategory/mAP/<name>`.
      options: those of `CollectingEvaluator`.

    Raises:
      ValueError: if a category has no frequency.
    """

    _compared = 'masks'
    _published_limit = limits.LVIS
    _limits_classes = False

    def __init__(
        self, categories: Sequence[Mapping[str, Any]], *, per_category: bool = False, **options: Any
    ):
        super().__init__(categories, **options)
        self._per_category = per_category
        self._ordered = sorted(self._categories, key=lambda category: category['id'])
        without = [c['name'] for c in self._ordered if c.get('frequency') not in _FREQUENCIES]
        if without:
            raise UserError(
                'lvis_mask_metrics: expected `frequency: FREQUENT`, COMMON or RARE in each item of '
                f'the label map. Received none for: {without}.'
            )

    def evaluate(self) -> dict[str, float]:
        """Returns the metrics of the images added so far; -1 where there is nothing to measure."""
        measured = self._measure() if self._images else None
        named = functools.partial(limits.named, limit=self._limit, published=limits.LVIS)
        metrics = {named(name): mean(measured, summary) for name, summary in _PRECISION.items()}
        for frequency in _FREQUENCIES:
            members = [k for k, c in enumerate(self._ordered) if c['frequency'] == frequency]
            metrics[named(f'AP{frequency}')] = mean(measured, _PRECISION['AP'], members)
        for name, area in _RECALL.items():
            summary = Summary('recall', area=area, max_detections=self._limit)
            metrics[f'{name}@{self._limit}'] = mean(measured, summary)
        if self._per_category:
            for k, category in enumerate(self._ordered):
                name = f'PerformanceByCategory/{named("mAP")}/{category["name"]}'
                metrics[name] = mean(measured, _PRECISION['AP'], k)
        return {f'{_PREFIX}_{name}': value for name, value in metrics.items()}

    def _measure(self) -> coco_metrics.CocoMetrics:
        images = self._all_images()
        return coco_metrics.measure(
            [image.annotated for image in images],
            [image.counted for image in images],
            self._category_ids,
            compare=metrics.masks([image[1:3] for image in images]),
            rules=Rules(max_detections=(self._limit,)),
        )

    def _entry(self, image: Image, row: int) -> dict[str, Any]:
        return mask_entry(image, row)

    def _check_entries(self, batch: Mapping[str, Any], detections: Mapping[str, Any]) -> None:
        names = [DetectionFields.CLASSES, DetectionFields.MASKS]
        self._need(detections, names, detected=True)
        self._class_agnostic = False
        if self._annotations is None:
            names = [
                InputFields.EVALUATION_MASKS,
                InputFields.GROUNDTRUTH_VERIFIED_NEG_CLASSES,
                InputFields.GROUNDTRUTH_NOT_EXHAUSTIVE_CLASSES,
            ]
            self._need(batch, names, detected=False)

    def _annotated(self, batch: Mapping[str, Any], row: int, image_id: Any) -> Instances:
        if self._annotations is not None:
            return self._of_annotations(image_id)
        return self._known_objects(batch_instances(batch, row, image_id, with_masks=True))

    def _of_annotations(self, image_id: Any) -> Instances:
        return self._known_objects(self._annotations.instances(image_id, with_masks=True))

    def _known_objects(self, instances: Instances) -> Instances:
        instances = self._in_categories(instances._replace(is_crowd=None), 'annotated')
        return instances.where(instances.areas > 0)

    def _detected(self, found: image_detections.ImageDetections) -> Instances:
        best = self._best(found.scores)
        found = found._replace(
            boxes=found.boxes[best],
            scores=found.scores[best],
            classes=found.classes[best],
            masks=found.masks[best],
        )
        return self._known_detections(mask_instances(found, self._paste_method))

    def _known_detections(self, instances: Instances) -> Instances:
        return super()._known_detections(instances.where(self._best(instances.scores)))

    def _searched(self, batch: Mapping[str, Any], row: int, image_id: Any) -> Searched:
        if self._annotations is not None:
            return Searched(*self._annotations.searched_classes(image_id))
        return Searched(
            labels(batch, InputFields.GROUNDTRUTH_VERIFIED_NEG_CLASSES, row),
            labels(batch, InputFields.GROUNDTRUTH_NOT_EXHAUSTIVE_CLASSES, row),
        )

    def _counted(self, image: Image, searched: Searched) -> Image:
        detected = image.detected
        ignored = np.isin(detected.classes, searched.not_exhaustive)
        classes = np.concatenate([searched.classes, image.annotated.classes])
        return image._replace(
            detected=detected._replace(is_ignored=ignored),
            counts=np.isin(detected.classes, classes) & (detected.areas > 0),
        )

    def _best(self, scores: np.ndarray) -> np.ndarray:
        """Returns the rows of the best detections of an image, in their order."""
        return np.sort(np.argsort(-scores, kind='stable')[: self._limit])
