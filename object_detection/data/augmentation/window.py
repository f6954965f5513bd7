"""Cuts an example to a window of its image, or surrounds the image with a border.

All steps that crop or pad use these two functions, so that the objects stay consistent.
"""

from typing import NamedTuple

import tensorflow as tf

from object_detection.core.example_fields import Geometry, names_of
from object_detection.core.fields import InputFields as F
from object_detection.data import instance_masks, objects
from object_detection.data.objects import Example

_MAX_VALUE = 255


class Window(NamedTuple):
    """A rectangle in or around an image: int32 [], in pixels of the image."""

    top: tf.Tensor
    left: tf.Tensor
    height: tf.Tensor
    width: tf.Tensor


def cut_out(
    example: Example,
    window: Window,
    *,
    is_within: bool = False,
    min_overlap: float | tf.Tensor = 0.0,
    clip: bool | tf.Tensor = True,
    min_pixels: float = 0.0,
) -> Example:
    """Crops an example to a window; pixels outside of the image are black.

    Objects without a remaining area are dropped from all fields of `OBJECT_FIELDS`. Keypoints
    outside of the window become NaN and invisible.

    Args:
      example: image [H, W, C] and, if present: boxes float32 [n, 4] and keypoints [n, P, 2],
        normalized to the image; mask crops uint8 [n, S, S] relative to the boxes, or full-size
        masks [n, H, W].
      window: window of at least one pixel in height and width.
      is_within: whether the window is known to lie inside the image; it saves a copy.
      min_overlap: smallest share of a box inside the window with which its object is kept.
      clip: whether boxes are clipped to the window. Otherwise they keep their size, keypoints
        outside of the window stay, and mask crops are zero outside of the window.
      min_pixels: objects that the border of the window cuts are dropped if less than this height
        or width of their box is left.
    """
    corners = _normalized(example, window)
    is_left = is_kept(example[F.GROUNDTRUTH_BOXES], corners, min_overlap)
    if min_pixels:
        boxes = _to_frame(example[F.GROUNDTRUTH_BOXES], corners)
        is_left &= ~_is_sliver(boxes, window, min_pixels)
    cut = _move(objects.select(example, is_left), window, is_within=is_within)
    clip = tf.convert_to_tensor(clip)
    for name in _present(cut, Geometry.BOX_MASK):
        cut[name] = _cut_crops(cut[name], cut[F.GROUNDTRUTH_BOXES], clip)
    for name in _present(cut, Geometry.BOX):
        cut[name] = tf.where(clip, tf.clip_by_value(cut[name], 0.0, 1.0), cut[name])
    return hide_points_outside(cut, clip)


def surround(example: Example, window: Window, color: tuple[float, ...] | tf.Tensor) -> Example:
    """Extends an image to a window around it; all objects stay.

    Args:
      example: as for `cut_out`.
      window: window that contains the whole image.
      color: one value or one for each channel of the new pixels. A tensor, float32 [C], converts
        the image to float32, and so does a tuple of other than whole numbers of 0..255.
    """
    is_exact = isinstance(color, tuple) and all(
        float(value).is_integer() and 0 <= value <= _MAX_VALUE for value in color
    )
    if not is_exact:
        example = {**example, F.IMAGE: tf.cast(example[F.IMAGE], tf.float32)}
    return _move(example, window, color=color)


def sides_of_shape(size: tf.Tensor, aspect_ratio: float) -> tf.Tensor:
    """Returns the height to a size's width, and the width to its height, of one shape.

    Args:
      size: float32 [2], height and width.
      aspect_ratio: width divided by height.

    Returns:
      float32 [2], (width / aspect_ratio, height * aspect_ratio).
    """
    # TensorFlow's graph optimizer loses one of both where they are stacked of scalars.
    return tf.reverse(size, [0]) / [aspect_ratio, 1.0] * [1.0, aspect_ratio]


