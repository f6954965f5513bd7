"""Anchors: boxes that are repeated in every cell of a feature map.

Those of Faster R-CNN on one map (https://arxiv.org/abs/1506.01497, sec. 3.1.1), those of RetinaNet
and FPN, one grid per level (https://arxiv.org/abs/1708.02002, sec. 4), and those whose sizes and
positions are given one by one for each map.
"""

import copy
import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from object_detection.core import boxes
from object_detection.errors import UserError, expected

# A size in pixels or cells: a Python int, or a scalar int32 tensor where it is not static.
Size = int | tf.Tensor
# (height, width) of a feature map in cells, and of an image in pixels, where it is known.
MapShape = tuple[Size, Size]
ImageSize = tuple[Size | None, Size | None]


def box_sizes(scales: Sequence[float], aspect_ratios: Sequence[float]) -> np.ndarray:
    """Returns the sizes of boxes whose base size is 1, float32 [A, 2], rows (height, width).

    Args:
      scales: square roots of the areas of the A boxes.
      aspect_ratios: width / height of the A boxes.
    """
    scales = np.asarray(scales, np.float32)
    roots = np.sqrt(np.asarray(aspect_ratios, np.float32))
    return np.stack([scales / roots, scales * roots], axis=-1)


def tile(
    sizes: tf.Tensor | np.ndarray,
    grid_shape: MapShape,
    stride: tuple[float | tf.Tensor, float | tf.Tensor],
    offset: tuple[float | tf.Tensor, float | tf.Tensor],
) -> tf.Tensor:
    """Centres boxes of the given sizes in every cell of a grid.

    Args:
      sizes: float32 [A, 2], rows (height, width).
      grid_shape: (h, w), number of cells of the feature map.
      stride: (y, x) distance between neighbouring cells, in the unit of `sizes`.
      offset: (y, x) centre of the first cell.

    Returns:
      float32 [h * w * A, 4], rows [ymin, xmin, ymax, xmax] in the order y, x, box. Boxes
      are not clipped.
    """
    # Cells are counted as integers, which are exact for every size.
    y, x = (tf.range(tf.cast(cells, tf.int32)) for cells in grid_shape)
    y_centers = tf.cast(y, tf.float32) * stride[0] + offset[0]
    x_centers = tf.cast(x, tf.float32) * stride[1] + offset[1]
    centers = tf.stack(tf.meshgrid(y_centers, x_centers, indexing='ij'), axis=-1)  # [h, w, 2]
    centers = centers[:, :, tf.newaxis, :]
    half = tf.convert_to_tensor(sizes) * 0.5
    corners = tf.concat([centers - half, centers + half], axis=-1)  # [h, w, A, 4]
    return tf.reshape(corners, [-1, 4])


class AnchorGenerator:
    """Makes the anchors of every feature map (level).

    Attributes:
      normalized: whether anchors are relative to the image, else in pixels.
    """

    normalized = True
    _needs_image_size = True

    def num_anchors_per_location(self) -> list[int]:
        """Returns the number of anchors at a cell of each level."""
        raise NotImplementedError

    def for_images(self, image_size: tuple[int, int] | None) -> 'AnchorGenerator':
        """Returns the generator of a detector, which has the same anchors in every graph.

        Args:
          image_size: (height, width) of all preprocessed images in pixels, or None if it varies.
        """
        del image_size
        return self

    def generate(
        self,
        feature_map_shapes: Sequence[MapShape],
        image_height: Size | None = None,
        image_width: Size | None = None,
    ) -> list[tf.Tensor]:
        """Returns the anchors of every level.

        Args:
          feature_map_shapes: (height, width) of each level, ints or int32 scalars.
          image_height, image_width: size of the preprocessed image in pixels, ints or int32
            scalars; may be None where anchors are absolute.

        Returns:
          float32 [h * w * A, 4] for each level, in the order y, x, box; not clipped.

        Raises:
          ValueError: if the number of feature maps differs from the number of levels, or the size
            of the image is missing where anchors are normalized.
        """
        name, count = type(self).__name__, len(self.num_anchors_per_location())
        if len(feature_map_shapes) != count:
            shapes = list(feature_map_shapes)
            raise expected(f'{name}.generate', f'{count} feature maps, one a level', shapes)
        is_size_missing = image_height is None or image_width is None
        if self.normalized and self._needs_image_size and is_size_missing:
            raise expected(f'{name}.generate', 'the size of the image, to normalize by')
        return [
            self._generate_level(level, shape, (image_height, image_width))
            for level, shape in enumerate(feature_map_shapes)
        ]

    def _generate_level(self, level: int, shape: MapShape, image_size: ImageSize) -> tf.Tensor:
        """Returns the anchors of a level of this shape, float32 [h * w * A, 4]; see `generate`."""
        raise NotImplementedError


