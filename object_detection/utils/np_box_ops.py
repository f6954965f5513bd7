"""Boxes as NumPy arrays, float [n, 4] with rows [ymin, xmin, ymax, xmax], in any frame.

`object_detection.core.boxes` has these functions and more for tensors.
"""

import numpy as np

from object_detection.utils import missing

__getattr__ = missing(__name__, {})


def area(boxes: np.ndarray) -> np.ndarray:
    """Returns the areas [n] of boxes."""
    return (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])


def intersection(boxes1: np.ndarray, boxes2: np.ndarray) -> np.ndarray:
    """Returns the area of the intersection of each pair of boxes, [n, m]."""
    low = np.maximum(boxes1[:, np.newaxis, :2], boxes2[:, :2])
    high = np.minimum(boxes1[:, np.newaxis, 2:], boxes2[:, 2:])
    return np.maximum(high - low, 0).prod(axis=-1)


def iou(boxes1: np.ndarray, boxes2: np.ndarray) -> np.ndarray:
    """Returns intersection over union of each pair, [n, m]; 0 for pairs of boxes without area."""
    shared = intersection(boxes1, boxes2)
    return _ratio(shared, area(boxes1)[:, np.newaxis] + area(boxes2) - shared)


def ioa(boxes1: np.ndarray, boxes2: np.ndarray) -> np.ndarray:
    """Returns intersection over the area of `boxes2`, [n, m]; 0 for boxes without area."""
    shared = intersection(boxes1, boxes2)
    return _ratio(shared, np.broadcast_to(area(boxes2), shared.shape))


def _ratio(shared: np.ndarray, whole: np.ndarray) -> np.ndarray:
    return np.divide(shared, whole, out=np.zeros_like(shared), where=whole > 0)
