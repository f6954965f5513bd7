"""Anchors of Faster R-CNN on one feature map (https://arxiv.org/abs/1506.01497, sec. 3.1.1)."""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from object_detection.anchor_generators import tiling
from object_detection.errors import UserError


class GridAnchorGenerator(tiling.AnchorGenerator):
    """Generates boxes of every scale and aspect ratio in each cell of one feature map.

    A box of scale s and aspect ratio r has height s / sqrt(r) * base height and width
    s * sqrt(r) * base width. The centre of cell i is at i * stride + offset; with the offset 0,
    the default of the reference, it is the corner of the cell, not its middle. Anchors are in
    pixels of the preprocessed image and are not clipped. The boxes of a cell are ordered by aspect
    ratio, and the boxes of one aspect ratio by scale.

    Args:
      scales: relative to `base_size`. Without scales or aspect ratios there are no anchors.
      aspect_ratios: width / height.
      base_size: (height, width) in pixels.
      stride: (y, x) distance between neighbouring cells in pixels.
      offset: (y, x) centre of the first cell in pixels.
    """

    normalized = False

    def __init__(
        self,
        scales: Sequence[float],
        aspect_ratios: Sequence[float],
        base_size: tuple[float, float] = (256.0, 256.0),
        stride: tuple[float, float] = (16.0, 16.0),
        offset: tuple[float, float] = (0.0, 0.0),
    ):
        pairs = [(scale, ratio) for ratio in aspect_ratios for scale in scales]
        if any(value <= 0 for value in [*scales, *aspect_ratios, *base_size, *stride]):
            raise UserError(
                'GridAnchorGenerator: scales, aspect_ratios, base_size and stride must be '
                f'positive. Received: {scales}, {aspect_ratios}, {base_size}, {stride}.'
            )
        sizes = tiling.box_sizes([scale for scale, _ in pairs], [ratio for _, ratio in pairs])
        self._sizes = sizes * np.asarray(base_size, np.float32)
        self._stride = stride
        self._offset = offset

    def num_anchors_per_location(self) -> list[int]:
        return [len(self._sizes)]

    def _generate_level(
        self,
        level: int,
        shape: tuple[tiling.Size, tiling.Size],
        image_height: tiling.Size | None,
        image_width: tiling.Size | None,
    ) -> tf.Tensor:
        del level, image_height, image_width
        return tiling.tile(self._sizes, shape, self._stride, self._offset)
