"""Rules of the anchors of the first stage."""

from collections.abc import Iterator

from object_detection.config import model_rules
from object_detection.protos.anchor_generator_pb2 import AnchorGenerator
from object_detection.protos.flexible_grid_anchor_generator_pb2 import FlexibleGridAnchorGenerator
from object_detection.protos.grid_anchor_generator_pb2 import GridAnchorGenerator
from object_detection.protos.multiscale_anchor_generator_pb2 import MultiscaleAnchorGenerator

Levels = tuple[int, int]


def check(generator: AnchorGenerator, root: str) -> Iterator[str]:
    """Yields one sentence per problem of the generator itself.

    Args:
      generator: `first_stage_anchor_generator`.
      root: path of the message that contains the generator.
    """
    path = f'{root}.first_stage_anchor_generator'
    kind = generator.WhichOneof('anchor_generator_oneof')
    if kind is None:
        yield f'{path} is not set; expected e.g. multiscale_anchor_generator.'
        return
    path, option = f'{path}.{kind}', getattr(generator, kind)
    if kind not in model_rules.ANCHOR_LISTS:
        yield (
            f'{path} makes anchors relative to the image, but Faster R-CNN needs them in pixels; '
            'use multiscale_anchor_generator, flexible_grid_anchor_generator or, without a '
            'feature pyramid, grid_anchor_generator.'
        )
        return
    yield from model_rules.anchor_lists(option, kind, path)
    if getattr(option, 'normalize_coordinates', False):
        yield (
            f'{path}.normalize_coordinates is true; Faster R-CNN needs anchors in pixels, set it '
            'to false.'
        )


def check_levels(generator: AnchorGenerator, root: str, levels: Levels) -> Iterator[str]:
    """Yields one sentence per mismatch between anchors and feature maps.

    Args:
      generator, root: see `check`.
      levels: first and last level of the feature extractor; (4, 4) for one map of stride 16.
    """
    kind = generator.WhichOneof('anchor_generator_oneof')
    if kind in _FITS:
        path = f'{root}.first_stage_anchor_generator.{kind}'
        yield from _FITS[kind](getattr(generator, kind), path, root, levels)


def _grid(option: GridAnchorGenerator, path: str, root: str, levels: Levels) -> Iterator[str]:
    if levels[0] < levels[1]:
        yield (
            f'{path} makes anchors for one feature map, but {root}.feature_extractor has '
            f'{_format_levels(levels)}; use multiscale_anchor_generator or '
            'flexible_grid_anchor_generator.'
        )


def _multiscale(
    option: MultiscaleAnchorGenerator, path: str, root: str, levels: Levels
) -> Iterator[str]:
    if (option.min_level, option.max_level) != levels:
        yield (
            f'{path}: anchors are made for levels {option.min_level} to {option.max_level}, but '
            f'{root}.feature_extractor has {_format_levels(levels)}; set min_level to '
            f'{levels[0]} and max_level to {levels[1]}.'
        )


def _flexible(
    option: FlexibleGridAnchorGenerator, path: str, root: str, levels: Levels
) -> Iterator[str]:
    count = levels[1] - levels[0] + 1
    if option.anchor_grid and len(option.anchor_grid) != count:
        yield (
            f'{path}.anchor_grid: expected one for each feature map; {root}.feature_extractor has '
            f'{_format_levels(levels)}. Received: {len(option.anchor_grid)}.'
        )


def _format_levels(levels: Levels) -> str:
    low, high = levels
    if low == high:
        return f'one feature map, of level {low} (stride {2**low})'
    return f'a pyramid of levels {low} to {high}'


_FITS = {
    'grid_anchor_generator': _grid,
    'multiscale_anchor_generator': _multiscale,
    'flexible_grid_anchor_generator': _flexible,
}
