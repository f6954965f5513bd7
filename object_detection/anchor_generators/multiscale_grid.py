"""Anchors of RetinaNet and FPN, one grid per level (https://arxiv.org/abs/1708.02002, sec. 4)."""

import copy
import math
from collections.abc import Sequence

import tensorflow as tf

from object_detection.anchor_generators import tiling
from object_detection.anchor_generators.grid import GridAnchorGenerator
from object_detection.core import boxes
from object_detection.errors import UserError


class MultiscaleGridAnchorGenerator(tiling.AnchorGenerator):
    """Generates grids of levels min_level .. max_level, of stride 2^level, with octaves of scales.

    The boxes of a level have the base size anchor_scale * 2^level and the scales 2^(i / n), i =
    0 .. n - 1; the boxes of a cell are ordered by aspect ratio, then by scale.

    Along each side, the first centre of a level is at half a stride where the side of the image
    is a multiple of the stride, otherwise at 0. The test needs the sides as Python ints; a side
    given as a tensor (an image of dynamic size) counts as a multiple, so static and dynamic sizes
    give different anchors where it is not one. Weights trained with the reference rely on both.
    After `for_images` its argument decides, whatever sides are given. With `center_offset`, the
    first centre is at that offset for every image size.

    Args:
      min_level, max_level: first and last level, strides 2^min_level and 2^max_level pixels.
      anchor_scale: size of the smallest square box, in strides.
      aspect_ratios: width / height. Without any there are no anchors.
      scales_per_octave: n above.
      normalized: whether anchors are relative to the image; otherwise they are in pixels.
      center_offset: where the first centre of a level is, in strides, in [0, 1]; None: as above.
    """

    def __init__(
        self,
        min_level: int,
        max_level: int,
        anchor_scale: float,
        aspect_ratios: Sequence[float],
        scales_per_octave: int,
        normalized: bool = True,
        center_offset: float | None = None,
    ):
        if not 0 <= min_level <= max_level:
            raise UserError(
                'MultiscaleGridAnchorGenerator: levels must satisfy 0 <= min_level <= max_level. '
                f'Received: min_level={min_level}, max_level={max_level}.'
            )
        if anchor_scale <= 0 or scales_per_octave < 1:
            raise UserError(
                'MultiscaleGridAnchorGenerator: anchor_scale must be positive and '
                'scales_per_octave at least 1. '
                f'Received: anchor_scale={anchor_scale}, scales_per_octave={scales_per_octave}.'
            )
        if not all(0 < ratio < math.inf for ratio in aspect_ratios):
            raise UserError(
                'MultiscaleGridAnchorGenerator: aspect_ratios must be positive. '
                f'Received: {list(aspect_ratios)}.'
            )
        if center_offset is not None and not 0 <= center_offset <= 1:
            raise UserError(
                'MultiscaleGridAnchorGenerator: anchor_center_offset must be in [0, 1], in cells. '
                f'Received: {center_offset}.'
            )
        self.normalized = normalized
        self._center_offset = center_offset
        self._deciding_sides: tuple[int | None, int | None] | None = None
        self._levels = range(min_level, max_level + 1)
        self._anchor_scale = anchor_scale
        self._aspect_ratios = list(aspect_ratios)
        self._scales = [2.0 ** (i / scales_per_octave) for i in range(scales_per_octave)]

    def num_anchors_per_location(self) -> list[int]:
        return [len(self._aspect_ratios) * len(self._scales)] * len(self._levels)

    def for_images(self, image_size: tuple[int, int] | None) -> 'MultiscaleGridAnchorGenerator':
        decided = copy.copy(self)
        decided._deciding_sides = image_size or (None, None)
        return decided

    def _generate_level(
        self,
        level: int,
        shape: tuple[tiling.Size, tiling.Size],
        image_height: tiling.Size | None,
        image_width: tiling.Size | None,
    ) -> tf.Tensor:
        # An image of unknown size counts as a multiple of every stride.
        grid = self._grid(self._levels[level], image_height, image_width)
        (anchors,) = grid.generate([shape])
        if self.normalized:
            anchors = boxes.absolute_to_normalized(anchors, image_height, image_width)
        return anchors

    def _grid(
        self, level: int, image_height: tiling.Size | None, image_width: tiling.Size | None
    ) -> GridAnchorGenerator:
        stride = 2**level
        size = float(self._anchor_scale * stride)
        sides = self._deciding_sides or (image_height, image_width)
        if self._center_offset is None:
            offset = tuple(_first_center(side, stride) for side in sides)
        else:
            offset = (self._center_offset * stride, self._center_offset * stride)
        return GridAnchorGenerator(
            scales=self._scales,
            aspect_ratios=self._aspect_ratios,
            base_size=(size, size),
            stride=(float(stride), float(stride)),
            offset=offset,
        )


def _first_center(side: tiling.Size | None, stride: int) -> float:
    """Returns where the first cell's centre is along a side of the image, in pixels."""
    is_static = side is not None and not tf.is_tensor(side)
    return 0.0 if is_static and side % stride else stride / 2
