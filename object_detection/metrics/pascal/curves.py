"""Curves of precision over recall, and the average precision below them."""

import numpy as np

from object_detection.errors import UserError


def precision_recall(
    scores: np.ndarray, is_correct: np.ndarray, num_objects: float
) -> tuple[np.ndarray, np.ndarray]:
    """Computes precision and recall of the detections above each score.

    Args:
      scores: float [n].
      is_correct: [n], 1 for a correct detection, 0 for a false one; between them for a part.
      num_objects: number of objects that are to be found, above 0.

    Returns:
      Precision float64 [n] and recall float64 [n], from the highest score to the lowest.

    Raises:
      ValueError: if more detections are correct than there are objects.
    """
    is_correct = np.asarray(is_correct, np.float64)
    if is_correct.sum() > num_objects:
        raise UserError(
            f'precision_recall: expected at most as many correct detections as objects. Received: '
            f'{is_correct.sum():g} correct detections and {num_objects:g} objects.'
        )
    # As in the reference, the last of several equal scores comes first.
    ranked = is_correct[np.argsort(scores, kind='stable')[::-1]]
    correct = np.cumsum(ranked)
    return correct / (correct + np.cumsum(ranked <= 0)), correct / num_objects


def average_precision(precision: np.ndarray, recall: np.ndarray) -> float:
    """Returns the area below the curve after precision is made monotonic (VOC 2010 and later).

    Args:
      precision: float [n].
      recall: float [n], ascending.
    """
    recall = np.concatenate([[0.0], recall, [1.0]])
    precision = np.concatenate([[0.0], precision, [0.0]])
    envelope = np.maximum.accumulate(precision[::-1])[::-1]
    return float(np.sum(np.diff(recall) * envelope[1:]))
