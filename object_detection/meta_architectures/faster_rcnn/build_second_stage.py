"""Builds the stages of a FasterRcnn proto after the first: boxes with classes, masks, keypoints."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import keras

from object_detection.builders import (
    box_coder_builder,
    box_predictor_builder,
    losses_builder,
    post_processing_builder,
)
from object_detection.config import reading
from object_detection.core.post_processing import Suppressed
from object_detection.core.roi_align import SampleGrid
from object_detection.core.score_conversion import ScoreConverter
from object_detection.data import label_map
from object_detection.errors import Problems, UserError, expected, within
from object_detection.losses.localization import SmoothL1LocalizationLoss
from object_detection.meta_architectures.faster_rcnn import rules
from object_detection.meta_architectures.faster_rcnn.box_stage import BoxStage, BoxStageParams
from object_detection.meta_architectures.faster_rcnn.context_stage import ContextStage
from object_detection.meta_architectures.faster_rcnn.croppers import LevelRule, RoiAlignCropper
from object_detection.meta_architectures.faster_rcnn.feature_extractor import (
    TwoStageFeatureExtractor,
)
from object_detection.meta_architectures.faster_rcnn.keypoint_stage import KeypointStage
from object_detection.meta_architectures.faster_rcnn.mask_stage import MaskStage
from object_detection.models.heads.context_attention import ContextAttention, ContextMemory
from object_detection.protos import faster_rcnn_pb2
from object_detection.protos.box_predictor_pb2 import MaskRCNNBoxPredictor
from object_detection.protos.faster_rcnn_pb2 import CascadeStage, FasterRcnn, RoiAlign
from object_detection.targets.assigners import SimilarityAssigner
from object_detection.targets.box_coders import FasterRcnnBoxCoder
from object_detection.targets.matchers import ArgMaxMatcher
from object_detection.targets.similarities import IouSimilarity

_SAMPLE = ('second_stage_batch_size', 'second_stage_balance_fraction')
_MINED = 'hard_example_miner chooses among all proposals'
_MASKS = (
    'second_stage_mask_prediction_loss_weight',
    'groundtruth_mask_crop_size',
    'max_num_mask_rois',
    'pad_mask_rois',
    'mask_target_binarize_threshold',
    'mask_roi_align',
    'masks_from_crops',
)
_KEYPOINTS = (
    'second_stage_keypoint_loss_weight',
    'max_num_keypoint_rois',
    'pad_keypoint_rois',
    'keypoint_roi_align',
)
_OWN_FRAME = 'detections of Faster R-CNN are always relative to the true image'
_NEVER_COMBINED = 'one exact algorithm does it all, and drops boxes outside of the image'
_OWN_LAYERS = 'box_head says the layers over the crops'


def build_box_stages(
    config: FasterRcnn, head: Any, is_training: bool, static: bool
) -> list[BoxStage]:
    """Builds the second stage, and after it those of `cascade_stages`.

    Args:
      config: the model's message.
      head: the head of the second stage, which predicts codes and logits.
      is_training: False freezes batch norms.
      static: use only what XLA compiles.

    Raises:
      ValueError: if an option is not supported, or does not fit another.
    """
    if config.number_of_stages == 2:
        reading.unused(config, _MASKS, box_predictor_builder.NO_MASKS)
    if not rules.predicts_keypoints(config):
        reading.unused(config, _KEYPOINTS, box_predictor_builder.NO_KEYPOINTS)
    shared = functools.partial(_box_stage, config, static=static)
    stages = [shared(head=head)]
    predictor = config.second_stage_box_predictor.mask_rcnn_box_predictor
    for stage in config.cascade_stages:
        stages.append(
            shared(
                head=box_predictor_builder.build_box_head(
                    predictor, config.num_classes, is_training
                ),
                stage=stage,
                classifier=box_predictor_builder.build_box_classifier(predictor, is_training),
            )
        )
    return stages


def _box_stage(
    config: FasterRcnn,
    *,
    head: Any,
    static: bool,
    stage: CascadeStage | None = None,
    classifier: keras.layers.Layer | None = None,
) -> BoxStage:
    """Builds the second stage, or a stage of the cascade."""
    weight = 1.0 if stage is None else stage.loss_weight
    classification = config.second_stage_classification_loss
    weights = {
        'localization_weight': weight * config.second_stage_localization_loss_weight,
        'classification_weight': weight * config.second_stage_classification_loss_weight,
    }
    miner, problems = None, Problems()
    with problems:
        nms, score_converter = _post_processing(config)
    with problems:
        if config.HasField('hard_example_miner'):
            miner = losses_builder.build_hard_example_miner(
                config.hard_example_miner, classification, **weights
            )
    with problems:
        batch_size, positive_fraction = _sample(config)
    with problems:
        matcher = _matcher(config, stage)
    with problems:
        coder = _box_coder(config, stage)
    with problems:
        localization_loss = _localization_loss(config)
    with problems:
        classification_loss = losses_builder.build_second_stage_classification(classification)
    with problems:
        federated = losses_builder.build_federated(classification)
    with problems:
        adds_objects = _adds_objects(config)
    problems.raise_if_any()
    return BoxStage(
        head=head,
        assigner=SimilarityAssigner(IouSimilarity(), matcher),
        box_coder=coder,
        localization_loss=localization_loss,
        classification_loss=classification_loss,
        nms=functools.partial(nms, static=static) if static else nms,
        score_converter=score_converter,
        params=BoxStageParams(
            batch_size=batch_size,
            positive_fraction=positive_fraction,
            use_matmul_gather=config.use_matmul_gather_in_matcher,
            fill_samples=static and config.use_static_balanced_label_sampler,
            add_objects=adds_objects,
            mean_over_coordinates=(
                config.second_stage_localization_normalizer == FasterRcnn.NUM_FG_COORDS
            ),
            crowd_ioa_threshold=config.first_stage_crowd_ioa_threshold,
            min_box_size=config.second_stage_min_box_size,
            **weights,
        ),
        num_classes=config.num_classes,
        hard_example_miner=miner,
        federated=federated,
        classifier=classifier,
    )


def build_masks(config: FasterRcnn, head: Any, extractor: TwoStageFeatureExtractor) -> MaskStage:
    """Builds the third stage.

    Args:
      config: the model's message.
      head: predicts masks.
      extractor: gives the feature maps.

    Raises:
      ValueError: if an option does not fit.
    """
    has_pyramid, has_crops = extractor.pyramid is not None, config.HasField('mask_roi_align')
    cropper = None
    if has_crops:
        cropper = build_cropper(config, 'mask_roi_align', extractor.strides)
    return MaskStage(
        head=head,
        # The layers after the crops of a pyramid fit only the crops of the box stage.
        from_crops=has_pyramid and (config.masks_from_crops or has_crops),
        cropper=cropper,
        loss_weight=config.second_stage_mask_prediction_loss_weight,
        use_matmul=config.use_matmul_crop_and_resize,
        max_regions=config.max_num_mask_rois or None,
        pad_regions=config.pad_mask_rois,
        binarize_threshold=config.mask_target_binarize_threshold,
    )


def build_keypoints(
    config: FasterRcnn, extractor: TwoStageFeatureExtractor, is_training: bool
) -> KeypointStage:
    """Builds what predicts keypoints.

    Args:
      config: the model's message.
      extractor: gives the feature maps.
      is_training: False freezes batch norms.

    Raises:
      ValueError: if an option does not fit, or the label map has other keypoints.
    """
    predictor = config.second_stage_box_predictor.mask_rcnn_box_predictor
    head = box_predictor_builder.build_keypoint_head(predictor, is_training)
    cropper = build_cropper(config, 'keypoint_roi_align', extractor.strides)
    return KeypointStage(
        head=head,
        cropper=cropper,
        loss_weight=config.second_stage_keypoint_loss_weight,
        max_regions=config.max_num_keypoint_rois or None,
        pad_regions=config.pad_keypoint_rois,
        of_classes=keypoints_of_classes(config),
        in_pixels=predictor.keypoint_head.decoding == MaskRCNNBoxPredictor.KeypointHead.PIXELS,
    )


def build_context(config: FasterRcnn, is_training: bool) -> ContextStage | None:
    """Builds what boxes attend to; None without `context_config`.

    Args:
      config: the model's message.
      is_training: False freezes batch norms.
    """
    if not config.HasField(rules.FIELD):
        return None
    context, memory = config.context_config, None
    depth = context.attention_bottleneck_dimension
    for names, reason in rules.without_effect(context):
        reading.unused(context, names, reason)
    if rules.has_memory(config):
        memory = ContextMemory(
            depth,
            num_heads=context.num_attention_heads,
            num_layers=context.num_attention_layers,
            norm_trainable=is_training,
        )
    return ContextStage(
        attention=ContextAttention(
            depth,
            temperature=context.attention_temperature,
            num_heads=context.num_attention_heads,
            num_layers=context.num_attention_layers if memory else 0,
            use_self_attention=context.use_self_attention,
            self_in_sequence=context.self_attention_in_sequence,
            norm_trainable=is_training,
        ),
        memory=memory,
        before_box_classifier=context.attention_position == faster_rcnn_pb2.POST_RPN,
        max_features=context.max_num_context_features,
        feature_length=context.context_feature_length,
    )


def keypoints_of_classes(config: FasterRcnn) -> list[list[int]] | None:
    """Returns the indices of the keypoints of each class; None: each class has all.

    Raises:
      ValueError: if the label map has no keypoints, or one beyond `num_keypoints`.
    """
    head = config.second_stage_box_predictor.mask_rcnn_box_predictor.keypoint_head
    path, field = head.label_map_path, f'{head.DESCRIPTOR.full_name}.num_keypoints'
    if not path:
        return None
    try:
        labels = label_map.load(path)
        positions = label_map.keypoint_ids(labels, path)
    except UserError as error:
        raise UserError(f'{head.DESCRIPTOR.full_name}.label_map_path: {error}') from error
    if max(positions.values()) >= head.num_keypoints:
        raise expected(field, f'more than {max(positions.values())}, as {path}', head.num_keypoints)
    of_classes: list[list[int]] = [[] for _ in range(config.num_classes)]
    for category in labels.categories:
        if category['id'] <= config.num_classes:
            of_classes[category['id'] - 1] = list(category.get('keypoints', {}).values())
    return of_classes


def build_cropper(config: FasterRcnn, field: str, strides: Sequence[int]) -> RoiAlignCropper:
    """Builds the cropper that a RoiAlign message describes.

    Args:
      config: the model's message.
      field: 'roi_align', 'mask_roi_align' or 'keypoint_roi_align'.
      strides: strides of the feature maps, fine to coarse.

    Raises:
      ValueError: if a number is out of its range, or a level has no feature map.
    """
    message = getattr(config, field)

    def number(name: str, default: int) -> int:
        return getattr(message, name) if message.HasField(name) else default

    use_matmul = {
        RoiAlign.AUTO: config.use_matmul_crop_and_resize,
        RoiAlign.GATHER: False,
        RoiAlign.MATMUL: True,
    }
    size = number('output_size', rules.OUTPUT_SIZES[field])
    levels = [stride.bit_length() - 1 for stride in strides]
    least, most = number('min_level', levels[0]), number('max_level', levels[-1])
    if least == most:
        reading.unused(message, ('canonical_level', 'canonical_size'), 'all crops are of one level')
    with within(f'{config.DESCRIPTOR.full_name}.{field}'):
        return RoiAlignCropper(
            grid=SampleGrid(
                output_size=(size, size),
                sampling_ratio=message.sampling_ratio,
                offset=-0.5 if message.aligned else 0.0,
            ),
            rule=LevelRule(
                min_level=least,
                max_level=most,
                canonical_level=message.canonical_level,
                canonical_size=message.canonical_size,
            ),
            strides=strides,
            use_matmul=use_matmul[message.impl],
        )


def with_box_head(
    config: FasterRcnn, extractor: TwoStageFeatureExtractor, is_training: bool
) -> TwoStageFeatureExtractor:
    """Returns the extractor, with its box layers replaced by those of `box_head` if it is set.

    Raises:
      ValueError: if a number is out of its range.
    """
    predictor = config.second_stage_box_predictor.mask_rcnn_box_predictor
    if not predictor.HasField('box_head'):
        return extractor
    reading.unused(config.feature_extractor, 'box_head_depth', _OWN_LAYERS)
    layer = box_predictor_builder.build_box_classifier(predictor, is_training)
    return extractor.with_box_classifier(layer)


def _sample(config: FasterRcnn) -> tuple[int, float]:
    """Returns the number of proposals to sample per image, and the maximum positive share."""
    if config.HasField('hard_example_miner'):
        # It chooses among all proposals, any number of which may be positive.
        reading.unused(config, _SAMPLE, _MINED)
        return config.first_stage_max_proposals, 1.0
    size, fraction = config.second_stage_batch_size, config.second_stage_balance_fraction
    if int(size * fraction) < 1:
        raise UserError(
            f'{config.DESCRIPTOR.full_name}: expected second_stage_batch_size * '
            'second_stage_balance_fraction of at least 1, the most positive proposals that an '
            'image trains boxes and masks with; with fewer, none would train. '
            f'Received: {size} * {fraction:g} = {size * fraction:g}.'
        )
    return size, fraction


def _post_processing(config: FasterRcnn) -> tuple[Callable[..., Suppressed], ScoreConverter]:
    """Builds the post-processing without `use_combined_nms`, which the reference does not allow.

    With it, boxes would lie outside of the image, with their edges exchanged.
    """
    options = config.second_stage_post_processing
    nms = options.batch_non_max_suppression
    reading.unused(nms, 'use_combined_nms', _NEVER_COMBINED)
    reading.unused(nms, 'change_coordinate_frame', _OWN_FRAME)
    return post_processing_builder.build(options, use_combined_nms=False)


def _matcher(config: FasterRcnn, stage: CascadeStage | None) -> ArgMaxMatcher:
    if stage is not None:
        return ArgMaxMatcher(
            stage.iou_threshold, use_matmul_gather=config.use_matmul_gather_in_matcher
        )
    low, high, positive = (
        config.second_stage_bg_iou_threshold_lo,
        config.second_stage_bg_iou_threshold_hi,
        config.second_stage_fg_iou_threshold,
    )
    if positive == 0:
        raise UserError(
            f'{config.DESCRIPTOR.full_name}.second_stage_fg_iou_threshold: expected above 0, as '
            'else each proposal is an object, those that touch none too. Received: 0.'
        )
    if not 0 <= low <= high <= positive <= 1:
        raise UserError(
            f'{config.DESCRIPTOR.full_name}: expected 0 <= second_stage_bg_iou_threshold_lo <= '
            'second_stage_bg_iou_threshold_hi <= second_stage_fg_iou_threshold <= 1. '
            f'Received: {low:g}, {high:g} and {positive:g}.'
        )
    return ArgMaxMatcher(
        matched_threshold=positive,
        unmatched_threshold=high,
        ignored_below=low,
        use_matmul_gather=config.use_matmul_gather_in_matcher,
    )


def _box_coder(config: FasterRcnn, stage: CascadeStage | None) -> Any:
    if stage is not None and stage.HasField('box_coder'):
        return box_coder_builder.build_for_boxes(stage.box_coder)
    if not config.HasField('second_stage_box_coder'):
        return FasterRcnnBoxCoder()
    return box_coder_builder.build_for_boxes(config.second_stage_box_coder)


def _localization_loss(config: FasterRcnn) -> losses_builder.LossFunction:
    if not config.HasField('second_stage_localization_loss'):
        return SmoothL1LocalizationLoss()
    return losses_builder.build_localization_of_codes(config.second_stage_localization_loss)


def _adds_objects(config: FasterRcnn) -> bool:
    if config.second_stage_add_gt_as_proposals and config.HasField('hard_example_miner'):
        raise UserError(
            f'{config.DESCRIPTOR.full_name}: second_stage_add_gt_as_proposals adds to what a '
            'sample is drawn from, and with hard_example_miner none is; expected one or the '
            'other. Received: both.'
        )
    return config.second_stage_add_gt_as_proposals
