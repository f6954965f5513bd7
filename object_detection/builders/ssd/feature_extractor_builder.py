"""Builds the feature extractor that an SsdFeatureExtractor proto describes."""

import contextlib
from collections.abc import Iterator, Mapping

from object_detection.builders import hyperparams_builder
from object_detection.builders.ssd import extractor_types
from object_detection.errors import UserError
from object_detection.models.feature_extractors.feature_extractor import FeatureExtractor
from object_detection.models.feature_extractors.single_shot_types import (
    BiFpnOptions,
    FpnOptions,
    SingleShotOptions,
    build_ssd,
    check_ssd,
)
from object_detection.protos import fpn_pb2
from object_detection.protos.ssd_pb2 import SsdFeatureExtractor

# Fields that no feature extractor has -> why.
_NOT_SUPPORTED: Mapping[str, str] = {
    'replace_preprocessor_with_placeholder': (
        'expected false: the detector normalizes images itself, also in exported models'
    ),
    'spaghettinet_arch_name': 'expected none, as SpaghettiNet is not built here',
}


def build(config: SsdFeatureExtractor, batch_norm_trainable: bool) -> FeatureExtractor:
    """Builds the feature extractor of a single-shot detector.

    Args:
      config: message of the extractor. Without `fpn`, a feature pyramid network has the defaults
        of that message: the levels 3 to 7 and 256 channels.
      batch_norm_trainable: False freezes all batch norms.

    Raises:
      ValueError: if the type is unknown or its options do not fit it.
    """
    with _naming(config):
        return build_ssd(config.type, _options(config, batch_norm_trainable))


def check(config: SsdFeatureExtractor) -> None:
    """Checks the message as `build` does, without building the networks.

    Raises:
      ValueError: in the cases of `build`.
    """
    with _naming(config):
        check_ssd(config.type, _options(config, batch_norm_trainable=False))


@contextlib.contextmanager
def _naming(config: SsdFeatureExtractor) -> Iterator[None]:
    """Prefixes the messages of errors with the name of the message."""
    try:
        yield
    except ValueError as error:
        raise UserError(f'{config.DESCRIPTOR.full_name} {config.type!r}: {error}') from error


def _options(config: SsdFeatureExtractor, batch_norm_trainable: bool) -> SingleShotOptions:
    problem = extractor_types.problem(config.type)
    if problem:
        raise UserError(f'type: {problem}')
    for field, reason in _NOT_SUPPORTED.items():
        if getattr(config, field):
            raise UserError(f'{field}: {reason}. Received: {str(getattr(config, field)).lower()}.')
    return SingleShotOptions(
        batch_norm_trainable=batch_norm_trainable,
        hyperparams=(
            hyperparams_builder.build(config.conv_hyperparams)
            if config.HasField('conv_hyperparams')
            else None
        ),
        override_backbone=config.override_base_feature_extractor_hyperparams,
        pad_to_multiple=config.pad_to_multiple,
        depth_multiplier=config.depth_multiplier,
        min_depth=config.min_depth,
        use_explicit_padding=config.use_explicit_padding,
        use_depthwise=config.use_depthwise,
        num_layers=config.num_layers if config.HasField('num_layers') else None,
        fpn=_fpn(config.fpn) if config.HasField('fpn') else None,
        bifpn=_bifpn(config.bifpn) if config.HasField('bifpn') else None,
    )


def _fpn(config: fpn_pb2.FeaturePyramidNetworks) -> FpnOptions:
    return FpnOptions(
        min_level=config.min_level,
        max_level=config.max_level,
        depth=hyperparams_builder.depth(config),
        network=hyperparams_builder.network_options(config),
    )


def _bifpn(config: fpn_pb2.BidirectionalFeaturePyramidNetworks) -> BiFpnOptions:
    return BiFpnOptions(
        min_level=config.min_level,
        max_level=config.max_level,
        num_iterations=config.num_iterations,
        num_filters=config.num_filters,
        combine_method=config.combine_method,
    )
