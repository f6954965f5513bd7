"""What queries attend to, and the encoders of DETR and RF-DETR that make it of a backbone's maps.

Layers are named as in the published networks, so that the rules for their weights are short.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import NamedTuple

import keras
import tensorflow as tf

from object_detection.core.shapes import dimensions
from object_detection.meta_architectures.detr import boxes as box_ops
from object_detection.meta_architectures.detr.queries import Tokens
from object_detection.models.composite import Composite
from object_detection.models.transformer import (
    EncoderLayer,
    activation_layer,
    layer_norm,
)

# Cells of a map: no finer position is learned.
_MOST_CELLS = 50
# Number of the first dropout, beyond those of backbones.
FIRST_DROPOUT = 100_000


class Encoded(NamedTuple):
    """What an encoder makes of the maps of a backbone.

    Attributes:
      maps: its maps [B, H_l, W_l, C], fine to coarse.
      values: the maps that queries attend to.
      seen: bool [B, N], which of their cells are within the true images; None is all.
      positions: of the cells, [N, C] or [B, N, C]; None without.
      shares: see `Tokens`.
    """

    maps: Sequence[tf.Tensor]
    values: Sequence[tf.Tensor]
    seen: tf.Tensor | None = None
    positions: tf.Tensor | None = None
    shares: tf.Tensor | None = None

    def tokens(self) -> Tokens:
        """Returns the cells of all maps as one sequence."""
        sizes = [dimensions(each, 1, 2) for each in self.values]
        if any(tf.is_tensor(side) for size in sizes for side in size):
            # Keras takes no nests of tensors and numbers.
            sizes = [tuple(tf.convert_to_tensor(side) for side in size) for size in sizes]
        rows = [flat(each) for each in self.values]
        return Tokens(tf.concat(rows, axis=1), sizes, self.seen, self.positions, self.shares)


def flat(cells: tf.Tensor) -> tf.Tensor:
    """[B, H, W, C] -> [B, H * W, C]."""
    batch, height, width = dimensions(cells, 0, 1, 2)
    return tf.reshape(cells, [batch, height * width, cells.shape[-1]])


def seen_cells(cells: tf.Tensor, true: tf.Tensor, size: Sequence) -> tf.Tensor:
    """Returns which cells begin within the true images, bool [B, H, W].

    Args:
      cells: [B, H, W, C].
      true: int32 [B, 2], height and width of the true images in pixels.
      size: height and width of the images that the map covers.
    """
    sides = []
    for axis, (count, total) in enumerate(zip(dimensions(cells, 1, 2), size, strict=True)):
        firsts = tf.range(count) * total // count
        sides.append(firsts[tf.newaxis] < true[:, axis, tf.newaxis])
    return sides[0][:, :, tf.newaxis] & sides[1][:, tf.newaxis]


@dataclasses.dataclass(frozen=True)
class TransformerOptions:
    """Sizes of DETR's encoder; see the message TransformerEncoder."""

    width: int
    num_layers: int
    num_heads: int
    hidden: int
    activation: str
    dropout: float
    learned_positions: bool
    epsilon: float


