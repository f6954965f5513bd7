"""Options of the feature extractors of single-shot detectors, and what these extractors share.

Feature extractors of single-shot detectors by their `type` in configs.

Each module `ssd_<backbone>.py` of this folder exports `ROWS` of this table.

Feature extractors of EfficientDet: EfficientNet with a bidirectional pyramid.

Paper: https://arxiv.org/abs/1911.09070.

Feature extractors of single-shot detectors on MobileNet: six maps, or a feature pyramid.

The types of the reference implementation under TensorFlow 1, without `_keras`, denote the networks
of TensorFlow 1, so that its detectors give the same results: `depth_multiplier` counts once in
MobileNet v1, a feature pyramid propagates maps before they are smoothed, and if its convolutions
are separable, MobileNet v2 ends with 256 channels, too. Penalties are those of the types with
`_keras`: under TensorFlow 1, the depthwise kernels of a MobileNet v2 that the config does not
override have none.

Feature extractors of single-shot detectors with pooled maps, PPN (arXiv:1807.03284).

The reference implementation has them under TensorFlow 1 only. A ResNet there has its strides at the
ends of stages, which gives the same maps as those at the beginnings of the next stages here.

Feature extractors of single-shot detectors on ResNet v1 with a pyramid, as in RetinaNet.

Paper: https://arxiv.org/abs/1708.02002. The types of the reference implementation under
TensorFlow 1, without `_keras`, denote the networks of TensorFlow 1, so that its detectors give the
same results: their pyramids propagate maps before they are smoothed, and the penalty of a backbone
is that of TF-Slim, half of the one under TensorFlow 2. The strides at the ends of stages there give
the same maps as those at the beginnings of the next stages here.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import keras

from object_detection.errors import UserError
from object_detection.models import feature_extractor, resnet_options
from object_detection.models.backbones import efficientnet, mobilenet, mobilenet_v2, resnet_v1
from object_detection.models.feature_extractor import (
    ExtractorOptions,
    ExtractorType,
    FeatureExtractor,
    Preprocess,
    scale_to_unit,
)
from object_detection.models.hyperparams import LayerHyperparams
from object_detection.models.necks import bifpn, fpn, multi_resolution
from object_detection.models.necks.bifpn import Options as BiFpnOptions
from object_detection.models.necks.multi_resolution import pooling_pyramid

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


# Images are normalized by the statistics of ImageNet.
_PREPROCESS = Preprocess(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225), scale=1 / 255)

# Size of the backbone -> pyramid of a config without `bifpn`.
_PYRAMIDS = (
    BiFpnOptions(num_iterations=3, num_filters=64),
    BiFpnOptions(num_iterations=4, num_filters=88),
    BiFpnOptions(num_iterations=5, num_filters=112),
    BiFpnOptions(num_iterations=6, num_filters=160),
    BiFpnOptions(num_iterations=7, num_filters=224),
    BiFpnOptions(num_iterations=7, num_filters=288),
    BiFpnOptions(num_iterations=8, num_filters=384, combine_method='sum'),
    BiFpnOptions(num_iterations=8, num_filters=384, combine_method='sum'),
)
_FIRST_LEVEL, _LAST_LEVEL = min(efficientnet.LEVELS), max(efficientnet.LEVELS)
# Options that the extractors do not have.
_UNUSED = {
    'fpn': 'expected `bifpn`, as the type has a bidirectional pyramid.',
    'num_layers': 'expected `bifpn.max_level`, as the type has a bidirectional pyramid.',
    'depth_multiplier': 'expected 1, as the type determines the size of the backbone.',
    'use_explicit_padding': 'expected false, as an EfficientNet has SAME padding.',
    'use_depthwise': 'expected false, as the convolutions of the type are always separable.',
}


def _check(size: int, options: SingleShotOptions) -> None:
    check_depths(options)
    check_unused(options, _UNUSED)
    pyramid = options.bifpn or _PYRAMIDS[size]
    if not _FIRST_LEVEL <= pyramid.min_level <= _LAST_LEVEL:
        raise UserError(
            f'bifpn.min_level: expected {_FIRST_LEVEL} to {_LAST_LEVEL}. '
            f'Received: {pyramid.min_level}.'
        )
    for field in ('num_iterations', 'num_filters'):
        if getattr(pyramid, field) < 1:
            usual = getattr(_PYRAMIDS[size], field)
            raise UserError(
                f'bifpn.{field}: expected at least 1, in EfficientDet with this backbone {usual}; '
                f'the field has no default. Received: {getattr(pyramid, field)}.'
            )
    bifpn.check(pyramid)


def _backbone_hyperparams(options: SingleShotOptions) -> LayerHyperparams:
    """Returns the hyperparameters of the backbone.

    As in the reference, a config that overrides them determines the penalty alone: norms,
    initializers and activations are always those of EfficientNet.
    """
    default = efficientnet.default_hyperparams()
    if not options.override_backbone:
        return default
    return dataclasses.replace(default, regularizer=options.hyperparams.regularizer)


def _efficientnet_bifpn(size: int) -> ExtractorType:
    """Returns the row of EfficientNet-B<size> with a bidirectional pyramid."""

    def build(options: SingleShotOptions) -> FeatureExtractor:
        pyramid = options.bifpn or _PYRAMIDS[size]
        top_level = min(pyramid.max_level, _LAST_LEVEL)
        backbone = efficientnet.trunk(
            size,
            levels=range(pyramid.min_level, top_level + 1),
            hyperparams=_backbone_hyperparams(options),
            batch_norm_trainable=options.batch_norm_trainable,
            name='backbone',
        )
        return FeatureExtractor(
            backbone=backbone,
            pyramid=bifpn.bidirectional_pyramid(
                [output.shape[-1] for output in backbone.outputs],
                hyperparams=options.hyperparams,
                batch_norm_trainable=options.batch_norm_trainable,
                name='fpn',
                options=pyramid,
            ),
            strides=[2**level for level in range(pyramid.min_level, pyramid.max_level + 1)],
            pad_to_multiple=options.pad_to_multiple or 1,
            normalize=_PREPROCESS,
        )

    return ExtractorType(build, functools.partial(_check, size))


EFFICIENTNET_ROWS: dict[str, ExtractorType] = {
    f'ssd_efficientnet-b{size}_bifpn_keras': _efficientnet_bifpn(size)
    for size in range(len(_PYRAMIDS))
}


# Stride of the first map of extractors without a feature pyramid.
_FIRST_STRIDE = 16
# Channels at the end of a backbone under a pyramid with separable convolutions.
_THIN_V1 = (512, 256)
_THIN_V2 = 256


def trunk_options(options: SingleShotOptions) -> dict[str, Any]:
    """Returns the common arguments of the backbones."""
    return {
        'hyperparams': options.backbone_hyperparams(mobilenet.default_hyperparams()),
        'batch_norm_trainable': options.batch_norm_trainable,
        'name': 'backbone',
        'options': mobilenet.Options(
            depth_multiplier=options.depth_multiplier,
            min_depth=options.min_depth,
            explicit_padding=options.use_explicit_padding,
        ),
    }


def _backbone_of_six_maps(version: int, slim: bool, options: SingleShotOptions) -> keras.Model:
    """Returns the backbone with the last maps of the strides 16 and 32."""
    arguments = trunk_options(options)
    if version == 1:
        levels = mobilenet.LEVELS
        return mobilenet.trunk([levels[4], levels[5]], squares_multiplier=not slim, **arguments)
    outputs = [mobilenet_v2.BEFORE_LAST_STRIDE, mobilenet_v2.LAST]
    return mobilenet_v2.trunk(outputs, **arguments)


def _backbone_of_pyramid(version: int, slim: bool, options: SingleShotOptions) -> keras.Model:
    """Returns the backbone with the maps of the levels of the pyramid."""
    arguments = trunk_options(options)
    levels = pyramid_levels(options)
    if version == 2:
        if options.use_depthwise and slim:
            arguments['last_filters'] = _THIN_V2
        return mobilenet_v2.trunk([mobilenet_v2.LEVELS[level] for level in levels], **arguments)
    if options.use_depthwise:
        arguments['last_filters'] = _THIN_V1
    return mobilenet.trunk(
        [mobilenet.LEVELS[level] for level in levels],
        squares_multiplier=not slim,
        **arguments,
    )


def _six_maps(version: int, *, slim: bool) -> ExtractorType:
    """Returns the row of a MobileNet with the coarser maps of SSD; see `_pyramid`."""

    def build(options: SingleShotOptions) -> FeatureExtractor:
        backbone = _backbone_of_six_maps(version, slim, options)
        maps = multi_resolution.multi_resolution_maps(
            [output.shape[-1] for output in backbone.outputs],
            hyperparams=options.hyperparams,
            batch_norm_trainable=options.batch_norm_trainable,
            name='fpn',
            options=_map_options(options),
        )
        return FeatureExtractor(
            backbone=backbone,
            pyramid=maps,
            strides=[_FIRST_STRIDE * 2**i for i in range(len(maps.outputs))],
            pad_to_multiple=options.pad_to_multiple or 1,
            normalize=scale_to_unit,
        )

    def check(options: SingleShotOptions) -> None:
        check_depths(options)
        reason = 'expected none, as the type has no feature pyramid.'
        check_unused(options, {'fpn': reason, 'bifpn': reason})
        _map_options(options)

    return ExtractorType(build, check)


def _map_options(options: SingleShotOptions) -> multi_resolution.Options:
    num_layers = options.num_layers
    return multi_resolution.Options(
        num_maps=multi_resolution.MAX_MAPS if num_layers is None else num_layers,
        depth_multiplier=options.depth_multiplier,
        min_depth=options.min_depth,
        use_depthwise=options.use_depthwise,
        explicit_padding=options.use_explicit_padding,
    )


def _pyramid(version: int, *, slim: bool) -> ExtractorType:
    """Returns the row of a MobileNet with a feature pyramid network.

    Args:
      version: of the MobileNet.
      slim: whether it is the network of TensorFlow 1.
    """

    def build(options: SingleShotOptions) -> FeatureExtractor:
        backbone = _backbone_of_pyramid(version, slim, options)
        channels = [output.shape[-1] for output in backbone.outputs]
        return FeatureExtractor(
            backbone=backbone,
            pyramid=feature_pyramid(channels, options, propagate_sums=slim),
            strides=pyramid_strides(options),
            pad_to_multiple=options.pad_to_multiple or 1,
            normalize=scale_to_unit,
        )

    def check(options: SingleShotOptions) -> None:
        check_depths(options)
        check_pyramid(options)

    return ExtractorType(build, check)


MOBILENET_ROWS: dict[str, ExtractorType] = {
    'ssd_mobilenet_v1_keras': _six_maps(1, slim=False),
    'ssd_mobilenet_v2_keras': _six_maps(2, slim=False),
    'ssd_mobilenet_v1_fpn_keras': _pyramid(1, slim=False),
    'ssd_mobilenet_v2_fpn_keras': _pyramid(2, slim=False),
    # Networks of the reference implementation under TensorFlow 1.
    'ssd_mobilenet_v1': _six_maps(1, slim=True),
    'ssd_mobilenet_v2': _six_maps(2, slim=True),
    'ssd_mobilenet_v1_fpn': _pyramid(1, slim=True),
    'ssd_mobilenet_v2_fpn': _pyramid(2, slim=True),
}


# Level of the backbone's map that is pooled.
_LEVEL = 4
# Channels of all maps on a ResNet.
_RESNET_DEPTH = 1024


def _extractor(backbone, depth: int | None, options: SingleShotOptions, normalize):
    """Returns the extractor with the maps that are pooled from the backbone's last one."""
    num_maps = NUM_LAYERS if options.num_layers is None else options.num_layers
    return FeatureExtractor(
        backbone=backbone,
        pyramid=pooling_pyramid(
            backbone.outputs[-1].shape[-1],
            depth=depth,
            num_maps=num_maps,
            hyperparams=options.hyperparams,
            batch_norm_trainable=options.batch_norm_trainable,
            name='fpn',
        ),
        strides=[2 ** (_LEVEL + i) for i in range(num_maps)],
        pad_to_multiple=options.pad_to_multiple or 1,
        normalize=normalize,
    )


