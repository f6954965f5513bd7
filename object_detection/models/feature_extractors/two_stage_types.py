"""Feature extractors of Faster R-CNN, by the `type` that a config names them with."""

import dataclasses
import math
from collections.abc import Callable, Collection
from typing import Any

from object_detection.errors import UserError
from object_detection.models.backbones import inception_resnet_v2, inception_v2, resnet_v1
from object_detection.models.feature_extractors.two_stage import (
    FeatureExtractor,
    FullyConnectedBoxClassifier,
    Preprocess,
    scale_to_unit,
    subtract_means,
)
from object_detection.models.hyperparams import LayerHyperparams
from object_detection.models.necks import fpn

# Of a pyramid that the config does not describe.
_LEVELS = (2, 6)
# Options of ResNets alone.
_RESNET_FIELDS = ('stride_in_1x1', 'padding_mode', 'frozen_stages', 'freeze_affine', 'preprocess')


@dataclasses.dataclass(frozen=True)
class ExtractorOptions:
    """What a config says about a feature extractor.

    Attributes:
      batch_norm_trainable: False freezes all batch norms of the extractor.
      hyperparams: set-up of the pyramid's layers; None if the config has none.
      override_backbone: whether `hyperparams` also hold for the backbone.
      stride: of the single feature map of extractors without a pyramid.
      pad_to_multiple: images are padded to a multiple of it; None is the extractor's default.
      levels: (min, max) of the pyramid; None is the default, 2 to 6.
      pyramid_depth: channels of the pyramid; None is the default, 256.
      pyramid: how it is built.
      box_head_depth: units of the fully connected layers over a pyramid's crops; None is 1024.
      stride_in_1x1, padding_mode, frozen_stages: of a ResNet, as in `resnet_v1.Options`; None is
        the default there.
      freeze_affine: of a ResNet: whether offset and scale of frozen batch norms do not train; None
        is False.
      preprocess: what a ResNet gets for an image; None subtracts the means of ImageNet.
    """

    batch_norm_trainable: bool
    hyperparams: LayerHyperparams | None = None
    override_backbone: bool = False
    stride: int = 16
    pad_to_multiple: int | None = None
    levels: tuple[int, int] | None = None
    pyramid_depth: int | None = None
    pyramid: fpn.Options = dataclasses.field(default_factory=fpn.Options)
    box_head_depth: int | None = None
    stride_in_1x1: bool | None = None
    padding_mode: resnet_v1.Padding | None = None
    frozen_stages: int | None = None
    freeze_affine: bool | None = None
    preprocess: Preprocess | None = None


@dataclasses.dataclass(frozen=True)
class _Row:
    """One feature extractor.

    Attributes:
      check: raises ValueError for options that do not fit it, without building it.
      build: makes it of options that do.
    """

    check: Callable[[ExtractorOptions], None]
    build: Callable[[ExtractorOptions], FeatureExtractor]


def _backbone_options(options: ExtractorOptions, default: LayerHyperparams) -> dict[str, Any]:
    return {
        'hyperparams': options.hyperparams if options.override_backbone else default,
        'batch_norm_trainable': options.batch_norm_trainable,
    }


def _resnet_options(options: ExtractorOptions, default: LayerHyperparams) -> dict[str, Any]:
    """Arguments that the parts of a ResNet have in common."""
    common = _backbone_options(options, default)
    chosen = {
        'stride_in_1x1': options.stride_in_1x1,
        'padding': options.padding_mode,
        'frozen_stages': options.frozen_stages,
    }
    chosen = {name: value for name, value in chosen.items() if value is not None}
    return {
        **common,
        'hyperparams': _with_freezing(common['hyperparams'], options),
        'options': resnet_v1.Options(**chosen),
    }


def _with_freezing(hyperparams: LayerHyperparams, options: ExtractorOptions) -> LayerHyperparams:
    """Adds `freeze_affine` to the batch norms of a set-up."""
    if not options.freeze_affine or hyperparams.batch_norm is None:
        return hyperparams
    norm = dataclasses.replace(hyperparams.batch_norm, freeze_affine=True)
    return dataclasses.replace(hyperparams, batch_norm=norm)


def _check_resnet(options: ExtractorOptions, top_level: int) -> None:
    """Checks the options of ResNets, the last stage of whose trunk has stride 2**top_level."""
    if not 0 <= (options.frozen_stages or 0) <= top_level:
        raise UserError(
            f'frozen_stages: expected 0 to {top_level}, the stages of the backbone. '
            f'Received: {options.frozen_stages}.'
        )
    if options.freeze_affine and options.override_backbone and not options.hyperparams.batch_norm:
        raise UserError(
            'freeze_affine: expected batch norms in conv_hyperparams, which hold for the backbone. '
            'Received: none.'
        )
    if options.preprocess is not None:
        _check_preprocess(options.preprocess)


