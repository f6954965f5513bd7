"""Random damage to pixels: black squares, noise and compression; objects do not change.

Random blurs of images with any number of channels; objects do not change.

Pixels beyond the border repeat those at the border, so that blurred images do not darken there.

Rectangles that are erased, of the whole image or of objects; objects do not change.
"""

import dataclasses
import math
from typing import NamedTuple

import tensorflow as tf

from object_detection.core.fields import InputFields as F
from object_detection.data.augmentation.checks import check_order, check_positive_order
from object_detection.data.augmentation.choice import change_randomly, draw_below
from object_detection.data.objects import Example
from object_detection.errors import UserError

# Standard deviations from its centre to the end of a Gaussian filter.
_DEVIATIONS = 3.0
# Pixels that sines and cosines are off.
_ROUNDING = 1e-4
# Larger filters show no image, and take a long time.
_MAX_SIGMA = 100.0
_MAX_LENGTH = 500


@dataclasses.dataclass(frozen=True)
class GaussianBlur:
    """Blurs by a Gaussian filter, cut off at three standard deviations.

    Attributes:
      min_sigma, max_sigma: least and greatest standard deviation of the filter, pixels.

    Raises:
      ValueError: if they are negative, above 100 or not in order.
    """

    min_sigma: float = 0.1
    max_sigma: float = 2.0

    def __post_init__(self):
        check_order('gaussian_blur', self, 'min_sigma', 'max_sigma', limit=_MAX_SIGMA)

    def __call__(self, example: Example, seed: tf.Tensor) -> Example:
        """Blurs the image of `example`, to float32; `seed`, integer [2], determines how."""
        return {**example, F.IMAGE: self.change(example[F.IMAGE], self.draw(seed))}

    def draw(self, seed: tf.Tensor) -> tf.Tensor:
        """Draws a standard deviation in pixels, float32 []."""
        return tf.random.stateless_uniform([], seed, self.min_sigma, self.max_sigma)

    def change(self, image: tf.Tensor, sigma: tf.Tensor) -> tf.Tensor:
        """Blurs an image, uint8 or float32 [H, W, C], to a float32 one."""
        radius = tf.math.ceil(_DEVIATIONS * sigma)
        distances = tf.range(-radius, radius + 1.0)
        # A deviation of 0 leaves the centre alone.
        weights = tf.exp(-0.5 * tf.square(distances / tf.maximum(sigma, 1e-6)))
        return _filter(_filter(image, weights[:, tf.newaxis]), weights[tf.newaxis])