class TransformerEncoder(keras.layers.Layer):
    """DETR's encoder: all cells of a map attend to each other (https://arxiv.org/abs/2005.12872)."""

    def __init__(self, options: TransformerOptions, name: str = 'encoder'):
        super().__init__(name=name)
        self._options = options
        self.input_projection = keras.layers.Conv2D(options.width, 1, name='input_projection')
        self.layers = [
            EncoderLayer(
                width=options.width,
                num_heads=options.num_heads,
                hidden=options.hidden,
                activation=options.activation,
                epsilon=options.epsilon,
                dropout=options.dropout,
                number=FIRST_DROPOUT + 2 * i,
                name=f'layers_{i}',
            )
            for i in range(options.num_layers)
        ]
        self.build()

    def build(self):
        options = self._options
        if options.learned_positions:
            shape, uniform = (_MOST_CELLS, options.width // 2), keras.initializers.RandomUniform
            self.rows, self.columns = (
                self.add_weight(shape=shape, initializer=uniform(0, 1), name=each)
                for each in ('row_embeddings', 'column_embeddings')
            )

    def encode(self, maps, true=None, size=None, training=False) -> Encoded:
        """Encodes a map [B, H, W, C]; see `seen_cells` for the arguments."""
        (cells,) = maps
        seen = tf.ones(tf.shape(cells)[:3], tf.bool)
        if true is not None:
            seen = seen_cells(cells, true, size)
        projected = self.input_projection(cells)
        positions, seen_flat = (
            self._positions(projected, seen),
            tf.reshape(seen, [tf.shape(seen)[0], -1]),
        )
        tokens, mask = flat(projected), None
        if true is not None:
            mask = seen_flat[:, tf.newaxis, tf.newaxis]
        for layer in self.layers:
            tokens = layer(tokens, positions, mask, training=training)
        encoded = tf.reshape(tokens, tf.shape(projected))
        encoded = tf.ensure_shape(encoded, projected.shape)
        return Encoded([encoded], [encoded], None if true is None else seen_flat, positions)

    def _positions(self, cells, seen) -> tf.Tensor:
        """Returns the encoded positions of cells, float32 [B, N, C] or [N, C]."""
        channels = self._options.width // 2
        if self._options.learned_positions:
            height, width = dimensions(cells, 1, 2)
            y = tf.gather(self.rows, tf.minimum(tf.range(height), _MOST_CELLS - 1))
            x = tf.gather(self.columns, tf.minimum(tf.range(width), _MOST_CELLS - 1))
            both = [
                tf.broadcast_to(x[tf.newaxis], [height, width, channels]),
                tf.broadcast_to(y[:, tf.newaxis], [height, width, channels]),
            ]
            return tf.reshape(tf.concat(both, axis=-1), [height * width, 2 * channels])
        counted = tf.cast(seen, tf.float32)
        encoded = []
        for axis in (1, 2):
            numbers = tf.cumsum(counted, axis=axis)
            last = numbers[:, -1:] if axis == 1 else numbers[:, :, -1:]
            encoded.append(box_ops.waves(numbers / (last + 1e-6) * (2 * math.pi), channels))
        return flat(tf.concat(encoded, axis=-1))


@dataclasses.dataclass(frozen=True)
class ProjectorOptions:
    """Sizes of LW-DETR's projector; see the message MultiScaleProjector."""

    width: int
    num_blocks: int
    expansion: float
    activation: str
    epsilon: float


class ConvLayerNorm(Composite):
    """A convolution without offset, a layer norm over the channels and an activation."""

    def __init__(self, filters: int, kernel_size: int, options: ProjectorOptions, name: str):
        super().__init__(name=name)
        self.conv = keras.layers.Conv2D(
            filters, kernel_size, padding='same', use_bias=False, name='conv'
        )
        self.norm = layer_norm(options.epsilon, 'norm')
        self.activation = activation_layer(options.activation)

    def call(self, x):
        return self.activation(self.norm(self.conv(x)))


class Projector(keras.layers.Layer):
    """LW-DETR's projector of maps of one stride (https://arxiv.org/abs/2406.03459, fig. 2)."""

    def __init__(self, options: ProjectorOptions, name: str = 'encoder'):
        super().__init__(name=name)
        hidden = int(options.width * options.expansion)
        self.conv1 = ConvLayerNorm(2 * hidden, 1, options, 'conv1')
        self.bottlenecks = [
            [ConvLayerNorm(hidden, 3, options, f'bottlenecks_{i}_conv{j}') for j in (1, 2)]
            for i in range(options.num_blocks)
        ]
        self.conv2 = ConvLayerNorm(options.width, 1, options, 'conv2')
        # Its epsilon does not follow that of the others.
        self.layer_norm = layer_norm(1e-6, 'layer_norm')

    def encode(self, maps, true=None, size=None, training=False) -> Encoded:
        """Encodes maps [B, H, W, C_l] as one; see `seen_cells` for the arguments."""
        parts = tf.split(self.conv1(tf.concat(list(maps), axis=-1)), 2, axis=-1)
        for first, second in self.bottlenecks:
            parts.append(second(first(parts[-1])))
        cells = self.layer_norm(self.conv2(tf.concat(parts, axis=-1)))
        seen = shares = None
        if true is not None:
            seen = seen_cells(cells, true, size)
            shown = tf.cast(seen, tf.float32)
            sides = [tf.reduce_mean(each, axis=1) for each in (shown[:, 0], shown[:, :, 0])]
            shares = tf.stack(sides, axis=-1)
            seen = tf.reshape(seen, [tf.shape(seen)[0], -1])
        return Encoded([cells], [cells], seen, shares=shares)
