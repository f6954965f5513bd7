"""Builds the Faster R-CNN, Mask R-CNN or R-FCN that a FasterRcnn proto describes.

The feature extractor and the first stage are built here, the later stages in `build_second_stage`.
"""

from typing import Any

from object_detection.builders import (
    anchor_generator_builder,
    box_coder_builder,
    box_predictor_builder,
    hyperparams_builder,
    image_resizer_builder,
    losses_builder,
    matcher_builder,
    resnet_options_builder,
)
from object_detection.config import reading
from object_detection.core.post_processing import NmsParams
from object_detection.errors import Problems, UserError, expected, raise_if_any, within
from object_detection.losses.localization import SmoothL1LocalizationLoss
from object_detection.meta_architectures.faster_rcnn import build_second_stage, rules
from object_detection.meta_architectures.faster_rcnn.croppers import Crops, RoiCropper
from object_detection.meta_architectures.faster_rcnn.extra_outputs import ExtraOutputs
from object_detection.meta_architectures.faster_rcnn.faster_rcnn import FasterRcnn, Stages
from object_detection.meta_architectures.faster_rcnn.feature_extractor import (
    PyramidOptions,
    TwoStageFeatureExtractor,
    TwoStageOptions,
    build_faster_rcnn,
)
from object_detection.meta_architectures.faster_rcnn.proposals import ProposalLimits
from object_detection.meta_architectures.faster_rcnn.region_proposal_network import (
    OutsideAnchors,
    ProposalParams,
    RegionProposalNetwork,
    RpnLossParams,
)
from object_detection.meta_architectures.faster_rcnn.rfcn import Rfcn
from object_detection.models import image_sizes, rounding
from object_detection.models.heads.rpn_head import RpnHead
from object_detection.models.hyperparams import LayerHyperparams
from object_detection.protos import faster_rcnn_pb2, fpn_pb2
from object_detection.targets.assigners import SimilarityAssigner
from object_detection.targets.box_coders import FasterRcnnBoxCoder
from object_detection.targets.matchers import ArgMaxMatcher, Matcher
from object_detection.targets.similarities import IouSimilarity

# In the names of networks of TF-Slim with separable convolutions.
_SEPARABLE = ('inception', 'nas')
_OWN_STRIDES = 'a feature pyramid has the strides of its levels'
_ACTIVATION = 'first_stage_activation says what follows the convolution of the proposal head'
_NOT_STATIC = 'without use_static_shapes: true it is not read'
_ONE_STAGE = 'number_of_stages: 1 ends with the proposals'
_CROPS = (
    'initial_crop_size',
    'maxpool_kernel_size',
    'maxpool_stride',
    'use_matmul_crop_and_resize',
    'roi_align',
)
_NO_CROPS = 'R-FCN crops score maps, to the size that rfcn_box_predictor says'
_ALIGNED = 'roi_align says how proposals are cropped'


def build_extractor(
    config: faster_rcnn_pb2.FasterRcnnFeatureExtractor, is_training: bool
) -> TwoStageFeatureExtractor:
    """Builds the feature extractor of Faster R-CNN.

    Args:
      config: message of the extractor. Without `fpn`, a pyramid has the levels 2 to 6; with it, the
        levels of that message (by default 3 to 7).
      is_training: False freezes all batch norms, as `batch_norm_trainable: false` does.

    Raises:
      ValueError: if the type is unknown or its options do not fit it.
    """
    with within(f'{config.DESCRIPTOR.full_name} {config.type!r}'):
        return build_faster_rcnn(config.type, _options(config, is_training))


