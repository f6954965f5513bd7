"""What has to hold for the masks of DeepMAC, found without TensorFlow."""

import itertools
import re
from collections.abc import Iterator

from object_detection.config import overrides
from object_detection.protos.center_net_pb2 import (
    NORMALIZE_BALANCED,
    AugmentedSelfSupervisionLoss,
    CenterNet,
)

FIELD = 'deepmac_mask_estimation'
PROJECTION = 'embedding_projection'
# Values of `network_type`, beside cond_inst and a number.
TYPES = (
    *(f'hourglass{depth}' for depth in (10, 20, 32, 52, 100)),
    'hourglass20_uniform_size',
    'hourglass20_no_shortcut',
    *(f'resnet{depth}' for depth in (4, 8, 12, 16, 20)),
    'fully_connected',
    PROJECTION,
)
_CONDITIONAL = re.compile(r'cond_inst(?P<depth>[1-9]\d?)')
# Losses that compare the classes of a pixel with each other; a mask is one class.
_SOFTMAX_LOSSES = ('weighted_softmax', 'weighted_logits_softmax')
# Fields of the weights of losses -> names of the losses.
LOSSES = {
    'task_loss_weight': 'estimation',
    'box_consistency_loss_weight': 'box_consistency',
    'color_consistency_loss_weight': 'color_consistency',
    'augmented_self_supervision_loss_weight': 'augmented_self_supervision',
    'pointly_supervised_keypoint_loss_weight': 'pointly_supervised',
}


def check(config: CenterNet) -> Iterator[str]:
    """Yields one sentence for each problem of the message, if it is set."""
    if not config.HasField(FIELD):
        return
    path, task = f'model.center_net.{FIELD}', config.deepmac_mask_estimation
    if not config.HasField('object_detection_task'):
        yield f'{path}: expected with object_detection_task, whose boxes masks belong to.'
    if config.HasField('mask_estimation_task'):
        yield f'{path}: expected without mask_estimation_task, as both give the detections masks.'
    yield from _loss(task, path)
    yield from _network(task, path)
    yield from _regions(task, path)
    for class_id in task.allowed_masked_classes_ids:
        if not 1 <= class_id <= config.num_classes:
            yield (
                f'{path}.allowed_masked_classes_ids: expected ids from 1 to num_classes = '
                f'{config.num_classes}. Received: {class_id}.'
            )


def network_depth(network_type: str) -> int | None:
    """Returns the number of layers of cond_inst1, cond_inst2 ...; None for another type."""
    found = _CONDITIONAL.fullmatch(network_type)
    return int(found['depth']) if found else None


def _loss(task: CenterNet.DeepMACMaskEstimation, path: str) -> Iterator[str]:
    kind = task.classification_loss.WhichOneof('classification_loss')
    if kind is None:
        yield f'{path}.classification_loss is not set; expected e.g. weighted_sigmoid {{}}.'
    elif kind in _SOFTMAX_LOSSES:
        yield (
            f'{path}.classification_loss.{kind}: a mask is a single class, for which a softmax '
            'is always 1; expected e.g. weighted_sigmoid.'
        )
    is_dice = kind == 'weighted_dice_classification_loss'
    if is_dice and task.box_consistency_loss_normalize == NORMALIZE_BALANCED:
        yield (
            f'{path}.box_consistency_loss_normalize: NORMALIZE_BALANCED needs a loss of each '
            f'pixel; expected another classification_loss than {kind}.'
        )
    if is_dice and task.pointly_supervised_keypoint_loss_weight > 0:
        yield (
            f'{path}.pointly_supervised_keypoint_loss_weight: points that are missing count for '
            f'nothing in a loss of each pixel alone; expected another classification_loss than '
            f'{kind}.'
        )
    if task.augmented_self_supervision_loss_weight > 0 and (
        task.augmented_self_supervision_loss == AugmentedSelfSupervisionLoss.Value('LOSS_UNSET')
    ):
        yield f'{path}.augmented_self_supervision_loss: expected a loss. Received: LOSS_UNSET.'
    smallest = task.augmented_self_supervision_scale_min
    if not smallest <= task.augmented_self_supervision_scale_max:
        yield (
            f'{path}.augmented_self_supervision_scale_min: expected at most '
            f'augmented_self_supervision_scale_max. Received: {smallest:g} and '
            f'{task.augmented_self_supervision_scale_max:g}.'
        )


def _network(task: CenterNet.DeepMACMaskEstimation, path: str) -> Iterator[str]:
    kind, depth = task.network_type, network_depth(task.network_type)
    if kind not in TYPES and depth is None:
        choices = (*TYPES, 'cond_inst1', 'cond_inst2 ..')
        problem = overrides.unknown_choice(kind, choices, similar=TYPES)
        yield f'{path}.network_type: {problem}'
        return
    if task.use_instance_embedding and (kind == PROJECTION or depth):
        yield (
            f'{path}.use_instance_embedding: {kind} has no weights of its own, and is made of the '
            'embedding instead of seeing it; expected false.'
        )
    if kind == PROJECTION and task.use_xy:
        yield f'{path}.use_xy: {kind} has no weights for positions; expected false.'
    if kind == PROJECTION and task.dim != task.pixel_embedding_dim:
        yield (
            f'{path}.dim: {kind} multiplies both embeddings; expected pixel_embedding_dim = '
            f'{task.pixel_embedding_dim}. Received: {task.dim}.'
        )
    if depth:
        sizes = [task.pixel_embedding_dim + 2 * task.use_xy]
        sizes += [task.num_init_channels] * (depth - 1) + [1]
        needed = sum((before + 1) * after for before, after in itertools.pairwise(sizes))
        if task.dim != needed:
            yield (
                f'{path}.dim: the embedding is the weights of {kind}; expected {needed}, by '
                f'pixel_embedding_dim, use_xy and num_init_channels. Received: {task.dim}.'
            )


def _regions(task: CenterNet.DeepMACMaskEstimation, path: str) -> Iterator[str]:
    if task.mask_num_subsamples == 0 or task.mask_num_subsamples < -1:
        yield (
            f'{path}.mask_num_subsamples: expected at least 1, or -1 for all objects. '
            f'Received: {task.mask_num_subsamples}.'
        )
    if not task.predict_full_resolution_masks:
        if task.pointly_supervised_keypoint_loss_weight > 0:
            yield (
                f'{path}.pointly_supervised_keypoint_loss_weight: points may lie outside of the '
                'boxes that masks cover; expected predict_full_resolution_masks: true.'
            )
        return
    if task.max_roi_jitter_ratio > 0:
        yield (
            f'{path}.max_roi_jitter_ratio: with predict_full_resolution_masks masks cover the '
            f'image and no box; expected 0. Received: {task.max_roi_jitter_ratio:g}.'
        )
    if task.network_type == 'fully_connected':
        yield (
            f'{path}.network_type: fully_connected gives masks of mask_size; expected '
            'predict_full_resolution_masks: false.'
        )
