"""COCO's table of precision and recall (https://cocodataset.org/#detection-eval)."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np

from object_detection.metrics.coco import limits
from object_detection.metrics.coco import matching as coco_matching
from object_detection.metrics.coco.overlaps import IOU_THRESHOLDS, Compare, boxes
from object_detection.metrics.coco.tables import Table, table
from object_detection.metrics.instances import Instances

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
    metrics: CocoMetrics | None,
    summary: Summary,
    categories: int | Sequence[int] | None = None,
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
    pairs = coco_matching.candidates(found, objects, compare)
    metrics = CocoMetrics({}, {}, {})
    # Sorted by category and descending score; equal scores keep the order of the images.
    order = np.lexsort((-found.scores, found.categories))
    limits = np.searchsorted(found.categories[order], np.arange(len(category_ids) + 1))
    for name, area_range in rules.area_ranges.items():
        is_match, is_ignored, is_object_ignored = coco_matching.match(
            found, objects, pairs, area_range
        )
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
                for rows, count in zip(_split(order, limits), counts.tolist(), strict=True)
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


def _split(order: np.ndarray, limits: np.ndarray) -> Iterator[np.ndarray]:
    for start, end in zip(limits[:-1].tolist(), limits[1:].tolist(), strict=True):
        yield order[start:end]
