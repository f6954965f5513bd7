"""Builds the CenterNet that its proto describes."""

from collections.abc import Sequence

from object_detection.builders import (
    image_resizer_builder,
    losses_builder,
    post_processing_builder,
)
from object_detection.builders.center_net import (
    deepmac_builder,
    deepmac_rules,
    extractor_types,
    keypoints_builder,
    rules,
)
from object_detection.builders.center_net.heads_builder import build_head
from object_detection.errors import UserError, raise_if_any
from object_detection.meta_architectures.center_net.center_net import CenterNet, PostProcessing
from object_detection.meta_architectures.center_net.heads import PredictionHeads
from object_detection.meta_architectures.center_net.tasks.box import Box
from object_detection.meta_architectures.center_net.tasks.densepose import DensePose
from object_detection.meta_architectures.center_net.tasks.keypoints import Keypoints, KeypointTasks
from object_detection.meta_architectures.center_net.tasks.masks import Masks
from object_detection.meta_architectures.center_net.tasks.object_center import ObjectCenter
from object_detection.meta_architectures.center_net.tasks.task import Task
from object_detection.meta_architectures.center_net.tasks.tracking import (
    TemporalOffset,
    Track,
    TrackClassifier,
)
from object_detection.models import image_channels
from object_detection.models.feature_extractor import FeatureExtractor
from object_detection.models.feature_extractors.center_net_types import (
    CenterNetOptions,
    build_center_net,
)
from object_detection.protos import center_net_pb2


def build(config: center_net_pb2.CenterNet, is_training: bool) -> CenterNet:
    """Builds a CenterNet, with random weights.

    Args:
      config: the model's message.
      is_training: False freezes all batch norms.

    Raises:
      ValueError: if an option is not supported, or does not fit another.
    """
    raise_if_any(rules.problems_of_parts(config))
    extractor = build_extractor(config.feature_extractor, is_training)
    tasks = build_tasks(config)
    if config.HasField(deepmac_rules.FIELD):
        tasks[deepmac_rules.FIELD] = deepmac_builder.build(
            config.deepmac_mask_estimation,
            _extractor_options(config.feature_extractor, is_training),
        )
    heads = {name: head for task in tasks.values() for name, head in task.heads.items()}
    return CenterNet(
        num_classes=config.num_classes,
        resizer=image_resizer_builder.build(config.image_resizer),
        feature_extractor=extractor,
        heads=PredictionHeads(
            heads, num_stacks=extractor.num_stacks, use_depthwise=config.use_depthwise
        ),
        tasks=tasks,
        post_processing=_post_processing(config),
        exports_predictions=config.output_prediction_dict,
    )


def build_extractor(
    config: center_net_pb2.CenterNetFeatureExtractor, is_training: bool
) -> FeatureExtractor:
    """Builds the feature extractor.

    Raises:
      ValueError: if its type is unknown, or an option does not fit it.
    """
    problem = extractor_types.problem(config.type)
    if problem:
        raise UserError(f'{config.DESCRIPTOR.full_name}.type: {problem}')
    channels = image_channels.current()
    for name in ('channel_means', 'channel_stds'):
        if len(getattr(config, name)) not in (0, 1, image_channels.RGB, channels):
            raise UserError(
                f'{config.DESCRIPTOR.full_name}.{name}: expected one number, three, or one for '
                f'each of the {channels} channels. Received: {len(getattr(config, name))}.'
            )
    return build_center_net(config.type, _extractor_options(config, is_training))


def _extractor_options(
    config: center_net_pb2.CenterNetFeatureExtractor, is_training: bool
) -> CenterNetOptions:
    return CenterNetOptions(
        batch_norm_trainable=is_training,
        means=tuple(config.channel_means),
        stds=tuple(config.channel_stds),
        bgr_ordering=config.bgr_ordering,
        use_separable_conv=config.use_separable_conv,
        depth_multiplier=config.depth_multiplier,
        bilinear=config.upsampling_interpolation == 'bilinear',
    )


