"""Errors of a detector by kind, and the AP that each kind costs.

The kinds are those of TIDE (Bolya et al., 2020, "TIDE: A General Toolbox for Identifying Object
Detection Errors", https://arxiv.org/abs/2008.08115), with its thresholds: an IoU of 0.5 matches,
and one up to 0.1 is background.

Whether the scores of detections are the probabilities that they are right.

Which classes a detector confuses with each other and with the background.

Precision over recall at one IoU: by class, by size of objects and by their number.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from object_detection.metrics.analysis.images import ImageBoxes, match, overlaps


class Calibration(NamedTuple):
    """A reliability diagram.

    Attributes:
      edges: float64 [bins + 1], of the scores.
      counts: int64 [bins], detections.
      scores: float64 [bins], their mean score; NaN without any.
      precisions: float64 [bins], the share of them that is matched; NaN without any.
      ece: the expected calibration error (Guo et al., 2017, https://arxiv.org/abs/1706.04599): the
        mean of |precision - score| over the bins, weighted by their counts; None without any.
    """

    edges: np.ndarray
    counts: np.ndarray
    scores: np.ndarray
    precisions: np.ndarray
    ece: float | None


def calibrate(
    images: Iterable[ImageBoxes], *, bins: int = 10, min_score: float = 0.05, iou: float = 0.5
) -> Calibration:
    """Compares scores with the share of detections that match an object of their class.

    Args:
      images: the images.
      bins: number of equal ranges of scores from 0 to 1.
      min_score: detections with lower scores, of which there may be any number, do not count.
      iou: least IoU of a match.
    """
    scores, is_true = [np.zeros(0)], [np.zeros(0, bool)]
    for image in images:
        matches = match(image, overlaps(image), iou)
        keep = ~matches.is_ignored & (image.scores >= min_score)
        scores.append(image.scores[keep])
        is_true.append(matches.objects[keep] >= 0)
    all_scores = np.concatenate(scores).astype(np.float64)
    places = np.clip((all_scores * bins).astype(int), 0, bins - 1)
    counts = np.bincount(places, minlength=bins)
    sums = (np.bincount(places, w, bins) for w in (all_scores, np.concatenate(is_true)))
    empty = np.full(bins, np.nan)
    means = [np.divide(total, counts, out=empty.copy(), where=counts > 0) for total in sums]
    gaps = np.abs(means[1] - means[0])
    ece = float(np.nansum(gaps * counts) / counts.sum()) if counts.sum() else None
    return Calibration(np.linspace(0, 1, bins + 1), counts, *means, ece)


def confusion_matrix(
    images: Iterable[ImageBoxes],
    class_ids: Sequence[int],
    *,
    min_score: float = 0.5,
    iou: float = 0.5,
) -> np.ndarray:
    """Counts pairs of an object and a detection by their classes.

    Detections and objects of all classes are paired in descending order of IoU, each once. Objects
    that are left are missed, and detections that are left are of the background. Crowds, and
    detections that are matched to them, are left out.

    Args:
      images: the images.
      class_ids: K ids of the label map; objects and detections of others do not count.
      min_score: detections with lower scores do not count.
      iou: least IoU of a pair.

    Returns:
      int64 [K + 1, K + 1]: annotated class, detected class; the last row and column are of the
      background.
    """
    size = len(class_ids)
    order = np.argsort(class_ids)
    ids = np.asarray(class_ids, np.int64)[order]
    matrix = np.zeros((size + 1, size + 1), np.int64)
    for image in images:
        overlap = overlaps(image)
        keep = (image.scores >= min_score) & np.isin(image.found_classes, ids)
        keep &= ~match(image, overlap, iou).is_ignored
        rows = ~image.is_crowd & np.isin(image.classes, ids)
        overlap = overlap[np.ix_(keep, rows)]
        annotated = order[np.searchsorted(ids, image.classes[rows])]
        detected = order[np.searchsorted(ids, image.found_classes[keep])]
        pairs = _pairs(overlap, iou)
        for found, object_ in pairs:
            matrix[annotated[object_], detected[found]] += 1
        np.add.at(matrix, (np.delete(annotated, [o for _, o in pairs]), size), 1)
        np.add.at(matrix, (size, np.delete(detected, [f for f, _ in pairs])), 1)
    return matrix


def _pairs(overlap: np.ndarray, iou: float) -> list[tuple[int, int]]:
    found, objects = np.nonzero(overlap >= iou)
    order = np.argsort(-overlap[found, objects], kind='stable')
    pairs: list[tuple[int, int]] = []
    used: tuple[set[int], set[int]] = (set(), set())
    for pair in zip(found[order].tolist(), objects[order].tolist(), strict=True):
        if pair[0] not in used[0] and pair[1] not in used[1]:
            pairs.append(pair)
            used[0].add(pair[0])
            used[1].add(pair[1])
    return pairs


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


CLASSIFICATION, LOCALISATION, BOTH = 'classification', 'localisation', 'both'
DUPLICATE, BACKGROUND, MISSED = 'duplicate', 'background', 'missed'
KINDS = (CLASSIFICATION, LOCALISATION, BOTH, DUPLICATE, BACKGROUND, MISSED)
MATCHED_FROM, BACKGROUND_TO = 0.5, 0.1


class ErrorKind(NamedTuple):
    """A kind of errors: how many there are, and by how much AP at IoU 0.5 rises without them."""

    name: str
    count: int
    cost: float


class _Detection(NamedTuple):
    """A detection that counts; `kind` is '' of a match, `fixed_class` 0 if a fix removes it."""

    class_id: int
    score: float
    kind: str
    fixed_class: int = 0


def measure(images: Iterable[ImageBoxes], class_ids: Sequence[int]) -> list[ErrorKind]:
    """Counts the errors of each kind, in the order of `KINDS`, and measures their costs.

    The cost of a kind is the AP (mean over the classes that have objects) after an oracle fixed
    its errors alone, minus the AP; at least 0. Fixed are: the class or the box of the best
    detection of an object that is not matched, while others of that object are removed; false
    detections of the other kinds, which are removed; missed objects, which no longer count, and
    with them classes that have no other objects and no detections. If that leaves no class, nothing
    is wrong any more, and the AP is 1. Crowds, and detections that are matched to them, are left
    out.
    """
    detections: list[_Detection] = []
    objects, missed = [], []
    for image in images:
        image = _without_crowds(image)
        found, is_missed = _of_image(image)
        detections += found
        objects += image.classes.tolist()
        missed += image.classes[is_missed].tolist()
    known = set(class_ids)
    detections = [d for d in detections if d.class_id in known]
    objects, missed = ([c for c in each if c in known] for each in (objects, missed))
    counts = {id_: objects.count(id_) for id_ in sorted(set(objects))}
    base = _ap(detections, counts, '')
    results = []
    for kind in KINDS:
        left = counts
        if kind == MISSED:
            left = {id_: count - missed.count(id_) for id_, count in counts.items()}
        number = len(missed) if kind == MISSED else sum(d.kind == kind for d in detections)
        results.append(ErrorKind(kind, number, max(0.0, _ap(detections, left, kind) - base)))
    return results


def _ap(detections: Sequence[_Detection], counts: Mapping[int, int], fixed: str) -> float:
    """Returns the mean AP over the classes of `counts` with the errors of one kind fixed.

    Classes without objects and detections are left out, since no fix could improve them.
    """
    rows: dict[int, list[tuple[float, bool]]] = {id_: [] for id_ in counts}
    for each in detections:
        class_id, is_true = each.class_id, not each.kind
        if fixed and each.kind == fixed:
            class_id, is_true = each.fixed_class, True
        if class_id in rows:
            rows[class_id].append((each.score, is_true))
    values = []
    for id_, count in counts.items():
        if count or rows[id_]:
            scores, is_true = np.array(rows[id_], np.float64).reshape(-1, 2).T
            values.append(curve(scores, is_true > 0, count).ap or 0.0)
    return float(np.mean(values)) if values else float(bool(counts))


def _without_crowds(image: ImageBoxes) -> ImageBoxes:
    if not image.is_crowd.any():
        return image
    keep = ~image.is_crowd
    kept = image.with_found(~match(image, overlaps(image), MATCHED_FROM).is_ignored)
    return kept.with_objects(keep)


def _of_image(image: ImageBoxes) -> tuple[list[_Detection], np.ndarray]:
    """Returns the detections of an image, and which objects, bool [g], are missed."""
    overlap = overlaps(image)
    objects = match(image, overlap, MATCHED_FROM).objects
    is_used = np.zeros(len(image.classes), bool)
    is_used[objects[objects >= 0]] = True
    kinds, meant = _kinds(image, overlap, objects >= 0, is_used)
    fixed = np.zeros(len(objects), np.int64)
    # Of the detections that mean the same unmatched object, the best is fixed.
    order = np.argsort(-image.scores, kind='stable')
    can_fix = order[(meant[order] >= 0) & ~np.append(is_used, True)[meant[order]]]
    targets, firsts = np.unique(meant[can_fix], return_index=True)
    fixed[can_fix[firsts]] = image.classes[targets]
    is_missed = ~is_used
    is_missed[targets] = False
    rows = zip(
        image.found_classes.tolist(), image.scores.tolist(), kinds, fixed.tolist(), strict=True
    )
    return [_Detection(*row) for row in rows], is_missed


def _kinds(
    image: ImageBoxes, overlap: np.ndarray, is_match: np.ndarray, is_used: np.ndarray
) -> tuple[list[str], np.ndarray]:
    """Returns the kind of each detection, and the object that a fixable one means, or -1."""
    none = np.full(len(is_match), -1)
    if not len(image.classes):
        return [BACKGROUND] * len(is_match), none
    is_same = image.found_classes[:, np.newaxis] == image.classes
    same, other = overlap * is_same, overlap * ~is_same
    best_same, best_other = same.max(axis=1), other.max(axis=1)
    tests = {
        '': is_match,
        LOCALISATION: (best_same >= BACKGROUND_TO) & (best_same <= MATCHED_FROM),
        CLASSIFICATION: best_other >= MATCHED_FROM,
        DUPLICATE: (same * is_used).max(axis=1) >= MATCHED_FROM,
        BACKGROUND: overlap.max(axis=1) <= BACKGROUND_TO,
        BOTH: np.ones(len(is_match), bool),
    }
    names = list(tests)
    first = np.stack(list(tests.values())).argmax(axis=0)
    meant = np.select(
        [first == names.index(LOCALISATION), first == names.index(CLASSIFICATION)],
        [same.argmax(axis=1), other.argmax(axis=1)],
        none,
    )
    return [names[index] for index in first.tolist()], meant
