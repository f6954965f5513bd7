"""Multi-scale deformable attention (https://arxiv.org/abs/2010.04159), also of RT-DETR v2."""

import dataclasses
import math
from collections.abc import Sequence

import keras
import numpy as np
import tensorflow as tf

from object_detection.core.shapes import dimensions
from object_detection.errors import expected
from object_detection.models.transformer import dense


@dataclasses.dataclass(frozen=True)
class DeformableOptions:
    """Sizes of deformable attention.

    Attributes:
      width: C, a multiple of `num_heads`.
      num_heads: number of heads.
      points: how many points a head looks at, for each map.
      offset_scale: factor of the offsets of points, in units of the size of the query's box.
      is_discrete: whether the nearest cell is read, not four of them by their distance
        (https://arxiv.org/abs/2407.17140).
      has_projections: whether values and results pass through dense layers.
      stores_scales: whether the factors 1 / points of offsets are variables, which do not train.
    """

    width: int
    num_heads: int
    points: Sequence[int]
    offset_scale: float = 0.5
    is_discrete: bool = False
    has_projections: bool = True
    stores_scales: bool = False

    def point_scales(self) -> np.ndarray:
        """Returns the factors of the offsets of points, float32 [P]."""
        return np.repeat(1.0 / np.array(self.points), self.points).astype(np.float32)


class DeformableAttention(keras.layers.Layer):
    """Each query reads the maps at a few points near its box, which it finds itself."""

    def __init__(self, options: DeformableOptions, name: str):
        # Boxes stay float32.
        super().__init__(name=name, autocast=False)
        self._options = options
        if options.width % options.num_heads:
            raise expected(f'{name}: num_heads', f'a divisor of {options.width}', options.num_heads)
        count = options.num_heads * sum(options.points)
        self.sampling_offsets = dense(
            2 * count,
            'sampling_offsets',
            kernel_initializer='zeros',
            bias_initializer=self._first_offsets,
        )
        self.attention_weights = dense(count, 'attention_weights', kernel_initializer='zeros')
        if options.has_projections:
            self.value_proj = dense(options.width, 'value_proj')
            self.output_proj = dense(options.width, 'output_proj')
        self._scales = options.point_scales()

    def build(self, queries_shape):
        if self._options.stores_scales:
            scales = self._options.point_scales()
            self._scales = self.add_weight(
                shape=scales.shape,
                initializer=lambda shape, dtype=None: tf.constant(scales),
                trainable=False,
                autocast=False,
                name='num_points_scale',
            )

    def _first_offsets(self, shape, dtype=None):
        """Heads begin to look into different directions, and their points ever farther."""
        heads = self._options.num_heads
        angles = np.arange(heads) * (2 * math.pi / heads)
        directions = np.stack([np.cos(angles), np.sin(angles)], axis=-1)
        directions /= np.abs(directions).max(axis=-1, keepdims=True)
        steps = np.concatenate([np.arange(1, count + 1) for count in self._options.points])
        offsets = directions[:, np.newaxis] * steps[:, np.newaxis]
        return tf.constant(offsets.reshape(shape), dtype or tf.float32)

    def call(self, queries, boxes, tokens, sizes, seen=None):
        """Returns [B, Q, C].

        Args:
          queries: [B, Q, C], with their positions.
          boxes: float32 [B, Q, 4], (x, y, width, height) as shares of the images.
          tokens: [B, N, C], the cells of all maps.
          sizes: (height, width) of each map.
          seen: bool [B, N], False beyond the true images, where values are zero; None is all seen.
        """
        options = self._options
        heads, points = options.num_heads, sum(options.points)
        batch, count = dimensions(queries, 0, 1)
        values = self.value_proj(tokens) if options.has_projections else tokens
        if seen is not None:
            values = tf.where(seen[..., tf.newaxis], values, tf.zeros([], values.dtype))
        # Heads first, as the values are; rows of x and of y are cheaper to cut than pairs of them.
        offsets = tf.cast(self.sampling_offsets(queries), tf.float32)
        offsets = tf.reshape(offsets, [batch, count, heads, points, 2])
        offsets = tf.unstack(tf.transpose(offsets, [4, 0, 2, 1, 3]))  # 2 * [B, heads, Q, P]
        scales = tf.convert_to_tensor(self._scales) * options.offset_scale
        x, y, width, height = tf.split(boxes[:, tf.newaxis], 4, axis=-1)  # [B, 1, Q, 1]
        places = x + offsets[0] * (width * scales), y + offsets[1] * (height * scales)
        weights = tf.cast(self.attention_weights(queries), tf.float32)
        weights = tf.nn.softmax(tf.reshape(weights, [batch, count, heads, points]))
        weights = tf.transpose(weights, [0, 2, 1, 3])
        found = _read(values, places, weights, sizes, options)
        return self.output_proj(found) if options.has_projections else found