def build_tasks(config: center_net_pb2.CenterNet) -> dict[str, Task]:
    """Builds the tasks whose messages are set, by the names of their fields, the centres first."""
    keypoints = keypoints_builder.build(config) if config.keypoint_estimation_task else []
    tasks: dict[str, Task] = {'object_center_params': _object_center(config, keypoints)}
    if config.HasField('object_detection_task'):
        tasks['object_detection_task'] = _box(config.object_detection_task)
    if keypoints:
        tasks['keypoint_estimation_task'] = KeypointTasks(keypoints)
    if config.HasField('densepose_estimation_task'):
        tasks['densepose_estimation_task'] = _densepose(config.densepose_estimation_task)
    if config.HasField('mask_estimation_task'):
        densepose = tasks.get('densepose_estimation_task')
        tasks['mask_estimation_task'] = _masks(config, densepose)
    if config.HasField('track_estimation_task'):
        tasks['track_estimation_task'] = _track(config.track_estimation_task)
    if config.HasField('temporal_offset_task'):
        tasks['temporal_offset_task'] = _temporal_offset(config.temporal_offset_task)
    return tasks


def _object_center(
    config: center_net_pb2.CenterNet, keypoints: Sequence[Keypoints]
) -> ObjectCenter:
    options = config.object_center_params
    return ObjectCenter(
        head=build_head(config.num_classes, options.center_head_params, options.heatmap_bias_init),
        loss=losses_builder.build_classification(options.classification_loss),
        weight=options.object_center_loss_weight,
        min_overlap=options.min_box_overlap_iou,
        points_of=keypoints[0].object_points if options.keypoint_weights_for_center else None,
        only_labeled=options.use_labeled_classes,
    )


def _box(config: center_net_pb2.CenterNet.ObjectDetection) -> Box:
    return Box(
        scale_head=build_head(2, config.scale_head_params),
        offset_head=build_head(2, config.offset_head_params),
        loss=losses_builder.build_localization_of_codes(config.localization_loss),
        scale_weight=config.task_loss_weight * config.scale_loss_weight,
        offset_weight=config.task_loss_weight * config.offset_loss_weight,
    )


def _masks(config: center_net_pb2.CenterNet, densepose: DensePose | None) -> Masks:
    options = config.mask_estimation_task
    return Masks(
        head=build_head(config.num_classes, options.mask_head_params, options.heatmap_bias_init),
        loss=losses_builder.build_classification(options.classification_loss),
        weight=options.task_loss_weight,
        mask_size=(options.mask_height, options.mask_width),
        score_threshold=options.score_threshold,
        densepose=densepose,
    )


def _densepose(config: center_net_pb2.CenterNet.DensePoseEstimation) -> DensePose:
    return DensePose(
        part_head=build_head(config.num_parts, bias=config.heatmap_bias_init),
        surface_head=build_head(2 * config.num_parts),
        class_index=config.class_id,
        part_loss=losses_builder.build_classification(config.loss.classification_loss),
        surface_loss=losses_builder.build_localization_of_codes(config.loss.localization_loss),
        part_weight=config.task_loss_weight * config.part_loss_weight,
        surface_weight=config.task_loss_weight * config.coordinate_loss_weight,
        at_input_size=config.upsample_to_input_res,
    )


def _track(config: center_net_pb2.CenterNet.TrackEstimation) -> Track:
    return Track(
        head=build_head(config.reid_embed_size),
        classifier=TrackClassifier(
            embedding_size=config.reid_embed_size,
            num_ids=config.num_track_ids,
            num_layers=config.num_fc_layers,
        ),
        num_ids=config.num_track_ids,
        loss=losses_builder.build_classification(config.classification_loss),
        weight=config.task_loss_weight,
    )


def _temporal_offset(config: center_net_pb2.CenterNet.TemporalOffsetEstimation) -> TemporalOffset:
    return TemporalOffset(
        head=build_head(2),
        loss=losses_builder.build_localization_of_codes(config.localization_loss),
        weight=config.task_loss_weight,
    )


def _post_processing(config: center_net_pb2.CenterNet) -> PostProcessing:
    centers = config.object_center_params
    nms = None
    if config.HasField('post_processing'):
        nms, _ = post_processing_builder.build(config.post_processing)
    return PostProcessing(
        max_detections=centers.max_box_predictions,
        peak_window=centers.peak_max_pool_kernel_size,
        nms=nms,
        ignores_padding=config.ignore_padding,
    )
