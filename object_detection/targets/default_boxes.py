"""Default boxes of SSD (https://arxiv.org/abs/1512.02325, sec. 2.2), normalized."""

import dataclasses
import math
from collections.abc import Sequence

import tensorflow as tf

from object_detection.errors import UserError, expected
from object_detection.targets import anchors


@dataclasses.dataclass(frozen=True)
class SsdLayout:
    """The positions of the boxes of each layer, as one (y, x) pair per layer in image pixels.

    Attributes:
      strides: distances between neighbouring cells; if empty, image size / number of cells.
      offsets: centres of the first cells; if empty, half a stride.
    """

    strides: Sequence[tuple[float, float]] = ()
    offsets: Sequence[tuple[float, float]] = ()


class SsdAnchorGenerator(anchors.AnchorGenerator):
    """Generates boxes of one scale per layer, and of one between this scale and the next.

    Box sizes are relative to the image's shorter side, so that boxes of aspect ratio 1 are square
    in pixels. Anchors are normalized and not clipped to the image.

    Args:
      box_specs: for each layer the (scale, aspect ratio) of every box, in order; see
        `ssd_box_specs`.
      base_size: (height, width) by which sizes are multiplied.
      layout: strides and offsets, where they do not follow from the feature maps.
      limit_sizes: whether no box is higher or wider than the image.
    """

    _needs_image_size = False

    def __init__(
        self,
        box_specs: Sequence[Sequence[tuple[float, float]]],
        base_size: tuple[float, float] = (1.0, 1.0),
        layout: SsdLayout | None = None,
        limit_sizes: bool = False,
    ):
        layout = layout or SsdLayout()
        for name in ('strides', 'offsets'):
            pairs = getattr(layout, name)
            if pairs and len(pairs) != len(box_specs):
                raise expected(
                    f'SsdAnchorGenerator: {name}', f'none, or {len(box_specs)} pairs', list(pairs)
                )
        if not all(0 < side < math.inf for side in base_size):
            raise expected(
                'SsdAnchorGenerator', 'base_anchor_height and base_anchor_width above 0', base_size
            )
        self._sizes = [
            anchors.box_sizes([scale for scale, _ in specs], [ratio for _, ratio in specs])
            for specs in box_specs
        ]
        self._base_size = base_size
        self._layout = layout
        self._limit_sizes = limit_sizes

    def num_anchors_per_location(self) -> list[int]:
        return [len(sizes) for sizes in self._sizes]

    def _generate_level(
        self, level: int, shape: anchors.MapShape, image_size: anchors.ImageSize
    ) -> tf.Tensor:
        # Without a size the image is a square, whose side is the unit of the layout.
        sides = [tf.cast(1 if side is None else side, tf.float32) for side in image_size]
        base = [
            tf.minimum(*sides) / side * base
            for side, base in zip(sides, self._base_size, strict=True)
        ]
        stride, offset = self._place(level, shape, sides)
        sizes = self._sizes[level] * tf.stack(base)
        if self._limit_sizes:
            sizes = tf.minimum(sizes, 1.0)
        return anchors.tile(sizes, shape, stride, offset)

    def _place(self, layer: int, shape: tuple, sides: list[tf.Tensor]) -> tuple[list, list]:
        """Returns the normalized (y, x) stride and offset of a layer."""
        if self._layout.strides:
            stride = [s / side for s, side in zip(self._layout.strides[layer], sides, strict=True)]
        else:
            stride = [1.0 / tf.cast(cells, tf.float32) for cells in shape]
        if self._layout.offsets:
            offset = [o / side for o, side in zip(self._layout.offsets[layer], sides, strict=True)]
        else:
            offset = [0.5 * step for step in stride]
        return stride, offset


def linear_scales(num_layers: int, min_scale: float, max_scale: float) -> list[float]:
    """Returns equally spaced scales from `min_scale` to `max_scale`, one per layer.

    Raises:
      ValueError: for a single layer, whose scale the two bounds do not determine.
    """
    if num_layers < 2:
        raise expected(
            'min_scale and max_scale', '2 layers or more; `scales` is for one', num_layers
        )
    step = (max_scale - min_scale) / (num_layers - 1)
    return [min_scale + step * layer for layer in range(num_layers)]


def ssd_box_specs(
    num_layers: int,
    scales: Sequence[float],
    aspect_ratios: Sequence[float],
    interpolated_scale_aspect_ratio: float = 1.0,
    reduce_boxes_in_lowest_layer: bool = True,
    num_aspect_ratios: Sequence[int] = (),
) -> list[list[tuple[float, float]]]:
    """Returns the (scale, aspect ratio) of every box of every layer.

    A layer has a box of its scale for each aspect ratio and, unless the interpolated box's aspect
    ratio is 0, a box of scale sqrt(scale * next scale). The scale after the last one is 1.0.

    Args:
      num_layers: number of feature maps.
      scales: one per layer, and optionally the scale that follows the last layer's.
      aspect_ratios: width / height.
      interpolated_scale_aspect_ratio: aspect ratio of the interpolated box; 0 omits that box.
      reduce_boxes_in_lowest_layer: whether layer 0 has only three boxes, (0.1, 1), (scale, 2) and
        (scale, 1/2), for all aspect ratios.
      num_aspect_ratios: for each layer how many of `aspect_ratios` it has, the first ones; none
        gives it all of them.

    Raises:
      ValueError: if there are too few or too many scales, or one is not positive, or
        `num_aspect_ratios` are not one for each layer, or more than there are.
    """
    if not num_layers <= len(scales) <= num_layers + 1:
        raise expected(
            'SsdAnchorGenerator: scales', f'{num_layers} or {num_layers + 1} of them', list(scales)
        )
    if not all(0 < value < math.inf for value in (*scales, *aspect_ratios)):
        raise UserError(
            'SsdAnchorGenerator: scales, which min_scale and max_scale may give, and aspect_ratios '
            f'must be positive. Received: {list(scales)} and {list(aspect_ratios)}.'
        )
    most = len(aspect_ratios)
    counts = num_aspect_ratios or [most] * num_layers
    if len(counts) != num_layers or not all(0 <= count <= most for count in counts):
        raise expected(
            'SsdAnchorGenerator: num_aspect_ratios',
            f'none, or {num_layers} numbers up to {most}, that of aspect_ratios',
            list(counts),
        )
    specs = []
    following = [*scales[1:], 1.0][:num_layers]
    rows = zip(counts, scales[:num_layers], following, strict=True)
    for layer, (count, scale, next_scale) in enumerate(rows):
        boxes = [(scale, ratio) for ratio in aspect_ratios[:count]]
        if interpolated_scale_aspect_ratio > 0:
            boxes.append((math.sqrt(scale * next_scale), interpolated_scale_aspect_ratio))
        if layer == 0 and reduce_boxes_in_lowest_layer:
            boxes = [(0.1, 1.0), (scale, 2.0), (scale, 0.5)]
        specs.append(boxes)
    return specs
