"""Options of the feature extractors of CenterNet, and what these extractors share."""

import dataclasses
from collections.abc import Callable

import tensorflow as tf

from object_detection.models.feature_extractors.extractor_types import ExtractorOptions
from object_detection.models.feature_extractors.feature_extractor import VGG_MEANS
from object_detection.models.image_channels import of_channels

# Side of a cell of the map of all extractors, in pixels.
STRIDE = 4
# Stride of the last map of a backbone. Of images whose sides are multiples of it, all maps halve
# evenly, and a cell of the result covers `STRIDE` pixels.
LAST_STRIDE = 32


@dataclasses.dataclass(frozen=True)
class CenterNetOptions(ExtractorOptions):
    """Options of a config for a feature extractor of CenterNet.

    Attributes:
      means, stds: of the channels, in the order in which the network takes them; no means are 0, no
        standard deviations are 1.
      bgr_ordering: whether the channels are reversed before that.
      use_depthwise, use_separable_conv: whether convolutions of the pyramid are separable.
      depth_multiplier: factor of the channels of mobile backbones.
      bilinear: whether maps are enlarged linearly, not by nearest neighbour.
    """

    means: tuple[float, ...] = ()
    stds: tuple[float, ...] = ()
    bgr_ordering: bool = False
    use_depthwise: bool = False
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
            images = images[..., ::-1]
        if options.means:
            images -= tf.constant(options.means, images.dtype)
        if options.stds:
            images /= tf.constant(options.stds, images.dtype)
        return of_backbone(images)

    return normalize


def denormalization(options: CenterNetOptions) -> Callable[[tf.Tensor], tf.Tensor]:
    """Returns the function from normalized images to red, green and blue in 0..255.

    As in the reference, it undoes what the config says, not what the backbone needs beyond it: a
    backbone with a normalization of its own shows other colours.
    """

    def denormalize(images: tf.Tensor) -> tf.Tensor:
        if options.stds:
            images *= tf.constant(options.stds, images.dtype)
        if options.means:
            images += tf.constant(options.means, images.dtype)
        return images[..., ::-1] if options.bgr_ordering else images

    return denormalize


def to_unit(images: tf.Tensor) -> tf.Tensor:
    """Scales 0..255 to -1..1 by a division, with the rounding of the reference."""
    return images / 127.5 - 1.0


def caffe(images: tf.Tensor) -> tf.Tensor:
    """Reverses the channels and subtracts the means of ImageNet, as ResNet v1 of Keras expects."""
    means = of_channels(VGG_MEANS, images.shape[-1])
    return images[..., ::-1] - tf.constant(means[::-1], images.dtype)
