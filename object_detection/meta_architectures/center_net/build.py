"""Builds the CenterNet that its proto describes, with its tasks and their heads."""

import dataclasses
from collections.abc import Sequence

from object_detection.builders import image_resizer_builder, losses_builder, post_processing_builder
from object_detection.config import reading
from object_detection.data import label_map
from object_detection.errors import Problems, UserError, expected, format_list, raise_if_any, within
from object_detection.meta_architectures.center_net import rules
from object_detection.meta_architectures.center_net.center_net import CenterNet, PostProcessing
from object_detection.meta_architectures.center_net.deepmac import build as deepmac_builder
from object_detection.meta_architectures.center_net.deepmac.rules import FIELD
from object_detection.meta_architectures.center_net.feature_extractor import (
    CenterNetOptions,
    build_center_net,
)
from object_detection.meta_architectures.center_net.heads import PredictionHeads
from object_detection.meta_architectures.center_net.rules import ROOT
from object_detection.meta_architectures.center_net.tasks.box import Box
from object_detection.meta_architectures.center_net.tasks.densepose import DensePose
from object_detection.meta_architectures.center_net.tasks.keypoints import (
    Keypoints,
    KeypointTasks,
    Layout,
    Learning,
)
from object_detection.meta_architectures.center_net.tasks.masks import Masks
from object_detection.meta_architectures.center_net.tasks.object_center import ObjectCenter
from object_detection.meta_architectures.center_net.tasks.snapping import Ranking, Snapping
from object_detection.meta_architectures.center_net.tasks.task import Head, Task
from object_detection.meta_architectures.center_net.tasks.tracking import (
    TemporalOffset,
    Track,
    TrackClassifier,
)
from object_detection.models import image_channels, image_sizes
from object_detection.models.feature_extractor import FeatureExtractor
from object_detection.protos import center_net_pb2


def build_head(
    channels: int,
    params: center_net_pb2.CenterNet.PredictionHeadParams | None = None,
    bias: float = 0.0,
) -> Head:
    """Builds the description of a head; without `params` it has one 3x3 convolution of 256.

    Args:
      channels: of its result.
      params: its convolutions.
      bias: initial bias of the last one.
    """
    params = params or center_net_pb2.CenterNet.PredictionHeadParams()
    return Head(
        channels,
        filters=tuple(params.num_filters) or (256,),
        kernel_sizes=tuple(params.kernel_sizes) or (3,),
        bias=bias,
    )


_NO_EXTRACTOR = (
    'no extractor reads it; use_separable_conv makes the convolutions of a pyramid separable, and '
    f'{ROOT}.use_depthwise those of the heads'
)
# Fields of a keypoint task -> the values of candidate_ranking_mode that read them.
_RANKED_BY = {
    'score_distance_offset': ('score_distance_ratio',),
    'score_distance_multiplier': ('score_scaled_distance_ratio',),
    'std_dev_multiplier': ('gaussian_weighted',),
    'gaussian_denom_ratio': ('gaussian_weighted_const',),
    **dict.fromkeys(
        (
            'keypoint_candidate_score_threshold',
            'num_candidates_per_keypoint',
            'peak_max_pool_kernel_size',
            'box_scale',
            'candidate_search_scale',
        ),
        rules.RANKINGS,
    ),
}
_BOX_FIELDS = ('box_scale', 'candidate_search_scale')
_DEPTH_FIELDS = ('per_keypoint_depth', 'keypoint_depth_loss_weight')
_Task = center_net_pb2.CenterNet.KeypointEstimation


def build_keypoints(config: center_net_pb2.CenterNet) -> list[Keypoints]:
    """Builds the keypoint tasks.

    Raises:
      ValueError: if the label map lacks the class or a keypoint of a task.
    """
    layouts = build_layouts(config)
    has_boxes = config.HasField('object_detection_task')
    return [
        _build(task, layout, has_boxes)
        for task, layout in zip(config.keypoint_estimation_task, layouts, strict=True)
    ]