def _check_pooling_pyramid(options: SingleShotOptions) -> None:
    """Checks the options of all pooling pyramids."""
    check_depths(options)
    reason = 'expected none, as the maps of the type are pooled.'
    reasons = {'fpn': reason, 'bifpn': reason}
    reasons['use_depthwise'] = 'expected false, as the type has no 3x3 convolution after its maps.'
    check_unused(options, reasons)
    if options.num_layers is not None and options.num_layers < 1:
        raise UserError(f'num_layers: expected at least 1. Received: {options.num_layers}.')


def _mobilenet_v1() -> ExtractorType:
    """Returns the row of MobileNet v1, whose own map is the first one."""

    def build(options: SingleShotOptions) -> FeatureExtractor:
        backbone = mobilenet.trunk([mobilenet.LEVELS[_LEVEL]], **trunk_options(options))
        return _extractor(backbone, None, options, scale_to_unit)

    return ExtractorType(build, _check_pooling_pyramid)


def _resnet_v1(depth: int) -> ExtractorType:
    """Returns the row of a ResNet, whose map a convolution of size 1 converts first."""

    def build(options: SingleShotOptions) -> FeatureExtractor:
        default = resnet_v1.default_hyperparams(resnet_options.SLIM_PENALTY)
        backbone = resnet_v1.trunk(
            depth,
            levels=[_LEVEL],
            name='backbone',
            **resnet_options.network_options(options, default),
        )
        return _extractor(backbone, _RESNET_DEPTH, options, resnet_options.normalization(options))

    def check(options: SingleShotOptions) -> None:
        _check_pooling_pyramid(options)
        reasons = {
            'depth_multiplier': 'expected 1, as in the reference the type has no such factor.',
            'use_explicit_padding': 'expected false, as a ResNet has a padding of its own.',
        }
        check_unused(options, reasons)
        resnet_options.check_resnet(options, _LEVEL)

    return ExtractorType(build, check, resnet_options.ResnetOptions)


