"""Masks as NumPy arrays, uint8 [n, H, W] of 0 and 1.

pycocotools.mask compares masks as run lengths, with far less memory.
"""

import numpy as np

from object_detection.errors import UserError
from object_detection.utils import missing

__getattr__ = missing(__name__, {})


def area(masks: np.ndarray) -> np.ndarray:
    """Returns the number of pixels of each mask, float32 [n].

    Raises:
      UserError: if the masks are not uint8.
    """
    _check(masks)
    return masks.sum(axis=(1, 2), dtype=np.float32)


def intersection(masks1: np.ndarray, masks2: np.ndarray) -> np.ndarray:
    """Returns the number of common pixels of each pair, float32 [n, m].

    Raises:
      UserError: if the masks are not uint8.
    """
    _check(masks1, masks2)
    flat = [masks.reshape(len(masks), -1).astype(np.float32) for masks in (masks1, masks2)]
    return flat[0] @ flat[1].T


def iou(masks1: np.ndarray, masks2: np.ndarray) -> np.ndarray:
    """Returns intersection over union of each pair, float32 [n, m]; 0 for empty masks."""
    shared = intersection(masks1, masks2)
    union = area(masks1)[:, np.newaxis] + area(masks2) - shared
    return shared / np.maximum(union, 1)


def ioa(masks1: np.ndarray, masks2: np.ndarray) -> np.ndarray:
    """Returns intersection over the area of `masks2`, float32 [n, m]; 0 for empty masks."""
    return intersection(masks1, masks2) / np.maximum(area(masks2), 1)


def _check(*given: np.ndarray) -> None:
    for masks in given:
        if masks.dtype != np.uint8 or masks.ndim != 3:
            raise UserError(
                f'Expected masks uint8 [n, H, W]. Received: {masks.dtype} {list(masks.shape)}.'
            )
