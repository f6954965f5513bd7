"""Precision and recall under the names of the reference; `metrics.pascal.curves` computes them."""

import numpy as np

from object_detection.errors import expected
from object_detection.metrics.pascal import evaluator as _curves
from object_detection.utils import missing

_EVALUATION = '`tfod eval --detections` evaluates results, with recall at 1, 10 and 100 detections'
__getattr__ = missing(
    __name__, {'compute_median_rank_at_k': _EVALUATION, 'compute_recall_at_k': _EVALUATION}
)


def compute_precision_recall(
    scores: np.ndarray, labels: np.ndarray, num_gt: int
) -> tuple[np.ndarray, np.ndarray] | tuple[None, None]:
    """Computes precision and recall of the detections above each score.

    Args:
      scores: float [n].
      labels: bool or float [n], which detections are correct, or to what extent.
      num_gt: number of objects.

    Returns:
      Precision and recall, float64 [n], from the highest score to the lowest; None and None if
      there are no objects.

    Raises:
      UserError: if `scores` and `labels` differ in shape, or more detections are correct than there
        are objects.
    """
    scores, labels = np.asarray(scores), np.asarray(labels)
    if scores.ndim != 1 or scores.shape != labels.shape:
        raise expected('scores and labels', '[n] and [n]', f'{scores.shape} and {labels.shape}')
    if num_gt == 0:
        return None, None
    return _curves.precision_recall(scores, labels, num_gt)


def compute_average_precision(precision: np.ndarray | None, recall: np.ndarray | None) -> float:
    """Returns the area below the curve of precision over recall; NaN for None and None."""
    if precision is None and recall is None:
        return float('nan')
    return _curves.average_precision(precision, recall)


def compute_cor_loc(
    num_gt_imgs_per_class: np.ndarray, num_images_correctly_detected_per_class: np.ndarray
) -> np.ndarray:
    """Returns CorLoc, the fraction of the images of each class with a correct detection, [K].

    It is NaN for a class without images.
    """
    images = np.asarray(num_gt_imgs_per_class, np.float64)
    correct = np.asarray(num_images_correctly_detected_per_class)
    return np.divide(correct, images, out=np.full(images.shape, np.nan), where=images > 0)
