"""Builds the feature extractor that a FasterRcnnFeatureExtractor proto describes."""

import contextlib
from collections.abc import Iterator, Mapping

from object_detection.builders import hyperparams_builder
from object_detection.errors import UserError
from object_detection.models.backbones.resnet_v1 import Padding
from object_detection.models.feature_extractor import Preprocess
from object_detection.models.feature_extractors.two_stage import TwoStageFeatureExtractor
from object_detection.models.feature_extractors.two_stage_types import (
    PyramidOptions,
    TwoStageOptions,
    build_faster_rcnn,
    check_faster_rcnn,
)
from object_detection.models.resnet_options import ResnetOptions
from object_detection.protos import faster_rcnn_pb2, fpn_pb2

_PROTO = faster_rcnn_pb2.FasterRcnnFeatureExtractor
PADDINGS: Mapping[int, Padding] = {
    _PROTO.SYMMETRIC: Padding.SYMMETRIC,
    _PROTO.SAME: Padding.SAME,
    _PROTO.SYMMETRIC_ALL: Padding.SYMMETRIC_ALL,
}


def build(
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
    with _naming(config):
        return build_faster_rcnn(config.type, _options(config, is_training))


def check(config: faster_rcnn_pb2.FasterRcnnFeatureExtractor) -> None:
    """Checks the message as `build` does, without building the networks.

    Raises:
      ValueError: in the cases of `build`.
    """
    with _naming(config):
        check_faster_rcnn(config.type, _options(config, is_training=False))


@contextlib.contextmanager
def _naming(config: faster_rcnn_pb2.FasterRcnnFeatureExtractor) -> Iterator[None]:
    """Prefixes the messages of errors with the name of the message."""
    try:
        yield
    except ValueError as error:
        raise UserError(f'{config.DESCRIPTOR.full_name} {config.type!r}: {error}') from error


def _options(
    config: faster_rcnn_pb2.FasterRcnnFeatureExtractor, is_training: bool
) -> TwoStageOptions:
    def if_set(field: str):
        return getattr(config, field) if config.HasField(field) else None

    if config.freeze_affine:
        _check_freeze_affine(config)
    resnet = ResnetOptions(
        stride_in_1x1=if_set('stride_in_1x1'),
        padding_mode=PADDINGS.get(if_set('padding_mode')),
        frozen_stages=if_set('frozen_stages'),
        freeze_affine=if_set('freeze_affine'),
        preprocess=_preprocess(config.preprocess) if config.HasField('preprocess') else None,
    )
    return TwoStageOptions(
        batch_norm_trainable=config.batch_norm_trainable and is_training,
        hyperparams=(
            hyperparams_builder.build(config.conv_hyperparams)
            if config.HasField('conv_hyperparams')
            else None
        ),
        override_backbone=config.override_base_feature_extractor_hyperparams,
        stride=config.first_stage_features_stride,
        pad_to_multiple=if_set('pad_to_multiple'),
        pyramid=_pyramid(config.fpn) if config.HasField('fpn') else None,
        box_head_depth=if_set('box_head_depth'),
        backbone=resnet if resnet.given() else None,
    )


def _pyramid(config: fpn_pb2.FeaturePyramidNetworks) -> PyramidOptions:
    levels = (config.min_level, config.max_level)
    return PyramidOptions(
        levels, hyperparams_builder.depth(config), hyperparams_builder.network_options(config)
    )


def _preprocess(config: faster_rcnn_pb2.ImagePreprocessing) -> Preprocess:
    lists = {name: tuple(getattr(config, name)) for name in ('mean', 'std')}
    return Preprocess(
        scale=config.scale, **{name: values for name, values in lists.items() if values}
    )


def _check_freeze_affine(config: faster_rcnn_pb2.FasterRcnnFeatureExtractor) -> None:
    """Checks that the norms are frozen in training, as `freeze_affine` requires."""
    hyperparams = config.conv_hyperparams
    kind = hyperparams.WhichOneof('normalizer_oneof')
    may_train = kind not in ('batch_norm', 'sync_batch_norm') or getattr(hyperparams, kind).train
    if config.batch_norm_trainable and may_train:
        raise UserError(
            'freeze_affine: expected `batch_norm_trainable: false`, as scale and offset stop with '
            'the norms that are frozen. Received: true.'
        )
