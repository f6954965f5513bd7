"""Precision over recall at one IoU: by class, by size of objects and by their number."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from object_detection.metrics.analysis.images import ImageBoxes
from object_detection.metrics.analysis.matching import match, overlaps

RECALLS = np.linspace(0.0, 1.0, 101)
# Square pixels, as COCO defines them.
_SIZES = {
    'small (under 32² pixels)': (0.0, 32.0**2),
    'medium (32² to 96²)': (32.0**2, 96.0**2),
    'large (over 96²)': (96.0**2, math.inf),
}
_COUNTS = ((1, 1), (2, 4), (5, 9), (10, 19), (20, None))


class Curve(NamedTuple):
    """The precision of one class.

    Attributes:
      precisions: float64 [101], the best precision at each recall of `RECALLS` or above.
      recall: the greatest recall.
      num_objects, num_found: numbers of objects and of detections that count.
    """

    precisions: np.ndarray
    recall: float
    num_objects: int
    num_found: int

    @property
    def ap(self) -> float | None:
        """The mean precision; None without objects."""
        return float(self.precisions.mean()) if self.num_objects else None


class Group(NamedTuple):
    """AP at IoU 0.5 of a part of the objects; None if there are none."""

    name: str
    ap: float | None
    num_objects: int


def curve(scores: np.ndarray, is_true: np.ndarray, num_objects: int) -> Curve:
    """Computes the precision of detections, as COCO does.

    Args:
      scores: float [n], in any order.
      is_true: bool [n], which detections are matched to an object.
      num_objects: number of objects, matched or not.
    """
    order = np.argsort(-scores, kind='stable')
    matched = np.cumsum(is_true[order])
    recalls = matched / max(num_objects, 1)
    precisions = matched / np.arange(1, len(order) + 1)
    precisions = np.maximum.accumulate(precisions[::-1])[::-1]
    places = np.searchsorted(recalls, RECALLS, side='left')
    return Curve(
        np.append(precisions, 0.0)[places],
        float(recalls[-1]) if len(recalls) else 0.0,
        num_objects,
        len(order),
    )


def curves(
    images: Iterable[ImageBoxes],
    class_ids: Iterable[int],
    *,
    iou: float = 0.5,
    area_range: tuple[float, float] = (0.0, math.inf),
) -> dict[int, Curve]:
    """Returns the curve of each class.

    Args:
      images: the images.
      class_ids: ids of the label map; objects and detections of others do not count.
      iou: least IoU of a match.
      area_range: least and greatest area, in square pixels, of the boxes that count.
    """
    classes, scores, is_true, objects = outcomes(images, iou=iou, area_range=area_range)
    order = np.argsort(classes, kind='stable')
    ids = np.array(list(class_ids), np.int64)
    begins, ends = (np.searchsorted(classes[order], ids, side) for side in ('left', 'right'))
    found = {}
    for id_, begin, end in zip(ids.tolist(), begins, ends, strict=True):
        rows = order[begin:end]
        found[id_] = curve(scores[rows], is_true[rows] > 0, int((objects == id_).sum()))
    return found


def outcomes(
    images: Iterable[ImageBoxes],
    *,
    iou: float = 0.5,
    area_range: tuple[float, float] = (0.0, math.inf),
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Returns which detections of all images are matched to an object.

    Args:
      images, iou, area_range: as for `curves`.

    Returns:
      Of the detections that count, float64 [n]: classes, scores, and 1 where they are matched; and
      the classes of the objects that count, float64 [g].
    """
    classes, scores, is_true, objects = [], [], [], []
    for image in images:
        is_outside = _outside(image.boxes, area_range)
        matches = match(image, overlaps(image), iou, is_outside)
        is_match = matches.objects >= 0
        counts = ~matches.is_ignored & (is_match | ~_outside(image.found_boxes, area_range))
        classes.append(image.found_classes[counts])
        scores.append(image.scores[counts])
        is_true.append(is_match[counts])
        objects.append(image.classes[~image.is_crowd & ~is_outside])
    parts = (classes, scores, is_true, objects)
    return tuple(np.concatenate([np.zeros(0), *part]) for part in parts)


def mean_ap(found: Mapping[int, Curve]) -> float | None:
    """Returns the mean AP over the classes that have objects; None if none has."""
    values = [each.ap for each in found.values() if each.num_objects]
    return float(np.mean(values)) if values else None


def mean_precisions(found: Mapping[int, Curve]) -> np.ndarray | None:
    """Returns the mean of the precisions, float64 [101], as `mean_ap`."""
    values = [each.precisions for each in found.values() if each.num_objects]
    return np.mean(values, axis=0) if values else None


def by_size(images: Sequence[ImageBoxes], class_ids: Sequence[int]) -> list[Group]:
    """Returns the AP of small, medium and large objects."""
    return [
        _group(name, curves(images, class_ids, area_range=area_range))
        for name, area_range in _SIZES.items()
    ]


def by_number(images: Sequence[ImageBoxes], class_ids: Sequence[int]) -> list[Group]:
    """Returns the AP over the images with few, some and many objects."""
    groups = []
    for low, high in _COUNTS:
        name = f'{low} or more' if high is None else f'{low}' if low == high else f'{low} to {high}'
        is_in: Callable[[int], bool] = range(low, (high or 10**9) + 1).__contains__
        part = [image for image in images if is_in(int((~image.is_crowd).sum()))]
        groups.append(_group(name, curves(part, class_ids)))
    return groups


def _group(name: str, found: Mapping[int, Curve]) -> Group:
    return Group(name, mean_ap(found), sum(each.num_objects for each in found.values()))


def _outside(boxes: np.ndarray, area_range: tuple[float, float]) -> np.ndarray:
    areas = np.maximum(boxes[:, 2:] - boxes[:, :2], 0).prod(axis=1)
    return (areas < area_range[0]) | (areas > area_range[1])
