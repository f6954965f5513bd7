"""Hard example mining of one image in NumPy."""

import numpy as np


def mined(
    hardness: np.ndarray,
    boxes: np.ndarray,
    matches: np.ndarray | None = None,
    *,
    num_hard_examples: int | None = 64,
    iou_threshold: float = 0.7,
    max_negatives_per_positive: float | None = None,
    min_negatives_per_image: int = 0,
) -> np.ndarray:
    """Returns the sorted rows that are mined.

    Args:
      hardness: [N].
      boxes: [N, 4].
      matches: [N], -1 = unmatched, -2 = ignored.
    """
    kept = []
    for row in np.argsort(-hardness, kind='stable'):
        if num_hard_examples is not None and len(kept) == num_hard_examples:
            break
        if all(_iou(boxes[row], boxes[other]) <= iou_threshold for other in kept):
            kept.append(row)
    if max_negatives_per_positive is not None:
        num_positives = sum(matches[row] >= 0 for row in kept)
        limit = max(int(max_negatives_per_positive * num_positives), min_negatives_per_image)
        num_negatives, candidates, kept = 0, kept, []
        for row in candidates:
            num_negatives += matches[row] == -1
            if matches[row] >= 0 or num_negatives <= limit:
                kept.append(row)
    return np.sort(kept)


def _iou(box: np.ndarray, other: np.ndarray) -> float:
    sides = np.minimum(box[2:], other[2:]) - np.maximum(box[:2], other[:2])
    shared = np.prod(np.maximum(sides, 0))
    union = np.prod(box[2:] - box[:2]) + np.prod(other[2:] - other[:2]) - shared
    return shared / union if union > 0 else 0.0
