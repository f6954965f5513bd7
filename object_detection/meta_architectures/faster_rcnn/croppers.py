"""Crops of the features of regions to one size.

Crops are made by `crop_and_resize`, as in the reference, or by RoIAlign (Mask R-CNN,
https://arxiv.org/abs/1703.06870, sec. 3).
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from object_detection.core import boxes as box_ops
from object_detection.core import crop_and_resize, tracing
from object_detection.core.roi_align import SampleGrid, roi_align
from object_detection.errors import UserError


class RoiCropper:
    """Crops the features of regions to one size.

    Args:
      crop_size: height and width of a crop.
      use_matmul: crop by matrix products where XLA compiles; TensorFlow's kernel is used elsewhere.
    """

    def __init__(self, *, crop_size: int, use_matmul: bool):
        self._crop_size = (crop_size, crop_size)
        self._use_matmul = use_matmul

    @tracing.named('roi_align')
    def __call__(
        self,
        features: list[tf.Tensor],
        boxes: tf.Tensor,
        height: Any,
        width: Any,
        *,
        box_gradients: bool = False,
    ) -> tf.Tensor:
        """Crops each box from the pyramid level that fits its size.

        Args:
          features: levels, fine to coarse, [B, Hl, Wl, C].
          boxes: float32 [B, P, 4], absolute.
          height, width: size in pixels that the features cover, including all padding.
          box_gradients: whether gradients flow to the boxes.

        Returns:
          [B * P, crop_size, crop_size, C].
        """
        normalized = box_ops.absolute_to_normalized(boxes, height, width)
        options = {
            'use_matmul': self._use_matmul and tracing.is_compiled(),
            'box_gradients': box_gradients,
        }
        if len(features) == 1:
            crops = crop_and_resize.crop_and_resize(
                features[0], normalized, self._crop_size, **options
            )
        else:
            levels = crop_and_resize.fpn_levels(normalized, height, width, len(features))
            crops = crop_and_resize.multilevel_crop_and_resize(
                features, normalized, levels, self._crop_size, **options
            )
        return tf.reshape(crops, [-1, *self._crop_size, features[0].shape[-1]])


@dataclasses.dataclass(frozen=True)
class LevelRule:
    """The rule for the level of a pyramid that a box is cropped from.

    The level is floor(log2(sqrt(area) / canonical_size)) + canonical_level, clipped to the limits.

    Attributes:
      min_level, max_level: the limits; level l has stride 2**l.
      canonical_level, canonical_size: level of boxes whose side in pixels is canonical_size.
    """

    min_level: int
    max_level: int
    canonical_level: int = 4
    canonical_size: float = 224.0


class RoiAlignCropper:
    """Crops the features of regions by RoIAlign, instead of a `RoiCropper`.

    Cells have the strides of their levels for images of all sizes.

    Args:
      grid: the samples of a box.
      rule: the rule for the levels.
      strides: strides of the feature maps, fine to coarse, powers of two.
      use_matmul: sample by matrix products where XLA compiles; otherwise by index.

    Raises:
      ValueError: if a level of the rule has no feature map.
    """

    def __init__(
        self, *, grid: SampleGrid, rule: LevelRule, strides: Sequence[int], use_matmul: bool
    ):
        levels = [stride.bit_length() - 1 for stride in strides]
        if not levels[0] <= rule.min_level <= rule.max_level <= levels[-1]:
            raise UserError(
                f'RoIAlign: expected {levels[0]} <= min_level <= max_level <= {levels[-1]}, the '
                'levels of the feature maps. '
                f'Received: min_level {rule.min_level}, max_level {rule.max_level}.'
            )
        self._grid = grid
        self._rule = rule
        # Of maps of one stride, the first one.
        taken = range(rule.min_level, rule.max_level + 1)
        self._maps = [levels.index(level) for level in taken]
        self._scales = [(0.5**level, 0.5**level) for level in taken]
        self._use_matmul = use_matmul

    @property
    def output_size(self) -> tuple[int, int]:
        """The height and width of a crop."""
        return self._grid.output_size

    @tracing.named('roi_align')
    def __call__(
        self,
        features: list[tf.Tensor],
        boxes: tf.Tensor,
        height: Any,
        width: Any,
        *,
        box_gradients: bool = False,
    ) -> tf.Tensor:
        """Crops each box from the pyramid level that fits its size.

        Args:
          features: levels, fine to coarse, [B, Hl, Wl, C].
          boxes: float32 [B, P, 4], absolute.
          height, width: not used, since the strides relate features and images.
          box_gradients: whether gradients flow to the boxes.

        Returns:
          [B * P, output_size, output_size, C].
        """
        del height, width
        features = [features[i] for i in self._maps]
        levels = crop_and_resize.fpn_levels(
            boxes,
            1,
            1,
            len(features),
            unit_level=self._rule.canonical_level - self._rule.min_level,
            unit_side=self._rule.canonical_size,
        )
        crops = roi_align(
            features,
            boxes,
            levels,
            self._scales,
            self._grid,
            use_matmul=self._use_matmul and tracing.is_compiled(),
            box_gradients=box_gradients,
        )
        return tf.reshape(crops, [-1, *self._grid.output_size, features[0].shape[-1]])


class Crops(NamedTuple):
    """How the features of regions are cropped.

    Attributes:
      cropper: crops the feature maps.
      pool: of the crops before the box classifier; None for none.
    """

    cropper: RoiCropper | RoiAlignCropper
    pool: keras.layers.Layer | None = None
