"""Random changes of pixel values; boxes, masks and labels do not change.

Each step draws random numbers, then applies a deterministic function of the image and the numbers.
"""

import abc
import dataclasses
from collections.abc import Callable

import tensorflow as tf

from object_detection.core.fields import InputFields as F
from object_detection.data.augmentation.checks import check_order, check_share
from object_detection.data.augmentation.pixels import RgbToGray
from object_detection.data.objects import Example
from object_detection.errors import UserError

Adjustment = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]

_MAX_VALUE = 255.0


def _adjust(image: tf.Tensor, number: tf.Tensor, adjust: Adjustment) -> tf.Tensor:
    """Applies a function of images in 0..1 to one in 0..255, and clips the result.

    On 0..255 the functions would be equivalent, but would not round exactly like the reference.
    """
    return tf.clip_by_value(adjust(image / _MAX_VALUE, number), 0.0, 1.0) * _MAX_VALUE


class RandomPixelStep(abc.ABC):
    """Changes pixel values by random numbers; subclasses define how."""

    @abc.abstractmethod
    def draw(self, image: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """Draws the numbers for `change` of `image`, float32, from `seed`, integer [2], alone."""

    @abc.abstractmethod
    def change(self, image: tf.Tensor, draw: tf.Tensor) -> tf.Tensor:
        """Maps an image float32 [H, W, 3], 0..255, to one of the same shape and range."""

    def __call__(self, example: Example, seed: tf.Tensor) -> Example:
        """Changes the image of `example`, of any dtype, to a float32 one."""
        image = tf.cast(example[F.IMAGE], tf.float32)
        return {**example, F.IMAGE: self.change(image, self.draw(image, seed))}


@dataclasses.dataclass(frozen=True)
class RandomAdjustBrightness(RandomPixelStep):
    """Adds one number of at most +-`max_delta` times the whole range to all values.

    Raises:
      ValueError: if `max_delta` is negative.
    """

    max_delta: float = 0.2

    def __post_init__(self):
        if self.max_delta < 0:
            raise UserError(
                'random_adjust_brightness.max_delta: expected 0 or more. '
                f'Received: {self.max_delta:g}.'
            )

    def draw(self, image: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        return tf.random.stateless_uniform([], seed, -self.max_delta, self.max_delta)

    def change(self, image: tf.Tensor, draw: tf.Tensor) -> tf.Tensor:
        return _adjust(image, draw, tf.add)


@dataclasses.dataclass(frozen=True)
class RandomAdjustContrast(RandomPixelStep):
    """Multiplies the distance of values to the mean of their channel by one factor.

    Raises:
      ValueError: if the factors are negative, or the greatest one is below the least one.
    """

    min_delta: float = 0.8
    max_delta: float = 1.25

    def __post_init__(self):
        check_order('random_adjust_contrast', min_delta=self.min_delta, max_delta=self.max_delta)

    def draw(self, image: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        return tf.random.stateless_uniform([], seed, self.min_delta, self.max_delta)

    def change(self, image: tf.Tensor, draw: tf.Tensor) -> tf.Tensor:
        return _adjust(image, draw, tf.image.adjust_contrast)


@dataclasses.dataclass(frozen=True)
class RandomAdjustHue(RandomPixelStep):
    """Rotates the hue by at most +-`max_delta` of the colour circle.

    Raises:
      ValueError: if `max_delta` is not in [0, 1].
    """

    max_delta: float = 0.02

    def __post_init__(self):
        check_share('random_adjust_hue', max_delta=self.max_delta)

    def draw(self, image: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        return tf.random.stateless_uniform([], seed, -self.max_delta, self.max_delta)

    def change(self, image: tf.Tensor, draw: tf.Tensor) -> tf.Tensor:
        return _adjust(image, draw, tf.image.adjust_hue)


@dataclasses.dataclass(frozen=True)
class RandomAdjustSaturation(RandomPixelStep):
    """Multiplies the saturation by one factor.

    Raises:
      ValueError: if the factors are negative, or the greatest one is below the least one.
    """

    min_delta: float = 0.8
    max_delta: float = 1.25

    def __post_init__(self):
        check_order('random_adjust_saturation', min_delta=self.min_delta, max_delta=self.max_delta)

    def draw(self, image: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        return tf.random.stateless_uniform([], seed, self.min_delta, self.max_delta)

    def change(self, image: tf.Tensor, draw: tf.Tensor) -> tf.Tensor:
        return _adjust(image, draw, tf.image.adjust_saturation)


# Steps of RandomDistortColor, by its color_ordering.
_BRIGHTNESS = RandomAdjustBrightness(max_delta=32.0 / 255.0)
_CONTRAST = RandomAdjustContrast(min_delta=0.5, max_delta=1.5)
_HUE = RandomAdjustHue(max_delta=0.2)
_SATURATION = RandomAdjustSaturation(min_delta=0.5, max_delta=1.5)
_ORDERINGS = (
    (_BRIGHTNESS, _SATURATION, _HUE, _CONTRAST),
    (_BRIGHTNESS, _CONTRAST, _SATURATION, _HUE),
)


@dataclasses.dataclass(frozen=True)
class RandomDistortColor(RandomPixelStep):
    """Changes brightness, contrast, saturation and hue, in one of two orders.

    Raises:
      ValueError: if the order is not 0 or 1.
    """

    color_ordering: int = 0

    def __post_init__(self):
        if self.color_ordering not in range(len(_ORDERINGS)):
            raise UserError(
                'random_distort_color.color_ordering: expected 0 or 1. '
                f'Received: {self.color_ordering}.'
            )

    @property
    def steps(self) -> tuple[RandomPixelStep, ...]:
        """The four steps, in their order."""
        return _ORDERINGS[self.color_ordering]

    def draw(self, image: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """Draws float32 [4], one number for each of `steps`."""
        seeds = tf.unstack(tf.random.split(seed, len(self.steps)))
        return tf.stack(
            [step.draw(image, own) for step, own in zip(self.steps, seeds, strict=True)]
        )

    def change(self, image: tf.Tensor, draw: tf.Tensor) -> tf.Tensor:
        numbers = tf.unstack(draw, len(self.steps))
        for step, number in zip(self.steps, numbers, strict=True):
            image = step.change(image, number)
        return image


@dataclasses.dataclass(frozen=True)
class RandomPixelValueScale(RandomPixelStep):
    """Multiplies each value of each pixel by its own factor.

    Raises:
      ValueError: if the factors are negative, or the greatest one is below the least one.
    """

    minval: float = 0.9
    maxval: float = 1.1

    def __post_init__(self):
        check_order('random_pixel_value_scale', minval=self.minval, maxval=self.maxval)

    def draw(self, image: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """Draws float32 [H, W, 3]."""
        return tf.random.stateless_uniform(tf.shape(image), seed, self.minval, self.maxval)

    def change(self, image: tf.Tensor, draw: tf.Tensor) -> tf.Tensor:
        return tf.clip_by_value(image * draw, 0.0, _MAX_VALUE)


@dataclasses.dataclass(frozen=True)
class RandomRgbToGray(RandomPixelStep):
    """Converts the image to grey, with three equal channels, with a probability.

    Raises:
      ValueError: if the probability is not in [0, 1].
    """

    probability: float = 0.1

    def __post_init__(self):
        check_share('random_rgb_to_gray', probability=self.probability)

    def draw(self, image: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        return tf.random.stateless_uniform([], seed)

    def change(self, image: tf.Tensor, draw: tf.Tensor) -> tf.Tensor:
        to_gray = RgbToGray()
        return tf.cond(draw < self.probability, lambda: to_gray.change(image), lambda: image)
