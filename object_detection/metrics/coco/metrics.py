"""COCO's table of precision and recall (https://cocodataset.org/#detection-eval).

Matches detections to objects by the rules of COCO's evaluation.

The rules are the same as in pycocotools: within an image and a category, detections are matched in
the order of their scores, each to the unmatched object that it overlaps most. Here all images and
categories are matched at once: first the best detection of each group, then the second best, and so
on, so that the only loop is over the ranks.

Overlaps of detections with objects: of boxes, of masks, and the similarity of keypoints.

Each function gives the pairs of a detection and an object of its image and category that overlap by
at least the lowest threshold, as indices into the two tables.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Literal, NamedTuple

import numpy as np
from pycocotools import mask as mask_api

from object_detection.metrics.coco import limits
from object_detection.metrics.coco.tables import Table, concatenate, table
from object_detection.metrics.instances import Instances

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
        overlaps = similarities(
            detected.keypoints[of_detections],
            annotated.keypoints[of_objects],
            annotated.boxes[of_objects],
            annotated.areas[of_objects],
            variances,
        )
        yield _enough(of_detections, of_objects, overlaps)


def similarities(
    found: np.ndarray,
    points: np.ndarray,
    boxes: np.ndarray,
    areas: np.ndarray,
    variances: np.ndarray,
) -> np.ndarray:
    """Returns the similarity of the keypoints of detections and objects, float64 [n].

    Args:
      found, points: float64 [n, P, 3] of detections and of objects, (y, x) and the visibility.
      boxes: float64 [n, 4], [x, y, width, height] of the objects.
      areas: float64 [n], of the objects.
      variances: float64 [P], (2 sigma)^2 of each keypoint.
    """
    is_labeled = points[..., 2] > 0
    distances = found[..., :2] - points[..., :2]
    # An object without keypoints takes all that are near its box.
    nearby = ~is_labeled.any(axis=1)
    corners, sides = np.split(boxes[nearby][:, np.newaxis], 2, axis=2)
    # As in the tables of objects, boxes begin with x and points with y.
    low, high = (corners - sides)[..., ::-1], (corners + 2 * sides)[..., ::-1]
    near = found[nearby][..., :2]
    distances[nearby] = np.maximum(low - near, 0) + np.maximum(near - high, 0)
    is_labeled[nearby] = True
    errors = (distances**2).sum(axis=-1) / variances / (areas[:, np.newaxis] + np.spacing(1)) / 2
    return np.where(is_labeled, np.exp(-errors), 0).sum(axis=1) / is_labeled.sum(axis=1)


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


UNDEFINED = -1.0

# Square pixels; both ends belong to the range.
AREA_RANGES = {
    'all': (0.0, 1e5**2),
    'small': (0.0, 32.0**2),
    'medium': (32.0**2, 96.0**2),
    'large': (96.0**2, 1e5**2),
}
MAX_DETECTIONS = (1, 10, limits.BOXES_AND_MASKS)


class Rules(NamedTuple):
    """Which objects count, and how many detections.

    Attributes:
      area_ranges: name -> smallest and largest area in square pixels.
      max_detections: numbers of detections of an image and a category, ascending.
    """

    area_ranges: Mapping[str, tuple[float, float]] = AREA_RANGES
    max_detections: tuple[int, ...] = MAX_DETECTIONS


BOXES_AND_MASKS = Rules()

_RECALLS = np.linspace(0.0, 1.0, 101)


# Scores at which positives are counted, as many as TensorBoard's own curves have.
_NUM_SCORES = 201


class CocoMetrics(NamedTuple):
    """Precision and recall at the ten IoU thresholds; -1 for categories without objects.

    Attributes:
      precision: area range -> float64 [thresholds, recalls, K], for the largest number of
        detections.
      recall: (area range, number of detections) -> float64 [thresholds, K].
      counts: area range -> int64 [thresholds, 3, S], the numbers of true positives, false positives
        and missed objects of all categories, if only detections with at least a score count, for
        S scores evenly spaced from 0 to 1.
    """

    precision: dict[str, np.ndarray]
    recall: dict[tuple[str, int], np.ndarray]
    counts: dict[str, np.ndarray]


class Summary(NamedTuple):
    """A mean over one slice of precision or recall; `iou` None takes all ten thresholds."""

    table: Literal['precision', 'recall']
    iou: float | None = None
    area: str = 'all'
    max_detections: int = limits.BOXES_AND_MASKS


def mean(
    metrics: CocoMetrics | None, summary: Summary, categories: int | Sequence[int] | None = None
) -> float:
    """Averages one slice of the metrics; -1 without metrics, or where there is nothing to average.

    Args:
      metrics: what `measure` returned, or None.
      summary: the slice.
      categories: index of a category, or of several; None takes all.
    """
    if metrics is None:
        return UNDEFINED
    # Precision is [thresholds, recalls, K], recall [thresholds, K].
    if summary.table == 'precision':
        values = metrics.precision[summary.area]
    else:
        values = metrics.recall[summary.area, summary.max_detections]
    if summary.iou is not None:
        values = values[np.isclose(IOU_THRESHOLDS, summary.iou)]
    if categories is not None:
        values = values[..., categories]
    values = values[values > UNDEFINED]
    return float(values.mean()) if values.size else UNDEFINED


def measure(
    annotated: Sequence[Instances],
    detected: Sequence[Instances],
    category_ids: Sequence[int],
    *,
    compare: Compare = boxes,
    rules: Rules = BOXES_AND_MASKS,
) -> CocoMetrics:
    """Compares detections with the objects of the same images, as pycocotools does.

    Args:
      annotated, detected: objects of each image, at least one image.
      category_ids: K ids, ascending; all classes are of these.
      compare: what overlaps: one of the functions of `overlaps`.
      rules: which objects and how many detections count.

    Returns:
      The same numbers as pycocotools, to the last bit.
    """
    objects = table(annotated, category_ids)
    found = table(detected, category_ids, rules.max_detections[-1])
    pairs = candidates(found, objects, compare)
    metrics = CocoMetrics({}, {}, {})
    # Sorted by category and descending score; equal scores keep the order of the images.
    order = np.lexsort((-found.scores, found.categories))
    limits = np.searchsorted(found.categories[order], np.arange(1, len(category_ids)))
    for name, area_range in rules.area_ranges.items():
        is_match, is_ignored, is_object_ignored = match(found, objects, pairs, area_range)
        counts = np.bincount(objects.categories[~is_object_ignored], minlength=len(category_ids))
        is_match &= ~is_ignored
        metrics.counts[name] = _counts(
            is_match, ~is_match & ~is_ignored, found.scores, int(counts.sum())
        )
        for maximum in rules.max_detections:
            metrics.recall[name, maximum] = _recall(is_match, found, counts, maximum)
        metrics.precision[name] = np.stack(
            [
                _precision(is_match[:, rows], ~is_match[:, rows] & ~is_ignored[:, rows], count)
                for rows, count in zip(np.split(order, limits), counts.tolist(), strict=True)
            ],
            axis=-1,
        )
    return metrics


def _recall(is_match: np.ndarray, found: Table, counts: np.ndarray, maximum: int) -> np.ndarray:
    """Returns the recall [thresholds, K] of the best `maximum` detections of each image."""
    num_found = [
        np.bincount(found.categories[row & (found.ranks < maximum)], minlength=len(counts))
        for row in is_match
    ]
    recall = np.full((len(is_match), len(counts)), UNDEFINED)
    return np.divide(num_found, counts, out=recall, where=counts > 0)


def _counts(
    is_true: np.ndarray, is_false: np.ndarray, scores: np.ndarray, num_objects: int
) -> np.ndarray:
    """Counts true positives, false positives and missed objects from each score on.

    Args:
      is_true, is_false: bool [thresholds, n].
      scores: float [n], of the detections.
      num_objects: number of annotated objects.

    Returns:
      int64 [thresholds, 3, S].
    """
    last = _NUM_SCORES - 1
    # NaN is the lowest score.
    rows = np.clip(np.nan_to_num(np.floor(scores * last)), 0, last).astype(np.int64)
    num_true, num_false = (
        np.stack([np.bincount(rows[row], minlength=_NUM_SCORES)[::-1] for row in each]).cumsum(1)
        for each in (is_true, is_false)
    )
    counts = np.stack([num_true, num_false, num_objects - num_true], axis=1)
    return counts[..., ::-1]


def _precision(is_true: np.ndarray, is_false: np.ndarray, num_objects: int) -> np.ndarray:
    """Highest precision at each recall or above, of one category.

    Args:
      is_true, is_false: bool [thresholds, n], whether each detection is a true or a false positive,
        in descending order of scores.
      num_objects: number of annotated objects.

    Returns:
      float64 [thresholds, recalls]; 0 where a recall is not reached.
    """
    if num_objects == 0:
        return np.full((len(is_true), len(_RECALLS)), UNDEFINED)
    num_true = np.cumsum(is_true, axis=1, dtype=np.float64)
    num_false = np.cumsum(is_false, axis=1, dtype=np.float64)
    precision = num_true / (num_false + num_true + np.spacing(1))
    precision = np.maximum.accumulate(precision[:, ::-1], axis=1)[:, ::-1]
    columns = [np.searchsorted(row, _RECALLS) for row in num_true / num_objects]
    not_reached = np.zeros((len(precision), 1))
    return np.take_along_axis(
        np.concatenate([precision, not_reached], axis=1), np.stack(columns), axis=1
    )