def _read(values, places, weights, sizes, options: DeformableOptions) -> tf.Tensor:
    """Returns the weighted sums of values at places, [B, Q, C].

    Args:
      values: [B, N, C], C being the channels of all heads.
      places: x and y, each float32 [B, heads, Q, P], as shares of the images.
      weights: float32 [B, heads, Q, P].
      sizes: (height, width) of each map; the first `options.points[0]` of P are in the first.
      options: of the attention.
    """
    heads = options.num_heads
    starts, start = [], 0
    for height, width in sizes:
        starts.append(start)
        start += height * width
    of_points = np.repeat(np.arange(len(options.points)), options.points)
    heights, widths, starts = (
        tf.gather(tf.stack(each), of_points)  # int32 [P]
        for each in (*zip(*sizes, strict=True), starts)
    )
    along = _nearest if options.is_discrete else _bilinear
    rows, columns = along(places[1], heights), along(places[0], widths)
    corners = [(row, column) for row in rows for column in columns]
    indices = tf.concat([starts + row * widths + column for (row, _), (column, _) in corners], -1)
    weights = tf.concat([weights * share * other for (_, share), (_, other) in corners], -1)
    batch, count, total = *dimensions(indices, 0, 2), *dimensions(values, 1)
    depth = values.shape[-1] // heads
    values = tf.transpose(tf.reshape(values, [batch, total, heads, depth]), [0, 2, 1, 3])
    values = tf.reshape(values, [batch * heads, total, depth])
    size = indices.shape[-1]
    indices = tf.reshape(indices, [batch * heads, count, size])
    weights = tf.reshape(weights, [batch * heads, count, 1, size])
    read = tf.gather(values, indices, batch_dims=1)  # [B * heads, Q, size, depth]
    found = tf.matmul(tf.cast(weights, read.dtype), read)
    found = tf.transpose(tf.reshape(found, [batch, heads, count, depth]), [0, 2, 1, 3])
    return tf.reshape(found, [batch, count, heads * depth])


def _bilinear(positions, counts) -> list[tuple[tf.Tensor, tf.Tensor]]:
    """Returns (cell, share) of the two cells around positions; those outside have share 0."""
    positions = positions * tf.cast(counts, tf.float32) - 0.5
    first = tf.floor(positions)
    share = positions - first
    cells = tf.cast(first, tf.int32)
    found = []
    for cell, part in ((cells, 1.0 - share), (cells + 1, share)):
        is_inside = (cell >= 0) & (cell < counts)
        found.append((tf.clip_by_value(cell, 0, counts - 1), tf.where(is_inside, part, 0.0)))
    return found


def _nearest(positions, counts) -> list[tuple[tf.Tensor, float]]:
    """Returns the cell at positions, or the nearest one, and its share, 1."""
    # Towards zero, as in the published network.
    cells = tf.cast(positions * tf.cast(counts, tf.float32) + 0.5, tf.int32)
    return [(tf.clip_by_value(cells, 0, counts - 1), 1.0)]
