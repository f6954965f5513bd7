"""Matches detections to objects by the rules of COCO's evaluation.

The rules are the same as in pycocotools: within an image and a category, detections are matched in
the order of their scores, each to the unmatched object that it overlaps most. Here all images and
categories are matched at once: first the best detection of each group, then the second best, and so
on, so that the only loop is over the ranks.
"""

from typing import NamedTuple

import numpy as np

from object_detection.metrics.coco.overlaps import IOU_THRESHOLDS, Compare, boxes
from object_detection.metrics.coco.tables import Table, concatenate


class Candidates(NamedTuple):
    """Pairs that reach the lowest IoU threshold, sorted by rank, detection and descending overlap.

    Attributes:
      detections, objects: int64 [n], indices into the two tables.
      overlaps: float64 [n].
      ranks: int64 [n], of the detections.
    """

    detections: np.ndarray
    objects: np.ndarray
    overlaps: np.ndarray
    ranks: np.ndarray


def candidates(detected: Table, annotated: Table, compare: Compare = boxes) -> Candidates:
    """Compares each detection with the objects of its group, as `compare` does.

    Args:
      detected, annotated: tables of all images.
      compare: one of the functions of `overlaps`.
    """
    parts = list(compare(detected, annotated))
    of_detections, of_objects, overlaps = (
        concatenate([part[column] for part in parts], dtype)
        for column, dtype in enumerate((np.int64, np.int64, np.float64))
    )
    ranks = detected.ranks[of_detections]
    # Among equal overlaps the last object is matched.
    order = np.lexsort((-of_objects, -overlaps, of_detections, ranks))
    return Candidates(of_detections[order], of_objects[order], overlaps[order], ranks[order])


def match(
    detected: Table, annotated: Table, pairs: Candidates, area_range: tuple[float, float]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Matches every detection to an object at every threshold.

    Crowds and objects outside the area range are ignored: a detection is matched to them only if no
    other object is left, and then does not count; neither do unmatched detections outside the area
    range.

    Args:
      detected, annotated: tables of all images.
      pairs: overlapping pairs of a detection and an object.
      area_range: smallest and largest area of objects that count.

    Returns:
      bool [thresholds, detections], whether a detection is matched; the same shape, whether it is
      ignored; bool [objects], whether an object is ignored.
    """
    is_ignored = annotated.is_crowd | annotated.is_ignored
    is_ignored |= _outside(annotated.areas, area_range)
    found = np.zeros((len(IOU_THRESHOLDS), len(detected.ranks)), bool)
    ignored = np.zeros_like(found)
    taken = np.zeros((len(IOU_THRESHOLDS), len(annotated.ranks)), bool)
    ends = np.searchsorted(pairs.ranks, np.arange(pairs.ranks[-1:].sum() + 1), side='right')
    for start, end in zip([0, *ends[:-1]], ends, strict=True):
        if start == end:
            continue
        rows, objects = pairs.detections[start:end], pairs.objects[start:end]
        # Positions in the order of preference; ignored objects come after all others.
        size = end - start
        places = np.arange(size) + size * is_ignored[objects]
        is_free = ~taken[:, objects] | annotated.is_crowd[objects]
        is_free &= pairs.overlaps[start:end] >= IOU_THRESHOLDS[:, np.newaxis]
        firsts = np.flatnonzero(np.diff(rows, prepend=-1))
        chosen = np.minimum.reduceat(np.where(is_free, places, 2 * size), firsts, axis=1)
        thresholds, columns = np.nonzero(chosen < 2 * size)
        chosen = chosen[thresholds, columns] % size
        taken[thresholds, objects[chosen]] = True
        found[thresholds, rows[chosen]] = True
        ignored[thresholds, rows[chosen]] = is_ignored[objects[chosen]]
    ignored |= ~found & (detected.is_ignored | _outside(detected.areas, area_range))
    return found, ignored, is_ignored


def _outside(areas: np.ndarray, area_range: tuple[float, float]) -> np.ndarray:
    return (areas < area_range[0]) | (areas > area_range[1])
