"""Checks that an exported model gives the same detections as the model in process."""

import time
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from object_detection.core import boxes as box_ops
from object_detection.core.detections import Detections
from object_detection.errors import UserError, expected
from object_detection.meta_architectures import side_inputs
from object_detection.meta_architectures.detection_model import DetectionModel
from object_detection.runtime.runtime import Runtime

# Folded batch norms round differently; boxes are normalized, scores and masks lie in [0, 1].
_TOLERANCE = 1e-3
# Of normalized keypoints, which may be whole pixels of the resized image.
_POINT_TOLERANCE = 2e-3
# Of quantized models: the clear detections of an image, and the IoU of a counterpart.
_MAX_CLEAR, _MIN_IOU = 10, 0.5


class Comparison(NamedTuple):
    """The differences between the detections of two models.

    Attributes:
      detections: number of detections in process, over all images.
      unmatched: detections without a counterpart of the same class whose box, score and mask differ
        by at most 1e-3, and so the scores of their keypoints, of the side of each image that has
        more of them: two that are exchanged, since their scores are nearly equal, are one
        difference.
      largest_difference: largest difference of a box coordinate, score, mask probability or
        keypoint score over the matched detections.
      keypoints: number of keypoints of the matched detections whose places differ by at most 2e-3
        of the image.
      flat: number of the others, whose scores agree: their heat maps have two places that are as
        good as each other, such as flat ones, and rounding chooses.
      missing: arrays of the detections in process that the export does not return.
    """

    detections: int
    unmatched: int
    largest_difference: float
    keypoints: int = 0
    flat: int = 0
    missing: tuple[str, ...] = ()

    @property
    def agrees(self) -> bool:
        """Whether at most 1 % are unmatched: two nearly equal scores may swap at the cut-off."""
        return self.unmatched <= 0.01 * self.detections

    def __str__(self) -> str:
        text = (
            f'{self.detections} detections in process, {self.unmatched} without counterpart, '
            'largest difference of a box coordinate, score or mask probability '
            f'{self.largest_difference:.1e}'
        )
        if self.keypoints or self.flat:
            text += f'; {self.keypoints} keypoints agree'
        if self.flat:
            text += f', {self.flat} left out, which lie elsewhere with the same score'
        if self.missing:
            text += f'; not compared, as the export does not have them: {", ".join(self.missing)}'
        return text

    def raise_unless_it_agrees(self, name: str) -> None:
        """Raises UserError, beginning with `name`, if detections differ or there are none."""
        if not self.detections:
            raise UserError(f'{name}: nothing was detected, so nothing was compared.')
        if not self.agrees:
            raise expected(name, 'the detections of the model from the exported one', self)


class Resemblance(NamedTuple):
    """How far the clear detections of a model are those of one with rounded weights.

    Clear are those with at least half the score of the best one of their image, at most ten an
    image. A counterpart is of the same class, with an IoU of at least 0.5.

    Attributes:
      detections: number of clear detections in process, over all images.
      found: how many of them have a counterpart.
      mean_iou: mean IoU with the counterparts.
      mean_difference: mean difference of the scores from those of the counterparts.
    """

    detections: int
    found: int
    mean_iou: float
    mean_difference: float

    def __str__(self) -> str:
        return (
            f'{self.detections} clear detections in process, {self.found} found again, their mean '
            f'IoU {self.mean_iou:.3f} and mean difference of scores {self.mean_difference:.3f}'
        )

    def raise_unless_it_agrees(self, name: str) -> None:
        """Raises UserError, beginning with `name`, unless four in five are found again."""
        if not self.detections:
            raise UserError(f'{name}: nothing was detected, so nothing was compared.')
        if self.found < 0.8 * self.detections:
            raise UserError(
                f'{name}: the quantized model does not give the detections of the model: {self}. '
                'Calibrate with more images like those of the use, or choose another '
                '--quantization.'
            )


def in_process(
    detector: DetectionModel, *, sees_padding: bool = False
) -> Callable[[tf.Tensor], dict[str, tf.Tensor]]:
    """Returns the detector as a traced function of images [1, H, W, 3] with 0-based classes.

    They are uint8; float32 for a detector with a range of values.

    With `sees_padding` the padding of a resized image is a part of the image: detections may lie
    there, and boxes are relative to the padded image.
    """

    def detect(batch: tf.Tensor) -> dict[str, tf.Tensor]:
        images, true_shapes = detector.preprocess(batch)
        if sees_padding:
            true_shapes = tf.shape(images)[tf.newaxis, 1:]
        predictions = detector.predict(images, true_shapes, **side_inputs.zeros(detector))
        return detector.postprocess(predictions, true_shapes)

    dtype = tf.uint8 if detector.resizer.value_range is None else tf.float32
    spec = tf.TensorSpec([1, None, None, 3], dtype)
    return tf.function(detect, input_signature=[spec], autograph=False)


