"""Random changes of pixel values; boxes, masks and labels do not change.

Each step draws random numbers, then applies a deterministic function of the image and the numbers.

Fast changes of the brightness, contrast, saturation and hue of an image.

The operations of TensorFlow for saturation and hue convert every pixel to HSV and back, one by one.
Here both are one closed form, which XLA compiles to a loop over several pixels at a time. XLA
compiles for each number of pixels, so that images are padded to one of a few numbers.
"""

import abc
import dataclasses
import functools
from typing import NamedTuple

import tensorflow as tf

from object_detection.core.fields import InputFields as F
from object_detection.data.augmentation.checks import check_order
from object_detection.data.augmentation.pixels import RgbToGray
from object_detection.data.objects import Example

_CHANNELS = 3
# Numbers of pixels that programs are compiled for, two for each power of two; each takes 0.1 s.
_SIZES = tuple(part << power for power in range(13, 28) for part in (2, 3))
# Places of red, green and blue on the circle of hues, in sixths of it.
_PLACES = (5.0, 3.0, 1.0)
# Pixels whose channels differ less are grey.
_MIN_CHROMA = 1e-9

Number = float | tf.Tensor


def change_brightness(image: tf.Tensor, delta: Number) -> tf.Tensor:
    """Adds a number to all values, and clips them to the range.

    Args:
      image: uint8 or float32 [H, W, C], 0..255.
      delta: the number, as a share of the whole range, float32 [].

    Returns:
      float32 [H, W, C], 0..255.
    """
    return _clip(tf.cast(image, tf.float32) + delta * _MAX_VALUE)


def change_contrast(image: tf.Tensor, factor: Number) -> tf.Tensor:
    """Multiplies the distance of values to the mean of their channel, and clips them to the range.

    Args:
      image: uint8 or float32 [H, W, C], 0..255.
      factor: the factor, float32 [].

    Returns:
      float32 [H, W, C], 0..255.
    """
    images = tf.cast(image, tf.float32)
    return _clip(tf.raw_ops.AdjustContrastv2(images=images, contrast_factor=factor))


def change_colors(
    image: tf.Tensor,
    *,
    brightness: Number = 0.0,
    saturation: Number = 1.0,
    hue: Number = 0.0,
    channels: tuple[int, ...] | tf.Tensor = (0, 1, 2),
) -> tf.Tensor:
    """Changes brightness, saturation and hue, each clipped to the range, then the channels' order.

    Args:
      image: uint8 or float32 [H, W, 3], red, green and blue, 0..255.
      brightness: number added to all values, as a share of the whole range, float32 [].
      saturation: factor of the saturation, 0 or more, float32 [].
      hue: rotation of the hue, as a share of the whole circle, -1 to 1, float32 [].
      channels: index of the channel that replaces each channel, int32 [3].

    Returns:
      float32 [H, W, 3], 0..255.
    """
    # Reshaped to rows of one pixel, padding and slicing would take long.
    values = tf.reshape(image, [-1])
    count = tf.size(values)
    sizes = tf.constant([size * _CHANNELS for size in _SIZES])
    size = sizes[tf.searchsorted(sizes, count[tf.newaxis])[0]]
    changed = _change(
        tf.reshape(tf.pad(values, [[0, size - count]]), [-1, _CHANNELS]),
        tf.convert_to_tensor(brightness * _MAX_VALUE, tf.float32),
        tf.convert_to_tensor(saturation, tf.float32),
        tf.gather(_PLACES, channels) + 6.0 * hue,
    )
    return tf.reshape(tf.reshape(changed, [-1])[:count], tf.shape(image))


@tf.function(jit_compile=True, autograph=False, reduce_retracing=True)
def _change(
    pixels: tf.Tensor, brightness: tf.Tensor, saturation: tf.Tensor, places: tf.Tensor
) -> tf.Tensor:
    """Changes pixels, uint8 or float32 [P, 3], to float32 ones; see `change_colors`.

    Saturation and hue are those of https://en.wikipedia.org/wiki/HSL_and_HSV.

    Args:
      brightness: number added to all values.
      saturation: factor.
      places: `_PLACES` of the channels, rotated, float32 [3].
    """
    # Planes of the channels are faster than pixels.
    planes = _clip(tf.cast(tf.transpose(pixels), tf.float32) + brightness)
    red, green, blue = tf.unstack(planes)
    value = tf.maximum(tf.maximum(red, green), blue)
    chroma = value - tf.minimum(tf.minimum(red, green), blue)
    scale = 1.0 / tf.maximum(chroma, _MIN_CHROMA)
    hue = tf.where(
        red == value,
        (green - blue) * scale,
        tf.where(green == value, (blue - red) * scale + 2.0, (red - green) * scale + 4.0),
    )
    chroma = tf.minimum(chroma * saturation, value)
    angle = hue + places[:, tf.newaxis]
    angle -= 6.0 * tf.floor(angle * (1.0 / 6.0))
    share = tf.clip_by_value(tf.minimum(angle, 4.0 - angle), 0.0, 1.0)
    return tf.transpose(value - chroma * share)


def _clip(image: tf.Tensor) -> tf.Tensor:
    return tf.clip_by_value(image, 0.0, _MAX_VALUE)


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
    """Adds one number of at most +-`max_delta` times the whole range to all values."""

    max_delta: float = 0.2

    def draw(self, image: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        return tf.random.stateless_uniform([], seed, -self.max_delta, self.max_delta)

    def change(self, image: tf.Tensor, draw: tf.Tensor) -> tf.Tensor:
        return change_brightness(image, draw)


@dataclasses.dataclass(frozen=True)
class RandomAdjustHue(RandomPixelStep):
    """Rotates the hue by at most +-`max_delta` of the colour circle."""

    max_delta: float = 0.02

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
        check_order(self.name, self, 'min_delta', 'max_delta')

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
    """Changes brightness, contrast, saturation and hue, in one of two orders."""

    color_ordering: int = 0

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
      ValueError: if factors are negative or not in order.
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
        check_order(name, self, 'min_contrast', 'max_contrast')
        check_order(name, self, 'min_saturation', 'max_saturation')

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
        check_order('random_pixel_value_scale', self, 'minval', 'maxval')

    def draw(self, image: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """Draws float32 [H, W, 3]."""
        return tf.random.stateless_uniform(tf.shape(image), seed, self.minval, self.maxval)

    def change(self, image: tf.Tensor, draw: tf.Tensor) -> tf.Tensor:
        return tf.clip_by_value(tf.cast(image, tf.float32) * draw, 0.0, _MAX_VALUE)


@dataclasses.dataclass(frozen=True)
class RandomRgbToGray(RandomPixelStep):
    """Converts the image to grey, with three equal channels, with a probability."""

    probability: float = 0.1

    def draw(self, image: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        return tf.random.stateless_uniform([], seed)

    def change(self, image: tf.Tensor, draw: tf.Tensor) -> tf.Tensor:
        to_gray, image = RgbToGray(), tf.cast(image, tf.float32)
        return tf.cond(draw < self.probability, lambda: to_gray.change(image), lambda: image)