POOLING_PYRAMID_ROWS: dict[str, ExtractorType] = {
    'ssd_mobilenet_v1_ppn': _mobilenet_v1(),
    'ssd_resnet50_v1_ppn': _resnet_v1(50),
    'ssd_resnet101_v1_ppn': _resnet_v1(101),
    'ssd_resnet152_v1_ppn': _resnet_v1(152),
}


# Factor of the sum of squares of a backbone under TensorFlow 2, unless the config overrides it.
_PENALTY = 1e-4


def _trunk_options(options: SingleShotOptions, penalty: float) -> dict[str, Any]:
    """Returns the arguments of the backbone, whose convolutions before norms have no bias."""
    arguments = resnet_options.network_options(options, resnet_v1.default_hyperparams(penalty))
    return arguments | {
        'name': 'backbone',
        'hyperparams': dataclasses.replace(arguments['hyperparams'], force_use_bias=False),
        'options': dataclasses.replace(
            arguments['options'],
            depth_multiplier=options.depth_multiplier,
            min_depth=options.min_depth,
        ),
    }


def _resnet_v1_fpn(depth: int, *, slim: bool = False) -> ExtractorType:
    """Returns the row of a ResNet with a feature pyramid network.

    Args:
      depth: of the ResNet.
      slim: whether it is the network of TensorFlow 1.
    """
    penalty = resnet_options.SLIM_PENALTY if slim else _PENALTY

    def build(options: SingleShotOptions) -> FeatureExtractor:
        levels = pyramid_levels(options)
        backbone = resnet_v1.trunk(depth, levels=levels, **_trunk_options(options, penalty))
        frozen = resnet_options.with_freezing(options.hyperparams, options)
        return FeatureExtractor(
            backbone=backbone,
            pyramid=feature_pyramid(
                [output.shape[-1] for output in backbone.outputs],
                dataclasses.replace(options, hyperparams=frozen),
                propagate_sums=slim,
            ),
            strides=pyramid_strides(options),
            pad_to_multiple=options.pad_to_multiple or 1,
            normalize=resnet_options.normalization(options),
        )

    def check(options: SingleShotOptions) -> None:
        check_depths(options)
        check_pyramid(options)
        reason = 'expected false, as a ResNet has a padding of its own.'
        check_unused(options, {'use_explicit_padding': reason})
        resnet_options.check_resnet(options, pyramid_levels(options)[-1])

    return ExtractorType(build, check, resnet_options.ResnetOptions)