def _options(
    config: faster_rcnn_pb2.FasterRcnnFeatureExtractor, is_training: bool
) -> TwoStageOptions:
    def if_set(field: str):
        return getattr(config, field) if config.HasField(field) else None

    if rules.has_pyramid(config):
        # Nor has it the default stride.
        reading.unused(config, 'first_stage_features_stride', _OWN_STRIDES, harmless=())
    if config.freeze_affine:
        _check_freeze_affine(config)
    return TwoStageOptions(
        batch_norm_trainable=config.batch_norm_trainable and is_training,
        hyperparams=(
            hyperparams_builder.build(
                config.conv_hyperparams,
                separable=any(name in f'{config.type} {config.backbone}' for name in _SEPARABLE),
            )
            if config.HasField('conv_hyperparams')
            else None
        ),
        override_backbone=config.override_base_feature_extractor_hyperparams,
        stride=config.first_stage_features_stride,
        pad_to_multiple=if_set('pad_to_multiple'),
        pyramid=_pyramid(config.fpn) if config.HasField('fpn') else None,
        box_head_depth=if_set('box_head_depth'),
        resnet=resnet_options_builder.build(config),
        backbone=config.backbone or None,
        neck=config.neck or None,
        drop_path_rate=if_set('drop_path_rate'),
    )


def _pyramid(config: fpn_pb2.FeaturePyramidNetworks) -> PyramidOptions:
    levels = (config.min_level, config.max_level)
    return PyramidOptions(
        levels, hyperparams_builder.depth(config), hyperparams_builder.network_options(config)
    )


def _check_freeze_affine(config: faster_rcnn_pb2.FasterRcnnFeatureExtractor) -> None:
    """Checks that the norms are frozen in training, as `freeze_affine` requires."""
    hyperparams = config.conv_hyperparams
    kind = hyperparams.WhichOneof('normalizer_oneof')
    may_train = kind not in ('batch_norm', 'sync_batch_norm') or getattr(hyperparams, kind).train
    if config.batch_norm_trainable and may_train:
        raise expected(
            'freeze_affine', '`batch_norm_trainable: false`, as frozen norms stop both', 'true'
        )


_MATCHERS = ('argmax_matcher', 'bipartite_matcher')
_NUM_LOGITS = {faster_rcnn_pb2.FasterRcnn.SOFTMAX_2: 2, faster_rcnn_pb2.FasterRcnn.SIGMOID_1: 1}