def _check_preprocess(preprocess: Preprocess) -> None:
    for name in ('mean', 'std'):
        if len(getattr(preprocess, name)) != 3:
            raise UserError(
                f'preprocess.{name}: expected three numbers, for red, green and blue. '
                f'Received: {list(getattr(preprocess, name))}.'
            )
    for name, value in [('scale', preprocess.scale), *(('std', std) for std in preprocess.std)]:
        if not 0 < value < math.inf:
            raise UserError(f'preprocess.{name}: expected a positive number. Received: {value:g}.')


def _check_no_resnet_fields(options: ExtractorOptions) -> None:
    for field in _RESNET_FIELDS:
        value = getattr(options, field)
        if value is not None:
            raise UserError(
                f'{field}: only feature extractors on a ResNet have it. Received: {value}.'
            )


def _check_single_map(options: ExtractorOptions, *, strides: Collection[int]) -> None:
    """Checks the options of an extractor without a pyramid."""
    if options.stride not in strides:
        raise UserError(
            f'first_stage_features_stride: expected {" or ".join(map(str, strides))}. '
            f'Received: {options.stride}.'
        )
    for field in ('levels', 'pyramid_depth', 'box_head_depth'):
        if getattr(options, field) is not None:
            raise UserError(
                'A feature extractor without a pyramid has neither `fpn` nor `box_head_depth`. '
                f'Received: {field} = {getattr(options, field)}.'
            )
    if options.hyperparams is not None and not options.override_backbone:
        raise UserError(
            'A feature extractor without a pyramid uses `conv_hyperparams` only with '
            '`override_base_feature_extractor_hyperparams: true`. Received: false.'
        )


def _check_pyramid(options: ExtractorOptions) -> None:
    """Checks the options of an extractor with a pyramid on ResNet v1."""
    if options.hyperparams is None:
        raise UserError(
            'A feature extractor with a pyramid needs `conv_hyperparams`. Received: none.'
        )
    if options.stride not in (8, 16):
        raise UserError(
            f'first_stage_features_stride: expected 8 or 16. Received: {options.stride}.'
        )
    low, high = options.levels or _LEVELS
    if not (resnet_v1.FIRST_LEVEL <= low <= min(high, resnet_v1.LAST_LEVEL)):
        raise UserError(
            f'fpn: expected {resnet_v1.FIRST_LEVEL} <= min_level <= {resnet_v1.LAST_LEVEL} and '
            f'min_level <= max_level. Received: min_level {low}, max_level {high}.'
        )
    depths = {
        'fpn.num_filters or additional_layer_depth': options.pyramid_depth,
        'box_head_depth': options.box_head_depth,
    }
    for field, depth in depths.items():
        if depth is not None and depth < 1:
            raise UserError(f'{field}: expected at least 1. Received: {depth}.')
    _check_resnet(options, min(high, resnet_v1.LAST_LEVEL))
    # The multiple at which every level down from the top of the backbone is half the one below.
    multiple = 2 ** min(high, resnet_v1.LAST_LEVEL)
    if _pyramid_padding(options) % multiple:
        raise UserError(
            f'pad_to_multiple: expected a multiple of {multiple}, the stride of the coarsest map '
            f'of the backbone. Received: {options.pad_to_multiple}.'
        )


def _pyramid_padding(options: ExtractorOptions) -> int:
    return 32 if options.pad_to_multiple is None else options.pad_to_multiple


def _resnet_v1_fpn(depth: int) -> _Row:
    """ResNet with a feature pyramid, and fully connected layers over the crops of its levels."""

    def build(options: ExtractorOptions) -> FeatureExtractor:
        min_level, max_level = options.levels or _LEVELS
        top_level = min(max_level, resnet_v1.LAST_LEVEL)
        backbone_levels = range(min_level, top_level + 1)
        common = {
            'hyperparams': _with_freezing(options.hyperparams, options),
            'batch_norm_trainable': options.batch_norm_trainable,
        }
        return FeatureExtractor(
            backbone=resnet_v1.trunk(
                depth,
                levels=backbone_levels,
                name='backbone',
                **_resnet_options(options, resnet_v1.default_hyperparams(1e-4)),
            ),
            pyramid=fpn.feature_pyramid(
                [resnet_v1.stage_channels(depth, level) for level in backbone_levels],
                min_level=min_level,
                depth=256 if options.pyramid_depth is None else options.pyramid_depth,
                num_coarse_levels=max_level - top_level,
                name='fpn',
                options=options.pyramid,
                **common,
            ),
            box_classifier=FullyConnectedBoxClassifier(
                1024 if options.box_head_depth is None else options.box_head_depth, **common
            ),
            levels=range(min_level, max_level + 1),
            pad_to_multiple=_pyramid_padding(options),
            normalize=options.preprocess or subtract_means,
        )

    return _Row(_check_pyramid, build)


