"""The functions of the CenterNet family in `families.MODELS`; loads no TensorFlow."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from object_detection.meta_architectures.center_net.deepmac import rules
from object_detection.protos.center_net_pb2 import CenterNet

_MASK_CROP_SIZE = 112

if TYPE_CHECKING:
    from object_detection.meta_architectures.detection_model import DetectionModel


def build(config: CenterNet, is_training: bool) -> 'DetectionModel':
    """Builds the detector; see `ModelFamily.build`."""
    from object_detection.meta_architectures.center_net import build as builder  # loads TensorFlow

    return builder.build(config, is_training)


def loss_names(config: CenterNet) -> Sequence[str]:
    """Returns the names of the losses; see `ModelFamily.loss_names`."""
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
    if config.HasField(rules.FIELD):
        task = config.deepmac_mask_estimation
        weights = {name: getattr(task, field) for field, name in rules.LOSSES.items()}
        names += [f'deep_mask_{name}' for name, weight in weights.items() if weight > 0]
    return [f'Loss/{name}' for name in names]


def needs_masks(config: CenterNet) -> bool:
    """Returns whether a task learns masks."""
    learns = config.deepmac_mask_estimation.task_loss_weight > 0
    return config.HasField('mask_estimation_task') or (config.HasField(rules.FIELD) and learns)


def predicts_masks(config: CenterNet) -> bool:
    """Returns whether detections have masks."""
    return config.HasField('mask_estimation_task') or config.HasField(rules.FIELD)


def reader_flags(config: CenterNet) -> dict[str, str]:
    """Returns options of input readers that losses need; see `ModelFamily.reader_flags`."""
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


def needs_keypoints(config: CenterNet) -> bool:
    """Returns whether a task learns keypoints."""
    points = config.deepmac_mask_estimation.pointly_supervised_keypoint_loss_weight
    return bool(config.keypoint_estimation_task) or points > 0


def example_options(config: CenterNet) -> dict[str, Any]:
    """Returns options of the input; see `ModelFamily.example_options`.

    Masks that are predicted in the boxes of objects are compared at their own samples; where boxes
    move, and for masks of whole images, crops are finer.
    """
    if config.HasField('mask_estimation_task'):
        return {'mask_crop_size': config.mask_estimation_task.groundtruth_mask_crop_size}
    task = config.deepmac_mask_estimation
    is_exact = not task.predict_full_resolution_masks and not task.max_roi_jitter_ratio
    if config.HasField(rules.FIELD) and is_exact:
        return {'mask_crop_size': task.mask_size}
    return {'mask_crop_size': _MASK_CROP_SIZE}