RESNET_ROWS: dict[str, ExtractorType] = {
    'ssd_resnet18_v1_fpn_keras': _resnet_v1_fpn(18),
    'ssd_resnet34_v1_fpn_keras': _resnet_v1_fpn(34),
    'ssd_resnet50_v1_fpn_keras': _resnet_v1_fpn(50),
    'ssd_resnet101_v1_fpn_keras': _resnet_v1_fpn(101),
    'ssd_resnet152_v1_fpn_keras': _resnet_v1_fpn(152),
    # Networks of the reference implementation under TensorFlow 1.
    'ssd_resnet50_v1_fpn': _resnet_v1_fpn(50, slim=True),
    'ssd_resnet101_v1_fpn': _resnet_v1_fpn(101, slim=True),
    'ssd_resnet152_v1_fpn': _resnet_v1_fpn(152, slim=True),
}


__all__ = ['SSD', 'BiFpnOptions', 'FpnOptions', 'SingleShotOptions', 'build_ssd', 'check_ssd']

SSD: dict[str, ExtractorType] = (
    MOBILENET_ROWS | POOLING_PYRAMID_ROWS | RESNET_ROWS | EFFICIENTNET_ROWS
)


def build_ssd(type_name: str, options: SingleShotOptions) -> FeatureExtractor:
    """Builds the feature extractor that `type_name` names.

    Raises:
      ValueError: in the cases of `check_ssd`.
    """
    return feature_extractor.build(SSD, type_name, options)


def check_ssd(type_name: str, options: SingleShotOptions) -> None:
    """Checks the arguments of `build_ssd` without building the extractor.

    Raises:
      ValueError: if there is no extractor of that name, or `options` do not fit it.
    """
    feature_extractor.check(SSD, type_name, options)
