"""Builds the feature extractor that a FasterRcnnFeatureExtractor proto describes."""

import contextlib
from collections.abc import Iterator

from object_detection.builders import hyperparams_builder
from object_detection.models.feature_extractor import FeatureExtractor
from object_detection.models.feature_extractors import (
    ExtractorOptions,
    build_faster_rcnn,
    check_faster_rcnn,
)
from object_detection.protos import faster_rcnn_pb2


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
    with _naming(config):
        return build_faster_rcnn(config.type, _options(config, is_training))


def check(config: faster_rcnn_pb2.FasterRcnnFeatureExtractor) -> None:
    """Raises what `build` would, without building the networks.

    Raises:
      ValueError: as `build`.
    """
    with _naming(config):
        check_faster_rcnn(config.type, _options(config, is_training=False))


@contextlib.contextmanager
def _naming(config: faster_rcnn_pb2.FasterRcnnFeatureExtractor) -> Iterator[None]:
    """Puts the message's name before the texts of errors."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f'{config.DESCRIPTOR.full_name} {config.type!r}: {error}') from error


def _options(
    config: faster_rcnn_pb2.FasterRcnnFeatureExtractor, is_training: bool
) -> ExtractorOptions:
    def if_set(field: str):
        return getattr(config, field) if config.HasField(field) else None

    pyramid = if_set('fpn')
    return ExtractorOptions(
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
    )
