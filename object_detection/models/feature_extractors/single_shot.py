"""Options of the feature extractors of single-shot detectors, and what these extractors share."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import keras

from object_detection.errors import UserError
from object_detection.models.feature_extractors.extractor_types import ExtractorOptions
from object_detection.models.necks import fpn
from object_detection.models.necks.bifpn import Options as BiFpnOptions

# Levels of the backbones that a pyramid may have maps of; level l has stride 2**l.
FIRST_LEVEL, LAST_LEVEL = 2, 5
# Number of maps of the networks without a feature pyramid, unless the config says otherwise.
NUM_LAYERS = 6


@dataclasses.dataclass(frozen=True)
class FpnOptions:
    """Options of a config for a feature pyramid network (https://arxiv.org/abs/1612.03144).

    Attributes:
      min_level, max_level: levels of the finest and the coarsest map; level l has stride 2**l.
      depth: number of channels of all levels, before the factor of the config.
      network: other options of the network; those that `SingleShotOptions` set too are ignored.
    """

    min_level: int = 3
    max_level: int = 7
    depth: int = 256
    network: fpn.Options = dataclasses.field(default_factory=fpn.Options)


@dataclasses.dataclass(frozen=True)
class SingleShotOptions(ExtractorOptions):
    """Options of a config for a feature extractor of a single-shot detector.

    Attributes:
      depth_multiplier: factor of the numbers of channels.
      min_depth: minimum number of channels of a convolution after that factor.
      use_explicit_padding: whether convolutions of stride 2 are padded alike on both sides.
      use_depthwise: whether the 3x3 convolutions after the backbone are separable.
      num_layers: number of maps of networks without a feature pyramid; None if the config does not
        set it.
      fpn, bifpn: None if the config does not have the message.
    """

    depth_multiplier: float = 1.0
    min_depth: int = 16
    use_explicit_padding: bool = False
    use_depthwise: bool = False
    num_layers: int | None = None
    fpn: FpnOptions | None = None
    bifpn: BiFpnOptions | None = None

    def depth(self, filters: int) -> int:
        """Returns the number of channels of a convolution that has `filters` at factor 1."""
        return max(int(filters * self.depth_multiplier), self.min_depth)


def check_depths(options: SingleShotOptions) -> None:
    """Checks the options that every extractor needs, and those of the numbers of channels.

    Raises:
      ValueError: if the config has no hyperparameters, or a number is out of its range.
    """
    if options.hyperparams is None:
        raise UserError('The feature extractor needs `conv_hyperparams`. Received: none.')
    if not options.depth_multiplier > 0:
        raise UserError(
            f'depth_multiplier: expected a positive number. Received: {options.depth_multiplier:g}.'
        )
    if options.min_depth < 1:
        raise UserError(f'min_depth: expected at least 1. Received: {options.min_depth}.')


def check_unused(options: SingleShotOptions, reasons: Mapping[str, str]) -> None:
    """Checks that the config does not set options that an extractor does not have.

    Args:
      options: the options of the config.
      reasons: name of an option -> why the extractor does not have it, one sentence.

    Raises:
      ValueError: if an option differs from its default.
    """
    defaults = {field.name: field.default for field in dataclasses.fields(options)}
    for name, reason in reasons.items():
        value = getattr(options, name)
        if value != defaults[name]:
            raise UserError(f'{name}: {reason} Received: {format_option(value)}.')


def format_option(value: Any) -> str:
    """Returns an option as configs write it; messages are only named by their being there."""
    if isinstance(value, bool):
        return str(value).lower()
    return 'the message' if dataclasses.is_dataclass(value) else f'{value}'


def pyramid_levels(options: SingleShotOptions) -> range:
    """Returns the levels of the maps of the backbone that the feature pyramid is made of."""
    pyramid = options.fpn or FpnOptions()
    return range(pyramid.min_level, min(pyramid.max_level, LAST_LEVEL) + 1)


def pyramid_strides(options: SingleShotOptions) -> list[int]:
    """Returns the strides of the maps of the feature pyramid."""
    pyramid = options.fpn or FpnOptions()
    return [2**level for level in range(pyramid.min_level, pyramid.max_level + 1)]


def check_pyramid(options: SingleShotOptions) -> None:
    """Checks the options of an extractor with a feature pyramid network.

    Raises:
      ValueError: if a number is out of its range, or the extractor does not have an option.
    """
    check_unused(
        options,
        {
            'bifpn': 'expected `fpn`, as the type has a feature pyramid network.',
            'num_layers': 'expected `fpn.max_level`, as the type has a feature pyramid network.',
        },
    )
    pyramid = options.fpn or FpnOptions()
    low, high = pyramid.min_level, pyramid.max_level
    if not FIRST_LEVEL <= low <= min(high, LAST_LEVEL):
        raise UserError(
            f'fpn: expected {FIRST_LEVEL} <= min_level <= {LAST_LEVEL} and min_level <= max_level. '
            f'Received: min_level {low}, max_level {high}.'
        )
    if pyramid.depth < 1:
        raise UserError(
            f'fpn.additional_layer_depth: expected at least 1. Received: {pyramid.depth}.'
        )


def feature_pyramid(
    channels: Sequence[int], options: SingleShotOptions, *, propagate_sums: bool = False
) -> keras.Model:
    """Builds the feature pyramid network on the maps of a backbone.

    Args:
      channels: channels of the maps of `pyramid_levels`.
      options: the options of the config.
      propagate_sums: whether it is the network of TensorFlow 1; see `fpn.Options`.
    """
    pyramid = options.fpn or FpnOptions()
    levels = pyramid_levels(options)
    return fpn.feature_pyramid(
        channels,
        min_level=pyramid.min_level,
        depth=options.depth(pyramid.depth),
        num_coarse_levels=pyramid.max_level - levels[-1],
        hyperparams=options.hyperparams,
        batch_norm_trainable=options.batch_norm_trainable,
        name='fpn',
        options=dataclasses.replace(
            pyramid.network,
            propagate_sums=propagate_sums,
            use_depthwise=options.use_depthwise,
            explicit_padding=options.use_explicit_padding,
            crop_upsampled=True,
        ),
    )
