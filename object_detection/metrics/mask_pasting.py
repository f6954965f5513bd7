"""Pastes masks, which are relative to their boxes, into their image by one of several methods."""

import enum
import math

import numpy as np

from object_detection.errors import expected

MASK_THRESHOLD = 0.5


class PasteMethod(enum.Enum):
    """How the samples of a mask map to positions in its box and to pixels of the image.

    UNCROP inverts `crop_and_resize`, by which mask targets are cropped: the first and last samples
    lie on the box's edges, and the centres of the image's first and last pixels on the image's
    edges.
    ACCURATE treats samples as cells of the box and interpolates at the centres of pixels; outside
    the mask the value is 0 (detectron2). RESIZE pads the mask with zeros, enlarges the box
    accordingly, rounds it to whole pixels and resizes the mask to them (Detectron, NVIDIA, Habana).
    """

    UNCROP = enum.auto()
    RESIZE = enum.auto()
    ACCURATE = enum.auto()


def paste_mask(
    mask_probabilities: np.ndarray,
    box_absolute: np.ndarray,
    height: int,
    width: int,
    method: PasteMethod = PasteMethod.UNCROP,
) -> np.ndarray:
    """Pastes a mask into its image.

    Args:
      mask_probabilities: float32 [mask height, mask width], relative to the box.
      box_absolute: float [4], [ymin, xmin, ymax, xmax] in pixels of the image.
      height, width: size of the image.
      method: how it is resampled.

    Returns:
      uint8 [height, width]: 1 where the probability is above 0.5.
    """
    window, top, left = mask_window(mask_probabilities, box_absolute, height, width, method)
    pasted = np.zeros((height, width), np.uint8)
    pasted[top : top + window.shape[0], left : left + window.shape[1]] = window > MASK_THRESHOLD
    return pasted


def paste_masks(
    masks: np.ndarray,
    boxes_normalized: np.ndarray,
    height: int,
    width: int,
    method: PasteMethod = PasteMethod.UNCROP,
) -> np.ndarray:
    """Pastes the masks of several boxes into their image.

    Args:
      masks: float [n, mask height, mask width], probabilities relative to the boxes.
      boxes_normalized: float [n, 4], [ymin, xmin, ymax, xmax] relative to the image.
      height, width: size of the image, in pixels.
      method: how they are resampled.

    Returns:
      uint8 [n, height, width]: 1 where the probability is above 0.5.

    Raises:
      ValueError: if `masks` or `boxes_normalized` is of another shape.
    """
    masks, boxes = np.asarray(masks), np.asarray(boxes_normalized, np.float64)
    if masks.ndim != 3 or boxes.shape != (len(masks), 4):
        raise expected(
            'paste_masks', 'masks [n, h, w] and boxes [n, 4]', f'{masks.shape} and {boxes.shape}'
        )
    absolute = boxes * np.array([height, width, height, width], np.float64)
    pasted = np.zeros((len(masks), height, width), np.uint8)
    for canvas, mask, box in zip(pasted, masks, absolute, strict=True):
        canvas[...] = paste_mask(mask, box, height, width, method)
    return pasted


def mask_window(
    mask_probabilities: np.ndarray,
    box_absolute: np.ndarray,
    height: int,
    width: int,
    method: PasteMethod = PasteMethod.UNCROP,
) -> tuple[np.ndarray, int, int]:
    """Resamples a mask (bilinearly) at the pixels of the image that it covers.

    Args:
      mask_probabilities: float32 [mask height, mask width].
      box_absolute: float [4], in pixels of the image; may reach over its edges.
      height, width: size of the image.
      method: how it is resampled.

    Returns:
      float32 [h, w] (h or w is 0 if the mask covers no pixel), and the row and the column of the
      image at which this window begins. Outside this window the pasted mask is 0.
    """
    ymin, xmin, ymax, xmax = (float(value) for value in box_absolute)
    mask = np.asarray(mask_probabilities, np.float32)
    locate = _LOCATE[method]
    top, rows = _locate(locate, height, ymin, ymax, mask.shape[0])
    left, columns = _locate(locate, width, xmin, xmax, mask.shape[1])
    if method is not PasteMethod.UNCROP:
        mask = np.pad(mask, 1)
    return _interpolate(_interpolate(mask.T, columns).T, rows), top, left


def _locate(locate, size: int, low: float, high: float, count: int) -> tuple[int, np.ndarray]:
    """Finds the pixels that a mask covers along one axis.

    Args:
      locate: a function of `_LOCATE`.
      size: pixels of the image along the axis.
      low, high: the box's edges in pixels. A box without an extent covers no pixels.
      count: samples of the mask along the axis.

    Returns:
      The first pixel; float64 [pixels], the positions of the pixels as fractional indices of the
      samples that are interpolated.
    """
    if not high > low:
        return 0, np.zeros(0)
    return locate(size, low, high, count)


def _uncrop(size: int, low: float, high: float, count: int) -> tuple[int, np.ndarray]:
    centers = np.linspace(0.0, 1.0, size) if size > 1 else np.array([0.5])
    low, high = low / size, high / size
    positions = (centers - low) / (high - low)
    inside = np.flatnonzero((positions >= 0.0) & (positions <= 1.0))
    first = int(inside[0]) if inside.size else 0
    return first, positions[inside] * (count - 1)


def _accurate(size: int, low: float, high: float, count: int) -> tuple[int, np.ndarray]:
    # Of the padded mask, whose first sample is at 0.
    positions = (np.arange(size) + 0.5 - low) / (high - low) * count + 0.5
    inside = np.flatnonzero((positions >= 0.0) & (positions <= count + 1))
    return (int(inside[0]) if inside.size else 0), positions[inside]


def _resize(size: int, low: float, high: float, count: int) -> tuple[int, np.ndarray]:
    center, half = (low + high) / 2, (high - low) / 2 * (count + 2) / count
    # Toward zero, as a conversion to integers does.
    low, high = math.trunc(center - half), math.trunc(center + half)
    length = high - low + 1
    first, end = max(low, 0), max(min(high + 1, size), 0)
    positions = (np.arange(first, end) - low + 0.5) * ((count + 2) / length) - 0.5
    return first, np.clip(positions, 0.0, count + 1)


_LOCATE = {
    PasteMethod.UNCROP: _uncrop,
    PasteMethod.RESIZE: _resize,
    PasteMethod.ACCURATE: _accurate,
}


def _interpolate(samples: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Interpolates the rows of [n, m] at positions [k] from 0 to n - 1: [k, m]."""
    # Gathering rows is as fast as a product with a matrix of weights, and starts no threads.
    lower = positions.astype(int)
    upper = np.minimum(lower + 1, len(samples) - 1)
    share = (positions - lower).astype(np.float32)[:, np.newaxis]
    samples = np.ascontiguousarray(samples)
    return samples[lower] * (1 - share) + samples[upper] * share
