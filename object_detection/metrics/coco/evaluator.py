"""COCO's metrics of boxes and of instance masks (https://cocodataset.org/#detection-eval)."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from object_detection.core.fields import DetectionFields, InputFields
from object_detection.errors import UserError
from object_detection.metrics import detections as image_detections
from object_detection.metrics.coco import metrics as coco_metrics
from object_detection.metrics.coco import overlaps
from object_detection.metrics.coco.annotations import CocoAnnotations
from object_detection.metrics.coco.metrics import UNDEFINED, CocoMetrics
from object_detection.metrics.coco.overlaps import IOU_THRESHOLDS
from object_detection.metrics.instances import (
    Instances,
    box_areas,
    encode_png,
    mask_areas,
)
from object_detection.metrics.mask_pasting import PasteMethod

_PREFIXES = {'bbox': 'DetectionBoxes', 'segm': 'DetectionMasks'}

_LOG = logging.getLogger(__name__)


class _Metric(NamedTuple):
    """A mean over one slice of precision or recall; `iou` None takes all ten thresholds."""

    table: Literal['precision', 'recall']
    iou: float | None = None
    area: str = 'all'
    max_detections: int = 100


_METRICS = {
    'Precision/mAP': _Metric('precision'),
    'Precision/mAP@.50IOU': _Metric('precision', iou=0.5),
    'Precision/mAP@.75IOU': _Metric('precision', iou=0.75),
    'Precision/mAP (small)': _Metric('precision', area='small'),
    'Precision/mAP (medium)': _Metric('precision', area='medium'),
    'Precision/mAP (large)': _Metric('precision', area='large'),
    'Recall/AR@1': _Metric('recall', max_detections=1),
    'Recall/AR@10': _Metric('recall', max_detections=10),
    'Recall/AR@100': _Metric('recall'),
    'Recall/AR@100 (small)': _Metric('recall', area='small'),
    'Recall/AR@100 (medium)': _Metric('recall', area='medium'),
    'Recall/AR@100 (large)': _Metric('recall', area='large'),
}


class _Image(NamedTuple):
    """An evaluated image; `image_id` is its source id, or its id in the annotation file."""

    image_id: Any
    height: int
    width: int
    annotated: Instances
    detected: Instances


class CocoEvaluator:
    """Collects the detections of a data set and computes COCO's metrics.

    Only numbers and run-length encoded masks of an image are stored, so that memory does not grow
    with the size of the images. There are three differences from the reference implementation:
    where masks are scored, objects without a recorded area have the area of their mask; an image
    without a source id counts; metrics per category need no patched engine.

    Args:
      categories: the label map's entries, {'id': 1-based, 'name': ...}.
      iou_type: 'bbox' scores boxes, 'segm' masks.
      per_category: whether to add `PerformanceByCategory/mAP/<name>`.
      all_per_category: whether to add all twelve metrics by category; implies `per_category`.
      super_categories: name -> names of its categories; adds the plain mean over them, in which,
        as in the reference, a category without annotations counts as -1.
      annotations: ground truth that replaces the ground truth of the batches.
      paste_method: how detected masks are pasted into their images.

    Raises:
      ValueError: if `iou_type` is unknown, an id or a name occurs twice in `categories`, or a super
        category names a category that does not exist.
    """

    def __init__(
        self,
        categories: Sequence[Mapping[str, Any]],
        *,
        iou_type: Literal['bbox', 'segm'] = 'bbox',
        per_category: bool = False,
        all_per_category: bool = False,
        super_categories: Mapping[str, Sequence[str]] | None = None,
        annotations: CocoAnnotations | None = None,
        paste_method: PasteMethod = PasteMethod.UNCROP,
    ):
        if iou_type not in _PREFIXES:
            raise UserError(
                f"CocoEvaluator: `iou_type` must be 'bbox' or 'segm'. Received: {iou_type!r}."
            )
        self._categories = [{'id': int(c['id']), 'name': str(c['name'])} for c in categories]
        self._super_categories = {name: list(c) for name, c in (super_categories or {}).items()}
        _check_categories(self._categories, self._super_categories)
        self._iou_type = iou_type
        self._per_category = per_category or all_per_category
        self._all_per_category = all_per_category
        self._annotations = annotations
        self._paste_method = paste_method
        self.clear()

    def clear(self) -> None:
        """Removes all images."""
        self._values: CocoMetrics | None = None
        self._images: list[_Image] = []
        self._image_ids: set[Any] = set()
        self._class_agnostic: bool | None = None
        self._reported: set[str] = set()

    def add_batch(self, batch: Mapping[str, Any], detections: Mapping[str, Any]) -> None:
        """Adds the images of a batch; repeated images are ignored and named in the log.

        Args:
          batch: numpy arrays under `InputFields`: source_id [B], original_image_spatial_shape
            [B, 2] and the evaluation_* entries of an evaluation data set: boxes [B, G, 4]
            normalized to the original image, classes [B, G] 1-based, is_crowd [B, G], area [B, G]
            (below 0 = not recorded), masks [B, G] encoded PNG of the original size ('segm' only),
            num_evaluation_boxes [B]. With `annotations`, only the first two are read.
          detections: what the detector's `postprocess` returns, as numpy: classes 0-based, boxes
            normalized to the true image. Without detection_classes (a detector of one stage) all
            objects count as one category.

        Raises:
          ValueError: if masks are scored and one side has none, a mask has another size than its
            image, or `annotations` has no such image.
        """
        self._check_entries(batch, detections)
        shapes = np.asarray(batch[InputFields.ORIGINAL_IMAGE_SPATIAL_SHAPE])
        found = image_detections.unbatch(detections, shapes)
        for i, source_id in enumerate(_texts(batch[InputFields.SOURCE_ID])):
            height, width = int(shapes[i][0]), int(shapes[i][1])
            image_id = source_id
            if self._annotations is not None:
                image_id = self._annotations.image_id(source_id)
                self._annotations.check_size(image_id, height, width)
            if self._is_new(image_id):
                annotated = self._annotated(batch, i, image_id)
                detected = self._detected(found[i])
                self._images.append(_Image(image_id, height, width, annotated, detected))

    def part(self) -> Any:
        """Returns the images added so far as a picklable value for `merge`."""
        return self._class_agnostic, self._images

    def merge(self, part: Any) -> None:
        """Adds the images of an evaluator with the same arguments; repeated images are ignored."""
        class_agnostic, images = part
        if self._class_agnostic is None:
            self._class_agnostic = class_agnostic
        self._images += [image for image in images if self._is_new(image.image_id)]

    def evaluate(self) -> dict[str, float]:
        """Returns the metrics of the images added so far; -1 where there is nothing to measure."""
        values = self._values = self._measure() if self._images else None
        prefix = _PREFIXES[self._iou_type]
        metrics = {f'{prefix}_{name}': _mean(values, metric) for name, metric in _METRICS.items()}
        if self._class_agnostic:
            return metrics
        ordered = sorted(self._categories, key=lambda category: category['id'])
        by_category = {
            category['name']: {name: _mean(values, m, k) for name, m in _METRICS.items()}
            for k, category in enumerate(ordered)
        }
        if self._per_category:
            for name in by_category:
                metrics |= self._of_group(
                    f'PerformanceByCategory/mAP/{name}', f'ByCategory/{name}', by_category[name]
                )
        for name, members in self._super_categories.items():
            means = {
                metric: float(np.mean([by_category[member][metric] for member in members]))
                for metric in _METRICS
            }
            metrics |= self._of_group(
                f'PerformanceBySuperCategory/{name}', f'BySuperCategory/{name}', means
            )
        return metrics

    def precision_curves(self) -> dict[str, np.ndarray]:
        """Returns the precision at 101 recalls from 0 to 1, the mean of categories with objects.

        Returns:
          Label -> float64 [101], for IoUs of 0.5, 0.75 and their mean over 0.5 to 0.95; of the
          last `evaluate`, {} if that had no objects.
        """
        table = None if self._values is None else self._values.precision['all']
        if table is None or not (table > UNDEFINED).any():
            return {}
        table = table[..., (table > UNDEFINED).any(axis=(0, 1))].mean(axis=-1)
        prefix = _PREFIXES[self._iou_type]
        chosen = {iou: table[np.isclose(IOU_THRESHOLDS, iou)][0] for iou in (0.5, 0.75)}
        curves = {f'{prefix} IoU {iou:.2f}': curve for iou, curve in chosen.items()}
        return {**curves, f'{prefix} IoU 0.50:0.95': table.mean(axis=0)}

    def coco_results(self) -> list[dict[str, Any]]:
        """Returns the detections as entries of a COCO results file.

        `image_id` is the source id, as a number if it is one; with `annotations`, `image_id` and
        `category_id` are the ids of the annotation file. Entries have `bbox` or `segmentation`,
        whichever is scored, so that pycocotools computes the same areas.
        """
        results = []
        for image in self._images:
            for entry in _entries(image.detected, image.height, image.width, self._iou_type):
                results.append({'image_id': self._id_in_results(image)} | entry)
                if self._annotations is not None and not self._class_agnostic:
                    label = entry['category_id']
                    results[-1]['category_id'] = self._annotations.category_ids[label]
        return results

    def _id_in_results(self, image: _Image) -> Any:
        if self._annotations is not None:
            return image.image_id
        return image_detections.coco_image_id(image.image_id)

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
        if self._iou_type != 'segm':
            return
        if detections.get(DetectionFields.MASKS) is None:
            raise UserError(
                f'CocoEvaluator: masks are to be scored, but the detections have no '
                f'`{DetectionFields.MASKS}`; they need a model with a mask head '
                f'(number_of_stages: 3). Received: {sorted(detections)}.'
            )
        if self._annotations is None and batch.get(InputFields.EVALUATION_MASKS) is None:
            raise UserError(
                f'CocoEvaluator: masks are to be scored, but the batch has no '
                f'`{InputFields.EVALUATION_MASKS}`; set `load_instance_masks: true` in '
                f'eval_input_reader. Received: {sorted(batch)}.'
            )

    def _is_new(self, image_id: Any) -> bool:
        if image_id == '':
            self._report('nameless', 'An image has no source id; all such images are counted.')
            return True
        if image_id in self._image_ids:
            _LOG.warning(
                'Image with source id %r was evaluated before; this one is ignored. Source ids '
                'must be unique.',
                image_id,
            )
            return False
        self._image_ids.add(image_id)
        return True

    def _annotated(self, batch: Mapping[str, Any], row: int, image_id: Any) -> Instances:
        if self._annotations is not None:
            return self._of_annotations(image_id)
        shape = [int(size) for size in batch[InputFields.ORIGINAL_IMAGE_SPATIAL_SHAPE][row]]
        count = int(batch[InputFields.NUM_EVALUATION_BOXES][row])
        boxes = batch[InputFields.EVALUATION_BOXES][row][:count]
        boxes = image_detections.boxes_to_absolute(boxes, *shape)
        classes = np.asarray(batch[InputFields.EVALUATION_CLASSES][row][:count], np.int64)
        masks, own_areas = None, box_areas(boxes)
        if self._iou_type == 'segm':
            encoded = batch[InputFields.EVALUATION_MASKS][row][:count]
            masks = [encode_png(png, *shape, image_id) for png in encoded]
            own_areas = mask_areas(masks, *shape)
        areas = np.asarray(batch[InputFields.EVALUATION_AREA][row][:count], np.float64)
        is_crowd = np.asarray(batch[InputFields.EVALUATION_IS_CROWD][row][:count], bool)
        areas = np.where(areas >= 0, areas, own_areas)
        instances = Instances(boxes, classes, areas, masks, is_crowd=is_crowd)
        return self._in_categories(instances, 'annotated')

    def _of_annotations(self, image_id: Any) -> Instances:
        instances = self._annotations.instances(image_id, with_masks=self._iou_type == 'segm')
        return self._in_categories(instances, 'annotated')

    def _detected(self, found: image_detections.ImageDetections) -> Instances:
        classes = np.ones(len(found.scores), np.int64) if found.classes is None else found.classes
        masks, areas = None, box_areas(found.boxes)
        if self._iou_type == 'segm':
            masks = image_detections.encode_masks(found, self._paste_method)
            areas = mask_areas(masks, found.height, found.width)
        instances = Instances(found.boxes, classes, areas, masks, scores=found.scores)
        return self._in_categories(instances, 'detected')

    def _in_categories(self, instances: Instances, what: str) -> Instances:
        """Keeps the objects of known categories; without classes, all have the same category."""
        if self._class_agnostic:
            return instances._replace(classes=np.ones_like(instances.classes))
        known = np.isin(instances.classes, [category['id'] for category in self._categories])
        if known.all():
            return instances
        unknown = sorted(set(instances.classes[~known].tolist()))
        self._report(
            f'{what} classes',
            f'Objects are {what} whose classes the label map lacks; they do not count. First: '
            f'{unknown}.',
        )
        return instances.where(known)

    def _report(self, key: str, text: str) -> None:
        """Logs a warning the first time that it is called with `key`."""
        if key not in self._reported:
            self._reported.add(key)
            _LOG.warning(text)

    def _of_group(self, key: str, suffix: str, values: Mapping[str, float]) -> dict[str, float]:
        """Names the metrics of a category or a super category."""
        prefix = _PREFIXES[self._iou_type]
        metrics = {f'{prefix}_{key}': values['Precision/mAP']}
        if self._all_per_category:
            metrics |= {f'{prefix}_{name} {suffix}': value for name, value in values.items()}
        return metrics

    def _measure(self) -> CocoMetrics:
        # The order of COCO's files, in which pycocotools ranks equal scores.
        images = sorted(self._images + self._missed_images(), key=self._sort_key)
        category_ids = [1] if self._class_agnostic else sorted(c['id'] for c in self._categories)
        return coco_metrics.measure(
            [image.annotated for image in images],
            [image.detected for image in images],
            category_ids,
            compare=(
                overlaps.masks([image[1:3] for image in images])
                if self._iou_type == 'segm'
                else overlaps.boxes
            ),
        )

    def _sort_key(self, image: _Image) -> tuple[bool, Any]:
        """Returns a key that sorts images by id: numbers first, then texts."""
        image_id = self._id_in_results(image)
        return isinstance(image_id, str), image_id

    def _missed_images(self) -> list[_Image]:
        """The images of the annotation file that were not evaluated, with no detections."""
        if self._annotations is None:
            return []
        return [
            _Image(
                image_id,
                *self._annotations.size(image_id),
                self._of_annotations(image_id),
                Instances(np.zeros((0, 4)), np.zeros(0, np.int64), np.zeros(0), scores=np.zeros(0)),
            )
            for image_id in self._annotations.not_evaluated(self._image_ids)
        ]


def _mean(metrics: CocoMetrics | None, metric: _Metric, category: int | None = None) -> float:
    """Averages one slice of the metrics over one category (given by its index) or over all."""
    if metrics is None:
        return UNDEFINED
    # Precision is [thresholds, recalls, K], recall [thresholds, K].
    if metric.table == 'precision':
        values = metrics.precision[metric.area]
    else:
        values = metrics.recall[metric.area, metric.max_detections]
    if metric.iou is not None:
        values = values[np.isclose(IOU_THRESHOLDS, metric.iou)]
    if category is not None:
        values = values[..., category]
    values = values[values > UNDEFINED]
    return float(values.mean()) if values.size else UNDEFINED


def _entries(
    instances: Instances, height: int, width: int, iou_type: str
) -> Iterator[dict[str, Any]]:
    """Yields detections in COCO's JSON form, with what `iou_type` needs."""
    for i, class_id in enumerate(instances.classes.tolist()):
        entry = {'category_id': class_id}
        if iou_type == 'segm':
            counts = instances.masks[i].decode('ascii')
            entry['segmentation'] = {'size': [height, width], 'counts': counts}
        else:
            entry['bbox'] = image_detections.box_to_coco(instances.boxes[i])
        yield entry | {'score': float(instances.scores[i])}


def _check_categories(
    categories: Sequence[Mapping[str, Any]], super_categories: Mapping[str, Sequence[str]]
) -> None:
    for key in ('id', 'name'):
        values = [category[key] for category in categories]
        repeated = sorted({value for value in values if values.count(value) > 1})
        if repeated:
            raise UserError(
                f'CocoEvaluator: every category must have its own {key}. Received more than '
                f'once: {repeated}.'
            )
    names = {category['name'] for category in categories}
    for super_category, members in super_categories.items():
        if not members or not names.issuperset(members):
            raise UserError(
                f'CocoEvaluator: super category {super_category!r} must list names of '
                f'categories: {sorted(names)}. Received: {list(members)}.'
            )


def _texts(values: np.ndarray) -> list[str]:
    """Converts the strings of a batch, which may be bytes, to text."""
    return [image_detections.source_text(value) for value in values]
