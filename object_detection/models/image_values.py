"""Normalizations: from images in 0..255 to the input of networks."""

import dataclasses
from collections.abc import Sequence

import tensorflow as tf

from object_detection.core import tracing
from object_detection.core.shapes import dimensions
from object_detection.models.image_channels import RGB, of_channels

# Means of the ImageNet training images, RGB, as in the VGG paper (arXiv:1409.1556).
VGG_MEANS = (123.68, 116.779, 103.939)


def subtract_means(images: tf.Tensor) -> tf.Tensor:
    """Subtracts the ImageNet means from float images [B, H, W, C], 0..255; see `of_channels`."""
    return _scaled(images, None, of_channels(VGG_MEANS, images.shape[-1]))


def reverse_colors(images: tf.Tensor) -> tf.Tensor:
    """Exchanges red and blue of images [..., C]; channels after the third stay where they are."""
    if images.shape[-1] > RGB:
        return tf.concat([images[..., RGB - 1 :: -1], images[..., RGB:]], axis=-1)
    if tracing.BasicOperations.is_on():
        return images[..., ::-1]
    return tf.reverse(images, axis=[-1])  # On CPUs it takes a sixth of the time of a slice.


def flat_rows(images: tf.Tensor) -> tf.Tensor:
    """Images [B, H, W, C] -> rows [B, H, W * C].

    On CPUs, TensorFlow broadcasts along long rows several times as fast as along a few channels.
    """
    batch, height, width, channels = dimensions(images, 0, 1, 2, 3)
    return tf.reshape(images, [batch, height, width * channels])


def like_images(rows: tf.Tensor, images: tf.Tensor) -> tf.Tensor:
    """Rows of `flat_rows`, [B, H, W * C] -> [B, H, W, C], with the shape of `images`."""
    return tf.reshape(rows, dimensions(images, 0, 1, 2, 3))


@dataclasses.dataclass(frozen=True)
class Preprocess:
    """(image * scale - mean) / std of float images [B, H, W, C], 0..255.

    Attributes:
      mean, std: one number for red, green and blue; see `of_channels` for other channels.
      scale: factor that is applied before both.
    """

    mean: tuple[float, float, float] = (0.0, 0.0, 0.0)
    std: tuple[float, float, float] = (1.0, 1.0, 1.0)
    scale: float = 1.0

    def __call__(self, images: tf.Tensor) -> tf.Tensor:
        means, stds = (of_channels(each, images.shape[-1]) for each in (self.mean, self.std))
        offsets = [mean / std for mean, std in zip(means, stds, strict=True)]
        return _scaled(images, [self.scale / std for std in stds], offsets)


def scale_to_unit(images: tf.Tensor) -> tf.Tensor:
    """Scales float images [B, H, W, 3] in 0..255 to -1..1."""
    return images * (2.0 / 255.0) - 1.0


def to_unit(images: tf.Tensor) -> tf.Tensor:
    """Scales 0..255 to -1..1 by a division, with the rounding of the reference."""
    return images / 127.5 - 1.0


def caffe(images: tf.Tensor) -> tf.Tensor:
    """Reverses the colours and subtracts the means of ImageNet, as ResNet v1 of Keras expects."""
    return reverse_colors(subtract_means(images))


def _scaled(
    images: tf.Tensor, factors: Sequence[float] | None, offsets: Sequence[float]
) -> tf.Tensor:
    """Returns images [B, H, W, C] * factors - offsets, which have C numbers; None is no factor."""
    rows, (width,) = flat_rows(images), dimensions(images, 2)

    def along(values: Sequence[float]) -> tf.Tensor:
        return tf.tile(tf.constant(values, images.dtype), [width])

    if factors is not None:
        rows *= along(factors)
    return like_images(rows - along(offsets), images)
