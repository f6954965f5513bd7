"""Deterministic changes of pixel values; boxes, masks and labels do not change."""

import abc
import dataclasses

import tensorflow as tf

from object_detection.core.fields import InputFields as F
from object_detection.data.objects import Example
from object_detection.errors import UserError, expected

_NUM_CHANNELS = 3


class PixelStep(abc.ABC):
    """Changes the pixel values of every image; subclasses define how."""

    @abc.abstractmethod
    def change(self, image: tf.Tensor) -> tf.Tensor:
        """Maps an image float32 [H, W, 3], 0..255, to one of the same shape."""

    def __call__(self, example: Example, seed: tf.Tensor) -> Example:
        """Changes the image of `example`, of any dtype, to a float32 one; `seed` is unused."""
        del seed
        return {**example, F.IMAGE: self.change(tf.cast(example[F.IMAGE], tf.float32))}


@dataclasses.dataclass(frozen=True)
class NormalizeImage(PixelStep):
    """Maps the range of values original_minval..original_maxval to target_minval..target_maxval.

    Raises:
      ValueError: if the original range is empty.
    """

    original_minval: float
    original_maxval: float
    target_minval: float = 0.0
    target_maxval: float = 1.0

    def __post_init__(self):
        if self.original_maxval <= self.original_minval:
            raise UserError(
                'normalize_image.original_maxval: expected more than original_minval. '
                f'Received: {self.original_maxval:g} and {self.original_minval:g}.'
            )

    def change(self, image: tf.Tensor) -> tf.Tensor:
        original_range = self.original_maxval - self.original_minval
        target_range = self.target_maxval - self.target_minval
        return (image - self.original_minval) * (target_range / original_range) + self.target_minval


@dataclasses.dataclass(frozen=True)
class SubtractChannelMean(PixelStep):
    """Subtracts one number from each channel.

    Raises:
      ValueError: if the number of means is not the number of channels.
    """

    means: tuple[float, ...]

    def __post_init__(self):
        if len(self.means) != _NUM_CHANNELS:
            raise expected(
                'subtract_channel_mean.means', f'{_NUM_CHANNELS} numbers, one a channel', self.means
            )

    def change(self, image: tf.Tensor) -> tf.Tensor:
        return image - tf.constant(self.means, tf.float32)


@dataclasses.dataclass(frozen=True)
class AdjustGamma(PixelStep):
    """Replaces each value v by 255 * gain * (v / 255) ** gamma, at most 255."""

    gamma: float = 1.0
    gain: float = 1.0

    def change(self, image: tf.Tensor) -> tf.Tensor:
        changed = 255.0 * tf.image.adjust_gamma(image / 255.0, self.gamma, self.gain)
        return tf.clip_by_value(changed, 0.0, 255.0)


class RgbToGray(PixelStep):
    """Converts images to grey.

    The result has three equal channels, since backbones expect three; the reference returns one.
    """

    def change(self, image: tf.Tensor) -> tf.Tensor:
        return tf.repeat(tf.image.rgb_to_grayscale(image), _NUM_CHANNELS, axis=-1)
