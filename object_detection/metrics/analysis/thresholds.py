"""Precision, recall and F1 by the least score of detections, and the score that balances them."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from object_detection.metrics.analysis.errors import outcomes
from object_detection.metrics.analysis.images import ImageBoxes

SCORES = np.arange(1, 100) / 100


class Thresholds(NamedTuple):
    """What detections are worth from each score of `SCORES` on.

    Attributes:
      precisions, recalls, f1: float64 [99]; the precision is NaN without detections.
      best: index of the threshold that is advised: the middle of those with the greatest F1.
    """

    precisions: np.ndarray
    recalls: np.ndarray
    f1: np.ndarray
    best: int

    def advice(self) -> dict[str, Any]:
        """Returns the advised threshold and what it gives, for files."""
        return {'score_threshold': float(SCORES[self.best]), **self.at(self.best)}

    def at(self, index: int) -> dict[str, float]:
        """Returns precision, recall and F1 of the threshold `SCORES[index]`."""
        values = {'precision': self.precisions, 'recall': self.recalls, 'f1': self.f1}
        return {name: round(float(each[index]), 4) for name, each in values.items()}


def by_score(images: Iterable[ImageBoxes], class_ids: Iterable[int]) -> Thresholds | None:
    """Matches detections at an IoU of 0.5 and counts them; None if no object is found at all.

    Args:
      images: the images.
      class_ids: ids of the label map; objects and detections of others do not count.
    """
    return _count_classes(outcomes(images), list(class_ids))


def by_class(images: Iterable[ImageBoxes], class_ids: Iterable[int]) -> dict[int, Thresholds]:
    """Returns the thresholds of each class alone, without classes of which no object is found."""
    found = outcomes(images)
    each = {class_id: _count_classes(found, [class_id]) for class_id in class_ids}
    return {class_id: values for class_id, values in each.items() if values is not None}


def _count_classes(found: tuple[np.ndarray, ...], class_ids: list[int]) -> Thresholds | None:
    """Counts what `outcomes` returned of some classes together."""
    classes, scores, is_true, objects = found
    is_known = np.isin(classes, class_ids)
    # Detections are matched from the best one on: those below a threshold change no match above.
    scores, is_true = scores[is_known], is_true[is_known] > 0
    shown = _count(scores)
    matched = _count(scores[is_true])
    if not matched.any():
        return None
    num_objects = np.isin(objects, class_ids).sum()
    f1 = 2 * matched / (shown + num_objects)
    with np.errstate(invalid='ignore'):
        precisions = matched / shown
    # Of equal scores in a row, the one in the middle is the least likely to be off on new images.
    first = int(f1.argmax())
    after = np.flatnonzero(f1[first:] < f1[first])
    last = first + int(after[0]) - 1 if len(after) else len(f1) - 1
    return Thresholds(precisions, matched / num_objects, f1, (first + last) // 2)


def _count(scores: np.ndarray) -> np.ndarray:
    """Returns how many scores are at least those of `SCORES`, int [99]."""
    # Scores of files are float32: 0.3 is below the 0.3 of float64 by less than 1e-7.
    return len(scores) - np.searchsorted(np.sort(scores), SCORES - 1e-6)
