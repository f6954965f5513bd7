"""Builds the feature extractors of CenterNet from the rows of `EXTRACTORS`."""

import dataclasses
from collections.abc import Callable

import tensorflow as tf

from object_detection.meta_architectures.center_net.extractors import EXTRACTORS
from object_detection.models.backbones.table import Backbone
from object_detection.models.extractors import Extractor
from object_detection.models.feature_extractor import (
    ExtractorOptions,
    FeatureExtractor,
    build_neck,
    check_levels,
    check_used,
    find_parts,
)
from object_detection.models.hyperparams import LayerHyperparams
from object_detection.models.image_channels import RGB, of_channels
from object_detection.models.image_values import reverse_colors
from object_detection.models.necks.table import NECKS, NeckOptions
from object_detection.models.normalization import BatchNormParams

# Side of a cell of the map of all extractors, in pixels.
STRIDE = 4
_NECK = LayerHyperparams(
    batch_norm=BatchNormParams(momentum=0.99, epsilon=1e-3, scale=True), force_use_bias=True
)


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

    def default_hyperparams(self, row: Backbone) -> LayerHyperparams:
        """Returns those of the row; a CenterNet of earlier versions drew no seed here either."""
        return row.hyperparams


def normalization(
    options: CenterNetOptions, of_backbone: Callable[[tf.Tensor], tf.Tensor] = lambda images: images
) -> Callable[[tf.Tensor], tf.Tensor]:
    """Returns the function from images, RGB in 0..255, to the input of the backbone.

    Args:
      options: what the config says of it, which comes first.
      of_backbone: what the backbone needs; it is applied afterwards, in any case.
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


def _of_channels(values: tuple[float, ...], images: tf.Tensor) -> tf.Tensor:
    return tf.constant(of_channels(values, images.shape[-1]), images.dtype)


def build_center_net(type_name: str, options: CenterNetOptions) -> FeatureExtractor:
    """Builds the feature extractor that `type_name` names.

    Raises:
      ValueError: if there is no extractor of that name, or `options` do not fit it.
    """
    extractor, row = find_parts(type_name, EXTRACTORS, options)
    check_levels('backbone', extractor.levels, row)
    if options.backbone and options.depth_multiplier != 1:
        given = {'depth_multiplier': options.depth_multiplier}
        check_used(given, row.uses, f'the backbone {options.backbone}', {'depth_multiplier': 1.0})
    backbone = row.trunk(
        extractor.levels, options.for_backbone(row, depth_multiplier=options.depth_multiplier)
    )
    neck = None
    if extractor.neck is not None:
        neck = build_neck(extractor, backbone, _neck_options(extractor, options))
    return FeatureExtractor(
        backbone=backbone,
        pyramid=neck,
        strides=[STRIDE],
        num_stacks=1 if neck else len(backbone.outputs),
        pad_to_multiple=options.padding(row, extractor.padding_multiple),
        normalize=normalization(options, row.normalize),
    )


def _neck_options(extractor: Extractor, options: CenterNetOptions) -> NeckOptions:
    # Those of the type are arguments of the type's own neck.
    settings = dict(extractor.settings) if extractor.neck in NECKS.built_in else {}
    return NeckOptions(
        hyperparams=_NECK,
        batch_norm_trainable=options.batch_norm_trainable,
        levels=range(2, 3),
        inputs=extractor.levels,
        use_depthwise=settings.pop('is_separable', options.use_separable_conv),
        bilinear=options.bilinear,
        settings=settings,
    )
