"""Anchors whose sizes and positions are given one by one for each feature map."""

import dataclasses
import math
from collections.abc import Sequence

import tensorflow as tf

from object_detection.anchor_generators import tiling
from object_detection.core import boxes
from object_detection.errors import UserError


@dataclasses.dataclass(frozen=True)
class AnchorGrid:
    """The anchors of one feature map, with lengths in pixels of the preprocessed image.

    Attributes:
      base_sizes: square root of each box's area.
      aspect_ratios: width / height of each box, as many as `base_sizes`.
      stride: (y, x) distance between neighbouring cells.
      offset: (y, x) centre of the first cell.
    """

    base_sizes: Sequence[float]
    aspect_ratios: Sequence[float]
    stride: tuple[float, float]
    offset: tuple[float, float] = (0.0, 0.0)

    def __post_init__(self):
        if len(self.base_sizes) != len(self.aspect_ratios):
            raise UserError(
                'AnchorGrid: there must be as many aspect_ratios as base_sizes, one pair a box. '
                f'Received: {list(self.base_sizes)} and {list(self.aspect_ratios)}.'
            )
        for name in ('base_sizes', 'aspect_ratios'):
            values = getattr(self, name)
            if not all(0 < value < math.inf for value in values):
                raise UserError(f'AnchorGrid: {name} must be positive. Received: {list(values)}.')
        if min(self.stride) <= 0:
            raise UserError(f'AnchorGrid: stride must be positive. Received: {self.stride}.')


class FlexibleGridAnchorGenerator(tiling.AnchorGenerator):
    """Generates the anchors of one `AnchorGrid` for each feature map.

    Args:
      grids: one grid for each feature map, in their order.
      normalized: whether anchors are relative to the image; otherwise they are in pixels.
    """

    def __init__(self, grids: Sequence[AnchorGrid], normalized: bool = True):
        self.normalized = normalized
        self._grids = list(grids)

    def num_anchors_per_location(self) -> list[int]:
        return [len(grid.base_sizes) for grid in self._grids]

    def _generate_level(
        self,
        level: int,
        shape: tuple[tiling.Size, tiling.Size],
        image_height: tiling.Size | None,
        image_width: tiling.Size | None,
    ) -> tf.Tensor:
        grid = self._grids[level]
        sizes = tiling.box_sizes(grid.base_sizes, grid.aspect_ratios)
        anchors = tiling.tile(sizes, shape, grid.stride, grid.offset)
        if self.normalized:
            anchors = boxes.absolute_to_normalized(anchors, image_height, image_width)
        return anchors