def build_layouts(config: center_net_pb2.CenterNet) -> list[Layout]:
    """Reads which keypoints each task has from `keypoint_label_map_path`."""
    path = config.keypoint_label_map_path
    try:
        labels = label_map.load(path)
    except UserError as error:
        raise UserError(f'{ROOT}.keypoint_label_map_path: {error}') from error
    by_id = {category['id']: category for category in labels.categories}
    layouts = []
    for index, task in enumerate(config.keypoint_estimation_task):
        field = f'{ROOT}.keypoint_estimation_task[{index}]'
        category = by_id.get(labels.text_to_id.get(task.keypoint_class_name))
        if category is None or not category.get('keypoints'):
            raise expected(
                f'{field}.keypoint_class_name', f'an item of {path}', repr(task.keypoint_class_name)
            )
        keypoints = category['keypoints']
        if unknown := sorted(set(task.keypoint_label_to_std) - set(keypoints)):
            raise UserError(
                f'{field}.keypoint_label_to_std: expected keypoints of '
                f'{task.keypoint_class_name!r} in {path}: {format_list(keypoints)}. '
                f'Received: {format_list(unknown)}.'
            )
        layouts.append(
            Layout(
                name=task.task_name,
                class_index=category['id'] - 1,
                indices=tuple(keypoints.values()),
                num_total=0,
                deviations=tuple(task.keypoint_label_to_std.get(name, 1.0) for name in keypoints),
                center_weights=_center_weights(config, path, keypoints),
            )
        )
    # As many as in the reference, whose classes share no keypoint; those of COCO files may.
    num_total = max(
        sum(len(layout.indices) for layout in layouts),
        1 + max((max(layout.indices) for layout in layouts), default=-1),
    )
    return [dataclasses.replace(layout, num_total=num_total) for layout in layouts]


def _center_weights(
    config: center_net_pb2.CenterNet, path: str, keypoints: Sequence[str]
) -> tuple[float, ...]:
    weights = tuple(config.object_center_params.keypoint_weights_for_center)
    if len(weights) not in (0, len(keypoints)):
        raise UserError(
            f'{ROOT}.object_center_params.keypoint_weights_for_center: '
            f'expected one weight for each keypoint of {path}: {format_list(keypoints)}. '
            f'Received: {len(weights)} weights.'
        )
    return weights


def _note_unused(task: _Task, has_boxes: bool) -> None:
    mode = task.candidate_ranking_mode
    unread = [name for name, modes in _RANKED_BY.items() if mode not in modes]
    if not has_boxes:
        reading.unused(task, _BOX_FIELDS, 'without object_detection_task there are no boxes')
    reading.unused(task, unread, f'candidate_ranking_mode is {mode}')
    if not task.rescore_instances:
        reading.unused(task, 'rescoring_threshold', 'rescore_instances is false')
    if not task.predict_depth:
        reading.unused(task, _DEPTH_FIELDS, 'predict_depth is false')


def _ranking(task: _Task) -> Ranking:
    # The rules see to it that both fields say the same.
    if task.argmax_postprocessing:
        return Ranking.GAUSSIAN_WEIGHTED_CONST
    return Ranking(task.candidate_ranking_mode)


def _build(task: _Task, layout: Layout, has_boxes: bool) -> Keypoints:
    _note_unused(task, has_boxes)
    count = len(layout.indices)
    heads = {
        'heatmap': build_head(count, task.heatmap_head_params, task.heatmap_bias_init),
        'offset': build_head(
            2 * (count if task.per_keypoint_offset else 1), task.offset_head_params
        ),
        'regression': build_head(2 * count, task.regress_head_params),
    }
    if task.predict_depth:
        heads['depth'] = build_head(count if task.per_keypoint_depth else 1)
    weights = {
        'heatmap': task.keypoint_heatmap_loss_weight,
        'offset': task.keypoint_offset_loss_weight,
        'regression': task.keypoint_regression_loss_weight,
        'depth': task.keypoint_depth_loss_weight,
    }
    return Keypoints(
        layout=layout,
        heads=heads,
        learning=Learning(
            heatmap_loss=losses_builder.build_classification_of_pixels(
                task.loss.classification_loss
            ),
            loss=losses_builder.build_localization_of_codes(task.loss.localization_loss),
            weights={name: task.task_loss_weight * weight for name, weight in weights.items()},
            offset_radius=task.offset_peak_radius,
            per_keypoint_offset=task.per_keypoint_offset,
            predicts_depth=task.predict_depth,
            per_keypoint_depth=task.per_keypoint_depth,
        ),
        snapping=Snapping(
            score_threshold=task.keypoint_candidate_score_threshold,
            num_candidates=task.num_candidates_per_keypoint,
            peak_window=task.peak_max_pool_kernel_size,
            unmatched_score=task.unmatched_keypoint_score,
            box_scale=task.box_scale,
            search_scale=task.candidate_search_scale,
            ranking=_ranking(task),
            distance_offset=task.score_distance_offset,
            distance_multiplier=task.score_distance_multiplier,
            deviations=tuple(task.std_dev_multiplier * each for each in layout.deviations),
            denominator_ratio=task.gaussian_denom_ratio,
            clips=task.clip_out_of_frame_keypoints,
            rescores=task.rescore_instances,
            rescoring_threshold=task.rescoring_threshold,
        ),
    )


