"""COCO's metrics of the keypoints of one class (https://cocodataset.org/#keypoints-eval)."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from object_detection.core.detections import Detections, points_to_absolute
from object_detection.core.fields import DetectionFields, InputFields
from object_detection.errors import UserError, expected
from object_detection.metrics.coco import collecting, limits, metrics
from object_detection.metrics.coco.collecting import Image, StoringEvaluator
from object_detection.metrics.coco.metrics import Summary, mean
from object_detection.metrics.detections import scored_keypoints
from object_detection.metrics.instances import Instances

DEFAULT_SIGMA = 0.05

_PARTS = {
    '': {},
    '@.50IOU': {'iou': 0.5},
    '@.75IOU': {'iou': 0.75},
    ' (medium)': {'area': 'medium'},
    ' (large)': {'area': 'large'},
}
# Name of the reference, which takes COCO's ten numbers for those of boxes -> what it is.
ALIASES = {
    'Recall/AR@1': 'Recall/AR',
    'Recall/AR@10': 'Recall/AR@.50IOU',
    'Recall/AR@100': 'Recall/AR@.75IOU',
    'Recall/AR@100 (medium)': 'Recall/AR (medium)',
    'Recall/AR@100 (large)': 'Recall/AR (large)',
}


class KeypointEvaluator(StoringEvaluator):
    """Collects the keypoints of one class and computes COCO's metrics of their similarity.

    The similarity of a detection with an object is the mean of exp(-d^2 / (2 s^2 k^2)) over the
    visible keypoints of the object: d is the distance in pixels, s^2 the recorded area of the
    object, or else that of its box, and k twice the keypoint's sigma. Objects without visible
    keypoints are ignored, as are crowds; the best 20 detections of an image count, or
    `max_detections`. The size of a detection is the area of its box, as in the reference and as
    pycocotools has it for results with `bbox`.

    Of a batch it reads the entries of `collecting.batch_instances`, evaluation_keypoints
    [B, G, P, 2], (y, x) normalized to the original image, and evaluation_keypoint_visibilities
    [B, G, P]; of detections also detection_keypoints [B, T, P, 2], normalized to the true image.

    Args:
      categories: the label map's entries, {'id': 1-based, 'name': ..., 'keypoints': {name:
        position among the P keypoints}}.
      class_name: name of the class.
      sigmas: name of a keypoint -> sigma, the spread of its annotations relative to the scale of
        the object; `DEFAULT_SIGMA` for those without one.
      options: `annotations` and `max_detections` of `StoringEvaluator`.

    Raises:
      ValueError: if there is no such class, or it has no keypoints, or `sigmas` names another one,
        or a sigma is not above 0.
    """

    _compared = collecting.KEYPOINTS
    _published_limit = limits.KEYPOINTS
    _areas = ('all', 'medium', 'large')

    def __init__(
        self,
        categories: Sequence[Mapping[str, Any]],
        class_name: str,
        sigmas: Mapping[str, float] | None = None,
        **options: Any,
    ):
        super().__init__(categories, **options)
        classes = {category['name']: category for category in self._categories}
        if not classes.get(class_name, {}).get('keypoints'):
            known = sorted(name for name, each in classes.items() if each.get('keypoints'))
            raise expected('coco_keypoint_metrics.class_label', f'one of {known}', repr(class_name))
        self._label = classes[class_name]['id']
        self._class_name = class_name
        positions = classes[class_name]['keypoints']
        self._keypoints = sorted(positions, key=positions.get)
        self._positions = [positions[name] for name in self._keypoints]
        self._sigmas = _checked_sigmas(sigmas or {}, self._keypoints, class_name)
        self._category_ids = [self._label]
        self._analysed_as = f'keypoints of {class_name}'

    def evaluate(self) -> dict[str, float]:
        """Returns the metrics of the images added so far; -1 where there is nothing to measure."""
        measured = self._measure()
        values = {}
        for table, metric in (('precision', 'Precision/mAP'), ('recall', 'Recall/AR')):
            name = limits.named(metric, self._limit, limits.KEYPOINTS)
            for suffix, part in _PARTS.items():
                summary = Summary(table, **part, max_detections=self._limit)
                values[name + suffix] = mean(measured, summary)
        if self._limit == limits.KEYPOINTS:
            values |= {alias: values[name] for alias, name in ALIASES.items()}
        return {
            f'Keypoints_{name} ByCategory/{self._class_name}': value
            for name, value in values.items()
        }

    def _compare(self, images: Sequence[Image]) -> metrics.Compare:
        del images
        return metrics.keypoints(self._sigmas)

    def _overlap(self, image: Image, detected: Instances) -> np.ndarray:
        annotated = image.annotated
        rows = np.indices((len(detected.classes), len(annotated.classes))).reshape(2, -1)
        objects = annotated.where(rows[1])
        corners = objects.boxes[:, [1, 0]]
        return metrics.similarities(
            detected.keypoints[rows[0]],
            objects.keypoints,
            np.hstack([corners, objects.boxes[:, [3, 2]] - corners]),
            objects.areas,
            (2 * self._sigmas) ** 2,
        )

    def _entry(self, image: Image, row: int) -> dict[str, Any]:
        points = image.detected.keypoints[row][:, [1, 0, 2]]
        return {'keypoints': points.ravel().tolist(), **super()._entry(image, row)}

    def _check_entries(self, batch: Mapping[str, Any], detections: Mapping[str, Any]) -> None:
        super()._check_entries(batch, detections)
        self._check_count(detections, DetectionFields.KEYPOINTS)
        if self._annotations is None:
            self._check_count(batch, InputFields.EVALUATION_KEYPOINTS)

    def _check_count(self, entries: Mapping[str, Any], name: str) -> None:
        count = np.shape(entries[name])[2]
        if count <= self._positions[-1]:
            raise UserError(
                f'{self._name}: expected `{name}` of the keypoints of {self._class_name!r}, the '
                f'last of which has the position {self._positions[-1]} in the label map. Received: '
                f'{count} keypoints.'
            )

    def _of_batch(self, batch: Mapping[str, Any], row: int, source_id: str) -> Instances:
        shape = [int(size) for size in batch[InputFields.ORIGINAL_IMAGE_SPATIAL_SHAPE][row]]
        points = collecting.batch_rows(batch, InputFields.EVALUATION_KEYPOINTS, row)
        points = points_to_absolute(points, *shape)
        seen = collecting.batch_rows(batch, InputFields.EVALUATION_KEYPOINT_VISIBILITIES, row)
        keypoints = np.concatenate([points, seen[..., np.newaxis]], axis=-1)
        return super()._of_batch(batch, row, source_id)._replace(keypoints=keypoints)

    def _of_annotations(self, image_id: Any) -> Instances:
        instances, keypoints = self._annotations.poses(image_id, self._label, self._keypoints)
        return self._posed(instances, keypoints)

    def _known_objects(self, instances: Instances) -> Instances:
        return self._posed(instances, instances.keypoints[:, self._positions])

    def _known_detections(self, instances: Instances) -> Instances:
        instances = instances._replace(keypoints=instances.keypoints[:, self._positions])
        return instances.where(instances.classes == self._label)

    def _posed(self, instances: Instances, keypoints: np.ndarray) -> Instances:
        """Keeps the objects of the class, and hides points without coordinates."""
        points = keypoints[..., :2]
        is_visible = (keypoints[..., 2] > 0) & np.isfinite(points).all(axis=-1)
        points = np.where(is_visible[..., np.newaxis], points, 0.0)
        instances = instances._replace(
            keypoints=np.concatenate([points, is_visible[..., np.newaxis]], axis=-1),
            is_ignored=~is_visible.any(axis=1),
            masks=None,
        )
        return instances.where(instances.classes == self._label)

    def _detected(self, found: Detections) -> Instances:
        # The score of a keypoint takes the place of its visibility, as in results of COCO.
        return super()._detected(found)._replace(keypoints=scored_keypoints(found))


def _checked_sigmas(
    sigmas: Mapping[str, float], keypoints: Sequence[str], class_name: str
) -> np.ndarray:
    """Returns the sigma of each keypoint, float64 [P]."""
    unknown = sorted(set(sigmas) - set(keypoints))
    wrong = {name: value for name, value in sigmas.items() if not 0 < value < np.inf}
    if unknown or wrong:
        raise UserError(
            'coco_keypoint_metrics.keypoint_label_to_sigmas: expected numbers above 0 for '
            f'keypoints of {class_name!r}: {list(keypoints)}. Received: {unknown or wrong}.'
        )
    return np.array([sigmas.get(name, DEFAULT_SIGMA) for name in keypoints], np.float64)
