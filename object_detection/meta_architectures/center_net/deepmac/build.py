"""Builds the masks of DeepMAC."""

from object_detection.builders import losses_builder
from object_detection.config import reading
from object_detection.meta_architectures.center_net.deepmac import deepmac, losses
from object_detection.meta_architectures.center_net.deepmac.losses import srgb_to_lab
from object_detection.meta_architectures.center_net.deepmac.rules import LOSSES
from object_detection.meta_architectures.center_net.feature_extractor import (
    CenterNetOptions,
    denormalization,
)
from object_detection.meta_architectures.center_net.tasks.task import Head
from object_detection.models.backbones import mask_networks
from object_detection.protos import center_net_pb2, preprocessor_pb2

NORMALIZERS = {
    center_net_pb2.NORMALIZE_AUTO: None,
    center_net_pb2.NORMALIZE_GROUNDTRUTH_COUNT: losses.by_count,
    center_net_pb2.NORMALIZE_BALANCED: losses.balanced,
}
VIEW_LOSSES = {
    center_net_pb2.LOSS_UNSET: losses.dice_of_views,
    center_net_pb2.LOSS_DICE: losses.dice_of_views,
    center_net_pb2.LOSS_MSE: losses.squares_of_views,
    center_net_pb2.LOSS_KL_DIV: losses.divergence_of_views,
}
_NO_NEIGHBOURS = (
    'neighbours are compared in masks of whole images, with predict_full_resolution_masks; the '
    'loss is 0'
)
# Field -> those without an effect where it is 0 or false.
_NEEDED_BY = {
    'augmented_self_supervision_loss_weight': tuple(
        f'augmented_self_supervision_{name}'
        for name in (
            *('flip_probability', 'loss', 'max_translation', 'scale_max', 'scale_min'),
            *('warmup_start', 'warmup_steps'),
        )
    ),
    'augmented_self_supervision_warmup_steps': ('augmented_self_supervision_warmup_start',),
    'box_consistency_loss_weight': ('box_consistency_loss_normalize', 'box_consistency_tightness'),
    'color_consistency_loss_weight': tuple(
        f'color_consistency_{name}'
        for name in ('dilation', 'threshold', 'warmup_start', 'warmup_steps')
    ),
    'color_consistency_warmup_steps': ('color_consistency_warmup_start',),
    'max_roi_jitter_ratio': ('jitter_mode',),
    'predict_full_resolution_masks': ('postprocess_crop_size',),
    'task_loss_weight': ('allowed_masked_classes_ids', 'ignore_per_class_box_overlap'),
}
_WITHOUT_CHANNELS = (mask_networks.PROJECTION, mask_networks.FULLY_CONNECTED, 'cond_inst1')
# Of the heads of both embeddings: one row, three columns, as in the reference, whose weights were
# trained so.
_KERNEL_SIZE = (1, 3)


def build_task(
    config: center_net_pb2.CenterNet.DeepMACMaskEstimation, options: CenterNetOptions
) -> deepmac.DeepMac:
    """Builds the task; `rules.check` says what has to hold.

    Args:
      config: the message.
      options: of the feature extractor.
    """
    _note_unused(config)
    return deepmac.DeepMac(
        instance_head=Head(config.dim, kernel_sizes=(_KERNEL_SIZE,)),
        pixel_head=Head(config.pixel_embedding_dim, kernel_sizes=(_KERNEL_SIZE,)),
        network=mask_networks.MaskNetwork(
            config.network_type,
            num_inputs=config.pixel_embedding_dim + 2 * config.use_xy,
            num_channels=config.num_init_channels,
            embedding_size=config.dim,
            sees_embedding=config.use_instance_embedding,
            mask_size=config.mask_size,
            batch_norm_trainable=options.batch_norm_trainable,
        ),
        regions=_regions(config),
        learning=_learning(config, options),
    )


def _note_unused(config: center_net_pb2.CenterNet.DeepMACMaskEstimation) -> None:
    for switch, names in _NEEDED_BY.items():
        value = getattr(config, switch)
        if not value:
            reading.unused(config, names, f'{switch} is {"false" if value is False else 0}')
    if config.predict_full_resolution_masks:
        reading.unused(config, 'mask_size', 'predict_full_resolution_masks is true')
    elif config.color_consistency_loss_weight:
        names = ('color_consistency_loss_weight', *_NEEDED_BY['color_consistency_loss_weight'])
        reading.unused(config, names, _NO_NEIGHBOURS)
    if config.network_type in _WITHOUT_CHANNELS:
        reason = f'{config.network_type} has no channels between its first and last layer'
        reading.unused(config, 'num_init_channels', reason)


def _regions(config: center_net_pb2.CenterNet.DeepMACMaskEstimation) -> deepmac.Regions:
    mode = preprocessor_pb2.RandomJitterBoxes.JitterMode.Name(config.jitter_mode)
    return deepmac.Regions(
        mask_size=config.mask_size,
        covers_image=config.predict_full_resolution_masks,
        crop_size=config.postprocess_crop_size,
        use_xy=config.use_xy,
        jitter_ratio=config.max_roi_jitter_ratio,
        jitter_mode=mode,
        max_objects=config.mask_num_subsamples if config.mask_num_subsamples > 0 else None,
        only_last_stage=config.use_only_last_stage,
    )


def _learning(
    config: center_net_pb2.CenterNet.DeepMACMaskEstimation, options: CenterNetOptions
) -> deepmac.Learning:
    to_rgb = denormalization(options)
    allowed = [class_id - 1 for class_id in config.allowed_masked_classes_ids]
    return deepmac.Learning(
        pixel_loss=losses_builder.build_classification_of_pixels(config.classification_loss),
        weights={f'Loss/deep_mask_{name}': getattr(config, f) for f, name in LOSSES.items()},
        mask_classes=allowed or None,
        is_tight=config.box_consistency_tightness,
        normalize=NORMALIZERS[config.box_consistency_loss_normalize],
        ignores_shared_pixels=config.ignore_per_class_box_overlap,
        color_threshold=config.color_consistency_threshold,
        color_dilation=config.color_consistency_dilation,
        color_warmup=deepmac.Warmup(
            config.color_consistency_warmup_start, config.color_consistency_warmup_steps
        ),
        view_warmup=deepmac.Warmup(
            config.augmented_self_supervision_warmup_start,
            config.augmented_self_supervision_warmup_steps,
        ),
        to_lab=lambda images: srgb_to_lab(to_rgb(images) / 255.0),
        view=deepmac.ViewOptions(
            max_translation=config.augmented_self_supervision_max_translation,
            scales=(
                config.augmented_self_supervision_scale_min,
                config.augmented_self_supervision_scale_max,
            ),
            flip_probability=config.augmented_self_supervision_flip_probability,
        ),
        view_loss=VIEW_LOSSES[config.augmented_self_supervision_loss],
    )
