"""Builds the feature extractor that a FasterRcnnFeatureExtractor proto describes."""

import tensorflow as tf

from object_detection.builders import hyperparams_builder
from object_detection.models.feature_extractors import (
    FASTER_RCNN,
    ExtractorOptions,
    FeatureExtractor,
    build_faster_rcnn,
)
from object_detection.protos import faster_rcnn_pb2

# With and without a pyramid: the types of the least layers. The rules of a kind are the same for
# all depths.
_SMALLEST_WITH_PYRAMID = 'faster_rcnn_resnet18_fpn_keras'
_SMALLEST_WITHOUT = 'faster_rcnn_resnet50_keras'


def build(
    config: faster_rcnn_pb2.FasterRcnnFeatureExtractor, is_training: bool
) -> FeatureExtractor:
    """Builds the feature extractor of Faster R-CNN.

    Args:
      config: the extractor's message. Without `fpn`, a pyramid has the levels 2 to 6; with it, the
        message's (3 to 7 unless set).
      is_training: False freezes all batch norms, as `batch_norm_trainable: false` does.

    Raises:
      ValueError: if there is no such type, or its options do not fit it.
    """
    return _build(config, config.type, is_training)


def check(config: faster_rcnn_pb2.FasterRcnnFeatureExtractor) -> None:
    """Raises what `build` would, in the time that the smallest type of the kind takes (a second).

    Raises:
      ValueError: as `build`.
    """
    type_name = config.type
    if type_name in FASTER_RCNN:
        type_name = _SMALLEST_WITH_PYRAMID if '_fpn' in type_name else _SMALLEST_WITHOUT
    # Another program may fill the memory of a GPU.
    with tf.device('/CPU:0'):
        _build(config, type_name, is_training=False)


def _build(
    config: faster_rcnn_pb2.FasterRcnnFeatureExtractor, type_name: str, is_training: bool
) -> FeatureExtractor:
    def if_set(field: str):
        return getattr(config, field) if config.HasField(field) else None

    pyramid = if_set('fpn')
    try:
        return build_faster_rcnn(
            type_name,
            ExtractorOptions(
                batch_norm_trainable=config.batch_norm_trainable and is_training,
                hyperparams=(
                    hyperparams_builder.build(config.conv_hyperparams)
                    if config.HasField('conv_hyperparams')
                    else None
                ),
                override_backbone=config.override_base_feature_extractor_hyperparams,
                stride=config.first_stage_features_stride,
                pad_to_multiple=if_set('pad_to_multiple'),
                levels=pyramid and (pyramid.min_level, pyramid.max_level),
                pyramid_depth=pyramid and pyramid.additional_layer_depth,
                box_head_depth=if_set('box_head_depth'),
            ),
        )
    except ValueError as error:
        raise ValueError(f'{config.DESCRIPTOR.full_name} {config.type!r}: {error}') from error