def build_rpn(
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
    problems = Problems()
    with problems:
        anchors = _anchors(config, num_levels)
    with problems:
        matcher = _matcher(config)
    with problems:
        box_coder = _box_coder(config)
    with problems:
        localization_loss = _localization_loss(config)
    with problems:
        outside_anchors = _outside_anchors(config)
    with problems:
        params = _proposal_params(config, static)
    problems.raise_if_any()
    return RegionProposalNetwork(
        head=RpnHead(
            anchors.num_anchors_per_location(),
            hyperparams=head_hyperparams(config),
            depth=config.first_stage_box_predictor_depth,
            kernel_size=config.first_stage_box_predictor_kernel_size,
            atrous_rate=config.first_stage_atrous_rate,
            num_convs=config.first_stage_num_convs,
            batch_norm_trainable=is_training,
            num_logits=_NUM_LOGITS[config.first_stage_objectness_type],
        ),
        anchor_generator=anchors,
        assigner=SimilarityAssigner(IouSimilarity(), matcher),
        box_coder=box_coder,
        localization_loss=localization_loss,
        params=params,
        loss_params=RpnLossParams(
            minibatch_size=config.first_stage_minibatch_size,
            positive_fraction=config.first_stage_positive_balance_fraction,
            localization_weight=config.first_stage_localization_loss_weight,
            objectness_weight=config.first_stage_objectness_loss_weight,
            fill_samples=static and config.use_static_balanced_label_sampler,
            localize_sampled_only=config.first_stage_localization_on_sampled_only,
            crowd_ioa_threshold=config.first_stage_crowd_ioa_threshold,
            use_matmul_gather=matcher.use_matmul_gather,
        ),
        outside_anchors=outside_anchors,
    )


def head_hyperparams(config: faster_rcnn_pb2.FasterRcnn) -> LayerHyperparams:
    """Builds the hyperparameters of the layers of the first stage."""
    layers = config.first_stage_box_predictor_conv_hyperparams
    # The default of the schema is not harmless here, since the head behaves differently.
    harmless = [config.first_stage_activation]
    reading.unused(layers, 'activation', _ACTIVATION, harmless=harmless)
    return hyperparams_builder.build(layers, activation=config.first_stage_activation)


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
    matcher = matcher_builder.build(config.first_stage_matcher)
    matcher.use_matmul_gather |= config.use_matmul_gather_in_matcher
    return matcher


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


def build_detector(config: faster_rcnn_pb2.FasterRcnn, is_training: bool) -> FasterRcnn:
    """Builds a detector of the Faster R-CNN family, with random weights.

    Args:
      config: the model's message.
      is_training: False freezes all batch norms.

    Raises:
      ValueError: if an option is not supported, or does not fit another.
    """
    problems = Problems()
    with problems:
        raise_if_any(rules.stage_problems(reading.plain(config)))
    static = _is_static(config, is_training)
    image_shape = None
    with problems:
        resizer = image_resizer_builder.build(config.image_resizer)
        image_shape = resizer.static_shape
    extractor, is_rfcn, stages = None, rules.is_rfcn(config), Stages()
    with problems, image_sizes.scope(image_shape):
        extractor = build_extractor(config.feature_extractor, is_training)
    if config.number_of_stages == 1:
        reading.others_unused(config, _ONE_STAGE)
        reading.unused(config, 'groundtruth_mask_crop_size', _ONE_STAGE)
    else:
        with problems:
            stages = _stages(config, extractor, is_training, static)
    if extractor is not None:  # The anchors have its levels.
        with problems:
            if stages.boxes and not is_rfcn:
                extractor = build_second_stage.with_box_head(config, extractor, is_training)
            rpn = build_rpn(config, extractor.num_levels, is_training, static)
    problems.raise_if_any()
    return (Rfcn if is_rfcn else FasterRcnn)(
        num_classes=config.num_classes,
        resizer=resizer,
        feature_extractor=extractor,
        rpn=rpn,
        stages=stages,
    )


def _stages(
    config: faster_rcnn_pb2.FasterRcnn,
    extractor: TwoStageFeatureExtractor | None,
    is_training: bool,
    static: bool,
) -> Stages:
    """Builds what follows the proposals of a detector of two or three stages.

    Without an extractor, whose error is known, only what needs none is built.
    """
    box_head, mask_head = box_predictor_builder.build(
        config.second_stage_box_predictor,
        config.num_classes,
        is_training,
        with_masks=config.number_of_stages == 3,
    )
    boxes = build_second_stage.build_box_stages(config, box_head, is_training, static)
    outputs = ExtraOutputs(
        box_features=config.output_final_box_features,
        cropped_features=config.output_final_box_rpn_features,
        raw_detections=config.return_raw_detections_during_predict,
    )
    if rules.is_rfcn(config):
        reading.unused(config, _CROPS, _NO_CROPS)
    if rules.is_rfcn(config) or extractor is None:
        return Stages(boxes, outputs=outputs)
    masks = keypoints = None
    if config.number_of_stages == 3:
        masks = build_second_stage.build_masks(config, mask_head, extractor)
    crops = _crops(config, extractor.strides)
    context = build_second_stage.build_context(config, is_training)
    if rules.predicts_keypoints(config):
        keypoints = build_second_stage.build_keypoints(config, extractor, is_training)
    return Stages(boxes, masks, keypoints, context, crops, outputs)


def _is_static(config: faster_rcnn_pb2.FasterRcnn, is_training: bool) -> bool:
    if not config.use_static_shapes:
        names = ('use_static_balanced_label_sampler', 'use_static_shapes_for_eval')
        reading.unused(config, names, _NOT_STATIC)
        return False
    in_eval = config.use_static_shapes_for_eval
    return is_training or in_eval


def _crops(config: faster_rcnn_pb2.FasterRcnn, strides: list[int]) -> Crops:
    if config.HasField('roi_align'):
        reading.unused(config, 'initial_crop_size', _ALIGNED)
        reading.unused(config, ('maxpool_kernel_size', 'maxpool_stride'), _ALIGNED, harmless=[1])
        return Crops(build_second_stage.build_cropper(config, 'roi_align', strides))
    cropper = RoiCropper(
        crop_size=config.initial_crop_size, use_matmul=config.use_matmul_crop_and_resize
    )
    size, stride = config.maxpool_kernel_size, config.maxpool_stride
    has_pool = size > 1 or stride > 1
    return Crops(
        cropper, rounding.MaxPooling2D(size, stride, name='crop_pool') if has_pool else None
    )
