"""Square crops of an image, which may extend beyond it, and crops around small objects."""

import dataclasses
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from object_detection.core.fields import InputFields as F
from object_detection.data.augmentation.checks import MAX_FACTOR, check_positive_order
from object_detection.data.augmentation.choice import draw_below
from object_detection.data.augmentation.window import Window, cut_out
from object_detection.data.objects import Example

# Places of the window that are drawn, of which one is taken.
_NUM_PLACES = 10
# Share of a box with which it counts as whole: rounding to pixels of large images costs less.
_WHOLE = 0.99
# In place of the drawn box if there are no objects. It lies within any window.
_NO_BOX = (1.0, 1.0, 0.0, 0.0)


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
      ValueError: if the bounds of the scales are out of range or not in order.
    """

    max_border: int = 128
    scale_min: float = 0.6
    scale_max: float = 1.3
    num_scales: int = 8

    def __post_init__(self):
        name = 'random_square_crop_by_scale'
        check_positive_order(name, self, 'scale_min', 'scale_max', limit=MAX_FACTOR)

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


@dataclasses.dataclass(frozen=True)
class SmallObjectCrop:
    """Crops an image around one object, a small one if there is any.

    A model sees small objects larger, and more often, than in whole images. The crop contains all
    of the drawn object, and has the shape of the image unless the object needs more. Of ten places,
    drawn evenly, it takes the first that cuts the fewest other small objects.

    Attributes:
      small_area: objects whose box has a smaller share of the image are small.
      min_scale, max_scale: bounds of the crop's height and width, as a share of the image's.
      overlap_thresh: objects with a smaller share of their box inside the crop are dropped; small
        ones are dropped wherever the crop cuts them, since what is left of them shows no object.

    Raises:
      ValueError: if the scales are not positive and in order.
    """

    small_area: float = 0.01
    min_scale: float = 0.3
    max_scale: float = 0.8
    overlap_thresh: float = 0.3

    def __post_init__(self):
        name = 'small_object_crop'
        check_positive_order(name, self, 'min_scale', 'max_scale', limit=1)

    def __call__(self, example: Example, seed: tf.Tensor) -> Example:
        """Crops `example`; all random choices depend only on `seed`, integer [2]."""
        image_size = tf.shape(example[F.IMAGE])[:2]
        return self.crop(example, self.draw(image_size, example[F.GROUNDTRUTH_BOXES], seed))

    def draw(self, image_size: tf.Tensor, boxes: tf.Tensor, seed: tf.Tensor) -> Window:
        """Draws the crop of an image of `image_size`, int32 [2], with boxes [n, 4], normalized."""
        of_object, of_scale, of_place = tf.unstack(tf.random.split(seed, 3))
        boxes = tf.clip_by_value(boxes, 0.0, 1.0)
        sides = tf.cast(image_size, tf.float32)
        drawn = self._draw_box(boxes, of_object)
        first = tf.cast(tf.floor(drawn[:2] * sides), tf.int32)
        end = tf.cast(tf.math.ceil(drawn[2:] * sides), tf.int32)
        scale = tf.random.stateless_uniform([], of_scale, self.min_scale, self.max_scale)
        size = tf.maximum(tf.cast(tf.round(scale * sides), tf.int32), 1)
        size = tf.maximum(size, end - first)
        # All starts of windows that contain the drawn box and lie inside the image.
        least, greatest = tf.maximum(end - size, 0), tf.minimum(first, image_size - size)
        numbers = tf.random.stateless_uniform([_NUM_PLACES, 2], of_place)
        places = tf.cast(numbers * tf.cast(greatest - least + 1, tf.float32), tf.int32)
        starts = tf.minimum(least + places, greatest)
        cut = self._count_cut(boxes, starts / image_size, (starts + size) / image_size)
        start = starts[tf.argmin(cut)]
        return Window(start[0], start[1], size[0], size[1])

    def crop(self, example: Example, window: Window) -> Example:
        """Crops an example to a window inside of its image."""
        is_small = self.is_small(tf.clip_by_value(example[F.GROUNDTRUTH_BOXES], 0.0, 1.0))
        min_overlap = tf.where(is_small, max(_WHOLE, self.overlap_thresh), self.overlap_thresh)
        return cut_out(example, window, is_within=True, min_overlap=min_overlap)

    def is_small(self, boxes: tf.Tensor) -> tf.Tensor:
        """Returns which boxes, float32 [n, 4] within the image, are small: bool [n]."""
        area = tf.reduce_prod(boxes[:, 2:] - boxes[:, :2], axis=1)
        return (area > 0.0) & (area < self.small_area)

    def _draw_box(self, boxes: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """Draws a small box, or any if there is none: float32 [4]."""
        is_small = self.is_small(boxes)
        rows = tf.where(is_small | ~tf.reduce_any(is_small))[:, 0]
        candidates = tf.concat([tf.gather(boxes, rows), [_NO_BOX]], axis=0)
        return candidates[draw_below(0, tf.size(rows), seed)]

    def _count_cut(self, boxes: tf.Tensor, starts: tf.Tensor, ends: tf.Tensor) -> tf.Tensor:
        """Counts the small ones of boxes [n, 4] that are partly in each of some windows: int32 [K].

        Args:
          starts, ends: float [K, 2], corners of windows, normalized.
        """
        small = tf.boolean_mask(boxes, self.is_small(boxes))
        starts, ends = (tf.cast(corner, tf.float32)[:, tf.newaxis] for corner in (starts, ends))
        is_seen = tf.reduce_all((small[:, 2:] > starts) & (small[:, :2] < ends), axis=-1)  # [K, n]
        is_whole = tf.reduce_all((small[:, :2] >= starts) & (small[:, 2:] <= ends), axis=-1)
        return tf.reduce_sum(tf.cast(is_seen & ~is_whole, tf.int32), axis=1)
