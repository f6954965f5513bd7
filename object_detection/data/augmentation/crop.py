"""Square crops of an image and its objects; they may extend beyond the image."""

import dataclasses
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from object_detection.core.fields import InputFields as F
from object_detection.data.augmentation.window import Window, cut_out
from object_detection.data.objects import Example
from object_detection.errors import UserError


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
