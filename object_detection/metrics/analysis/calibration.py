"""Whether the scores of detections are the probabilities that they are right."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from object_detection.metrics.analysis.images import ImageBoxes
from object_detection.metrics.analysis.matching import match, overlaps


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
