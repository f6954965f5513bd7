"""Builds the first stage of a FasterRcnn proto: the region proposal network."""

import dataclasses
from typing import Any

from object_detection.builders import (
    anchor_generator_builder,
    box_coder_builder,
    hyperparams_builder,
    losses_builder,
    matcher_builder,
)
from object_detection.core.post_processing import NmsParams
from object_detection.errors import UserError
from object_detection.losses.localization import SmoothL1LocalizationLoss
from object_detection.meta_architectures.faster_rcnn.proposals import ProposalLimits
from object_detection.meta_architectures.faster_rcnn.region_proposal_network import (
    OutsideAnchors,
    ProposalParams,
    RegionProposalNetwork,
    RpnLossParams,
)
from object_detection.models.heads.rpn_head import RpnHead
from object_detection.models.hyperparams import LayerHyperparams
from object_detection.protos import faster_rcnn_pb2, matcher_pb2
from object_detection.targets.box_coders import FasterRcnnBoxCoder
from object_detection.targets.matchers import ArgMaxMatcher, Matcher
from object_detection.targets.similarities import IouSimilarity
from object_detection.targets.target_assigner import TargetAssigner

_MATCHERS = ('argmax_matcher', 'bipartite_matcher')
_NUM_LOGITS = {
    faster_rcnn_pb2.FasterRcnn.SOFTMAX_2: 2,
    faster_rcnn_pb2.FasterRcnn.SIGMOID_1: 1,
}


def build(
    config: faster_rcnn_pb2.FasterRcnn, num_levels: int, is_training: bool, static: bool
) -> RegionProposalNetwork:
    """Builds the first stage.

    Args:
      config: message of the model.
      num_levels: number of feature maps of its feature extractor.
      is_training: False freezes batch norms.
      static: use only what XLA compiles.

    Raises:
      ValueError: if an option is not supported, or does not fit another.
    """
    anchors = _anchors(config, num_levels)
    return RegionProposalNetwork(
        head=RpnHead(
            anchors.num_anchors_per_location(),
            hyperparams=head_hyperparams(config),
            depth=config.first_stage_box_predictor_depth,
            kernel_size=config.first_stage_box_predictor_kernel_size,
            atrous_rate=config.first_stage_atrous_rate,
            batch_norm_trainable=is_training,
            num_logits=_NUM_LOGITS[config.first_stage_objectness_type],
        ),
        anchor_generator=anchors,
        target_assigner=TargetAssigner(IouSimilarity(), _matcher(config), _box_coder(config)),
        localization_loss=_localization_loss(config),
        params=_proposal_params(config, static),
        loss_params=RpnLossParams(
            minibatch_size=config.first_stage_minibatch_size,
            positive_fraction=config.first_stage_positive_balance_fraction,
            localization_weight=config.first_stage_localization_loss_weight,
            objectness_weight=config.first_stage_objectness_loss_weight,
            fill_samples=static and config.use_static_balanced_label_sampler,
            localize_sampled_only=config.first_stage_localization_on_sampled_only,
            crowd_ioa_threshold=config.first_stage_crowd_ioa_threshold,
        ),
        outside_anchors=_outside_anchors(config),
    )


def head_hyperparams(config: faster_rcnn_pb2.FasterRcnn) -> LayerHyperparams:
    """Builds the hyperparameters of the layers of the first stage."""
    hyperparams = hyperparams_builder.build(config.first_stage_box_predictor_conv_hyperparams)
    activation = hyperparams_builder.ACTIVATIONS[config.first_stage_activation]
    return dataclasses.replace(hyperparams, activation=activation)


def check(config: faster_rcnn_pb2.FasterRcnn) -> None:
    """Raises a ValueError in the cases of `build`, except for errors of anchors and layers."""
    _matcher(config)
    _box_coder(config)
    _localization_loss(config)
    _proposal_params(config, config.use_static_shapes)


