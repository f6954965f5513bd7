"""Builds the single-shot detector that an Ssd proto describes, with its extractor and heads."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from object_detection.builders import (
    anchor_generator_builder,
    box_coder_builder,
    hyperparams_builder,
    image_resizer_builder,
    losses_builder,
    matcher_builder,
    post_processing_builder,
    region_similarity_calculator_builder,
    resnet_options_builder,
)
from object_detection.config import reading
from object_detection.config.oneof import build_oneof
from object_detection.errors import Problems, UserError, expected, raise_if_any, within
from object_detection.meta_architectures.ssd import rules
from object_detection.meta_architectures.ssd.anchor_losses import (
    AnchorLosses,
    LossOptions,
    TargetOptions,
)
from object_detection.meta_architectures.ssd.anchor_tasks import AnchorTask
from object_detection.meta_architectures.ssd.centerness import Centerness
from object_detection.meta_architectures.ssd.extractors import EXTRACTORS, least_side
from object_detection.meta_architectures.ssd.feature_extractor import (
    BiFpnOptions,
    FpnOptions,
    SingleShotOptions,
    build_ssd,
)
from object_detection.meta_architectures.ssd.ssd import PostProcessing, Ssd
from object_detection.models import image_sizes
from object_detection.models.backbones.table import find
from object_detection.models.feature_extractor import FeatureExtractor
from object_detection.models.heads.convolutional import (
    ConvolutionalBoxPredictor,
    ConvolutionalOptions,
)
from object_detection.models.heads.dense_outputs import DenseOutput
from object_detection.models.heads.weight_shared import (
    WeightSharedConvolutionalBoxPredictor,
    WeightSharedOptions,
)
from object_detection.models.necks.table import NECKS
from object_detection.protos import box_predictor_pb2, fpn_pb2, matcher_pb2, ssd_pb2
from object_detection.protos.ssd_pb2 import SsdFeatureExtractor
from object_detection.targets.assigners import Assigner, PointAssigner, SimilarityAssigner

# Fields that no feature extractor has -> why.
_NOT_SUPPORTED: Mapping[str, str] = {
    'replace_preprocessor_with_placeholder': (
        'expected false: the detector normalizes images itself, also in exported models'
    ),
    'spaghettinet_arch_name': 'expected none, as SpaghettiNet is not built here',
}


def build_extractor(config: SsdFeatureExtractor, batch_norm_trainable: bool) -> FeatureExtractor:
    """Builds the feature extractor of a single-shot detector.

    Args:
      config: message of the extractor. Without `fpn`, a feature pyramid network has the defaults
        of that message: the levels 3 to 7 and 256 channels.
      batch_norm_trainable: False freezes all batch norms.

    Raises:
      ValueError: if the type is unknown or its options do not fit it.
    """
    with within(f'{config.DESCRIPTOR.full_name} {config.type!r}'):
        options = _options(config, batch_norm_trainable)
        row = EXTRACTORS[config.type]
        if row.keeps_hyperparams:
            name = 'override_base_feature_extractor_hyperparams'
            reading.unused(config, name, 'as in the reference, the backbone keeps its own')
        extractor = build_ssd(config.type, options)
        neck = config.neck or row.neck
        if NECKS[neck].hyperparams is not None:
            reading.unused(config, 'conv_hyperparams', _KEPT)
            reading.unused(config.fpn, _VARIANTS, f'there is one kind of {neck}')
        return extractor


def map_sizes(config: ssd_pb2.Ssd) -> Callable[[int, int], list[tuple[int, int]]]:
    """Returns a function from height and width of images to those of the feature maps in cells.

    Raises:
      ValueError: as `build_extractor`.
    """
    with image_sizes.scope(image_resizer_builder.build(config.image_resizer).static_shape):
        extractor = build_extractor(config.feature_extractor, False)
    return lambda height, width: [shape[1:3] for shape in extractor.map_shapes(height, width)]


def _options(config: SsdFeatureExtractor, batch_norm_trainable: bool) -> SingleShotOptions:
    problem = rules.type_problem(config.type)
    if problem:
        raise UserError(f'type: {problem}')
    for field, reason in _NOT_SUPPORTED.items():
        if getattr(config, field):
            raise UserError(f'{field}: {reason}. Received: {str(getattr(config, field)).lower()}.')
    return SingleShotOptions(
        batch_norm_trainable=batch_norm_trainable,
        hyperparams=(
            hyperparams_builder.build(
                config.conv_hyperparams, separable='inception' in f'{config.type} {config.backbone}'
            )
            if config.HasField('conv_hyperparams')
            else None
        ),
        override_backbone=config.override_base_feature_extractor_hyperparams,
        pad_to_multiple=config.pad_to_multiple,
        backbone=config.backbone or None,
        neck=config.neck or None,
        drop_path_rate=config.drop_path_rate if config.HasField('drop_path_rate') else None,
        depth_multiplier=config.depth_multiplier,
        min_depth=config.min_depth,
        use_explicit_padding=config.use_explicit_padding,
        use_depthwise=config.use_depthwise,
        num_layers=config.num_layers if config.HasField('num_layers') else None,
        fpn=_fpn(config.fpn) if config.HasField('fpn') else None,
        bifpn=_bifpn(config.bifpn) if config.HasField('bifpn') else None,
        resnet=resnet_options_builder.build(config),
    )


def _fpn(config: fpn_pb2.FeaturePyramidNetworks) -> FpnOptions:
    return FpnOptions(
        min_level=config.min_level,
        max_level=config.max_level,
        depth=hyperparams_builder.depth(config),
        network=hyperparams_builder.network_options(config),
    )


def _bifpn(config: fpn_pb2.BidirectionalFeaturePyramidNetworks) -> BiFpnOptions:
    return BiFpnOptions(
        min_level=config.min_level,
        max_level=config.max_level,
        num_iterations=config.num_iterations,
        num_filters=config.num_filters,
        combine_method=config.combine_method,
    )


_KEPT = 'as in the reference, backbone and neck keep their own'
# Fields of a pyramid for kinds of it.
_VARIANTS = ('extra_level_type', 'upsample_type', 'smoothing_type', 'projection_norm')
_NO_DEPTH = 'min_depth and max_depth are 0, which leaves these layers out'
_NO_LAYERS = 'num_layers_before_predictor is 0'
_NO_BIAS = 'with use_depthwise the classes begin without a bias'
_ONLY_OUTPUTS = 'the class and box layers have a bias, no norm and no activation'
_HIDDEN = (
    *('activation', 'batch_norm', 'sync_batch_norm', 'group_norm', 'layer_norm'),
    *('force_use_bias', 'leaky_relu_slope'),
)
_NO_CONFIDENCES = 'without use_confidences_as_targets: true it is not read'

BoxPredictor = ConvolutionalBoxPredictor | WeightSharedConvolutionalBoxPredictor

_SIGMOID = box_predictor_pb2.WeightSharedConvolutionalBoxPredictor.SIGMOID


def build_predictor(
    config: box_predictor_pb2.BoxPredictor,
    *,
    num_outputs: int,
    num_anchors: Sequence[int],
    batch_norm_trainable: bool,
    further: Sequence[DenseOutput] = (),
) -> BoxPredictor:
    """Builds the heads.

    Args:
      config: message with `convolutional_box_predictor` or
        `weight_shared_convolutional_box_predictor` set.
      num_outputs: number of logits of an anchor: K, or K + 1 with a background column.
      num_anchors: number of anchors of a cell, one entry per level.
      batch_norm_trainable: False freezes the norms.
      further: what is predicted in addition to boxes and classes.

    Raises:
      ValueError: if another predictor is set, or for numbers that are out of range or do not fit
        each other.
    """

    def with_arguments(build_one: Callable[..., BoxPredictor]) -> Callable[[Any], BoxPredictor]:
        def build_predictor(option: Any) -> BoxPredictor:
            hyperparams = hyperparams_builder.build(option.conv_hyperparams)
            with within(option.DESCRIPTOR.full_name):
                return build_one(
                    option,
                    num_outputs=num_outputs,
                    num_anchors=num_anchors,
                    hyperparams=hyperparams,
                    batch_norm_trainable=batch_norm_trainable,
                    further=further,
                )

        return build_predictor

    builders = {name: with_arguments(build_one) for name, build_one in BUILDERS.items()}
    return build_oneof(config, 'box_predictor_oneof', builders)


def _convolutional(
    config: box_predictor_pb2.ConvolutionalBoxPredictor, **arguments: Any
) -> ConvolutionalBoxPredictor:
    if not config.max_depth and not config.min_depth:
        reading.unused(config, 'num_layers_before_predictor', _NO_DEPTH)
    elif not config.num_layers_before_predictor:
        reading.unused(config, ('min_depth', 'max_depth'), _NO_LAYERS)
    if config.use_depthwise:
        reading.unused(config, 'class_prediction_bias_init', _NO_BIAS)
    elif not (config.num_layers_before_predictor and (config.max_depth or config.min_depth)):
        reading.unused(config.conv_hyperparams, _HIDDEN, _ONLY_OUTPUTS)
    options = ConvolutionalOptions(
        min_depth=config.min_depth, max_depth=config.max_depth, **_common_options(config)
    )
    return ConvolutionalBoxPredictor(options=options, **arguments)


def _weight_shared(
    config: box_predictor_pb2.WeightSharedConvolutionalBoxPredictor, **arguments: Any
) -> WeightSharedConvolutionalBoxPredictor:
    if not config.use_depthwise:
        names = ('apply_conv_hyperparams_to_heads', 'apply_conv_hyperparams_pointwise')
        reading.unused(config, names, 'use_depthwise is false')
    if not (config.num_layers_before_predictor and arguments['hyperparams'].has_norm):
        reading.unused(config, 'share_norms', 'its towers have no norm')
    options = WeightSharedOptions(
        depth=config.depth,
        share_tower=config.share_prediction_tower,
        hyperparams_of_heads=config.apply_conv_hyperparams_to_heads,
        hyperparams_pointwise=config.apply_conv_hyperparams_pointwise,
        sigmoid_in_inference=config.score_converter == _SIGMOID,
        share_norms=config.share_norms,
        **_common_options(config),
    )
    return WeightSharedConvolutionalBoxPredictor(options=options, **arguments)


def _common_options(config: Any) -> dict[str, Any]:
    clip_range = None
    if not config.use_dropout:
        name = 'dropout_keep_probability'
        default = config.DESCRIPTOR.fields_by_name[name].default_value
        reading.unused(config, name, 'use_dropout is false', harmless=[default, 1.0])
    if config.HasField('box_encodings_clip_range'):
        limits = config.box_encodings_clip_range
        clip_range = (limits.min, limits.max)
    return {
        'code_size': config.box_code_size,
        'kernel_size': config.kernel_size,
        'num_layers': config.num_layers_before_predictor,
        'class_bias': config.class_prediction_bias_init,
        'dropout_rate': 1.0 - config.dropout_keep_probability if config.use_dropout else 0.0,
        'use_depthwise': config.use_depthwise,
        'clip_range': clip_range,
    }


BUILDERS: dict[str, Callable[..., BoxPredictor]] = {
    'convolutional_box_predictor': _convolutional,
    'weight_shared_convolutional_box_predictor': _weight_shared,
}


def build_detector(config: ssd_pb2.Ssd, is_training: bool) -> Ssd:
    """Builds a single-shot detector, with random weights.

    Args:
      config: the model's message.
      is_training: False freezes all batch norms.

    Raises:
      ValueError: if an option is not supported, or does not fit another.
    """
    problems = Problems()
    with problems:
        raise_if_any(rules.problems_of_parts(reading.plain(config)))
    tasks = _tasks(config)
    trains_norms = is_training and not config.freeze_batchnorm
    image_size = None
    with problems:
        resizer = image_resizer_builder.build(config.image_resizer)
        image_size = resizer.static_shape and resizer.static_shape[:2]
    with problems, image_sizes.scope(image_size):
        extractor = build_extractor(config.feature_extractor, trains_norms)
        _check_image_size(config.feature_extractor, extractor, image_size)
    with problems:
        anchors = anchor_generator_builder.build(config.anchor_generator).for_images(image_size)
        box_predictor = build_predictor(
            config.box_predictor,
            num_outputs=config.num_classes + config.add_background_class,
            num_anchors=anchors.num_anchors_per_location(),
            batch_norm_trainable=trains_norms,
            further=[task.output for task in tasks],
        )
    with problems:
        anchor_losses = build_losses(config)
    with problems:
        post_processing = _post_processing(config)
    problems.raise_if_any()
    return Ssd(
        num_classes=config.num_classes,
        resizer=resizer,
        feature_extractor=extractor,
        anchor_generator=anchors,
        box_predictor=box_predictor,
        anchor_losses=anchor_losses,
        post_processing=post_processing,
        tasks=tasks,
    )


def _tasks(config: ssd_pb2.Ssd) -> list[AnchorTask]:
    if not config.HasField('centerness'):
        return []
    return [Centerness(config.centerness.loss_weight, config.normalize_loss_by_num_matches)]


def _check_image_size(
    config: SsdFeatureExtractor, extractor: FeatureExtractor, size: Sequence[int] | None
) -> None:
    """Checks the size of all images, None if they differ."""
    row = EXTRACTORS[config.type]
    num_layers = config.num_layers if config.HasField('num_layers') else None
    least = max(find(row.backbone or config.backbone).least_side, least_side(row, num_layers))
    side = row.image_size
    received = 'images of any size' if size is None else f'images of {size[0]} x {size[1]}'
    if side is not None and (size is None or set(size) != {side}):
        raise expected(
            'image_resizer',
            f'images of {side} x {side}, such as of fixed_shape_resizer {{ height: {side} width: '
            f'{side} }}, as the type {config.type} takes no others',
            received,
        )
    if size is not None and min(extractor.padded_size(*size)) < least:
        raise expected('image_resizer', f'sides of at least {least}, for all maps', received)


def build_losses(config: ssd_pb2.Ssd) -> AnchorLosses:
    """Builds the targets of anchors and the losses.

    Raises:
      ValueError: if a component is not set, or an option is not supported.
    """
    problems = Problems()
    with problems:
        losses = losses_builder.build(config.loss)
        if losses.federated and config.explicit_background_class:
            raise expected('ssd.explicit_background_class', 'false with a federated_loss', 'true')
    if not config.use_confidences_as_targets:
        reading.unused(config, 'implicit_example_weight', _NO_CONFIDENCES)
    with problems:
        assigner, use_matmul_gather = _assigner(config)
    with problems:
        box_coder = box_coder_builder.build(config.box_coder)
    problems.raise_if_any()
    return AnchorLosses(
        assigner,
        box_coder,
        TargetOptions(
            num_columns=config.num_classes + config.add_background_class,
            adds_background=config.add_background_class,
            labels_background=config.explicit_background_class,
            background_as_zeros=config.encode_background_as_zeros,
            from_confidences=config.use_confidences_as_targets,
            implicit_weight=config.implicit_example_weight,
            unmatched_weight=config.negative_class_weight,
            use_matmul_gather=use_matmul_gather,
        ),
        LossOptions(
            **vars(losses),
            divides_by_matches=config.normalize_loss_by_num_matches,
            divides_per_image=config.normalize_loss_per_image,
            divides_by_code_size=config.normalize_loc_loss_by_codesize,
        ),
    )


def _assigner(config: ssd_pb2.Ssd) -> tuple[Assigner, bool]:
    """Returns what matches anchors, and whether targets are gathered by matrix products."""
    if config.matcher.WhichOneof('matcher_oneof') == 'point_matcher':
        reading.unused(config, 'similarity_calculator', 'point_matcher measures distances')
        options = config.matcher.point_matcher
        ranges = _ranges(options, rules.num_anchor_levels(reading.plain(config)))
        return PointAssigner(ranges, options.center_sampling_radius), options.use_matmul_gather
    problems = Problems()
    with problems:
        matcher = matcher_builder.build(config.matcher)
    with problems:
        similarity = region_similarity_calculator_builder.build(config.similarity_calculator)
    problems.raise_if_any()
    # Without a background column, the reference takes the first class for background.
    labels_background = not config.add_background_class
    assigner = SimilarityAssigner(similarity, matcher, labels_background)
    return assigner, matcher.use_matmul_gather


def _ranges(options: matcher_pb2.PointMatcher, num_levels: int) -> list[tuple[float, float]]:
    """Returns the range of the distances of each level, in sides of its anchors."""
    lows = [options.min_distance] * num_levels
    highs = [options.max_distance] * num_levels
    lows[0], highs[-1] = 0.0, math.inf
    return list(zip(lows, highs, strict=True))


def _post_processing(config: ssd_pb2.Ssd) -> PostProcessing:
    nms, score_converter = post_processing_builder.build(config.post_processing)
    return PostProcessing(
        nms=nms,
        score_converter=score_converter,
        drops_background=config.add_background_class or config.explicit_background_class,
        detects_background=config.detect_background,
        topk_per_level=config.pre_nms_topk_per_level,
        topk_per_class=config.pre_nms_topk_per_class,
        changes_frame=config.post_processing.batch_non_max_suppression.change_coordinate_frame,
        returns_raw_boxes=config.return_raw_detections_during_predict,
    )