def build_detector(config: center_net_pb2.CenterNet, is_training: bool) -> CenterNet:
    """Builds a CenterNet, with random weights.

    Args:
      config: the model's message.
      is_training: False freezes all batch norms.

    Raises:
      ValueError: if an option is not supported, or does not fit another.
    """
    problems = Problems()
    with problems:
        raise_if_any(rules.problems_of_parts(reading.plain(config)))
    image_shape = None
    with problems:
        resizer = image_resizer_builder.build(config.image_resizer)
        image_shape = resizer.static_shape
    with problems, image_sizes.scope(image_shape):
        extractor = build_extractor(config.feature_extractor, is_training)
    with problems:
        tasks = build_tasks(config)
    with problems:
        if config.HasField(FIELD):
            deepmac = deepmac_builder.build_task(
                config.deepmac_mask_estimation,
                _extractor_options(config.feature_extractor, is_training),
            )
    with problems:
        post_processing = _post_processing(config)
    problems.raise_if_any()
    if config.HasField(FIELD):
        tasks[FIELD] = deepmac
    heads = {name: head for task in tasks.values() for name, head in task.heads.items()}
    return CenterNet(
        num_classes=config.num_classes,
        resizer=resizer,
        feature_extractor=extractor,
        heads=PredictionHeads(
            heads, num_stacks=extractor.num_stacks, use_depthwise=config.use_depthwise
        ),
        tasks=tasks,
        post_processing=post_processing,
        exports_predictions=config.output_prediction_dict,
    )


def build_extractor(
    config: center_net_pb2.CenterNetFeatureExtractor, is_training: bool
) -> FeatureExtractor:
    """Builds the feature extractor.

    Raises:
      ValueError: if its type is unknown, or an option does not fit it.
    """
    problem = rules.type_problem(config.type)
    if problem:
        raise UserError(f'{config.DESCRIPTOR.full_name}.type: {problem}')
    channels = image_channels.current()
    for name in ('channel_means', 'channel_stds'):
        if len(getattr(config, name)) not in (0, 1, image_channels.RGB, channels):
            raise UserError(
                f'{config.DESCRIPTOR.full_name}.{name}: expected one number, three, or one for '
                f'each of the {channels} channels. Received: {len(getattr(config, name))}.'
            )
    with within(f'{config.DESCRIPTOR.full_name} {config.type!r}'):
        return build_center_net(config.type, _extractor_options(config, is_training))


def _extractor_options(
    config: center_net_pb2.CenterNetFeatureExtractor, is_training: bool
) -> CenterNetOptions:
    reason = f'feature extractors of the type {config.type} do not read it'
    reading.unused(config, rules.unread_fields(config), reason)
    reading.unused(config, 'use_depthwise', _NO_EXTRACTOR)
    return CenterNetOptions(
        batch_norm_trainable=is_training,
        means=tuple(config.channel_means),
        stds=tuple(config.channel_stds),
        bgr_ordering=config.bgr_ordering,
        use_separable_conv=config.use_separable_conv,
        depth_multiplier=config.depth_multiplier,
        bilinear=config.upsampling_interpolation == 'bilinear',
        backbone=config.backbone or None,
        neck=config.neck or None,
        drop_path_rate=config.drop_path_rate if config.HasField('drop_path_rate') else None,
    )


def build_tasks(config: center_net_pb2.CenterNet) -> dict[str, Task]:
    """Builds the tasks whose messages are set, by the names of their fields, the centres first."""
    tasks: dict[str, Task] = {}
    keypoints: list[Keypoints] = []
    builders = {
        'object_detection_task': _box,
        'keypoint_estimation_task': lambda _: KeypointTasks(keypoints),
        'densepose_estimation_task': _densepose,
        'mask_estimation_task': lambda _: _masks(config, tasks.get('densepose_estimation_task')),
        'track_estimation_task': _track,
        'temporal_offset_task': _temporal_offset,
    }
    problems = Problems()
    with problems:
        keypoints += build_keypoints(config) if config.keypoint_estimation_task else []
        tasks['object_center_params'] = _object_center(config, keypoints)
    for name, build in builders.items():
        if keypoints if name == 'keypoint_estimation_task' else config.HasField(name):
            with problems:
                tasks[name] = build(getattr(config, name))
    problems.raise_if_any()
    return tasks


def _object_center(
    config: center_net_pb2.CenterNet, keypoints: Sequence[Keypoints]
) -> ObjectCenter:
    options = config.object_center_params
    return ObjectCenter(
        head=build_head(config.num_classes, options.center_head_params, options.heatmap_bias_init),
        loss=losses_builder.build_classification_of_pixels(options.classification_loss),
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
        loss=losses_builder.build_classification_of_pixels(options.classification_loss),
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
        part_loss=losses_builder.build_classification_of_pixels(config.loss.classification_loss),
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
