"""Pure functions on boxes: float32 [..., N, 4], rows [ymin, xmin, ymax, xmax].

Leading dimensions broadcast, so one image and a batch share the code. Boxes may be in any
coordinate frame unless a function says otherwise.
"""

from collections.abc import Callable, Sequence

import tensorflow as tf

# Which sides of a box move by the same share, and which way; see `move_sides`. For each side (ymin,
# xmin, ymax, xmax), the index of its random number.
_OWN_SIDE, _AXIS_SIDES, _ALL_SIDES = (0, 1, 2, 3), (0, 1, 0, 1), (0, 0, 0, 0)
ANY_WAY = 'DEFAULT'
JITTER_MODES = {
    ANY_WAY: _OWN_SIDE,
    'EXPAND': _OWN_SIDE,
    'SHRINK': _OWN_SIDE,
    'EXPAND_SYMMETRIC': _AXIS_SIDES,
    'SHRINK_SYMMETRIC': _AXIS_SIDES,
    'EXPAND_SYMMETRIC_XY': _ALL_SIDES,
    'SHRINK_SYMMETRIC_XY': _ALL_SIDES,
}
_OUTWARDS = (-1.0, -1.0, 1.0, 1.0)


def area(boxes: tf.Tensor) -> tf.Tensor:
    """Returns the areas, [...], of boxes [..., 4]."""
    ymin, xmin, ymax, xmax = tf.unstack(boxes, axis=-1)
    return (ymax - ymin) * (xmax - xmin)


def intersection(boxes: tf.Tensor, others: tf.Tensor) -> tf.Tensor:
    """Returns the area of the intersection of each pair of boxes.

    Args:
      boxes: float32 [..., N, 4].
      others: float32 [..., M, 4], in the same frame.

    Returns:
      float32 [..., N, M], 0 for boxes that do not overlap.
    """
    shared, _ = _intersection_and_union(boxes[..., :, tf.newaxis, :], others[..., tf.newaxis, :, :])
    return shared


def iou(boxes: tf.Tensor, others: tf.Tensor) -> tf.Tensor:
    """Returns intersection over union of each pair, [..., N, M]; see `intersection`.

    It is 0 for boxes that do not overlap, including pairs of boxes of zero size.
    """
    return matched_iou(boxes[..., :, tf.newaxis, :], others[..., tf.newaxis, :, :])


def ioa(boxes: tf.Tensor, others: tf.Tensor) -> tf.Tensor:
    """Returns intersection over the area of `others`, [..., N, M]; see `intersection`.

    The column of a box of zero size is 0; the reference divides by zero and gives NaN.
    """
    return tf.math.divide_no_nan(intersection(boxes, others), area(others)[..., tf.newaxis, :])


def giou(boxes: tf.Tensor, others: tf.Tensor) -> tf.Tensor:
    """Returns generalized IoU, -1 to 1, of each pair, [..., N, M]; see `intersection`."""
    return matched_giou(boxes[..., :, tf.newaxis, :], others[..., tf.newaxis, :, :])


def matched_iou(boxes: tf.Tensor, others: tf.Tensor) -> tf.Tensor:
    """Returns intersection over union, [...], of boxes [..., 4] and others [..., 4], broadcast."""
    shared, union = _intersection_and_union(boxes, others)
    return tf.math.divide_no_nan(shared, union)


def iou_with(others: tf.Tensor) -> Callable[[tf.Tensor], tf.Tensor]:
    """Returns `iou` as a function of `boxes`, for loops; what only depends on others is done."""
    corners, size = tf.unstack(others[..., tf.newaxis, :, :], axis=-1), area(others)
    size = size[..., tf.newaxis, :]

    def compare(boxes: tf.Tensor) -> tf.Tensor:
        boxes = boxes[..., :, tf.newaxis, :]
        shared = _intersection(tf.unstack(boxes, axis=-1), corners)
        return tf.math.divide_no_nan(shared, area(boxes) + size - shared)

    return compare


def matched_giou(boxes: tf.Tensor, others: tf.Tensor) -> tf.Tensor:
    """Returns generalized IoU (https://arxiv.org/abs/1902.09630, algorithm 1); see `matched_iou`.

    It is IoU minus the share of the hull of both boxes that neither box covers, and 0 for two
    equal points.
    """
    shared, union = _intersection_and_union(boxes, others)
    ymin, xmin, ymax, xmax = tf.unstack(boxes, axis=-1)
    other_ymin, other_xmin, other_ymax, other_xmax = tf.unstack(others, axis=-1)
    hull = (tf.maximum(ymax, other_ymax) - tf.minimum(ymin, other_ymin)) * (
        tf.maximum(xmax, other_xmax) - tf.minimum(xmin, other_xmin)
    )
    return tf.math.divide_no_nan(shared, union) - tf.math.divide_no_nan(hull - union, hull)


