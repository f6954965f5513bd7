"""Random damage to pixels: black squares, noise and compression; objects do not change."""

import dataclasses
from typing import NamedTuple

import tensorflow as tf

from object_detection.core.fields import InputFields as F
from object_detection.data.augmentation.checks import check_count, check_order, check_share
from object_detection.data.augmentation.choice import change_randomly, draw_below
from object_detection.data.augmentation.erasing import Rectangles, is_covered
from object_detection.data.objects import Example

_MAX_VALUE = 255.0


@dataclasses.dataclass(frozen=True)
class RandomBlackPatches:
    """Blackens squares of one size, which may overlap.

    Attributes:
      max_black_patches: number of squares.
      probability: probability of each of them.
      size_to_image_ratio: side of a square, as a share of the image's shorter side.

    Raises:
      ValueError: if the number is negative or above `checks.MAX_SIDE`, or another value is not a
        share.
    """

    max_black_patches: int = 10
    probability: float = 0.5
    size_to_image_ratio: float = 0.1

    def __post_init__(self):
        name = 'random_black_patches'
        check_count(name, least=0, max_black_patches=self.max_black_patches)
        check_share(
            name, probability=self.probability, size_to_image_ratio=self.size_to_image_ratio
        )

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
      ValueError: if the bounds are negative or not in order, or `random_coef` is not a share.
    """

    random_coef: float = 0.0
    min_patch_size: int = 1
    max_patch_size: int = 250
    min_gaussian_stddev: float = 0.0
    max_gaussian_stddev: float = 1.0

    def __post_init__(self):
        name = 'random_patch_gaussian'
        check_share(name, random_coef=self.random_coef)
        check_order(name, min_patch_size=self.min_patch_size, max_patch_size=self.max_patch_size)
        check_order(
            name,
            min_gaussian_stddev=self.min_gaussian_stddev,
            max_gaussian_stddev=self.max_gaussian_stddev,
        )

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
      ValueError: if the bounds are not in order or not in 0..100, or `random_coef` is not a share.
    """

    random_coef: float = 0.0
    min_jpeg_quality: int = 0
    max_jpeg_quality: int = 100

    def __post_init__(self):
        name = 'random_jpeg_quality'
        check_share(name, random_coef=self.random_coef)
        check_order(
            name,
            limit=100,
            min_jpeg_quality=self.min_jpeg_quality,
            max_jpeg_quality=self.max_jpeg_quality,
        )

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
