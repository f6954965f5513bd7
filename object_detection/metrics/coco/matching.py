"""Matches detections to objects by the rules of COCO's evaluation.

The rules are the same as in pycocotools: within an image and a category, detections are matched in
the order of their scores, each to the unmatched object that it overlaps most. Here all images and
categories are matched at once: first the best detection of each group, then the second best, and so
on, so that the only loop is over the ranks.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from pycocotools import mask as mask_api

from object_detection.metrics.instances import Instances

IOU_THRESHOLDS = np.linspace(0.5, 0.95, 10)
MAX_DETECTIONS = 100

# Number of pairs of a detection and an object that are compared at a time.
_PAIRS = 1 << 20


class Table(NamedTuple):
    """The objects of all images, or the detections, sorted by group: image, then category.

    Attributes:
      images, categories: int64 [n], indices into the lists of all images and of all categories.
      groups: int64 [n], ascending; one number for each image and category.
      ranks: int64 [n], positions within the groups; detections are sorted by score.
      boxes: float64 [n, 4], [x, y, width, height] as in COCO's files.
      areas: float64 [n].
      scores: float64 [n]; zeros for objects.
      is_crowd: bool [n]; False for detections.
      masks: n masks in COCO's compressed run-length encoding, or none.
    """

    images: np.ndarray
    categories: np.ndarray
    groups: np.ndarray
    ranks: np.ndarray
    boxes: np.ndarray
    areas: np.ndarray
    scores: np.ndarray
    is_crowd: np.ndarray
    masks: list[bytes]


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


def table(images: Sequence[Instances], category_ids: Sequence[int]) -> Table:
    """Sorts the objects of all images; at most the best 100 detections of a group are kept.

    Args:
      images: the annotated objects of each image, or the detections of each.
      category_ids: ascending ids; they include the categories of all objects.
    """
    lengths = [len(image.classes) for image in images]
    of_images = np.repeat(np.arange(len(images)), lengths)
    classes = _concatenate([image.classes for image in images], np.int64)
    categories = np.searchsorted(category_ids, classes)
    groups = of_images * len(category_ids) + categories
    has_scores = images[0].scores is not None
    scores = np.zeros(len(groups))
    if has_scores:
        scores = _concatenate([image.scores for image in images], np.float64)
    rows = np.lexsort((-scores, groups))
    ranks = np.arange(len(rows)) - np.searchsorted(groups[rows], groups[rows])
    if has_scores:
        rows, ranks = rows[ranks < MAX_DETECTIONS], ranks[ranks < MAX_DETECTIONS]
    is_crowd = np.zeros(len(groups), bool)
    if not has_scores:
        is_crowd = _concatenate([image.is_crowd for image in images], bool)
    boxes = _concatenate([image.boxes for image in images], np.float64).reshape(-1, 4)[rows]
    corners = boxes[:, 1::-1]
    masks = [mask for image in images for mask in image.masks or ()]
    return Table(
        images=of_images[rows],
        categories=categories[rows],
        groups=groups[rows],
        ranks=ranks,
        boxes=np.concatenate([corners, boxes[:, :1:-1] - corners], axis=1),
        areas=_concatenate([image.areas for image in images], np.float64)[rows],
        scores=scores[rows],
        is_crowd=is_crowd[rows],
        masks=[masks[row] for row in rows.tolist()] if masks else [],
    )


def candidates(
    detected: Table, annotated: Table, mask_sizes: Sequence[tuple[int, int]] | None = None
) -> Candidates:
    """Compares the boxes of each detection and the objects of its group, or their masks.

    Args:
      detected, annotated: tables of all images.
      mask_sizes: (height, width) of each image, to compare masks; None compares boxes.
    """
    if mask_sizes is None:
        parts = list(_overlapping_boxes(detected, annotated))
    else:
        parts = list(_overlapping_masks(detected, annotated, mask_sizes))
    of_detections, of_objects, overlaps = (
        _concatenate([part[column] for part in parts], dtype)
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
    is_ignored = annotated.is_crowd | _outside(annotated.areas, area_range)
    found = np.zeros((len(IOU_THRESHOLDS), len(detected.ranks)), bool)
    ignored = np.zeros_like(found)
    taken = np.zeros((len(IOU_THRESHOLDS), len(annotated.ranks)), bool)
    ends = np.searchsorted(pairs.ranks, np.arange(MAX_DETECTIONS), side='right')
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
    ignored |= ~found & _outside(detected.areas, area_range)
    return found, ignored, is_ignored


def _overlapping_boxes(detected: Table, annotated: Table) -> Iterator[tuple[np.ndarray, ...]]:
    """Yields detections, objects and overlaps, from a bounded number of pairs at a time."""
    begins = np.searchsorted(annotated.groups, detected.groups, side='left')
    counts = np.searchsorted(annotated.groups, detected.groups, side='right') - begins
    rows = np.flatnonzero(counts)
    ends = np.cumsum(counts[rows])
    parts = np.searchsorted(ends, np.arange(_PAIRS, ends[-1], _PAIRS)) if len(ends) else []
    for part in np.split(rows, parts):
        of_detections = np.repeat(part, counts[part])
        firsts = np.repeat(np.cumsum(counts[part]) - counts[part], counts[part])
        of_objects = np.repeat(begins[part], counts[part]) + np.arange(len(firsts)) - firsts
        overlaps = _box_overlaps(
            detected.boxes[of_detections],
            annotated.boxes[of_objects],
            annotated.is_crowd[of_objects],
        )
        is_enough = overlaps >= IOU_THRESHOLDS[0]
        yield of_detections[is_enough], of_objects[is_enough], overlaps[is_enough]


def _box_overlaps(found: np.ndarray, objects: np.ndarray, is_crowd: np.ndarray) -> np.ndarray:
    """IoU of boxes [n, 4], [x, y, width, height]; for crowds, intersection over detection area.

    The order of the operations is the same as in pycocotools, so that results are bitwise equal.
    """
    ends = np.minimum(found[:, :2] + found[:, 2:], objects[:, :2] + objects[:, 2:])
    sides = np.maximum(ends - np.maximum(found[:, :2], objects[:, :2]), 0)
    intersections = sides[:, 0] * sides[:, 1]
    areas = found[:, 2] * found[:, 3]
    unions = areas + objects[:, 2] * objects[:, 3] - intersections
    unions = np.where(is_crowd, areas, unions)
    return np.divide(
        intersections, unions, out=np.zeros_like(intersections), where=intersections > 0
    )


def _overlapping_masks(
    detected: Table, annotated: Table, sizes: Sequence[tuple[int, int]]
) -> Iterator[tuple[np.ndarray, ...]]:
    """Yields detections, objects and overlaps of one group after the other."""
    groups = np.unique(annotated.groups)
    limits = [
        np.searchsorted(table.groups, groups, side=side)
        for table in (annotated, detected)
        for side in ('left', 'right')
    ]
    for object_begin, object_end, begin, end in zip(*(c.tolist() for c in limits), strict=True):
        if begin == end:
            continue
        size = list(sizes[annotated.images[object_begin]])
        overlaps = mask_api.iou(
            [{'size': size, 'counts': mask} for mask in detected.masks[begin:end]],
            [{'size': size, 'counts': mask} for mask in annotated.masks[object_begin:object_end]],
            annotated.is_crowd[object_begin:object_end].astype(np.uint8),
        )
        rows, objects = np.nonzero(overlaps >= IOU_THRESHOLDS[0])
        yield rows + begin, objects + object_begin, overlaps[rows, objects]


def _outside(areas: np.ndarray, area_range: tuple[float, float]) -> np.ndarray:
    return (areas < area_range[0]) | (areas > area_range[1])


def _concatenate(parts: Sequence[np.ndarray], dtype: type) -> np.ndarray:
    return np.concatenate(parts, dtype=dtype) if parts else np.zeros(0, dtype)
