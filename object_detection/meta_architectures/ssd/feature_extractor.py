"""Builds the feature extractors of single-shot detectors from the rows of `EXTRACTORS`."""

import dataclasses

from object_detection.errors import Problems, UserError, expected
from object_detection.meta_architectures.ssd.extractors import EXTRACTORS, num_maps
from object_detection.models.backbones.resnet_v1 import Padding
from object_detection.models.backbones.table import Backbone, BackboneOptions
from object_detection.models.extractors import Extractor
from object_detection.models.feature_extractor import (
    ExtractorOptions,
    FeatureExtractor,
    build_neck,
    check_levels,
    check_resnet,
    check_used,
    find_parts,
    same_size_levels,
)
from object_detection.models.necks import bifpn, fpn
from object_detection.models.necks.bifpn import Options as BiFpnOptions
from object_detection.models.necks.table import NECKS, NeckOptions

_BACKBONE_OPTIONS = ('depth_multiplier', 'min_depth', 'use_explicit_padding')
_NECK_OPTIONS = ('fpn', 'bifpn', 'num_layers', 'use_depthwise')


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

    def given(self, *names: str) -> dict:
        """Returns those of some options that differ from their defaults."""
        values = {name: getattr(self, name) for name in names}
        return {name: value for name, value in values.items() if value != DEFAULTS[name]}


DEFAULTS = {field.name: field.default for field in dataclasses.fields(SingleShotOptions)}


def build_ssd(type_name: str, options: SingleShotOptions) -> FeatureExtractor:
    """Builds the feature extractor that `type_name` names.

    Raises:
      ValueError: if there is no extractor of that name, or `options` do not fit it.
    """
    extractor, row = _checked(type_name, options)
    if extractor.keeps_hyperparams:
        options = dataclasses.replace(options, override_backbone=False)
    taken = _levels_of_backbone(extractor, options, row)
    backbone = row.trunk(taken, _backbone_options(extractor, options, row))
    neck_options = _neck_options(extractor, options, row, taken)
    return FeatureExtractor(
        backbone=backbone,
        pyramid=build_neck(extractor, backbone, neck_options),
        strides=[row.stride(level) for level in neck_options.levels],
        pad_to_multiple=options.padding(row),
        normalize=options.normalization(row),
    )


def _checked(type_name: str, options: SingleShotOptions) -> tuple[Extractor, Backbone]:
    """Returns the rows of a type and of its backbone, after checking the options."""
    extractor, row = find_parts(type_name, EXTRACTORS, options)
    if options.hyperparams is None and NECKS[extractor.neck].hyperparams is None:
        raise UserError('The feature extractor needs `conv_hyperparams`. Received: none.')
    if extractor.needs_override and not options.override_backbone:
        raise expected(
            'override_base_feature_extractor_hyperparams',
            'true, as the backbone has no hyperparameters but those of `conv_hyperparams`',
            'false',
        )
    if not options.depth_multiplier > 0:
        raise expected('depth_multiplier', 'a positive number', f'{options.depth_multiplier:g}')
    if options.min_depth < 1:
        raise UserError(f'min_depth: expected at least 1. Received: {options.min_depth}.')
    problems = Problems()
    with problems:
        given, owner = options.given(*_BACKBONE_OPTIONS), f'the backbone {extractor.backbone}'
        check_used(given, row.uses, owner, DEFAULTS, row.refusals)
    with problems:
        given, owner = options.given(*_NECK_OPTIONS), f'the neck {extractor.neck}'
        check_used(given, NECKS[extractor.neck].uses, owner, DEFAULTS)
    with problems:
        check_used(options.resnet, row.uses, f'the backbone {extractor.backbone}')
    with problems:
        _check_type(type_name, extractor, options)
    problems.raise_if_any()
    _check_maps(extractor, options, row)
    taken = _levels_of_backbone(extractor, options, row)
    check_levels('backbone', taken, row)
    check_resnet(options, taken[-1])
    return extractor, row


def _check_type(type_name: str, extractor: Extractor, options: SingleShotOptions) -> None:
    """Checks what a type does not leave to the config."""
    if options.num_layers is not None and not extractor.counts_maps:
        always = f'none, as the type {type_name} always has {num_maps(extractor)} maps'
        raise expected('num_layers', always, options.num_layers)
    if extractor.image_size and options.pad_to_multiple not in (None, 1):
        only = f'1, as the type {type_name} takes images of {extractor.image_size} pixels only'
        raise expected('pad_to_multiple', only, options.pad_to_multiple)


