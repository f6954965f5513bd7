"""Normalizations: from images in 0..255 to the input of networks."""

import dataclasses

import tensorflow as tf

from object_detection.models.image_channels import RGB, of_channels

# Means of the ImageNet training images, RGB, as in the VGG paper (arXiv:1409.1556).
VGG_MEANS = (123.68, 116.779, 103.939)


def subtract_means(images: tf.Tensor) -> tf.Tensor:
    """Subtracts the ImageNet means from float images [B, H, W, C], 0..255; see `of_channels`."""
    return images - tf.constant(of_channels(VGG_MEANS, images.shape[-1]), images.dtype)


def reverse_colors(images: tf.Tensor) -> tf.Tensor:
    """Exchanges red and blue of images [..., C]; channels after the third stay where they are."""
    if images.shape[-1] <= RGB:
        return images[..., ::-1]
    return tf.concat([images[..., RGB - 1 :: -1], images[..., RGB:]], axis=-1)


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
        factor = tf.constant([self.scale / std for std in stds], images.dtype)
        offset = [mean / std for mean, std in zip(means, stds, strict=True)]
        return images * factor - tf.constant(offset, images.dtype)


def scale_to_unit(images: tf.Tensor) -> tf.Tensor:
    """Scales float images [B, H, W, 3] in 0..255 to -1..1."""
    return images * (2.0 / 255.0) - 1.0


def to_unit(images: tf.Tensor) -> tf.Tensor:
    """Scales 0..255 to -1..1 by a division, with the rounding of the reference."""
    return images / 127.5 - 1.0


def caffe(images: tf.Tensor) -> tf.Tensor:
    """Reverses the colours and subtracts the means of ImageNet, as ResNet v1 of Keras expects."""
    return reverse_colors(subtract_means(images))