def _resnet_v1(depth: int, *, keeps_crops: bool) -> _Row:
    """ResNet up to stage 4 for proposals, its stage 5 for the crops.

    Args:
      depth: of the network.
      keeps_crops: whether stage 5 has stride 1, as in the reference's networks of TensorFlow 1,
        and not 2.
    """

    def build(options: ExtractorOptions) -> FeatureExtractor:
        common = _resnet_options(options, resnet_v1.default_hyperparams(0.0))
        return FeatureExtractor(
            backbone=resnet_v1.trunk(
                depth, levels=[4], stride=options.stride, name='backbone', **common
            ),
            box_classifier=resnet_v1.stage(
                depth, 5, keeps_resolution=keeps_crops, name='box_classifier', **common
            ),
            levels=[options.stride.bit_length() - 1],
            pad_to_multiple=options.pad_to_multiple or 1,
            normalize=options.preprocess or subtract_means,
        )

    def check(options: ExtractorOptions) -> None:
        _check_single_map(options, strides=(8, 16))
        _check_resnet(options, top_level=4)

    return _Row(check, build)


def _inception_resnet_v2(reduction_padding: str = 'same') -> _Row:
    """Inception-ResNet v2 up to the 17 x 17 blocks for proposals, the rest for the crops."""

    def build(options: ExtractorOptions) -> FeatureExtractor:
        common = _backbone_options(options, inception_resnet_v2.default_hyperparams())
        return FeatureExtractor(
            backbone=inception_resnet_v2.trunk(stride=options.stride, name='backbone', **common),
            box_classifier=inception_resnet_v2.stage(
                reduction_padding=reduction_padding, name='box_classifier', **common
            ),
            levels=[options.stride.bit_length() - 1],
            pad_to_multiple=options.pad_to_multiple or 1,
            normalize=scale_to_unit,
        )

    def check(options: ExtractorOptions) -> None:
        _check_single_map(options, strides=inception_resnet_v2.STRIDES)
        _check_no_resnet_fields(options)

    return _Row(check, build)


def _inception_v2() -> _Row:
    """Inception v2 up to Mixed_4e for proposals, Mixed_5a to 5c for the crops."""

    def build(options: ExtractorOptions) -> FeatureExtractor:
        common = _backbone_options(options, inception_v2.default_hyperparams())
        return FeatureExtractor(
            backbone=inception_v2.trunk(name='backbone', **common),
            box_classifier=inception_v2.stage(name='box_classifier', **common),
            levels=[4],
            pad_to_multiple=options.pad_to_multiple or 1,
            normalize=scale_to_unit,
        )

    def check(options: ExtractorOptions) -> None:
        _check_single_map(options, strides=inception_v2.STRIDES)
        _check_no_resnet_fields(options)

    return _Row(check, build)


FASTER_RCNN: dict[str, _Row] = {
    'faster_rcnn_resnet18_fpn_keras': _resnet_v1_fpn(18),
    'faster_rcnn_resnet34_fpn_keras': _resnet_v1_fpn(34),
    'faster_rcnn_resnet50_fpn_keras': _resnet_v1_fpn(50),
    'faster_rcnn_resnet101_fpn_keras': _resnet_v1_fpn(101),
    'faster_rcnn_resnet152_fpn_keras': _resnet_v1_fpn(152),
    'faster_rcnn_resnet200_fpn_keras': _resnet_v1_fpn(200),
    'faster_rcnn_resnet50_keras': _resnet_v1(50, keeps_crops=False),
    'faster_rcnn_resnet101_keras': _resnet_v1(101, keeps_crops=False),
    'faster_rcnn_resnet152_keras': _resnet_v1(152, keeps_crops=False),
    'faster_rcnn_inception_resnet_v2_keras': _inception_resnet_v2(),
    # Networks of the reference implementation under TensorFlow 1.
    'faster_rcnn_resnet50': _resnet_v1(50, keeps_crops=True),
    'faster_rcnn_resnet101': _resnet_v1(101, keeps_crops=True),
    'faster_rcnn_resnet152': _resnet_v1(152, keeps_crops=True),
    'faster_rcnn_inception_v2': _inception_v2(),
    'faster_rcnn_inception_resnet_v2': _inception_resnet_v2('valid'),
}


def build_faster_rcnn(type_name: str, options: ExtractorOptions) -> FeatureExtractor:
    """Builds the feature extractor that `type_name` names.

    Raises:
      ValueError: as `check_faster_rcnn`.
    """
    check_faster_rcnn(type_name, options)
    return FASTER_RCNN[type_name].build(options)


def check_faster_rcnn(type_name: str, options: ExtractorOptions) -> None:
    """Checks what `build_faster_rcnn` would get, without building it.

    Raises:
      ValueError: if there is no extractor of that name, or `options` do not fit it.
    """
    if type_name not in FASTER_RCNN:
        raise UserError(f'type: expected one of {", ".join(FASTER_RCNN)}. Received: {type_name!r}.')
    if options.override_backbone and options.hyperparams is None:
        raise UserError(
            '`override_base_feature_extractor_hyperparams: true` needs `conv_hyperparams`. '
            'Received: none.'
        )
    if options.pad_to_multiple is not None and options.pad_to_multiple < 1:
        raise UserError(
            f'pad_to_multiple: expected at least 1. Received: {options.pad_to_multiple}.'
        )
    FASTER_RCNN[type_name].check(options)
