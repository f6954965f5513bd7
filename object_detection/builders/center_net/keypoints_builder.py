"""Builds the keypoint tasks of CenterNet."""

import dataclasses
from collections.abc import Sequence

from object_detection.builders import losses_builder
from object_detection.builders.center_net.heads_builder import build_head
from object_detection.builders.center_net.rules import ROOT
from object_detection.data import label_map
from object_detection.errors import UserError, format_list
from object_detection.meta_architectures.center_net.tasks.keypoints import (
    Keypoints,
    Layout,
    Learning,
)
from object_detection.meta_architectures.center_net.tasks.snapping import Ranking, Snapping
from object_detection.protos import center_net_pb2

_Task = center_net_pb2.CenterNet.KeypointEstimation


def build(config: center_net_pb2.CenterNet) -> list[Keypoints]:
    """Builds the keypoint tasks.

    Raises:
      ValueError: if the label map lacks the class or a keypoint of a task.
    """
    layouts = build_layouts(config)
    return [
        _build(task, layout)
        for task, layout in zip(config.keypoint_estimation_task, layouts, strict=True)
    ]


def build_layouts(config: center_net_pb2.CenterNet) -> list[Layout]:
    """Reads which keypoints each task has from `keypoint_label_map_path`."""
    path = config.keypoint_label_map_path
    labels = label_map.load(path)
    by_id = {category['id']: category for category in labels.categories}
    layouts = []
    for index, task in enumerate(config.keypoint_estimation_task):
        field = f'{ROOT}.keypoint_estimation_task[{index}]'
        category = by_id.get(labels.text_to_id.get(task.keypoint_class_name))
        if category is None or not category.get('keypoints'):
            raise UserError(
                f'{field}.keypoint_class_name: expected an item of {path} with keypoints. '
                f'Received: {task.keypoint_class_name!r}.'
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


def _build(task: _Task, layout: Layout) -> Keypoints:
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
            heatmap_loss=losses_builder.build_classification(task.loss.classification_loss),
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
            ranking=Ranking(task.candidate_ranking_mode),
            distance_offset=task.score_distance_offset,
            distance_multiplier=task.score_distance_multiplier,
            deviations=tuple(task.std_dev_multiplier * each for each in layout.deviations),
            denominator_ratio=task.gaussian_denom_ratio,
            clips=task.clip_out_of_frame_keypoints,
            rescores=task.rescore_instances,
            rescoring_threshold=task.rescoring_threshold,
        ),
    )