def _check_maps(extractor: Extractor, options: SingleShotOptions, row: Backbone) -> None:
    """Checks the numbers that say which maps there are."""
    uses, pyramid = NECKS[extractor.neck].uses, _pyramid(extractor, options)
    if 'num_layers' in uses:
        most = num_maps(extractor) if extractor.neck == 'multi_resolution' else None
        count = len(_levels(extractor, options))
        if count < 1 or (most and count > most):
            limits = f'1 to {most}' if most else 'at least 1'
            raise UserError(f'num_layers: expected {limits}. Received: {options.num_layers}.')
        return
    low, high = pyramid.min_level, pyramid.max_level
    first, last = row.levels[0], row.levels[-1]
    if 'bifpn' in uses:
        if not first <= low <= last:
            raise UserError(f'bifpn.min_level: expected {first} to {last}. Received: {low}.')
        for field in ('num_iterations', 'num_filters'):
            if getattr(pyramid, field) < 1:
                usual = getattr(_usual_bifpn(extractor), field)
                raise UserError(
                    f'bifpn.{field}: expected at least 1, in EfficientDet with this backbone '
                    f'{usual}; the field has no default. Received: {getattr(pyramid, field)}.'
                )
        bifpn.check(pyramid)
        return
    levels = NECKS[extractor.neck].levels
    if levels not in (None, range(low, high + 1)):
        only = f'min_level {levels[0]} and max_level {levels[-1]}'
        raise expected('fpn', f'{only}, as {extractor.neck} has no others', f'{low} and {high}')
    if not first <= low <= min(high, last):
        raise expected(
            'fpn', f'{first} <= min_level <= {last}, min_level <= max_level', f'{low} and {high}'
        )
    if pyramid.depth < 1:
        raise expected('fpn.additional_layer_depth', 'at least 1', pyramid.depth)


def _usual_bifpn(extractor: Extractor) -> BiFpnOptions:
    return BiFpnOptions(**extractor.settings)


def _pyramid(extractor: Extractor, options: SingleShotOptions) -> FpnOptions | BiFpnOptions | None:
    """Returns the options of the pyramid; None for a neck that counts its maps."""
    uses = NECKS[extractor.neck].uses
    if 'bifpn' in uses:
        return options.bifpn or _usual_bifpn(extractor)
    return options.fpn or FpnOptions() if 'fpn' in uses else None


def _levels(extractor: Extractor, options: SingleShotOptions) -> range:
    """Returns the levels of the maps."""
    pyramid = _pyramid(extractor, options)
    if pyramid is not None:
        return range(pyramid.min_level, pyramid.max_level + 1)
    count = num_maps(extractor) if options.num_layers is None else options.num_layers
    return range(extractor.levels[0], extractor.levels[0] + count)


def _levels_of_backbone(extractor: Extractor, options: SingleShotOptions, row: Backbone) -> range:
    """Returns the levels of the maps of the backbone that the neck takes."""
    if extractor.levels is not None:
        return extractor.levels
    levels = _levels(extractor, options)
    return range(levels[0], min(levels[-1], row.levels[-1]) + 1)


def _backbone_options(
    extractor: Extractor, options: SingleShotOptions, row: Backbone
) -> BackboneOptions:
    found = options.for_backbone(
        row,
        depth_multiplier=options.depth_multiplier,
        min_depth=options.min_depth,
        explicit_padding=options.use_explicit_padding,
        is_thin=options.use_depthwise and 'fpn' in NECKS[extractor.neck].uses,
    )
    if 'padding_mode' in row.uses:
        # As in the reference, the convolutions of a ResNet before norms never have a bias.
        hyperparams = dataclasses.replace(found.hyperparams, force_use_bias=False)
        found = dataclasses.replace(found, hyperparams=hyperparams)
    return found


def _neck_options(
    extractor: Extractor, options: SingleShotOptions, row: Backbone, taken: range
) -> NeckOptions:
    pyramid = _pyramid(extractor, options)
    settings = dict(extractor.settings) | same_size_levels(extractor.neck, row, taken)
    depth = nominal = None
    if isinstance(pyramid, BiFpnOptions):
        names = ('num_iterations', 'num_filters', 'combine_method')
        settings = {name: getattr(pyramid, name) for name in names}
    elif pyramid is not None:
        settings = vars(pyramid.network) | {'crop_upsampled': True} | settings
        nominal, depth = pyramid.depth, options.depth(pyramid.depth)
    else:
        depth = settings.pop('depth', None)
    return NeckOptions(
        hyperparams=options.frozen(NECKS[extractor.neck].hyperparams or options.hyperparams),
        batch_norm_trainable=options.batch_norm_trainable,
        levels=_levels(extractor, options),
        inputs=taken,
        depth=depth,
        nominal_depth=nominal,
        depth_multiplier=options.depth_multiplier,
        min_depth=options.min_depth,
        use_depthwise=options.use_depthwise,
        explicit_padding=options.use_explicit_padding or _pads_alike(extractor, options, row),
        settings=settings,
    )


def _pads_alike(extractor: Extractor, options: SingleShotOptions, row: Backbone) -> bool:
    """Returns whether the maps after those of the backbone are padded as its own are."""
    is_same = options.resnet.get('padding_mode') is Padding.SAME
    return row.pads_alike and extractor.neck == 'multi_resolution' and not is_same
