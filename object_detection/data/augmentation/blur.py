"""Random blurs of images with any number of channels; objects do not change.

Pixels beyond the border repeat those at the border, so that blurred images do not darken there.
"""

import dataclasses
import math

import tensorflow as tf

from object_detection.core.fields import InputFields as F
from object_detection.data.augmentation.checks import check_order, check_positive_order
from object_detection.data.augmentation.choice import draw_below
from object_detection.data.objects import Example

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
        check_order(
            'gaussian_blur',
            limit=_MAX_SIGMA,
            min_sigma=self.min_sigma,
            max_sigma=self.max_sigma,
        )

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
        check_positive_order(
            'motion_blur',
            limit=_MAX_LENGTH,
            min_length=self.min_length,
            max_length=self.max_length,
        )

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