def _anchors(config: faster_rcnn_pb2.FasterRcnn, num_levels: int) -> Any:
    # As in the reference, a size that the resizer fixes does not count here.
    anchors = anchor_generator_builder.build(config.first_stage_anchor_generator).for_images(None)
    anchors_per_location = anchors.num_anchors_per_location()
    name = f'{config.DESCRIPTOR.full_name}.first_stage_anchor_generator'
    if anchors.normalized:
        raise UserError(
            f'{name}: Faster R-CNN needs anchors in pixels: of grid_anchor_generator, or of '
            'multiscale_anchor_generator or flexible_grid_anchor_generator with '
            'normalize_coordinates: false. Received: anchors relative to the image.'
        )
    if len(anchors_per_location) != num_levels or not all(anchors_per_location):
        raise UserError(
            f'{name}: expected anchors for the {num_levels} levels of feature extractor '
            f'{config.feature_extractor.type!r}. Received: {anchors_per_location} anchors a '
            'location, one number a level.'
        )
    return anchors


def _matcher(config: faster_rcnn_pb2.FasterRcnn) -> Matcher:
    if not config.HasField('first_stage_matcher'):
        return ArgMaxMatcher(
            0.7,
            0.3,
            force_match_for_each_row=True,
            use_matmul_gather=config.use_matmul_gather_in_matcher,
        )
    kind = config.first_stage_matcher.WhichOneof('matcher_oneof')
    if kind not in _MATCHERS:
        raise UserError(
            f'{config.DESCRIPTOR.full_name}.first_stage_matcher: expected argmax_matcher or '
            'bipartite_matcher; hungarian_matcher is for some hundred predictions, not for as many '
            f'anchors. Received: {kind or "nothing"}.'
        )
    matcher = matcher_pb2.Matcher()
    matcher.CopyFrom(config.first_stage_matcher)
    getattr(matcher, kind).use_matmul_gather |= config.use_matmul_gather_in_matcher
    return matcher_builder.build(matcher)


def _box_coder(config: faster_rcnn_pb2.FasterRcnn) -> Any:
    if not config.HasField('first_stage_box_coder'):
        return FasterRcnnBoxCoder()
    return box_coder_builder.build_for_boxes(config.first_stage_box_coder)


def _localization_loss(config: faster_rcnn_pb2.FasterRcnn) -> losses_builder.LossFunction:
    if not config.HasField('first_stage_localization_loss'):
        return SmoothL1LocalizationLoss()
    return losses_builder.build_localization_of_codes(config.first_stage_localization_loss)


def _proposal_params(config: faster_rcnn_pb2.FasterRcnn, static: bool) -> ProposalParams:
    limits = ProposalLimits(
        config.first_stage_max_proposals,
        config.first_stage_pre_nms_topk_per_level,
        config.first_stage_max_proposals_per_level,
    )
    eval_limits = ProposalLimits(
        config.first_stage_max_proposals_eval or limits.max_proposals,
        config.first_stage_pre_nms_topk_per_level_eval or limits.topk_per_level,
        config.first_stage_max_proposals_per_level_eval or limits.max_per_level,
    )
    name = config.DESCRIPTOR.full_name
    is_pruned = _outside_anchors(config) == OutsideAnchors.PRUNE
    if static and limits.is_per_level and is_pruned:
        raise UserError(
            f'{name}: first_stage_pre_nms_topk_per_level and first_stage_max_proposals_per_level '
            'with use_static_shapes need as many anchors in every image; expected '
            'first_stage_outside_anchors IGNORE_LABEL, KEEP or CLIP. Received: PRUNE, the default.'
        )
    return ProposalParams(
        nms=NmsParams(
            score_threshold=config.first_stage_nms_score_threshold,
            iou_threshold=config.first_stage_nms_iou_threshold,
            change_coordinate_frame=False,
        ),
        limits=limits,
        eval_limits=eval_limits,
        static_shapes=static,
        min_box_size=config.first_stage_min_box_size,
        keeps_empty=static and config.use_static_balanced_label_sampler,
    )


def _outside_anchors(config: faster_rcnn_pb2.FasterRcnn) -> OutsideAnchors:
    clips = config.clip_anchors_to_image
    if not config.HasField('first_stage_outside_anchors'):
        return OutsideAnchors.CLIP if clips else OutsideAnchors.PRUNE
    name = config.OutsideAnchors.Name(config.first_stage_outside_anchors)
    policy = OutsideAnchors[name]
    if config.HasField('clip_anchors_to_image') and clips != (policy == OutsideAnchors.CLIP):
        raise UserError(
            f'{config.DESCRIPTOR.full_name}: first_stage_outside_anchors: {name} and '
            f'clip_anchors_to_image: {str(clips).lower()} contradict each other; remove the latter.'
        )
    return policy
