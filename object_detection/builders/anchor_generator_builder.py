"""Builds the anchor generator that an AnchorGenerator proto describes."""

from typing import Any

from object_detection.config import reading
from object_detection.config.oneof import build_named
from object_detection.errors import expected
from object_detection.protos import anchor_generator_pb2
from object_detection.targets import anchors, default_boxes

AnchorGenerator = (
    anchors.GridAnchorGenerator
    | anchors.MultiscaleGridAnchorGenerator
    | default_boxes.SsdAnchorGenerator
    | anchors.FlexibleGridAnchorGenerator
)


def build(config: anchor_generator_pb2.AnchorGenerator) -> AnchorGenerator:
    """Returns the generator; raises a ValueError if none is set or its numbers do not fit."""
    return build_named(config, 'anchor_generator_oneof', BUILDERS)


def _build_grid(config: Any) -> anchors.GridAnchorGenerator:
    return anchors.GridAnchorGenerator(
        scales=list(config.scales),
        aspect_ratios=list(config.aspect_ratios),
        base_size=(config.height, config.width),
        stride=(config.height_stride, config.width_stride),
        offset=(config.height_offset, config.width_offset),
    )


def _build_multiscale(config: Any) -> anchors.MultiscaleGridAnchorGenerator:
    return anchors.MultiscaleGridAnchorGenerator(
        min_level=config.min_level,
        max_level=config.max_level,
        anchor_scale=config.anchor_scale,
        aspect_ratios=list(config.aspect_ratios),
        scales_per_octave=config.scales_per_octave,
        normalized=config.normalize_coordinates,
        center_offset=config.anchor_center_offset
        if config.HasField('anchor_center_offset')
        else None,
        round_boxes=config.round_boxes,
        strides_of_maps=config.strides_of_maps,
        truncate_sizes=config.truncate_sizes,
    )


def _build_ssd(config: Any) -> default_boxes.SsdAnchorGenerator:
    scales = list(config.scales)
    if scales:
        reading.unused(config, ('min_scale', 'max_scale'), 'scales says the scale of each layer')
    else:
        scales = default_boxes.linear_scales(config.num_layers, config.min_scale, config.max_scale)
    specs = default_boxes.ssd_box_specs(
        config.num_layers,
        scales,
        list(config.aspect_ratios),
        config.interpolated_scale_aspect_ratio,
        config.reduce_boxes_in_lowest_layer,
        list(config.num_aspect_ratios),
    )
    layout = default_boxes.SsdLayout(_pairs(config, 'stride'), _pairs(config, 'offset'))
    base_size = (config.base_anchor_height, config.base_anchor_width)
    return default_boxes.SsdAnchorGenerator(specs, base_size, layout, config.limit_sizes)


def _pairs(config: Any, name: str) -> list[tuple[int, int]]:
    """Returns the (height, width) pairs of a repeated field, e.g. 'stride'."""
    heights, widths = getattr(config, f'height_{name}'), getattr(config, f'width_{name}')
    if len(heights) != len(widths):
        raise expected(
            config.DESCRIPTOR.full_name, f'as many height_{name} as width_{name}', (heights, widths)
        )
    return list(zip(heights, widths, strict=True))


def _build_flexible(config: Any) -> anchors.FlexibleGridAnchorGenerator:
    grids = [
        anchors.AnchorGrid(
            base_sizes=list(grid.base_sizes),
            aspect_ratios=list(grid.aspect_ratios),
            stride=(grid.height_stride, grid.width_stride),
            offset=(grid.height_offset, grid.width_offset),
        )
        for grid in config.anchor_grid
    ]
    return anchors.FlexibleGridAnchorGenerator(
        grids, config.normalize_coordinates, config.round_boxes, config.strides_of_maps
    )


BUILDERS = {
    'grid_anchor_generator': _build_grid,
    'multiscale_anchor_generator': _build_multiscale,
    'ssd_anchor_generator': _build_ssd,
    'flexible_grid_anchor_generator': _build_flexible,
}
