"""LVIS's metrics of instance masks (https://arxiv.org/abs/1908.03195)."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from object_detection.core.detections import Detections
from object_detection.core.fields import InputFields
from object_detection.errors import expected
from object_detection.metrics.coco import collecting, limits
from object_detection.metrics.coco.collecting import MASKS, Image, Searched, StoringEvaluator
from object_detection.metrics.coco.metrics import Summary, mean
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
_LABELS = [
    InputFields.GROUNDTRUTH_VERIFIED_NEG_CLASSES,
    InputFields.GROUNDTRUTH_NOT_EXHAUSTIVE_CLASSES,
]
_RECALL = {'AR': 'all', 'ARs': 'small', 'ARm': 'medium', 'ARl': 'large'}


class LvisEvaluator(StoringEvaluator):
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
      options: those of `StoringEvaluator`.

    Raises:
      ValueError: if a category has no frequency.
    """

    _compared = MASKS
    _published_limit = limits.LVIS
    _limits_classes = False

    def __init__(
        self, categories: Sequence[Mapping[str, Any]], *, per_category: bool = False, **options: Any
    ):
        super().__init__(categories, **options)
        self._per_category = per_category
        without = [c['name'] for c in self._categories if c.get('frequency') not in _FREQUENCIES]
        if without:
            raise expected(
                'lvis_mask_metrics: label map', '`frequency` of each item', f'none of {without}'
            )

    def evaluate(self) -> dict[str, float]:
        """Returns the metrics of the images added so far; -1 where there is nothing to measure."""
        measured = self._measure()
        named = functools.partial(limits.named, limit=self._limit, published=limits.LVIS)
        metrics = {named(name): mean(measured, summary) for name, summary in _PRECISION.items()}
        for frequency in _FREQUENCIES:
            members = [k for k, c in enumerate(self._categories) if c['frequency'] == frequency]
            metrics[named(f'AP{frequency}')] = mean(measured, _PRECISION['AP'], members)
        for name, area in _RECALL.items():
            summary = Summary('recall', area=area, max_detections=self._limit)
            metrics[f'{name}@{self._limit}'] = mean(measured, summary)
        if self._per_category:
            for k, category in enumerate(self._categories):
                name = f'PerformanceByCategory/{named("mAP")}/{category["name"]}'
                metrics[name] = mean(measured, _PRECISION['AP'], k)
        return {f'{_PREFIX}_{name}': value for name, value in metrics.items()}

    def _batch_entries(self) -> list[str]:
        return super()._batch_entries() + ([] if self._annotations else _LABELS)

    def _known_objects(self, instances: Instances) -> Instances:
        instances = super()._known_objects(instances._replace(is_crowd=None))
        return instances.where(instances.areas > 0)

    def _detected(self, found: Detections) -> Instances:
        # Only the masks of these are pasted.
        return super()._detected(found.take(self._best(found.scores)))

    def _known_detections(self, instances: Instances) -> Instances:
        return super()._known_detections(instances.where(self._best(instances.scores)))

    def _searched(self, batch: Mapping[str, Any], row: int, image_id: Any) -> Searched:
        if self._annotations is not None:
            return Searched(*self._annotations.searched_classes(image_id))
        return Searched(*(collecting.labels(batch, name, row) for name in _LABELS))

    def _stored(self, image: Image, searched: Searched) -> Image:
        detected = image.detected
        ignored = np.isin(detected.classes, searched.not_exhaustive)
        return image._replace(
            detected=detected._replace(is_ignored=ignored),
            counts=searched.found(image) & (detected.areas > 0),
        )

    def _best(self, scores: np.ndarray) -> np.ndarray:
        """Returns the rows of the best detections of an image, in their order."""
        return np.sort(np.argsort(-scores, kind='stable')[: self._limit])
