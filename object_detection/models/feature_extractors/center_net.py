"""Options of the feature extractors of CenterNet, and what these extractors share."""

import dataclasses
from collections.abc import Callable

import tensorflow as tf

from object_detection.models.feature_extractor import (
    ExtractorOptions,
    reverse_colors,
    subtract_means,
)
from object_detection.models.image_channels import RGB, of_channels

# Side of a cell of the map of all extractors, in pixels.
STRIDE = 4
# Stride of the last map of a backbone. Of images whose sides are multiples of it, all maps halve
# evenly, and a cell of the result covers `STRIDE` pixels.
LAST_STRIDE = 32


@dataclasses.dataclass(frozen=True)
class CenterNetOptions(ExtractorOptions):
    """Options of a config for a feature extractor of CenterNet.

    Attributes:
      means, stds: of the channels, in the order in which the network takes them, as `of_channels`
        takes them; no means are 0, no standard deviations are 1.
      bgr_ordering: whether the colours are reversed before that.
      use_separable_conv: whether convolutions of the pyramid are separable.
      depth_multiplier: factor of the channels of mobile backbones.
      bilinear: whether maps are enlarged linearly, not by nearest neighbour.
    """

    means: tuple[float, ...] = ()
    stds: tuple[float, ...] = ()
    bgr_ordering: bool = False
    use_separable_conv: bool = False
    depth_multiplier: float = 1.0
    bilinear: bool = False


def normalization(
    options: CenterNetOptions, of_backbone: Callable[[tf.Tensor], tf.Tensor] = lambda images: images
) -> Callable[[tf.Tensor], tf.Tensor]:
    """Returns the function from images, RGB in 0..255, to the input of the backbone.

    Args:
      options: what the config says of it, which comes first.
      of_backbone: what the backbone needs then, whatever the config says.
    """

    def normalize(images: tf.Tensor) -> tf.Tensor:
        if options.bgr_ordering:
            images = reverse_colors(images)
        if options.means:
            images -= _of_channels(options.means, images)
        if options.stds:
            images /= _of_channels(options.stds, images)
        return of_backbone(images)

    return normalize


def denormalization(options: CenterNetOptions) -> Callable[[tf.Tensor], tf.Tensor]:
    """Returns the function from normalized images to red, green and blue in 0..255, [..., 3].

    As in the reference, it undoes what the config says, not what the backbone needs beyond it: a
    backbone with a normalization of its own shows other colours.
    """

    def denormalize(images: tf.Tensor) -> tf.Tensor:
        if options.stds:
            images *= _of_channels(options.stds, images)
        if options.means:
            images += _of_channels(options.means, images)
        if options.bgr_ordering:
            images = reverse_colors(images)
        return tf.tile(images, [1, 1, 1, RGB]) if images.shape[-1] == 1 else images[..., :RGB]

    return denormalize


def to_unit(images: tf.Tensor) -> tf.Tensor:
    """Scales 0..255 to -1..1 by a division, with the rounding of the reference."""
    return images / 127.5 - 1.0


def caffe(images: tf.Tensor) -> tf.Tensor:
    """Reverses the colours and subtracts the means of ImageNet, as ResNet v1 of Keras expects."""
    return reverse_colors(subtract_means(images))


def _of_channels(values: tuple[float, ...], images: tf.Tensor) -> tf.Tensor:
    return tf.constant(of_channels(values, images.shape[-1]), images.dtype)
