"""Matches the detections of one image to its objects by the rules of PASCAL VOC and Open Images.

Each detection is compared only with the object of its class that it overlaps most: it is correct if
the overlap is large enough and no detection with a higher score has found that object, whether or
not another object is free (Everingham et al., The PASCAL Visual Object Classes Challenge). Boxes
that surround a group of objects follow the Open Images challenge
(https://storage.googleapis.com/openimages/web/evaluation.html).
"""

from typing import NamedTuple

import numpy as np
from pycocotools import mask as mask_api

from object_detection.metrics.instances import Instances


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
