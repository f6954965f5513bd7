"""Rectangles that are erased, of the whole image or of objects; objects do not change."""

import dataclasses
from typing import NamedTuple

import tensorflow as tf

from object_detection.core.fields import InputFields as F
from object_detection.data.augmentation.checks import check_order, check_positive_order, check_share
from object_detection.data.objects import Example
from object_detection.errors import UserError

NOISE = 'NOISE'
MEAN = 'MEAN'
BLACK = 'BLACK'
_FILLS = (NOISE, MEAN, BLACK)

# Bytes of a random number.
_BYTES = 4


class Rectangles(NamedTuple):
    """R rectangles, int32 [R, 2]: the first row and column of each, and its height and width."""

    start: tf.Tensor
    size: tf.Tensor


@dataclasses.dataclass(frozen=True)
class Erasing:
    """The shapes of erased rectangles, and what fills them.

    Attributes:
      min_area, max_area: bounds of the area, as a share of what a rectangle is drawn in.
      min_aspect_ratio, max_aspect_ratio: bounds of the height divided by the width, in pixels.
      fill: NOISE, whole numbers of 0..255 of each pixel and channel; MEAN, the mean of each channel
        of the image; or BLACK.
      name: name of the step in errors.

    Raises:
      ValueError: if an area is not a share, a ratio is not positive, bounds are not in order, or
        the fill is unknown.
    """

    min_area: float = 0.02
    max_area: float = 0.4
    min_aspect_ratio: float = 0.3
    max_aspect_ratio: float = 3.3
    fill: str = NOISE

    name = 'erasing'

    def __post_init__(self):
        check_order(self.name, limit=1, min_area=self.min_area, max_area=self.max_area)
        check_positive_order(
            self.name,
            min_aspect_ratio=self.min_aspect_ratio,
            max_aspect_ratio=self.max_aspect_ratio,
        )
        if self.fill not in _FILLS:
            raise UserError(f'{self.name}.fill: expected one of {_FILLS}. Received: {self.fill!r}.')

    def draw_within(self, start: tf.Tensor, size: tf.Tensor, seed: tf.Tensor) -> Rectangles:
        """Draws a rectangle within each of R others.

        The area is drawn evenly, then the ratio, evenly on a logarithmic scale, among those with
        which the rectangle fits. If none does, the rectangle covers the whole height or width.
        Heights and widths are rounded to pixels, so that small ones may be 0.

        Args:
          start, size: int32 [R, 2], the first row and column of the others, their height and width.
          seed: integer [2].
        """
        of_area, of_ratio, of_place = tf.unstack(tf.random.split(seed, 3))
        count = tf.shape(size)[0]
        sides = tf.cast(size, tf.float32)
        share = tf.random.stateless_uniform([count], of_area, self.min_area, self.max_area)
        # Not 0, which would leave the ratio open.
        area = tf.maximum(share * tf.reduce_prod(sides, axis=1), 1e-6)
        bounds = tf.stack([area, tf.square(sides[:, 0])]) / tf.stack(
            [tf.maximum(tf.square(sides[:, 1]), 1e-6), area]
        )
        bounds = tf.clip_by_value(bounds, self.min_aspect_ratio, self.max_aspect_ratio)
        least, greatest = tf.unstack(tf.math.log(bounds))
        number = tf.random.stateless_uniform([count], of_ratio)
        ratio = tf.exp(least + (greatest - least) * number)
        drawn = tf.sqrt(tf.stack([area * ratio, area / ratio], axis=1))
        drawn = tf.minimum(tf.cast(tf.round(drawn), tf.int32), size)
        free = tf.cast(size - drawn + 1, tf.float32)
        place = tf.cast(free * tf.random.stateless_uniform([count, 2], of_place), tf.int32)
        return Rectangles(start + tf.minimum(place, size - drawn), drawn)

    def erase(self, image: tf.Tensor, rectangles: Rectangles, seed: tf.Tensor) -> tf.Tensor:
        """Fills rectangles of an image [H, W, C], 0..255, and keeps its dtype.

        Args:
          rectangles: those to fill; they may overlap.
          seed: integer [2], on which alone the noise depends.
        """
        covered = is_covered(tf.shape(image)[:2], rectangles)[..., tf.newaxis]
        return tf.where(covered, self._filling(image, seed), image)

    def _filling(self, image: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        if self.fill == BLACK:
            return tf.zeros([], image.dtype)
        if self.fill == MEAN:
            mean = tf.reduce_mean(tf.cast(image, tf.float32), axis=[0, 1])
            return tf.cast(mean if image.dtype.is_floating else tf.round(mean), image.dtype)
        # Each random number has the bits of four values.
        count = tf.size(image)
        numbers = tf.random.stateless_uniform(
            [count // _BYTES + 1], seed, minval=None, maxval=None, dtype=tf.uint32
        )
        values = tf.reshape(tf.bitcast(numbers, tf.uint8), [-1])[:count]
        return tf.cast(tf.reshape(values, tf.shape(image)), image.dtype)


@dataclasses.dataclass(frozen=True)
class RandomErasing(Erasing):
    """Fills a rectangle anywhere in the image (https://arxiv.org/abs/1708.04896).

    Unlike in the paper, no draw is repeated until the rectangle fits; see `draw_within`.
    """

    name = 'random_erasing'

    def __call__(self, example: Example, seed: tf.Tensor) -> Example:
        """Fills a rectangle of the image of `example`; it depends only on `seed`, integer [2]."""
        of_rectangle, of_noise = tf.unstack(tf.random.split(seed))
        image = example[F.IMAGE]
        rectangle = self.draw(tf.shape(image)[:2], of_rectangle)
        return {**example, F.IMAGE: self.erase(image, rectangle, of_noise)}

    def draw(self, image_size: tf.Tensor, seed: tf.Tensor) -> Rectangles:
        """Draws a rectangle in an image of `image_size`, int32 [2]."""
        size = image_size[tf.newaxis]
        return self.draw_within(tf.zeros_like(size), size, seed)


@dataclasses.dataclass(frozen=True)
class ObjectCutout(Erasing):
    """Fills a rectangle in the boxes of some objects (object-aware random erasing,
    https://arxiv.org/abs/1708.04896).

    The objects stay as they are, and so do their masks and keypoints.

    Attributes:
      object_probability: probability of each object.

    Raises:
      ValueError: as `Erasing`, or if the probability is not in [0, 1].
    """

    object_probability: float = 0.5

    name = 'object_cutout'

    def __post_init__(self):
        super().__post_init__()
        check_share(self.name, object_probability=self.object_probability)

    def __call__(self, example: Example, seed: tf.Tensor) -> Example:
        """Fills rectangles of the image of `example`; they depend only on `seed`, integer [2]."""
        of_rectangles, of_noise = tf.unstack(tf.random.split(seed))
        image, boxes = example[F.IMAGE], example[F.GROUNDTRUTH_BOXES]
        rectangles = self.draw(tf.shape(image)[:2], boxes, of_rectangles)
        return {**example, F.IMAGE: self.erase(image, rectangles, of_noise)}

    def draw(self, image_size: tf.Tensor, boxes: tf.Tensor, seed: tf.Tensor) -> Rectangles:
        """Draws a rectangle in some of the boxes.

        Args:
          image_size: int32 [2], height and width.
          boxes: float32 [n, 4], normalized; what is outside of the image is not erased.
          seed: integer [2].

        Returns:
          One rectangle a box, without any pixel for those that are not drawn.
        """
        of_number, of_shape = tf.unstack(tf.random.split(seed))
        is_drawn = tf.random.stateless_uniform(tf.shape(boxes)[:1], of_number)
        is_drawn = (is_drawn < self.object_probability)[:, tf.newaxis]
        sides = tf.tile(tf.cast(image_size, tf.float32), [2])
        pixels = tf.cast(tf.round(tf.clip_by_value(boxes, 0.0, 1.0) * sides), tf.int32)
        start, size = pixels[:, :2], pixels[:, 2:] - pixels[:, :2]
        return self.draw_within(start, tf.where(is_drawn, size, 0), of_shape)


def is_covered(image_size: tf.Tensor, rectangles: Rectangles) -> tf.Tensor:
    """Returns which pixels of an image of a size, int32 [2], rectangles cover: bool [H, W]."""

    def along(axis: int) -> tf.Tensor:
        place = tf.range(image_size[axis]) - rectangles.start[:, axis, tf.newaxis]
        is_inside = (place >= 0) & (place < rectangles.size[:, axis, tf.newaxis])
        return tf.cast(is_inside, tf.float32)  # [R, H] or [R, W]

    return tf.matmul(along(0), along(1), transpose_a=True) > 0.0
