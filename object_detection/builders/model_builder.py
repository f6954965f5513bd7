"""Builds the detector that a DetectionModel proto describes."""

import functools
from collections.abc import Callable
from typing import Any

from object_detection.box_coders.faster_rcnn_box_coder import FasterRcnnBoxCoder
from object_detection.builders import (
    anchor_generator_builder,
    box_predictor_builder,
    feature_extractor_builder,
    hyperparams_builder,
    image_resizer_builder,
    losses_builder,
    post_processing_builder,
)
from object_detection.builders.oneof import build_oneof
from object_detection.core.post_processing import NmsParams
from object_detection.losses.localization import SmoothL1LocalizationLoss
from object_detection.matchers.argmax_matcher import ArgMaxMatcher
from object_detection.meta_architectures.detection_model import DetectionModel
from object_detection.meta_architectures.extra_outputs import ExtraOutputs
from object_detection.meta_architectures.faster_rcnn import FasterRcnn
from object_detection.meta_architectures.mask_stage import MaskStage
from object_detection.meta_architectures.region_proposals import (
    ProposalParams,
    RegionProposalNetwork,
)
from object_detection.meta_architectures.rfcn import Rfcn
from object_detection.meta_architectures.roi_stages import BoxStage, BoxStageParams, RoiCropper
from object_detection.predictors.rfcn_head import RfcnHead
from object_detection.predictors.rpn_head import RpnHead
from object_detection.protos import faster_rcnn_pb2, model_pb2
from object_detection.similarities.iou import IouSimilarity
from object_detection.target_assigners.target_assigner import TargetAssigner

# Trained weights depend on them; the schema has no field for them.
_BOX_CODE_SCALES = (10.0, 10.0, 5.0, 5.0)


def build(model_config: model_pb2.DetectionModel, is_training: bool = True) -> DetectionModel:
    """Builds a detector.

    Args:
      model_config: `pipeline.model`.
      is_training: False freezes all batch norms, for evaluation and export.

    Raises:
      ValueError: if no model is set, or an option is not supported or does not fit another.
    """
    builders: dict[str, Callable[[Any], DetectionModel]] = {
        'faster_rcnn': lambda config: _faster_rcnn(config, is_training),
    }
    return build_oneof(model_config, 'model', builders)


def _faster_rcnn(config: faster_rcnn_pb2.FasterRcnn, is_training: bool) -> FasterRcnn:
    if config.number_of_stages not in (1, 2, 3):
        raise ValueError(
            f'{config.DESCRIPTOR.full_name}.number_of_stages must be 1, 2 or 3. '
            f'Received: {config.number_of_stages}.'
        )
    static = config.use_static_shapes and (is_training or config.use_static_shapes_for_eval)
    extractor = feature_extractor_builder.build(config.feature_extractor, is_training)
    outputs = ExtraOutputs(
        box_features=config.output_final_box_features,
        cropped_features=config.output_final_box_rpn_features,
        raw_detections=config.return_raw_detections_during_predict,
    )
    detector: type[FasterRcnn] = FasterRcnn
    parts: dict[str, Any] = {}
    if config.number_of_stages == 1 and outputs != ExtraOutputs():
        raise ValueError(
            f'{config.DESCRIPTOR.full_name}: number_of_stages: 1 has no box classifier, which '
            'output_final_box_features, output_final_box_rpn_features and '
            'return_raw_detections_during_predict are about; set them false.'
        )
    if config.number_of_stages > 1:
        box_head, mask_head = box_predictor_builder.build(
            config.second_stage_box_predictor, config.num_classes, is_training
        )
        parts = {'box_stage': _box_stage(config, box_head, static), 'outputs': outputs}
        if config.number_of_stages == 3:
            parts['mask_stage'] = _mask_stage(config, mask_head)
        if isinstance(box_head, RfcnHead):
            detector = Rfcn
        else:
            parts |= _crop_parts(config)
    return detector(
        num_classes=config.num_classes,
        resizer=image_resizer_builder.build(config.image_resizer),
        feature_extractor=extractor,
        rpn=_rpn(config, extractor.num_levels, is_training, static),
        **parts,
    )


def _crop_parts(config: faster_rcnn_pb2.FasterRcnn) -> dict[str, Any]:
    """What the second stage crops proposals with; R-FCN's head crops score maps instead."""
    return {
        'cropper': RoiCropper(
            crop_size=config.initial_crop_size, use_matmul=config.use_matmul_crop_and_resize
        ),
        'maxpool_size': config.maxpool_kernel_size,
        'maxpool_stride': config.maxpool_stride,
    }


