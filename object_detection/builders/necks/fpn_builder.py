"""Reads the options of a FeaturePyramidNetworks proto, for all families of detectors."""

from object_detection.errors import UserError
from object_detection.models.necks import fpn
from object_detection.protos import fpn_pb2


def network_options(config: fpn_pb2.FeaturePyramidNetworks) -> fpn.Options:
    """Returns the options of the network that the message describes."""
    return fpn.Options(
        pool_extra_levels=config.extra_level_type == config.MAX_POOL,
        bilinear=config.upsample_type == config.BILINEAR,
        smooth_outputs=config.smoothing_type == config.AFTER_TOP_DOWN,
    )


def depth(config: fpn_pb2.FeaturePyramidNetworks) -> int:
    """Returns the number of channels of a pyramid, which two fields may set.

    Raises:
      ValueError: if they differ.
    """
    depth, filters = config.additional_layer_depth, config.num_filters
    if not config.HasField('num_filters'):
        return depth
    if config.HasField('additional_layer_depth') and depth != filters:
        raise UserError(
            'fpn.num_filters: expected that of fpn.additional_layer_depth, which says the same: '
            f'all levels have as many channels. Received: {filters} and {depth}.'
        )
    return filters