def _intersection_and_union(boxes: tf.Tensor, others: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the areas, [...], of intersection and union of boxes [..., 4] and others [..., 4]."""
    shared = _intersection(tf.unstack(boxes, axis=-1), tf.unstack(others, axis=-1))
    return shared, area(boxes) + area(others) - shared


def _intersection(corners: Sequence[tf.Tensor], others: Sequence[tf.Tensor]) -> tf.Tensor:
    ymin, xmin, ymax, xmax = corners
    other_ymin, other_xmin, other_ymax, other_xmax = others
    heights = tf.nn.relu(tf.minimum(ymax, other_ymax) - tf.maximum(ymin, other_ymin))
    widths = tf.nn.relu(tf.minimum(xmax, other_xmax) - tf.maximum(xmin, other_xmin))
    return heights * widths


def clip(boxes: tf.Tensor, window: tf.Tensor) -> tf.Tensor:
    """Moves the edges of boxes [..., N, 4] into `window` [..., 4], in the same frame.

    A box outside of the window becomes a box of zero size on the edge of the window.
    """
    low, high = tf.split(tf.expand_dims(window, -2), 2, axis=-1)  # [..., 1, 2] each.
    return tf.clip_by_value(boxes, tf.concat([low, low], -1), tf.concat([high, high], -1))


def is_inside(boxes: tf.Tensor, window: tf.Tensor) -> tf.Tensor:
    """Returns, as bool, which boxes [..., N, 4] are completely in `window` [..., 4]."""
    low, high = tf.split(tf.expand_dims(window, -2), 2, axis=-1)  # [..., 1, 2] each.
    inside = tf.concat([boxes[..., :2] >= low, boxes[..., 2:] <= high], axis=-1)
    return tf.reduce_all(inside, axis=-1)


def change_frame(boxes: tf.Tensor, window: tf.Tensor) -> tf.Tensor:
    """Expresses boxes in the frame in which `window` is [0, 0, 1, 1].

    Args:
      boxes: float32 [..., N, 4].
      window: float32 [..., 4], in the boxes' frame, of non-zero size.

    Returns:
      float32 [..., N, 4].
    """
    low, high = tf.split(tf.expand_dims(window, -2), 2, axis=-1)  # [..., 1, 2] each.
    size = high - low
    return (boxes - tf.concat([low, low], -1)) / tf.concat([size, size], -1)


def normalized_to_absolute(
    boxes: tf.Tensor, height: int | float | tf.Tensor, width: int | float | tf.Tensor
) -> tf.Tensor:
    """Converts boxes relative to an image to pixels of that image.

    Args:
      boxes: float32 [..., N, 4].
      height, width: size of the image in pixels, scalars or [...] (one per leading index).

    Returns:
      float32 [..., N, 4].
    """
    return boxes * _sides(height, width)


def absolute_to_normalized(
    boxes: tf.Tensor, height: int | float | tf.Tensor, width: int | float | tf.Tensor
) -> tf.Tensor:
    """Converts pixels to relative boxes, the inverse of `normalized_to_absolute`."""
    return boxes / _sides(height, width)


def corners_to_center_size(boxes: tf.Tensor) -> tf.Tensor:
    """[..., 4] rows [ymin, xmin, ymax, xmax] -> rows [y_center, x_center, height, width]."""
    low, high = tf.split(boxes, 2, axis=-1)
    size = high - low
    return tf.concat([low + size / 2, size], axis=-1)


def center_size_to_corners(centers_sizes: tf.Tensor) -> tf.Tensor:
    """[..., 4] rows [y_center, x_center, height, width] -> rows [ymin, xmin, ymax, xmax]."""
    return corners(*tf.split(centers_sizes, 2, axis=-1))


def corners(center: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
    """Centres (y, x) and sizes (height, width), each [..., 2] -> boxes [..., 4]."""
    half = size / 2
    return tf.concat([center - half, center + half], axis=-1)


def _sides(height: int | float | tf.Tensor, width: int | float | tf.Tensor) -> tf.Tensor:
    """Image sizes [...] -> float32 [..., 1, 4], rows [height, width, height, width]."""
    height, width = tf.cast(height, tf.float32), tf.cast(width, tf.float32)
    return tf.expand_dims(tf.stack([height, width, height, width], axis=-1), -2)


def move_sides(boxes: tf.Tensor, shares: tf.Tensor, mode: str) -> tf.Tensor:
    """Moves the sides of boxes by shares of their height or width, and clips them to the image.

    Args:
      boxes: float32 [..., 4], normalized.
      shares: float32 [..., 4], the numbers of each box; some modes use the first ones alone, or
        their absolute values.
      mode: a key of `JITTER_MODES`: the direction, and which sides move by the same share. DEFAULT,
        EXPAND and SHRINK have none, the SYMMETRIC ones opposite sides, the SYMMETRIC_XY ones all.
    """
    heights_and_widths = boxes[..., 2:] - boxes[..., :2]
    sizes = tf.concat([heights_and_widths, heights_and_widths], axis=-1)
    shares = tf.gather(shares, JITTER_MODES[mode], axis=-1)
    if mode != ANY_WAY:
        sign = 1.0 if mode.startswith('EXPAND') else -1.0
        shares = sign * tf.abs(shares) * _OUTWARDS
    return tf.clip_by_value(boxes + shares * sizes, 0.0, 1.0)