def _move(
    example: Example,
    window: Window,
    *,
    is_within: bool = False,
    color: tuple[float, ...] | tf.Tensor = (0.0,),
) -> Example:
    """Transforms image, boxes, points and full-size masks to the frame of a window."""
    corners = _normalized(example, window)
    moved = {**example, F.IMAGE: _cut(example[F.IMAGE], window, is_within, color)}
    for name in _present(example, Geometry.BOX):
        moved[name] = _to_frame(example[name], corners)
    for name in _present(example, Geometry.POINTS):
        moved[name] = (example[name] - corners[:2]) / (corners[2:] - corners[:2])
    for name in _present(example, Geometry.IMAGE_MASK):
        moved[name] = _cut(example[name][..., tf.newaxis], window, is_within)[..., 0]
    return moved


def _present(example: Example, geometry: Geometry) -> list[str]:
    return [name for name in names_of(geometry) if name in example]


def _normalized(example: Example, window: Window) -> tf.Tensor:
    """Returns the corners of a window, normalized to the image: float32 [4]."""
    image_size = tf.cast(tf.shape(example[F.IMAGE])[:2], tf.float32)
    corners = [window.top, window.left, window.top + window.height, window.left + window.width]
    return tf.cast(tf.stack(corners), tf.float32) / tf.tile(image_size, [2])


def _to_frame(boxes: tf.Tensor, corners: tf.Tensor) -> tf.Tensor:
    return (boxes - tf.tile(corners[:2], [2])) / tf.tile(corners[2:] - corners[:2], [2])


def is_kept(boxes: tf.Tensor, corners: tf.Tensor, min_overlap: float | tf.Tensor) -> tf.Tensor:
    """Whether boxes [n, 4] have an area in the window, and share enough of theirs: bool [n].

    The frame is that of the image: a box inside the window overlaps by exactly 1.
    """

    def area(boxes: tf.Tensor) -> tf.Tensor:
        return tf.reduce_prod(boxes[:, 2:] - boxes[:, :2], axis=1)

    inside = tf.concat(
        [tf.maximum(boxes[:, :2], corners[:2]), tf.minimum(boxes[:, 2:], corners[2:])], axis=1
    )
    overlap = tf.math.divide_no_nan(area(inside), area(boxes))
    clipped = tf.clip_by_value(_to_frame(boxes, corners), 0.0, 1.0)
    return tf.reduce_all(clipped[:, 2:] > clipped[:, :2], axis=1) & (overlap >= min_overlap)


def _is_sliver(boxes: tf.Tensor, window: Window, min_pixels: float) -> tf.Tensor:
    """Whether the border cuts boxes, in the window's frame, to less than some pixels: bool [n]."""
    clipped = tf.clip_by_value(boxes, 0.0, 1.0)
    size = tf.cast([window.height, window.width], tf.float32)
    is_small = (clipped[:, 2:] - clipped[:, :2]) * size < min_pixels
    is_cut = (clipped[:, 2:] < boxes[:, 2:]) | (clipped[:, :2] > boxes[:, :2])
    return tf.reduce_any(is_small & is_cut, axis=1)


def hide_points_outside(example: Example, clip: tf.Tensor) -> Example:
    """Makes points outside of the image NaN, and keypoints invisible, where `clip`, bool []."""
    example = dict(example)
    for name in _present(example, Geometry.POINTS):
        points = example[name]
        is_inside = tf.reduce_all((points >= 0.0) & (points <= 1.0), axis=-1) | ~clip
        example[name] = tf.where(is_inside[..., tf.newaxis], points, float('nan'))
        if name == F.GROUNDTRUTH_KEYPOINTS and F.GROUNDTRUTH_KEYPOINT_VISIBILITIES in example:
            example[F.GROUNDTRUTH_KEYPOINT_VISIBILITIES] &= is_inside
    return example