@dataclasses.dataclass(frozen=True)
class MotionBlur:
    """Averages pixels along a line of random direction, as a moving camera does.

    Attributes:
      min_length, max_length: least and greatest number of pixels of the line.

    Raises:
      ValueError: if they are not positive, above 500 or not in order.
    """

    min_length: int = 3
    max_length: int = 15

    def __post_init__(self):
        check_positive_order('motion_blur', self, 'min_length', 'max_length', limit=_MAX_LENGTH)

    def __call__(self, example: Example, seed: tf.Tensor) -> Example:
        """Blurs the image of `example`, to float32; `seed`, integer [2], determines how."""
        return {**example, F.IMAGE: self.change(example[F.IMAGE], *self.draw(seed))}

    def draw(self, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Draws the length in pixels, int32 [], and the angle to the x axis, 0..pi, float32 []."""
        of_length, of_angle = tf.unstack(tf.random.split(seed))
        length = draw_below(self.min_length, self.max_length + 1, of_length)
        return length, tf.random.stateless_uniform([], of_angle, 0.0, math.pi)

    def change(self, image: tf.Tensor, length: tf.Tensor, angle: tf.Tensor) -> tf.Tensor:
        """Blurs an image, uint8 or float32 [H, W, C], to a float32 one."""
        reach = 0.5 * tf.cast(length - 1, tf.float32)
        direction = tf.stack([tf.sin(angle), tf.cos(angle)])
        along = tf.linspace(-reach, reach, length)
        points = along[:, tf.newaxis] * direction  # [length, 2], y and x.
        # The smallest filter of odd sides around the line; a point shares its weight between the
        # pixels around it.
        radius = tf.math.ceil(reach * tf.abs(direction) - _ROUNDING)

        def shares(axis: int) -> tf.Tensor:
            places = tf.range(-radius[axis], radius[axis] + 1.0)
            return tf.maximum(1.0 - tf.abs(points[:, axis, tf.newaxis] - places), 0.0)

        return _filter(image, tf.matmul(shares(0), shares(1), transpose_a=True))


def _filter(image: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """Filters all channels of an image by weights of odd sides, normalized.

    Args:
      image: [H, W, C].
      weights: float32 [h, w].

    Returns:
      float32 [H, W, C].
    """
    channels = image.shape[-1] or tf.shape(image)[-1]
    kernel = (weights / tf.reduce_sum(weights))[:, :, tf.newaxis, tf.newaxis]
    padded = tf.cast(image, tf.float32)
    for axis in range(2):
        padded = _repeat_border(padded, tf.shape(weights)[axis] // 2, axis)
    filtered = tf.nn.depthwise_conv2d(
        padded[tf.newaxis], tf.tile(kernel, [1, 1, channels, 1]), [1, 1, 1, 1], 'VALID'
    )
    return tf.ensure_shape(tf.clip_by_value(filtered[0], 0.0, 255.0), image.shape)


def _repeat_border(image: tf.Tensor, count: tf.Tensor, axis: int) -> tf.Tensor:
    """Repeats the first and the last row (axis 0) or column (axis 1) so many times."""
    size = tf.shape(image)[axis]
    first = tf.gather(image, [0], axis=axis)
    last = tf.gather(image, [size - 1], axis=axis)
    return tf.concat([tf.repeat(first, count, axis), image, tf.repeat(last, count, axis)], axis)


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
        check_order(self.name, self, 'min_area', 'max_area', limit=1)
        check_positive_order(self.name, self, 'min_aspect_ratio', 'max_aspect_ratio')
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
      ValueError: as `Erasing`.
    """

    object_probability: float = 0.5

    name = 'object_cutout'

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


_MAX_VALUE = 255.0


@dataclasses.dataclass(frozen=True)
class RandomBlackPatches:
    """Blackens squares of one size, which may overlap.

    Attributes:
      max_black_patches: number of squares.
      probability: probability of each of them.
      size_to_image_ratio: side of a square, as a share of the image's shorter side.
    """

    max_black_patches: int = 10
    probability: float = 0.5
    size_to_image_ratio: float = 0.1

    def __call__(self, example: Example, seed: tf.Tensor) -> Example:
        """Blackens squares in the image of `example`; they depend only on `seed`, integer [2]."""
        of_number, of_corner = tf.unstack(tf.random.split(seed))
        count = self.max_black_patches
        is_drawn = tf.random.stateless_uniform([count], of_number) < self.probability
        greatest = 1.0 - self.size_to_image_ratio
        corners = greatest * tf.random.stateless_uniform([count, 2], of_corner)
        return {**example, F.IMAGE: self.change(example[F.IMAGE], is_drawn, corners)}

    def change(self, image: tf.Tensor, is_drawn: tf.Tensor, corners: tf.Tensor) -> tf.Tensor:
        """Blackens squares in an image [H, W, C] of any dtype.

        Args:
          is_drawn: bool [P].
          corners: float32 [P, 2], y and x of the first row and column, normalized to the image.
        """
        image_size = tf.shape(image)[:2]
        size = tf.cast(image_size, tf.float32)
        side = tf.cast(tf.reduce_min(size) * self.size_to_image_ratio, tf.int32)
        first = tf.cast(corners * size, tf.int32)
        sides = tf.tile(tf.where(is_drawn, side, 0)[:, tf.newaxis], [1, 2])
        is_black = is_covered(image_size, Rectangles(first, sides))
        return tf.where(is_black[..., tf.newaxis], tf.zeros([], image.dtype), image)


class PatchDraws(NamedTuple):
    """Size and centre of a square, int32 []; deviation of its noise, float32 [], 1 = 255."""

    patch_size: tf.Tensor
    gaussian_stddev: tf.Tensor
    y: tf.Tensor
    x: tf.Tensor


@dataclasses.dataclass(frozen=True)
class RandomPatchGaussian:
    """Adds Gaussian noise to a square (https://arxiv.org/abs/1906.02611).

    Attributes:
      random_coef: probability that the image stays as it is.
      min_patch_size, max_patch_size: the side of the square in pixels is at least the first, and
        below the second.
      min_gaussian_stddev, max_gaussian_stddev: bounds of the standard deviation, as a share of the
        range of values.

    Raises:
      ValueError: if the bounds are negative or not in order.
    """

    random_coef: float = 0.0
    min_patch_size: int = 1
    max_patch_size: int = 250
    min_gaussian_stddev: float = 0.0
    max_gaussian_stddev: float = 1.0

    def __post_init__(self):
        name = 'random_patch_gaussian'
        check_order(name, self, 'min_patch_size', 'max_patch_size')
        check_order(name, self, 'min_gaussian_stddev', 'max_gaussian_stddev')

    def __call__(self, example: Example, seed: tf.Tensor) -> Example:
        """Adds noise to the image of `example`; it depends only on `seed`, integer [2]."""
        of_number, of_patch, of_noise = tf.unstack(tf.random.split(seed, 3))
        image = tf.cast(example[F.IMAGE], tf.float32)

        def change() -> tf.Tensor:
            draws = self.draw(tf.shape(image)[:2], of_patch)
            start, end = self.corners(tf.shape(image)[:2], draws)
            shape = tf.concat([end - start, [image.shape[-1]]], axis=0)
            noise = tf.random.stateless_normal(shape, of_noise, stddev=draws.gaussian_stddev)
            return self.change(image, draws, noise)

        return {**example, F.IMAGE: change_randomly(self.random_coef, of_number, change, image)}

    def draw(self, image_size: tf.Tensor, seed: tf.Tensor) -> PatchDraws:
        """Draws a square for an image of `image_size`, int32 [2]."""
        of_size, of_stddev, of_y, of_x = tf.unstack(tf.random.split(seed, 4))
        height, width = tf.unstack(image_size)
        return PatchDraws(
            draw_below(self.min_patch_size, self.max_patch_size, of_size),
            tf.random.stateless_uniform(
                [], of_stddev, self.min_gaussian_stddev, self.max_gaussian_stddev
            ),
            draw_below(0, height, of_y),
            draw_below(0, width, of_x),
        )

    def corners(self, image_size: tf.Tensor, draws: PatchDraws) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the first row and column of the square in the image, and its end: int32 [2]."""
        start = tf.stack([draws.y, draws.x]) - draws.patch_size // 2
        return tf.maximum(start, 0), tf.minimum(start + draws.patch_size, image_size)

    def change(self, image: tf.Tensor, draws: PatchDraws, noise: tf.Tensor) -> tf.Tensor:
        """Adds the noise of the square, float32 [h, w, C], to a float32 image [H, W, C]."""
        image_size = tf.shape(image)[:2]
        start, end = self.corners(image_size, draws)
        patch = image[start[0] : end[0], start[1] : end[1]]
        noisy = tf.clip_by_value(patch * (1.0 / _MAX_VALUE) + noise, 0.0, 1.0) * _MAX_VALUE
        paddings = tf.concat([tf.stack([start, image_size - end], axis=1), [[0, 0]]], axis=0)
        return image + tf.pad(noisy - patch, paddings)


@dataclasses.dataclass(frozen=True)
class RandomJpegQuality:
    """Encodes and decodes the image as a JPEG file of a random quality.

    Attributes:
      random_coef: probability that the image stays as it is.
      min_jpeg_quality, max_jpeg_quality: the quality is at least the first, and below the second.

    Raises:
      ValueError: if the bounds are not in order or not in 0..100.
    """

    random_coef: float = 0.0
    min_jpeg_quality: int = 0
    max_jpeg_quality: int = 100

    def __post_init__(self):
        name = 'random_jpeg_quality'
        check_order(name, self, 'min_jpeg_quality', 'max_jpeg_quality', limit=100)

    def __call__(self, example: Example, seed: tf.Tensor) -> Example:
        """Changes the image of `example`; the quality depends only on `seed`, integer [2]."""
        of_number, of_quality = tf.unstack(tf.random.split(seed))
        quality = draw_below(self.min_jpeg_quality, self.max_jpeg_quality, of_quality)
        image = example[F.IMAGE]
        changed = change_randomly(
            self.random_coef, of_number, lambda: self.change(image, quality), image
        )
        return {**example, F.IMAGE: changed}

    def change(self, image: tf.Tensor, quality: tf.Tensor) -> tf.Tensor:
        """Encodes and decodes an image [H, W, 3], 0..255, and keeps its dtype."""
        pixels = tf.saturate_cast(tf.round(image) if image.dtype.is_floating else image, tf.uint8)
        encoded = tf.raw_ops.EncodeJpegVariableQuality(images=pixels, quality=quality)
        decoded = tf.io.decode_jpeg(encoded, channels=image.shape[-1])
        return tf.cast(tf.ensure_shape(decoded, image.shape), image.dtype)