def _rpn(
    config: faster_rcnn_pb2.FasterRcnn, num_levels: int, is_training: bool, static: bool
) -> RegionProposalNetwork:
    anchors = anchor_generator_builder.build(config.first_stage_anchor_generator)
    anchors_per_location = anchors.num_anchors_per_location()
    name = f'{config.DESCRIPTOR.full_name}.first_stage_anchor_generator'
    if anchors.normalized:
        raise ValueError(
            f'{name}: Faster R-CNN needs absolute anchors; set normalize_coordinates: false.'
        )
    if len(anchors_per_location) != num_levels or not all(anchors_per_location):
        raise ValueError(
            f'{name}: expected anchors for the {num_levels} levels of feature extractor '
            f'{config.feature_extractor.type!r}. Received: {anchors_per_location} anchors a '
            'location, one number a level.'
        )
    return RegionProposalNetwork(
        head=RpnHead(
            anchors_per_location,
            hyperparams=hyperparams_builder.build(
                config.first_stage_box_predictor_conv_hyperparams
            ),
            depth=config.first_stage_box_predictor_depth,
            kernel_size=config.first_stage_box_predictor_kernel_size,
            atrous_rate=config.first_stage_atrous_rate,
            batch_norm_trainable=is_training,
        ),
        anchor_generator=anchors,
        target_assigner=_target_assigner(config, 0.7, 0.3, force_match=True),
        localization_loss=SmoothL1LocalizationLoss(delta=1.0),
        params=ProposalParams(
            nms=NmsParams(
                score_threshold=config.first_stage_nms_score_threshold,
                iou_threshold=config.first_stage_nms_iou_threshold,
                max_detections_per_class=config.first_stage_max_proposals,
                max_total_detections=config.first_stage_max_proposals,
                change_coordinate_frame=False,
                use_combined_nms=config.use_combined_nms_in_first_stage,
            ),
            minibatch_size=config.first_stage_minibatch_size,
            positive_fraction=config.first_stage_positive_balance_fraction,
            clip_anchors=config.clip_anchors_to_image,
            localization_weight=config.first_stage_localization_loss_weight,
            objectness_weight=config.first_stage_objectness_loss_weight,
            static_shapes=static,
            fill_samples=static and config.use_static_balanced_label_sampler,
        ),
    )


def _box_stage(config: faster_rcnn_pb2.FasterRcnn, head: Any, static: bool) -> BoxStage:
    nms, score_converter = post_processing_builder.build(config.second_stage_post_processing)
    classification = config.second_stage_classification_loss
    weights = {
        'localization_weight': config.second_stage_localization_loss_weight,
        'classification_weight': config.second_stage_classification_loss_weight,
    }
    miner = None
    batch_size, positive_fraction = (
        config.second_stage_batch_size,
        config.second_stage_balance_fraction,
    )
    if config.HasField('hard_example_miner'):
        miner = losses_builder.build_hard_example_miner(
            config.hard_example_miner, classification, **weights
        )
        # It chooses among all proposals, any number of which may be positive.
        batch_size, positive_fraction = config.first_stage_max_proposals, 1.0
    return BoxStage(
        head=head,
        target_assigner=_target_assigner(config, 0.5, 0.5, force_match=False),
        localization_loss=SmoothL1LocalizationLoss(delta=1.0),
        classification_loss=losses_builder.build_second_stage_classification(classification),
        nms=functools.partial(nms, static=static) if static else nms,
        score_converter=score_converter,
        params=BoxStageParams(
            batch_size=batch_size,
            positive_fraction=positive_fraction,
            use_matmul_gather=config.use_matmul_gather_in_matcher,
            fill_samples=static and config.use_static_balanced_label_sampler,
            **weights,
        ),
        num_classes=config.num_classes,
        hard_example_miner=miner,
    )


def _mask_stage(config: faster_rcnn_pb2.FasterRcnn, head: Any) -> MaskStage:
    if head is None:
        raise ValueError(
            f'{config.DESCRIPTOR.full_name}: number_of_stages: 3 predicts masks, which needs '
            'second_stage_box_predictor.mask_rcnn_box_predictor.predict_instance_masks: true.'
        )
    return MaskStage(
        head=head,
        loss_weight=config.second_stage_mask_prediction_loss_weight,
        use_matmul=config.use_matmul_crop_and_resize,
    )


def _target_assigner(
    config: faster_rcnn_pb2.FasterRcnn, matched: float, unmatched: float, *, force_match: bool
) -> TargetAssigner:
    return TargetAssigner(
        IouSimilarity(),
        ArgMaxMatcher(
            matched_threshold=matched,
            unmatched_threshold=unmatched,
            force_match_for_each_row=force_match,
            use_matmul_gather=config.use_matmul_gather_in_matcher,
        ),
        FasterRcnnBoxCoder(_BOX_CODE_SCALES),
    )