def _cut(
    images: tf.Tensor,
    window: Window,
    is_within: bool,
    color: tuple[float, ...] | tf.Tensor = (0.0,),
) -> tf.Tensor:
    """Crops images [..., H, W, C] of any dtype to a window, with `color` outside of the image."""
    height, width = tf.unstack(tf.shape(images)[-3:-1])
    rows, above_and_below = _overlap(window.top, window.height, height)
    columns, left_and_right = _overlap(window.left, window.width, width)
    cut = images[..., rows, columns, :]
    if not is_within:
        cut = _pad(cut, above_and_below, left_and_right, color)
    return tf.ensure_shape(cut, [*images.shape[:-3], None, None, images.shape[-1]])


def _overlap(
    start: tf.Tensor, length: tf.Tensor, size: tf.Tensor
) -> tuple[slice, tuple[tf.Tensor, tf.Tensor]]:
    """Returns the part of one image axis that a window covers, and its excess at each end."""
    first = tf.clip_by_value(start, 0, size)
    end = tf.clip_by_value(start + length, first, size)
    before = tf.clip_by_value(first - start, 0, length)
    return slice(first, end), (before, length - (end - first) - before)


def _pad(
    images: tf.Tensor,
    above_and_below: tuple[tf.Tensor, tf.Tensor],
    left_and_right: tuple[tf.Tensor, tf.Tensor],
    color: tuple[float, ...] | tf.Tensor,
) -> tf.Tensor:
    """Extends images [..., H, W, C]; all but one image [H, W, C] with a single value."""
    if isinstance(color, tuple) and len(set(color)) == 1:
        leading = images.shape.rank - 3
        paddings = tf.stack([*[[0, 0]] * leading, above_and_below, left_and_right, [0, 0]])
        return tf.pad(images, paddings, constant_values=tf.cast(color[0], images.dtype))
    color = tf.cast(color, images.dtype)
    height = tf.shape(images)[0]
    sides = [_filled(height, width, color) for width in left_and_right]
    images = tf.concat([sides[0], images, sides[1]], axis=1)
    width = tf.shape(images)[1]
    strips = [_filled(height, width, color) for height in above_and_below]
    return tf.concat([strips[0], images, strips[1]], axis=0)


def _filled(height: tf.Tensor, width: tf.Tensor, color: tf.Tensor) -> tf.Tensor:
    """Returns an image [height, width, C] of one colour [C]."""
    # Whole rows are broadcast at once; a broadcast along the channels alone is slow.
    row = tf.tile(color, [width])
    rows = tf.broadcast_to(row, [height, tf.size(row)])
    return tf.reshape(rows, [height, width, tf.size(color)])


def _cut_crops(crops: tf.Tensor, boxes: tf.Tensor, clip: tf.Tensor) -> tf.Tensor:
    """Cuts mask crops [n, S, S] of boxes [n, 4] in a window's frame at the window's border."""

    def of_what_is_left() -> tf.Tensor:
        return instance_masks.recrop(crops, _inside(boxes))

    def black_outside() -> tf.Tensor:
        steps = tf.linspace(0.0, 1.0, crops.shape[1])
        samples = boxes[:, :2, tf.newaxis] + (boxes[:, 2:] - boxes[:, :2])[..., tf.newaxis] * steps
        is_inside = (samples >= 0.0) & (samples <= 1.0)  # [n, 2, S]
        is_inside = is_inside[:, 0, :, tf.newaxis] & is_inside[:, 1, tf.newaxis, :]
        return tf.where(is_inside, crops, tf.zeros([], crops.dtype))

    return tf.cond(clip, of_what_is_left, black_outside)


def _inside(boxes: tf.Tensor) -> tf.Tensor:
    """Boxes float32 [n, 4] -> the part of each inside [0, 1], normalized to the box."""
    corners, sizes = tf.tile(boxes[:, :2], [1, 2]), tf.tile(boxes[:, 2:] - boxes[:, :2], [1, 2])
    return tf.math.divide_no_nan(tf.clip_by_value(boxes, 0.0, 1.0) - corners, sizes)
