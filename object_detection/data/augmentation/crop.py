"""Crops of an image and its objects; crops may extend beyond the image."""

import dataclasses
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from object_detection.core.example_fields import Geometry, names_of
from object_detection.core.fields import InputFields as F
from object_detection.data import instance_masks, objects
from object_detection.data.objects import Example
from object_detection.errors import UserError


class Window(NamedTuple):
    """A rectangle in or around an image: int32 [], in pixels of the image."""

    top: tf.Tensor
    left: tf.Tensor
    height: tf.Tensor
    width: tf.Tensor


def cut_out(example: Example, window: Window) -> Example:
    """Crops an example to a window; pixels outside of the image are black.

    Boxes are clipped to the window. Objects without a remaining area are dropped from all fields;
    keypoints outside of the window become NaN and invisible.

    Args:
      example: image [H, W, C] and, if present: boxes float32 [n, 4] and keypoints [n, P, 2],
        normalized to the image; mask crops uint8 [n, S, S] relative to the boxes, or full-size
        masks [n, H, W].
      window: window of at least one pixel in height and width.
    """

    def present(geometry: Geometry) -> list[str]:
        return [name for name in names_of(geometry) if name in example]

    image = example[F.IMAGE]
    image_size = tf.cast(tf.shape(image)[:2], tf.float32)
    origin = tf.cast([window.top, window.left], tf.float32) / image_size
    extent = tf.cast([window.height, window.width], tf.float32) / image_size
    cut = {**example, F.IMAGE: _cut(image, window)}
    for name in present(Geometry.BOX):
        cut[name] = (example[name] - tf.tile(origin, [2])) / tf.tile(extent, [2])
    for name in present(Geometry.IMAGE_MASK):
        cut[name] = _cut(example[name][..., tf.newaxis], window)[..., 0]
    for name in present(Geometry.BOX_MASK):
        cut[name] = instance_masks.recrop(example[name], _inside(cut[F.GROUNDTRUTH_BOXES]))
    for name in present(Geometry.POINTS):
        points = (example[name] - origin) / extent
        is_inside = tf.reduce_all((points >= 0.0) & (points <= 1.0), axis=-1)
        cut[name] = tf.where(is_inside[..., tf.newaxis], points, float('nan'))
        if name == F.GROUNDTRUTH_KEYPOINTS and F.GROUNDTRUTH_KEYPOINT_VISIBILITIES in example:
            cut[F.GROUNDTRUTH_KEYPOINT_VISIBILITIES] &= is_inside
    return objects.clip_boxes(cut)


class SquareDraws(NamedTuple):
    """Random numbers of a square: scale float32 []; its centre int32 [], in pixels of the image."""

    scale: tf.Tensor
    y_center: tf.Tensor
    x_center: tf.Tensor


@dataclasses.dataclass(frozen=True)
class RandomSquareCropByScale:
    """Cuts out a square, partly outside of the image (CenterNet, https://arxiv.org/abs/1904.07850).

    Its side is the image's longer side times one of `num_scales` factors, evenly spaced from
    `scale_min` to `scale_max`. Its centre is outside of the image's border, which is `max_border`
    pixels wide, halved until both borders of an axis fit the image. Unlike in the reference, the
    crop includes the last row and column that the square covers.

    Raises:
      ValueError: if the border is negative, there is no scale, or they are not in order.
    """

    max_border: int = 128
    scale_min: float = 0.6
    scale_max: float = 1.3
    num_scales: int = 8

    def __post_init__(self):
        name = 'random_square_crop_by_scale'
        if self.max_border < 0:
            raise UserError(f'{name}.max_border: expected 0 or more. Received: {self.max_border}.')
        if not 0.0 < self.scale_min <= self.scale_max:
            raise UserError(
                f'{name}: expected 0 < scale_min <= scale_max. '
                f'Received: {self.scale_min:g} and {self.scale_max:g}.'
            )
        if self.num_scales < 1:
            raise UserError(f'{name}.num_scales: expected 1 or more. Received: {self.num_scales}.')

    def __call__(self, example: Example, seed: tf.Tensor) -> Example:
        """Crops `example` to a square that depends only on `seed`, integer [2]."""
        image_size = tf.shape(example[F.IMAGE])[:2]
        return cut_out(example, self.window(image_size, self.draw(image_size, seed)))

    def draw(self, image_size: tf.Tensor, seed: tf.Tensor) -> SquareDraws:
        """Draws a square for an image of `image_size`, int32 [2]."""
        of_scale, of_y, of_x = tf.unstack(tf.random.split(seed, 3))
        index = tf.random.stateless_uniform([], of_scale, 0, self.num_scales, tf.int32)
        scales = np.linspace(self.scale_min, self.scale_max, self.num_scales)
        height, width = tf.unstack(image_size)
        return SquareDraws(
            scale=tf.constant(scales, tf.float32)[index],
            y_center=self._draw_center(height, of_y),
            x_center=self._draw_center(width, of_x),
        )

    def window(self, image_size: tf.Tensor, draws: SquareDraws) -> Window:
        """Returns the square of the random numbers in an image of `image_size`, int32 [2]."""
        longer_side = tf.cast(tf.reduce_max(image_size), tf.float32)
        side = tf.maximum(tf.cast(draws.scale * longer_side, tf.int32), 1)
        return Window(draws.y_center - side // 2, draws.x_center - side // 2, side, side)

    def _draw_center(self, size: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        borders = [self.max_border / 2**i for i in range(self.max_border.bit_length() + 1)]
        fits = 2.0 * tf.constant(borders, tf.float32) <= tf.cast(size, tf.float32)
        border = tf.reduce_max(tf.where(fits, tf.constant([int(b) for b in borders]), 0))
        return tf.random.stateless_uniform([], seed, border, size - border + 1, tf.int32)


def _cut(images: tf.Tensor, window: Window) -> tf.Tensor:
    """Crops images [..., H, W, C] of any dtype to a window, padding with zeros."""
    height, width = tf.unstack(tf.shape(images)[-3:-1])
    rows, above_and_below = _overlap(window.top, window.height, height)
    columns, left_and_right = _overlap(window.left, window.width, width)
    parts = images[..., rows, columns, :]
    leading = images.shape.rank - 3
    paddings = tf.stack([*[[0, 0]] * leading, above_and_below, left_and_right, [0, 0]])
    cut = tf.pad(parts, paddings)
    return tf.ensure_shape(cut, [*images.shape[:-3], None, None, images.shape[-1]])


def _overlap(
    start: tf.Tensor, length: tf.Tensor, size: tf.Tensor
) -> tuple[slice, tuple[tf.Tensor, tf.Tensor]]:
    """Returns the part of one image axis that a window covers, and its excess at each end."""
    first = tf.clip_by_value(start, 0, size)
    end = tf.clip_by_value(start + length, first, size)
    before = tf.clip_by_value(first - start, 0, length)
    return slice(first, end), (before, length - (end - first) - before)


def _inside(boxes: tf.Tensor) -> tf.Tensor:
    """Boxes float32 [n, 4] -> the part of each inside [0, 1], normalized to the box."""
    corners, sizes = tf.tile(boxes[:, :2], [1, 2]), tf.tile(boxes[:, 2:] - boxes[:, :2], [1, 2])
    return tf.math.divide_no_nan(tf.clip_by_value(boxes, 0.0, 1.0) - corners, sizes)
