"""Options of the feature extractors of CenterNet, and what these extractors share.

Feature extractors of CenterNet that are stacked hourglass networks.

Feature extractors of CenterNet on MobileNet v2, with transposed convolutions or a pyramid.

Feature extractors of CenterNet on ResNets.

Feature extractors of CenterNet by their `type` in configs.

Each module `center_net_<backbone>.py` of this folder exports `ROWS` of this table.
"""

import dataclasses
from collections.abc import Callable

import tensorflow as tf

from object_detection.models import feature_extractor
from object_detection.models.backbones import (
    hourglass,
    mobilenet,
    mobilenet_v2,
    resnet_v1,
    resnet_v2,
)
from object_detection.models.feature_extractor import (
    ExtractorOptions,
    ExtractorType,
    FeatureExtractor,
    reverse_colors,
    subtract_means,
)
from object_detection.models.hyperparams import LayerHyperparams
from object_detection.models.image_channels import RGB, of_channels
from object_detection.models.necks.multi_resolution import merged_pyramid
from object_detection.models.necks.resizing import upsampling
from object_detection.models.normalization import BatchNormParams

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


def _hourglass(variant: hourglass.Variant) -> ExtractorType:
    def build(options: CenterNetOptions) -> FeatureExtractor:
        return FeatureExtractor(
            backbone=hourglass.trunk(
                variant, batch_norm_trainable=options.batch_norm_trainable, name='backbone'
            ),
            strides=[STRIDE],
            num_stacks=variant.stacks,
            pad_to_multiple=hourglass.pad_multiple(variant),
            normalize=normalization(options),
        )

    return ExtractorType(build)


HOURGLASS_ROWS: dict[str, ExtractorType] = {
    f'hourglass_{depth}': _hourglass(variant) for depth, variant in hourglass.VARIANTS.items()
}


_BACKBONE = LayerHyperparams(
    activation='relu6', batch_norm=BatchNormParams(momentum=0.999, epsilon=1e-3, scale=True)
)
_NECK = LayerHyperparams(
    batch_norm=BatchNormParams(momentum=0.99, epsilon=1e-3, scale=True), force_use_bias=True
)
# Ends of blocks of the strides 4, 8, 16 and 32.
_MAPS = ('block_2', 'block_5', 'block_9', mobilenet_v2.LAST)
_DEPTHS = (64, 32, 24)


def _backbone(options: CenterNetOptions, outputs: tuple[str, ...]):
    return mobilenet_v2.trunk(
        outputs,
        hyperparams=_BACKBONE,
        batch_norm_trainable=options.batch_norm_trainable,
        options=mobilenet.Options(depth_multiplier=options.depth_multiplier),
        name='backbone',
    )


def _build(options: CenterNetOptions) -> FeatureExtractor:
    backbone = _backbone(options, (mobilenet_v2.LAST,))
    return FeatureExtractor(
        backbone=backbone,
        pyramid=upsampling(
            backbone.outputs[0].shape[-1],
            hyperparams=_NECK,
            batch_norm_trainable=options.batch_norm_trainable,
            kernel_size=1,
        ),
        strides=[STRIDE],
        pad_to_multiple=LAST_STRIDE,
        normalize=normalization(options, to_unit),
    )


def _with_pyramid(*, is_separable: bool) -> ExtractorType:
    """Returns the row of an extractor with a pyramid, separable by its name or by the config."""

    def build(options: CenterNetOptions) -> FeatureExtractor:
        backbone = _backbone(options, _MAPS)
        return FeatureExtractor(
            backbone=backbone,
            pyramid=merged_pyramid(
                [output.shape[-1] for output in backbone.outputs],
                hyperparams=_NECK,
                batch_norm_trainable=options.batch_norm_trainable,
                depths=_DEPTHS,
                use_separable=is_separable or options.use_separable_conv,
                bilinear=options.bilinear,
            ),
            strides=[STRIDE],
            pad_to_multiple=LAST_STRIDE,
            normalize=normalization(options, to_unit),
        )

    return ExtractorType(build)


