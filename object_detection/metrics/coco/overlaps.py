"""Overlaps of detections with objects: of boxes, of masks, and the similarity of keypoints.

Each function gives the pairs of a detection and an object of its image and category that overlap by
at least the lowest threshold, as indices into the two tables.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
from pycocotools import mask as mask_api

from object_detection.metrics.coco.tables import Table

IOU_THRESHOLDS = np.linspace(0.5, 0.95, 10)

# Number of pairs of a detection and an object that are compared at a time.
_PAIRS = 1 << 20

# Detections and objects -> (detections int64 [n], objects int64 [n], overlaps float64 [n]), in
# parts.
Compare = Callable[[Table, Table], Iterator[tuple[np.ndarray, ...]]]


def boxes(detected: Table, annotated: Table) -> Iterator[tuple[np.ndarray, ...]]:
    """Yields the pairs whose boxes overlap."""
    for of_detections, of_objects in _pairs(detected, annotated):
        overlaps = _box_overlaps(
            detected.boxes[of_detections],
            annotated.boxes[of_objects],
            annotated.is_crowd[of_objects],
        )
        yield _enough(of_detections, of_objects, overlaps)


def masks(sizes: Sequence[tuple[int, int]]) -> Compare:
    """Returns what compares masks; `sizes` are (height, width) of each image."""
    return partial(_masks, sizes=sizes)


def keypoints(sigmas: np.ndarray) -> Compare:
    """Returns what compares keypoints by their similarity.

    Args:
      sigmas: float64 [P], spread of the annotations of each keypoint, relative to the object's
        scale (https://cocodataset.org/#keypoints-eval).
    """
    return partial(_keypoints, variances=(2 * np.asarray(sigmas, np.float64)) ** 2)


def _keypoints(
    detected: Table, annotated: Table, *, variances: np.ndarray
) -> Iterator[tuple[np.ndarray, ...]]:
    for of_detections, of_objects in _pairs(detected, annotated, len(variances)):
        found, points = detected.keypoints[of_detections], annotated.keypoints[of_objects]
        is_labeled = points[..., 2] > 0
        distances = found[..., :2] - points[..., :2]
        # An object without keypoints takes all that are near its box.
        nearby = ~is_labeled.any(axis=1)
        corners, sides = np.split(annotated.boxes[of_objects[nearby]][:, np.newaxis], 2, axis=2)
        # As in the tables of objects, boxes begin with x and points with y.
        low, high = (corners - sides)[..., ::-1], (corners + 2 * sides)[..., ::-1]
        near = found[nearby][..., :2]
        distances[nearby] = np.maximum(low - near, 0) + np.maximum(near - high, 0)
        is_labeled[nearby] = True
        areas = annotated.areas[of_objects][:, np.newaxis] + np.spacing(1)
        errors = (distances**2).sum(axis=-1) / variances / areas / 2
        similarities = np.where(is_labeled, np.exp(-errors), 0).sum(axis=1)
        yield _enough(of_detections, of_objects, similarities / is_labeled.sum(axis=1))


def _pairs(
    detected: Table, annotated: Table, values: int = 1
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields all detections and objects of the same groups, a bounded number at a time."""
    begins = np.searchsorted(annotated.groups, detected.groups, side='left')
    counts = np.searchsorted(annotated.groups, detected.groups, side='right') - begins
    rows, size = np.flatnonzero(counts), max(1, _PAIRS // values)
    ends = np.cumsum(counts[rows])
    parts = np.searchsorted(ends, np.arange(size, ends[-1], size)) if len(ends) else []
    for part in np.split(rows, parts):
        of_detections = np.repeat(part, counts[part])
        firsts = np.repeat(np.cumsum(counts[part]) - counts[part], counts[part])
        yield (
            of_detections,
            np.repeat(begins[part], counts[part]) + np.arange(len(firsts)) - firsts,
        )


def _enough(
    detections: np.ndarray, objects: np.ndarray, overlaps: np.ndarray
) -> tuple[np.ndarray, ...]:
    is_enough = overlaps >= IOU_THRESHOLDS[0]
    return detections[is_enough], objects[is_enough], overlaps[is_enough]


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


def _masks(
    detected: Table, annotated: Table, *, sizes: Sequence[tuple[int, int]]
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
