"""Errors of a detector by kind, and the AP that each kind costs.

The kinds are those of TIDE (Bolya et al., 2020, "TIDE: A General Toolbox for Identifying Object
Detection Errors", https://arxiv.org/abs/2008.08115), with its thresholds: an IoU of 0.5 matches,
and one up to 0.1 is background.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from object_detection.metrics.analysis import precision
from object_detection.metrics.analysis.images import ImageBoxes
from object_detection.metrics.analysis.matching import match, overlaps

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
            values.append(precision.curve(scores, is_true > 0, count).ap or 0.0)
    return float(np.mean(values)) if values else float(bool(counts))


def _without_crowds(image: ImageBoxes) -> ImageBoxes:
    if not image.is_crowd.any():
        return image
    keep, found = ~image.is_crowd, ~match(image, overlaps(image), MATCHED_FROM).is_ignored
    return image._replace(
        boxes=image.boxes[keep],
        classes=image.classes[keep],
        is_crowd=image.is_crowd[keep],
        found_boxes=image.found_boxes[found],
        found_classes=image.found_classes[found],
        scores=image.scores[found],
    )


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