class GridAnchorGenerator(AnchorGenerator):
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
        sizes = box_sizes([scale for scale, _ in pairs], [ratio for _, ratio in pairs])
        self._sizes = sizes * np.asarray(base_size, np.float32)
        self._stride = stride
        self._offset = offset

    def num_anchors_per_location(self) -> list[int]:
        return [len(self._sizes)]

    def _generate_level(self, level: int, shape: MapShape, image_size: ImageSize) -> tf.Tensor:
        del level, image_size
        return tile(self._sizes, shape, self._stride, self._offset)


class _AnchorGrids(AnchorGenerator):
    """Makes one grid for each map.

    Args:
      round_boxes: whether half the height and width of a box are rounded to whole pixels, halves to
        the even number, as by torchvision.
      strides_of_maps: whether the stride of a map is the size of the finest one, in pixels, divided
        by the cells of the map and rounded down, as by torchvision; else it is that of its level.
    """

    def __init__(self, round_boxes: bool, strides_of_maps: bool):
        self._round_boxes = round_boxes
        self._strides_of_maps = strides_of_maps

    def generate(
        self,
        feature_map_shapes: Sequence[MapShape],
        image_height: Size | None = None,
        image_width: Size | None = None,
    ) -> list[tf.Tensor]:
        shapes = list(feature_map_shapes)
        if self._strides_of_maps and shapes:
            # A copy, since the shapes are of one graph.
            generator = copy.copy(self)
            generator._finest_shape = shapes[0]
            return AnchorGenerator.generate(generator, shapes, image_height, image_width)
        return super().generate(shapes, image_height, image_width)

    def _stride_of_level(self, level: int) -> tuple[float, float]:
        """Returns the (y, x) stride of the level at a place in the list, in pixels."""
        raise NotImplementedError

    def _strides(self, level: int, shape: MapShape) -> tuple[float | tf.Tensor, float | tf.Tensor]:
        """Returns the (y, x) stride of a map of (height, width) cells, in pixels."""
        if not self._strides_of_maps:
            return self._stride_of_level(level)
        finest = zip(self._finest_shape, self._stride_of_level(0), strict=True)
        sides = [cells * int(stride) for cells, stride in finest]
        y, x = (side // cells for side, cells in zip(sides, shape, strict=True))
        return tf.cast(y, tf.float32), tf.cast(x, tf.float32)

    def _rounded(self, sizes: np.ndarray) -> np.ndarray:
        """Returns the sizes of boxes in pixels, float32 [A, 2], rounded if they have to be."""
        return np.round(sizes / 2) * 2 if self._round_boxes else sizes


class MultiscaleGridAnchorGenerator(_AnchorGrids):
    """Generates grids of levels min_level .. max_level, of stride 2^level, with octaves of scales.

    The boxes of a level have the base size anchor_scale * 2^level and the scales 2^(i / n), i =
    0 .. n - 1; the boxes of a cell are ordered by aspect ratio, then by scale.

    Along each side, the first centre of a level is at half a stride where the side of the image
    is a multiple of the stride, otherwise at 0. The test needs the sides as Python ints; a side
    given as a tensor (an image of dynamic size) counts as a multiple, so static and dynamic sizes
    give different anchors where it is not one. Weights trained with the reference rely on both.
    After `for_images` its argument decides, not the given sides. With `center_offset`, the
    first centre is at that offset for every image size.

    Args:
      min_level, max_level: first and last level, strides 2^min_level and 2^max_level pixels.
      anchor_scale: size of the smallest square box, in strides.
      aspect_ratios: width / height. Without any there are no anchors.
      scales_per_octave: n above.
      normalized: whether anchors are relative to the image; otherwise they are in pixels.
      center_offset: where the first centre of a level is, in strides, in [0, 1]; None: as above.
      truncate_sizes: whether the square roots of the areas of boxes are rounded down to whole
        pixels, as by torchvision's RetinaNet.
      round_boxes, strides_of_maps: see `_AnchorGrids`.
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
        round_boxes: bool = False,
        strides_of_maps: bool = False,
        truncate_sizes: bool = False,
    ):
        if not 0 <= min_level <= max_level:
            raise expected(
                'multiscale anchors', '0 <= min_level <= max_level', (min_level, max_level)
            )
        if anchor_scale <= 0 or scales_per_octave < 1:
            raise expected(
                'anchor_scale and scales_per_octave', 'above 0', (anchor_scale, scales_per_octave)
            )
        if not all(0 < ratio < math.inf for ratio in aspect_ratios):
            raise expected(
                'MultiscaleGridAnchorGenerator', 'aspect_ratios above 0', list(aspect_ratios)
            )
        if center_offset is not None and not 0 <= center_offset <= 1:
            raise expected(
                'MultiscaleGridAnchorGenerator', 'anchor_center_offset in [0, 1]', center_offset
            )
        super().__init__(round_boxes, strides_of_maps)
        self.normalized = normalized
        self._center_offset = center_offset
        self._deciding_sides: ImageSize | None = None
        self._levels = range(min_level, max_level + 1)
        self._anchor_scale = anchor_scale
        self._aspect_ratios = list(aspect_ratios)
        self._scales = [2.0 ** (i / scales_per_octave) for i in range(scales_per_octave)]
        self._truncate_sizes = truncate_sizes

    def num_anchors_per_location(self) -> list[int]:
        return [len(self._aspect_ratios) * len(self._scales)] * len(self._levels)

    def for_images(self, image_size: tuple[int, int] | None) -> 'MultiscaleGridAnchorGenerator':
        decided = copy.copy(self)
        decided._deciding_sides = image_size or (None, None)
        return decided

    def _generate_level(self, level: int, shape: MapShape, image_size: ImageSize) -> tf.Tensor:
        stride = 2 ** self._levels[level]
        # An image of unknown size counts as a multiple of every stride.
        sides = self._deciding_sides or image_size
        if self._center_offset is None:
            offset = tuple(_first_center(side, stride) for side in sides)
        else:
            offset = (self._center_offset * stride, self._center_offset * stride)
        anchors = tile(self._sizes(stride), shape, self._strides(level, shape), offset)
        if self.normalized:
            anchors = boxes.absolute_to_normalized(anchors, *image_size)
        return anchors

    def _sizes(self, stride: int) -> np.ndarray:
        """Returns the sizes of the boxes of a cell in pixels, float32 [A, 2]."""
        pairs = [(scale, ratio) for ratio in self._aspect_ratios for scale in self._scales]
        scales, ratios = [scale for scale, _ in pairs], [ratio for _, ratio in pairs]
        base = self._anchor_scale * stride
        if self._truncate_sizes:
            sizes = box_sizes(np.floor(np.multiply(scales, base)), ratios)
        else:
            sizes = box_sizes(scales, ratios)
            sizes *= np.float32(base)
        return self._rounded(sizes)

    def _stride_of_level(self, level: int) -> tuple[float, float]:
        return (float(2 ** self._levels[level]),) * 2


def _first_center(side: Size | None, stride: int) -> float:
    """Returns where the first cell's centre is along a side of the image, in pixels."""
    is_static = side is not None and not tf.is_tensor(side)
    return 0.0 if is_static and side % stride else stride / 2


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


class FlexibleGridAnchorGenerator(_AnchorGrids):
    """Generates the anchors of one `AnchorGrid` for each feature map.

    Args:
      grids: one grid for each feature map, in their order.
      normalized: whether anchors are relative to the image; otherwise they are in pixels.
      round_boxes, strides_of_maps: see `_AnchorGrids`.
    """

    def __init__(
        self,
        grids: Sequence[AnchorGrid],
        normalized: bool = True,
        round_boxes: bool = False,
        strides_of_maps: bool = False,
    ):
        super().__init__(round_boxes, strides_of_maps)
        self.normalized = normalized
        self._grids = list(grids)

    def num_anchors_per_location(self) -> list[int]:
        return [len(grid.base_sizes) for grid in self._grids]

    def _generate_level(self, level: int, shape: MapShape, image_size: ImageSize) -> tf.Tensor:
        grid = self._grids[level]
        sizes = self._rounded(box_sizes(grid.base_sizes, grid.aspect_ratios))
        anchors = tile(sizes, shape, self._strides(level, shape), grid.offset)
        if self.normalized:
            anchors = boxes.absolute_to_normalized(anchors, *image_size)
        return anchors

    def _stride_of_level(self, level: int) -> tuple[float, float]:
        return self._grids[level].stride