MOBILENET_ROWS: dict[str, ExtractorType] = {
    'mobilenet_v2': ExtractorType(_build),
    'mobilenet_v2_fpn': _with_pyramid(is_separable=False),
    'mobilenet_v2_fpn_sep_conv': _with_pyramid(is_separable=True),
}


# Networks of keras.applications: convolutions have a bias although a norm follows.
_RESNET_BACKBONE = LayerHyperparams(
    batch_norm=BatchNormParams(momentum=0.99, epsilon=1.001e-5, scale=True), force_use_bias=True
)
_PYRAMID = LayerHyperparams(
    batch_norm=BatchNormParams(momentum=0.99, epsilon=1e-3, scale=True), force_use_bias=True
)
_LEVELS = (2, 3, 4, 5)
# Depths whose blocks begin with norm and ReLU, in the reference too.
_PREACTIVATED = (18, 34)


def _resnet_v1_fpn(depth: int) -> ExtractorType:
    def build(options: CenterNetOptions) -> FeatureExtractor:
        trains_norms = options.batch_norm_trainable
        if depth in _PREACTIVATED:
            backbone = resnet_v2.trunk(
                depth, stages=_LEVELS, batch_norm_trainable=trains_norms, name='backbone'
            )
        else:
            backbone = resnet_v1.trunk(
                depth,
                levels=_LEVELS,
                hyperparams=_RESNET_BACKBONE,
                batch_norm_trainable=trains_norms,
                options=resnet_v1.Options(padding=resnet_v1.Padding.SYMMETRIC_ALL),
                name='backbone',
            )
        return FeatureExtractor(
            backbone=backbone,
            pyramid=merged_pyramid(
                [output.shape[-1] for output in backbone.outputs],
                hyperparams=_PYRAMID,
                batch_norm_trainable=trains_norms,
                bilinear=options.bilinear,
            ),
            strides=[STRIDE],
            pad_to_multiple=LAST_STRIDE,
            normalize=normalization(options, caffe),
        )

    return ExtractorType(build)


def _resnet_v2(depth: int) -> ExtractorType:
    def build(options: CenterNetOptions) -> FeatureExtractor:
        backbone = resnet_v2.trunk(
            depth, stages=[5], batch_norm_trainable=options.batch_norm_trainable, name='backbone'
        )
        return FeatureExtractor(
            backbone=backbone,
            pyramid=upsampling(
                backbone.outputs[0].shape[-1],
                hyperparams=_PYRAMID,
                batch_norm_trainable=options.batch_norm_trainable,
            ),
            strides=[STRIDE],
            pad_to_multiple=LAST_STRIDE,
            normalize=normalization(options, to_unit),
        )

    return ExtractorType(build)


RESNET_ROWS: dict[str, ExtractorType] = {
    'resnet_v1_18_fpn': _resnet_v1_fpn(18),
    'resnet_v1_34_fpn': _resnet_v1_fpn(34),
    'resnet_v1_50_fpn': _resnet_v1_fpn(50),
    'resnet_v1_101_fpn': _resnet_v1_fpn(101),
    'resnet_v2_50': _resnet_v2(50),
    'resnet_v2_101': _resnet_v2(101),
}


__all__ = ['CENTER_NET', 'CenterNetOptions', 'build_center_net', 'check_center_net']

CENTER_NET: dict[str, ExtractorType] = RESNET_ROWS | MOBILENET_ROWS | HOURGLASS_ROWS


def build_center_net(type_name: str, options: CenterNetOptions) -> FeatureExtractor:
    """Builds the feature extractor that `type_name` names.

    Raises:
      ValueError: in the cases of `check_center_net`.
    """
    return feature_extractor.build(CENTER_NET, type_name, options)


def check_center_net(type_name: str, options: CenterNetOptions) -> None:
    """Checks the arguments of `build_center_net` without building the extractor.

    Raises:
      ValueError: if there is no extractor of that name, or `options` do not fit it.
    """
    feature_extractor.check(CENTER_NET, type_name, options)
