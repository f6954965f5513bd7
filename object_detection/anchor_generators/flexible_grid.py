"""Anchors whose sizes and places are given one by one for each feature map."""

import dataclasses
import math
from collections.abc import Sequence

import tensorflow as tf

from object_detection.anchor_generators import tiling
from object_detection.core import boxes
from object_detection.errors import UserError


@dataclasses.dataclass(frozen=True)
class AnchorGrid:
    """The anchors of one feature map; lengths in pixels of the preprocessed image.

    Attributes:
      base_sizes: square root of each box's area.
      aspect_ratios: width / height of each box, as many as `base_sizes`.
      stride: (y, x) distance of neighbouring cells.
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


class FlexibleGridAnchorGenerator:
    """One `AnchorGrid` for each feature map.

    Args:
      grids: in the order of the feature maps.
      normalized: whether anchors are relative to the image, else in pixels.
    """

    def __init__(self, grids: Sequence[AnchorGrid], normalized: bool = True):
        self.normalized = normalized
        self._grids = list(grids)

    def num_anchors_per_location(self) -> list[int]:
        """Returns the number of anchors at a cell of each feature map."""
        return [len(grid.base_sizes) for grid in self._grids]

    def generate(
        self,
        feature_map_shapes: Sequence[tuple[tiling.Size, tiling.Size]],
        image_height: tiling.Size | None = None,
        image_width: tiling.Size | None = None,
    ) -> list[tf.Tensor]:
        """Returns the anchors of every feature map.

        Args:
          feature_map_shapes: (height, width) of each, ints or int32 scalars.
          image_height, image_width: size of the preprocessed image in pixels, ints or int32
            scalars; may be None where anchors are absolute.

        Returns:
          float32 [h * w * A, 4] for each feature map, in the order y, x, box; not clipped.

        Raises:
          ValueError: if the number of feature maps is not that of the grids, or the image's size
            is missing where anchors are normalized.
        """
        name = type(self).__name__
        tiling.check_num_feature_maps(name, feature_map_shapes, len(self._grids))
        if self.normalized:
            tiling.check_image_size(name, image_height, image_width)
        anchors = []
        for grid, shape in zip(self._grids, feature_map_shapes, strict=True):
            sizes = tiling.box_sizes(grid.base_sizes, grid.aspect_ratios)
            tiles = tiling.tile(sizes, shape, grid.stride, grid.offset)
            if self.normalized:
                tiles = boxes.absolute_to_normalized(tiles, image_height, image_width)
            anchors.append(tiles)
        return anchors
