"""Random changes of pixel values; boxes, masks and labels do not change.

Each step draws random numbers, then applies a deterministic function of the image and the numbers.
"""

import abc
import dataclasses
import functools
from typing import NamedTuple

import tensorflow as tf

from object_detection.core.fields import InputFields as F
from object_detection.data.augmentation.checks import check_order, check_share
from object_detection.data.augmentation.photometry import (
    change_brightness,
    change_colors,
    change_contrast,
)
from object_detection.data.augmentation.pixels import RgbToGray
from object_detection.data.objects import Example
from object_detection.errors import UserError

_MAX_VALUE = 255.0


class RandomPixelStep(abc.ABC):
    """Changes pixel values by random numbers; subclasses define how."""

    @abc.abstractmethod
    def draw(self, image: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """Draws the numbers for `change` of `image` from `seed`, integer [2], alone."""

    @abc.abstractmethod
    def change(self, image: tf.Tensor, draw: tf.Tensor) -> tf.Tensor:
        """Maps an image uint8 or float32 [H, W, 3], 0..255, to a float32 one of the same range."""

    def __call__(self, example: Example, seed: tf.Tensor) -> Example:
        """Changes the image of `example`, of any dtype, to a float32 one."""
        image = example[F.IMAGE]
        image = image if image.dtype == tf.uint8 else tf.cast(image, tf.float32)
        return {**example, F.IMAGE: self.change(image, self.draw(image, seed))}


@dataclasses.dataclass(frozen=True)
class RandomAdjustBrightness(RandomPixelStep):
    """Adds one number of at most +-`max_delta` times the whole range to all values.

    Raises:
      ValueError: if `max_delta` is negative or infinite.
    """

    max_delta: float = 0.2

    def __post_init__(self):
        if not 0.0 <= self.max_delta < float('inf'):
            raise UserError(
                'random_adjust_brightness.max_delta: expected 0 or more. '
                f'Received: {self.max_delta:g}.'
            )

    def draw(self, image: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        return tf.random.stateless_uniform([], seed, -self.max_delta, self.max_delta)

    def change(self, image: tf.Tensor, draw: tf.Tensor) -> tf.Tensor:
        return change_brightness(image, draw)


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
        return change_colors(image, hue=draw)


@dataclasses.dataclass(frozen=True)
class _RandomFactor(RandomPixelStep):
    """Changes an image by one factor of `min_delta` to `max_delta`.

    Raises:
      ValueError: if the factors are negative, or the greatest one is below the least one.
    """

    min_delta: float = 0.8
    max_delta: float = 1.25

    name = ''

    def __post_init__(self):
        check_order(self.name, min_delta=self.min_delta, max_delta=self.max_delta)

    def draw(self, image: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        return tf.random.stateless_uniform([], seed, self.min_delta, self.max_delta)


class RandomAdjustContrast(_RandomFactor):
    """Multiplies the distance of values to the mean of their channel by one factor."""

    name = 'random_adjust_contrast'

    def change(self, image: tf.Tensor, draw: tf.Tensor) -> tf.Tensor:
        return change_contrast(image, draw)


class RandomAdjustSaturation(_RandomFactor):
    """Multiplies the saturation by one factor."""

    name = 'random_adjust_saturation'

    def change(self, image: tf.Tensor, draw: tf.Tensor) -> tf.Tensor:
        return change_colors(image, saturation=draw)


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
        if self.color_ordering == 0:
            brightness, saturation, hue, contrast = tf.unstack(draw, 4)
            changed = change_colors(image, brightness=brightness, saturation=saturation, hue=hue)
            return change_contrast(changed, contrast)
        brightness, contrast, saturation, hue = tf.unstack(draw, 4)
        changed = change_contrast(change_brightness(image, brightness), contrast)
        return change_colors(changed, saturation=saturation, hue=hue)


class PhotometricDraws(NamedTuple):
    """Numbers of `PhotometricDistortion`, float32 []; without effect for changes that are left out.

    Attributes:
      brightness: number that is added, as a share of the whole range.
      contrast: factor.
      saturation: factor.
      hue: rotation, as a share of the whole circle.
      contrast_is_last: bool [].
      channels: index of the channel that replaces each channel, int32 [3].
    """

    brightness: tf.Tensor
    contrast: tf.Tensor
    saturation: tf.Tensor
    hue: tf.Tensor
    contrast_is_last: tf.Tensor
    channels: tf.Tensor


@dataclasses.dataclass(frozen=True)
class PhotometricDistortion(RandomPixelStep):
    """Changes brightness, contrast, saturation and hue, each with a probability of its own.

    Brightness changes first; contrast changes as often before saturation and hue as after them. At
    last the channels may change places (SSD, https://arxiv.org/abs/1512.02325).

    Attributes:
      max_brightness_delta: greatest number added or subtracted, as a share of the whole range.
      min_contrast, max_contrast: bounds of the factor of the contrast.
      min_saturation, max_saturation: bounds of the factor of the saturation.
      max_hue_delta: greatest rotation of the hue either way, as a share of the whole circle.
      change_probability: probability of each of the four changes.
      channel_swap_probability: probability that the channels get a random order.

    Raises:
      ValueError: if a value is not a share or factors are negative or not in order.
    """

    max_brightness_delta: float = 0.125
    min_contrast: float = 0.5
    max_contrast: float = 1.5
    min_saturation: float = 0.5
    max_saturation: float = 1.5
    max_hue_delta: float = 0.05
    change_probability: float = 0.5
    channel_swap_probability: float = 0.0

    def __post_init__(self):
        name = 'photometric_distortion'
        check_share(
            name,
            max_brightness_delta=self.max_brightness_delta,
            max_hue_delta=self.max_hue_delta,
            change_probability=self.change_probability,
            channel_swap_probability=self.channel_swap_probability,
        )
        check_order(name, min_contrast=self.min_contrast, max_contrast=self.max_contrast)
        check_order(name, min_saturation=self.min_saturation, max_saturation=self.max_saturation)

    def draw(self, image: tf.Tensor, seed: tf.Tensor) -> PhotometricDraws:
        of_changes, of_numbers, of_order, of_swap, of_channels = tf.unstack(
            tf.random.split(seed, 5)
        )
        is_changed = tf.random.stateless_uniform([4], of_changes) < self.change_probability
        least = [-self.max_brightness_delta, self.min_contrast]
        greatest = [self.max_brightness_delta, self.max_contrast]
        least += [self.min_saturation, -self.max_hue_delta]
        greatest += [self.max_saturation, self.max_hue_delta]
        numbers = tf.random.stateless_uniform([4], of_numbers, least, greatest)
        is_swapped = tf.random.stateless_uniform([], of_swap) < self.channel_swap_probability
        order = tf.argsort(tf.random.stateless_uniform([3], of_channels))
        return PhotometricDraws(
            *tf.unstack(tf.where(is_changed, numbers, [0.0, 1.0, 1.0, 0.0])),
            contrast_is_last=tf.random.stateless_uniform([], of_order) < 0.5,
            channels=tf.where(is_swapped, order, [0, 1, 2]),
        )

    def change(self, image: tf.Tensor, draw: PhotometricDraws) -> tf.Tensor:
        has_contrast = tf.not_equal(draw.contrast, 1.0)
        change_others = functools.partial(
            change_colors, saturation=draw.saturation, hue=draw.hue, channels=draw.channels
        )

        def contrast_first() -> tf.Tensor:
            brighter = change_brightness(image, draw.brightness)
            return change_others(change_contrast(brighter, draw.contrast))

        changed = tf.cond(
            has_contrast & ~draw.contrast_is_last,
            contrast_first,
            lambda: change_others(image, brightness=draw.brightness),
        )
        return tf.cond(
            has_contrast & draw.contrast_is_last,
            lambda: change_contrast(changed, draw.contrast),
            lambda: changed,
        )


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
        return tf.clip_by_value(tf.cast(image, tf.float32) * draw, 0.0, _MAX_VALUE)


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
        to_gray, image = RgbToGray(), tf.cast(image, tf.float32)
        return tf.cond(draw < self.probability, lambda: to_gray.change(image), lambda: image)
