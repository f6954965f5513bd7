"""Which classes a detector confuses with each other and with the background."""

from collections.abc import Iterable, Sequence

import numpy as np

from object_detection.metrics.analysis.images import ImageBoxes
from object_detection.metrics.analysis.matching import match, overlaps


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
