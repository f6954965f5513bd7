"""The row of the CenterNet family; loads no TensorFlow before a detector is built."""

from collections.abc import Sequence

from object_detection import registry
from object_detection.config.families import ModelFamily, Needs
from object_detection.core.detector import Detector
from object_detection.meta_architectures.center_net import rules, warnings
from object_detection.meta_architectures.center_net.deepmac import rules as deepmac
from object_detection.protos.center_net_pb2 import CenterNet

_MASK_CROP_SIZE = 112


def _build(config: CenterNet, is_training: bool) -> Detector:
    build = registry.load('object_detection.meta_architectures.center_net.build:build_detector')
    return build(config, is_training)


def _loss_names(config: CenterNet) -> Sequence[str]:
    names = ['object_center']
    if config.HasField('object_detection_task'):
        names += ['box/scale', 'box/offset']
    for task in config.keypoint_estimation_task:
        parts = ['heatmap', 'offset', 'regression'] + ['depth'] * task.predict_depth
        names += [f'{task.task_name}/keypoint/{part}' for part in parts]
    if config.HasField('densepose_estimation_task'):
        names += ['densepose/heatmap', 'densepose/regression']
    if config.HasField('mask_estimation_task'):
        names.append('segmentation/heatmap')
    if config.HasField('track_estimation_task'):
        names.append('track/reid')
    if config.HasField('temporal_offset_task'):
        names.append('track/offset')
    if config.HasField(deepmac.FIELD):
        task = config.deepmac_mask_estimation
        weights = {name: getattr(task, field) for field, name in deepmac.LOSSES.items()}
        names += [f'deep_mask_{name}' for name, weight in weights.items() if weight > 0]
    return [f'Loss/{name}' for name in names]


def _needs(config: CenterNet) -> Needs:
    task, has_deepmac = config.deepmac_mask_estimation, config.HasField(deepmac.FIELD)
    has_masks = config.HasField('mask_estimation_task')
    return Needs(
        masks=has_masks or (has_deepmac and task.task_loss_weight > 0),
        predicts_masks=has_masks or has_deepmac,
        mask_setting='mask_estimation_task { ... }',
        keypoints=bool(config.keypoint_estimation_task)
        or task.pointly_supervised_keypoint_loss_weight > 0,
        reader_flags=_reader_flags(config),
        example_options={'mask_crop_size': _mask_crop_size(config)},
        padding_multiple=rules.padding_multiple(config),
    )


def _reader_flags(config: CenterNet) -> dict[str, str]:
    needed = {}
    if config.object_center_params.use_labeled_classes:
        needed['load_image_labels'] = 'object_center_params.use_labeled_classes'
    if config.HasField('densepose_estimation_task'):
        needed['load_dense_pose'] = 'densepose_estimation_task'
    if config.HasField('track_estimation_task'):
        needed['load_track_id'] = 'track_estimation_task'
    if any(task.predict_depth for task in config.keypoint_estimation_task):
        needed['load_keypoint_depth_features'] = 'keypoint_estimation_task.predict_depth'
    return needed


def _mask_crop_size(config: CenterNet) -> int:
    """Returns the size of the crops of masks.

    Masks that are predicted in the boxes of objects are compared at their own samples; where boxes
    move, and for masks of whole images, crops are finer.
    """
    if config.HasField('mask_estimation_task'):
        return config.mask_estimation_task.groundtruth_mask_crop_size
    task = config.deepmac_mask_estimation
    is_exact = not task.predict_full_resolution_masks and not task.max_roi_jitter_ratio
    return task.mask_size if config.HasField(deepmac.FIELD) and is_exact else _MASK_CROP_SIZE


FAMILY = ModelFamily(
    title='CenterNet',
    build=_build,
    loss_names=_loss_names,
    needs=_needs,
    rules=rules.check,
    warnings=lambda config, is_random: warnings.find_advice(config),
)