def _run(exported: Runtime, image: np.ndarray, seconds: list[float] | None) -> Detections:
    """Runs an export on an image, and adds how long that took."""
    start = time.perf_counter()
    (found,) = exported.run([image])
    if seconds is not None:
        seconds.append(time.perf_counter() - start)
    return found


def compare(
    exported: Runtime,
    detect: Callable[[tf.Tensor], dict[str, tf.Tensor]],
    images: Iterable[np.ndarray],
    seconds: list[float] | None = None,
) -> Comparison:
    """Compares an export with a function of `in_process` on images [H, W, 3]."""
    found = ((each, detect(tf.constant(each[np.newaxis]))) for each in images)
    return compare_with(exported, found, seconds)


def compare_with(
    exported: Runtime,
    expected: Iterable[tuple[np.ndarray, dict[str, tf.Tensor]]],
    seconds: list[float] | None = None,
) -> Comparison:
    """Compares an export with images, uint8 [H, W, 3], and what `in_process` returns for each.

    The times of the export on each image are added to `seconds`.
    """
    total = Comparison(0, 0, 0.0)
    for image, outputs in expected:
        (ours,) = Detections.from_batch(outputs, [image.shape[:2]])
        theirs = _run(exported, image, seconds)
        names = ours.arrays().keys() & theirs.arrays().keys()
        places = None
        if 'keypoints' in names:
            places = tuple(each.keypoints / each.size for each in (ours, theirs))
        one = _compare_rows(_rows(ours, names), _rows(theirs, names), places)
        total = Comparison(
            total.detections + one.detections,
            total.unmatched + one.unmatched,
            max(total.largest_difference, one.largest_difference),
            total.keypoints + one.keypoints,
            total.flat + one.flat,
            tuple(sorted(ours.arrays().keys() - names)),
        )
    return total


def resemble(
    exported: Runtime,
    expected: Iterable[tuple[np.ndarray, dict[str, tf.Tensor]]],
    seconds: list[float] | None = None,
) -> Resemblance:
    """Compares a quantized model; see `compare_with`."""
    overlaps, differences, count = [], [], 0
    for image, outputs in expected:
        (ours,) = Detections.from_batch(outputs, [image.shape[:2]])
        theirs = _run(exported, image, seconds)
        clear = ours.best(_MAX_CLEAR)
        for each in clear.above(0.5 * clear.scores.max(initial=0.0)):
            count += 1
            found = theirs.take((theirs.ids() == each.ids()) & (theirs.scores > 0))
            ious = box_ops.iou(each.boxes, found.boxes).numpy()[0] if len(found) else np.zeros(1)
            if ious.max() >= _MIN_IOU:
                overlaps.append(ious.max())
                differences.append(abs(found.scores[ious.argmax()] - each.scores[0]))
    none = float('nan')
    return Resemblance(
        count,
        len(overlaps),
        float(np.mean(overlaps)) if overlaps else none,
        float(np.mean(differences)) if differences else none,
    )


def _rows(found: Detections, names: Collection[str] | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Classes int [n], and the values of arrays that must agree, float [n, V].

    Those of keypoints are their scores. `names` None takes all arrays.
    """
    names = found.arrays() if names is None else names
    values = [found.shares(), found.scores[:, np.newaxis]]
    if 'masks' in names:
        values.append(found.masks)
    if 'keypoint_scores' in names:
        # Of torchvision's detectors they are logits, which round by shares of themselves.
        values.append(np.sign(found.keypoint_scores) * np.log1p(np.abs(found.keypoint_scores)))
    flattened = [each.reshape(len(found), int(np.prod(each.shape[1:]))) for each in values]
    return found.ids(), np.concatenate(flattened, axis=1)


def _compare_rows(
    ours: tuple[np.ndarray, np.ndarray],
    theirs: tuple[np.ndarray, np.ndarray],
    places: tuple[np.ndarray, np.ndarray] | None = None,
) -> Comparison:
    """Compares what `_rows` returns, and the normalized places of keypoints, [n, P, 2]."""
    our_classes, our_values = ours
    their_classes, their_values = theirs
    is_free = np.ones(len(their_classes), bool)
    matched, largest, points, apart = 0, 0.0, 0, 0
    for row, (label, values) in enumerate(zip(our_classes, our_values, strict=True)):
        candidates = np.flatnonzero(is_free & (their_classes == label))
        if not len(candidates):
            continue
        differences = np.abs(their_values[candidates] - values).max(axis=1)
        best = differences.argmin()
        if differences[best] <= _TOLERANCE:
            is_free[candidates[best]] = False
            matched += 1
            largest = max(largest, float(differences[best]))
            if places is not None:
                away = np.abs(places[0][row] - places[1][candidates[best]]).max(axis=-1)
                points, apart = points + len(away), apart + int((away > _POINT_TOLERANCE).sum())
    unmatched = max(len(our_classes), len(their_classes)) - matched
    return Comparison(len(our_classes), unmatched, largest, points - apart, apart)
