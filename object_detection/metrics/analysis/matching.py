"""Matches the detected boxes of an image to its annotated ones, as COCO's evaluation does."""

from typing import NamedTuple

import numpy as np

from object_detection.metrics.analysis.images import ImageBoxes


class Matches(NamedTuple):
    """The matches of one image.

    Attributes:
      objects: int [d], the index of the object that a detection is matched to, or -1.
      is_ignored: bool [d], whether a detection does not count: it is matched to an object that is
        ignored, such as a crowd.
    """

    objects: np.ndarray
    is_ignored: np.ndarray


class Quality(NamedTuple):
    """Numbers of detections and objects of one image: matched, false detections, missed objects."""

    matched: int
    false: int
    missed: int

    @property
    def f1(self) -> float | None:
        """The harmonic mean of precision and recall; None without detections and objects."""
        all_ = 2 * self.matched + self.false + self.missed
        return 2 * self.matched / all_ if all_ else None


def overlaps(image: ImageBoxes) -> np.ndarray:
    """Returns the IoU, float64 [d, g], of each detection and object, of all classes.

    With crowds it is the intersection over the area of the detection.
    """
    found = np.asarray(image.found_boxes, np.float64)[:, np.newaxis]
    boxes = np.asarray(image.boxes, np.float64)[np.newaxis]
    sides = np.minimum(found[..., 2:], boxes[..., 2:]) - np.maximum(found[..., :2], boxes[..., :2])
    shared = np.maximum(sides, 0).prod(axis=-1)
    areas = (found[..., 2:] - found[..., :2]).prod(axis=-1)
    unions = areas + (boxes[..., 2:] - boxes[..., :2]).prod(axis=-1) - shared
    unions = np.where(image.is_crowd, areas, unions)
    return np.divide(shared, unions, out=np.zeros_like(shared), where=shared > 0)


def match(
    image: ImageBoxes,
    overlap: np.ndarray,
    threshold: float = 0.5,
    is_ignored: np.ndarray | None = None,
) -> Matches:
    """Matches detections in descending order of scores, each to the best free object of its class.

    Args:
      image: the boxes.
      overlap: what `overlaps` returned.
      threshold: least IoU of a match.
      is_ignored: bool [g], objects that are matched only if no other is left, besides crowds.
    """
    ignored = image.is_crowd if is_ignored is None else image.is_crowd | is_ignored
    is_same = image.found_classes[:, np.newaxis] == image.classes
    usable = np.where(is_same & (overlap >= threshold), overlap, -1.0)
    objects = np.full(len(image.scores), -1)
    free = np.ones(len(image.classes), bool)
    order = np.argsort(-image.scores, kind='stable')
    for row in order[(usable > 0).any(axis=1)[order]]:
        for group in (~ignored, ignored):
            values = np.where(free & group, usable[row], -1.0)
            best = int(values.argmax())
            if values[best] > 0:
                objects[row] = best
                free[best] = image.is_crowd[best]
                break
    return Matches(objects, (objects >= 0) & np.append(ignored, False)[objects])


def quality(image: ImageBoxes, min_score: float) -> Quality:
    """Counts what a user sees who looks at detections from a score on, at an IoU of 0.5."""
    shown = image.scores >= min_score
    image = image._replace(
        found_boxes=image.found_boxes[shown],
        found_classes=image.found_classes[shown],
        scores=image.scores[shown],
    )
    matches = match(image, overlaps(image))
    counts = ~matches.is_ignored
    matched = int((counts & (matches.objects >= 0)).sum())
    return Quality(matched, int(counts.sum()) - matched, int((~image.is_crowd).sum()) - matched)
