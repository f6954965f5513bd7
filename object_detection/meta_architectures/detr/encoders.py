"""Encoders: from the maps of the backbone to those that queries attend to.

Layers are named as in the published networks, so that the rules for their weights are short.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import NamedTuple

import keras
import tensorflow as tf

from object_detection.core.shapes import dimensions
from object_detection.meta_architectures.detr.queries import Tokens
from object_detection.models import rounding
from object_detection.models.hyperparams import LayerHyperparams
from object_detection.models.necks.resizing import Doubling
from object_detection.models.normalization import BatchNormParams, normalized
from object_detection.models.transformer import (
    EncoderLayer,
    activation_layer,
    layer_norm,
    sine_positions,
)

# Cells of a map: no finer position is learned.
_MOST_CELLS = 50
# Number of the first dropout, beyond those of backbones.
_FIRST_DROPOUT = 100_000
# Convolutions of a block of the pyramid, before a factor.
_BLOCK_LAYERS = 3


def batch_normed(epsilon: float) -> LayerHyperparams:
    """Returns the set-up of convolutions with a batch norm, as PyTorch has them."""
    return LayerHyperparams(
        batch_norm=BatchNormParams(momentum=0.9, epsilon=epsilon, scale=True), activation=None
    )


class Encoded(NamedTuple):
    """What an encoder makes of the maps of a backbone.

    Attributes:
      maps: its maps [B, H_l, W_l, C], fine to coarse.
      values: the maps that queries attend to.
      seen: bool [B, N], which of their cells are within the true images; None is all.
      positions: of the cells, [N, C] or [B, N, C]; None without.
    """

    maps: Sequence[tf.Tensor]
    values: Sequence[tf.Tensor]
    seen: tf.Tensor | None = None
    positions: tf.Tensor | None = None

    def tokens(self) -> Tokens:
        """Returns the cells of all maps as one sequence."""
        sizes = [dimensions(each, 1, 2) for each in self.values]
        if any(tf.is_tensor(side) for size in sizes for side in size):
            # Keras takes no nests of tensors and numbers.
            sizes = [tuple(tf.convert_to_tensor(side) for side in size) for size in sizes]
        rows = [flat(each) for each in self.values]
        return Tokens(tf.concat(rows, axis=1), sizes, self.seen, self.positions)


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


class ConvNorm(keras.layers.Layer):
    """A convolution without offset, a batch norm and an activation.

    Args:
      filters: channels of the result; None makes it a convolution of each channel by itself.
      kernel_size: padded with half of it on all sides.
      strides: stride.
      activation: name; None is none.
      epsilon: of the norm.
      frozen: whether the norm keeps its statistics.
    """

    def __init__(
        self,
        filters: int | None,
        kernel_size: int,
        *,
        name: str,
        strides: int = 1,
        activation: str | None = None,
        epsilon: float = 1e-5,
        frozen: bool = False,
    ):
        super().__init__(name=name)
        hyperparams = batch_normed(epsilon)
        options = {'strides': strides, 'padding': 'same', 'name': 'conv'}
        self._pad = None
        if strides > 1:
            options['padding'] = 'valid'
            self._pad = rounding.ZeroPadding2D(kernel_size // 2, name='pad')
        if filters is None:
            self.conv = hyperparams.depthwise_conv(kernel_size, **options)
        else:
            self.conv = hyperparams.conv(filters, kernel_size, **options)
        self.norm = hyperparams.norm(frozen=frozen, name='norm')
        self._activation = None if activation is None else activation_layer(activation)

    def call(self, x, training=False):
        x = x if self._pad is None else self._pad(x)
        x = normalized(self.conv, self.norm, x, training)
        return x if self._activation is None else self._activation(x)


class RepVggBlock(keras.layers.Layer):
    """Two convolutions side by side (https://arxiv.org/abs/2101.03697)."""

    def __init__(self, filters: int, activation: str, *, name: str, **options):
        super().__init__(name=name)
        self.conv1 = ConvNorm(filters, 3, name='conv1', **options)
        self.conv2 = ConvNorm(filters, 1, name='conv2', **options)
        self.activation = activation_layer(activation)

    def call(self, x, training=False):
        return self.activation(self.conv1(x, training=training) + self.conv2(x, training=training))


class CspRepBlock(keras.layers.Layer):
    """RT-DETR's block of the pyramid: one branch is deep, the other is one convolution.

    Args:
      filters: channels of the result.
      hidden: channels of the branches.
      num_layers: of the deep branch.
    """

    def __init__(
        self, filters: int, hidden: int, num_layers: int, activation: str, *, name: str, **options
    ):
        super().__init__(name=name)
        options['activation'] = activation
        self.conv1 = ConvNorm(hidden, 1, name='conv1', **options)
        self.conv2 = ConvNorm(hidden, 1, name='conv2', **options)
        self.bottlenecks = [
            RepVggBlock(hidden, name=f'bottlenecks_{i}', **options) for i in range(num_layers)
        ]
        self.conv3 = None
        if hidden != filters:
            self.conv3 = ConvNorm(filters, 1, name='conv3', **options)

    def call(self, x, training=False):
        deep = self.conv1(x, training=training)
        for layer in self.bottlenecks:
            deep = layer(deep, training=training)
        found = deep + self.conv2(x, training=training)
        return found if self.conv3 is None else self.conv3(found, training=training)


class ElanBlock(keras.layers.Layer):
    """D-FINE's block of the pyramid (RepNCSPELAN4 of https://arxiv.org/abs/2402.13616).

    Args:
      filters: channels of the result.
      hidden: channels of the two branches that follow each other.
      num_layers: of each of these.
    """

    def __init__(
        self, filters: int, hidden: int, num_layers: int, activation: str, *, name: str, **options
    ):
        super().__init__(name=name)
        arguments = {'activation': activation, **options}
        self.conv1 = ConvNorm(2 * filters, 1, name='conv1', **arguments)
        self.csp_rep1 = CspRepBlock(hidden, hidden, num_layers, name='csp_rep1', **arguments)
        self.conv2 = ConvNorm(hidden, 3, name='conv2', **arguments)
        self.csp_rep2 = CspRepBlock(hidden, hidden, num_layers, name='csp_rep2', **arguments)
        self.conv3 = ConvNorm(hidden, 3, name='conv3', **arguments)
        self.conv4 = ConvNorm(filters, 1, name='conv4', **arguments)

    def call(self, x, training=False):
        parts = tf.split(self.conv1(x, training=training), 2, axis=-1)
        for block, conv in ((self.csp_rep1, self.conv2), (self.csp_rep2, self.conv3)):
            parts.append(conv(block(parts[-1], training=training), training=training))
        return self.conv4(tf.concat(parts, axis=-1), training=training)


class SeparableDown(keras.layers.Layer):
    """D-FINE's halving of maps: a convolution of 1x1, then one of each channel by itself."""

    def __init__(self, filters: int, *, name: str, **options):
        super().__init__(name=name)
        self.conv1 = ConvNorm(filters, 1, name='conv1', **options)
        self.conv2 = ConvNorm(None, 3, strides=2, name='conv2', **options)

    def call(self, x, training=False):
        return self.conv2(self.conv1(x, training=training), training=training)


@dataclasses.dataclass(frozen=True)
class HybridOptions:
    """Sizes of the hybrid encoder; see the message HybridEncoder."""

    width: int
    attended_maps: Sequence[int]
    num_layers: int
    num_heads: int
    hidden: int
    attention_activation: str
    activation: str
    positional_temperature: float
    normalize_before: bool
    expansion: float
    is_elan: bool
    depth_multiplier: float
    dropout: float
    layer_norm_epsilon: float
    batch_norm_epsilon: float
    frozen: bool
    decoder_width: int
    num_values: int

    def block(self, name: str) -> keras.layers.Layer:
        """Returns a block of the pyramid."""
        kind, hidden = CspRepBlock, int(self.width * self.expansion)
        if self.is_elan:
            kind, hidden = ElanBlock, round(self.expansion * self.width // 2)
        layers = round(_BLOCK_LAYERS * self.depth_multiplier)
        return kind(self.width, hidden, layers, self.activation, name=name, **self.norms())

    def down(self, name: str) -> keras.layers.Layer:
        """Returns a layer that halves maps."""
        if self.is_elan:
            return SeparableDown(self.width, name=name, **self.norms())
        return self.conv(3, name, strides=2)

    def conv(self, kernel_size: int, name: str, **options) -> ConvNorm:
        # D-FINE's convolutions between blocks have no activation.
        activation = None if self.is_elan else self.activation
        options = {'activation': activation, **self.norms(), **options}
        return ConvNorm(self.width, kernel_size, name=name, **options)

    def norms(self) -> dict:
        return {'epsilon': self.batch_norm_epsilon, 'frozen': self.frozen}


class HybridEncoder(keras.layers.Layer):
    """RT-DETR's encoder (https://arxiv.org/abs/2304.08069, sec. 4.2).

    Cells of the coarsest map attend to each other; a pyramid goes from coarse to fine and back.

    Args:
      options: sizes.
      num_maps: number of maps.
    """

    def __init__(self, options: HybridOptions, num_maps: int, name: str = 'encoder'):
        super().__init__(name=name)
        self._options = options
        # Their norms have PyTorch's epsilon whatever that of the others is.
        self.input_proj = [
            ConvNorm(options.width, 1, name=f'input_proj_{i}', frozen=options.frozen)
            for i in range(num_maps)
        ]
        self.attention = {
            level: [self._layer(i, j) for j in range(options.num_layers)]
            for i, level in enumerate(options.attended_maps)
        }
        self.doubling = Doubling(name='doubling')
        steps = range(num_maps - 1)
        self.lateral_convs = [options.conv(1, f'lateral_convs_{i}') for i in steps]
        self.fpn_blocks = [options.block(f'fpn_blocks_{i}') for i in steps]
        self.downsample_convs = [options.down(f'downsample_convs_{i}') for i in steps]
        self.pan_blocks = [options.block(f'pan_blocks_{i}') for i in steps]
        kept = num_maps if options.is_elan and options.width == options.decoder_width else 0
        self.decoder_input_proj = [
            None if i < kept else self._projection(i, num_maps) for i in range(options.num_values)
        ]

    def _layer(self, map_index: int, index: int) -> EncoderLayer:
        options = self._options
        number = map_index * options.num_layers + index
        return EncoderLayer(
            width=options.width,
            num_heads=options.num_heads,
            hidden=options.hidden,
            activation=options.attention_activation,
            epsilon=options.layer_norm_epsilon,
            normalize_before=options.normalize_before,
            dropout=options.dropout,
            number=_FIRST_DROPOUT + 2 * number,
            name=f'aifi_{map_index}_layers_{index}',
        )

    def _projection(self, index: int, num_maps: int) -> ConvNorm:
        """Returns the layer whose map queries attend to; additional ones halve the coarsest map."""
        size, stride = (1, 1) if index < num_maps else (3, 2)
        options = self._options
        return ConvNorm(
            options.decoder_width,
            size,
            strides=stride,
            name=f'decoder_input_proj_{index}',
            **options.norms(),
        )

    def encode(self, maps, true=None, size=None, training=False) -> Encoded:
        """Encodes maps [B, H_l, W_l, C_l], fine to coarse; all cells are seen."""
        maps = [
            layer(each, training=training)
            for layer, each in zip(self.input_proj, maps, strict=True)
        ]
        for level, layers in self.attention.items():
            maps[level] = self._attended(maps[level], layers, training)
        fine = [maps[-1]]
        for lateral, block, below in zip(
            self.lateral_convs, self.fpn_blocks, reversed(maps[:-1]), strict=True
        ):
            fine[-1] = lateral(fine[-1], training=training)
            both = [self.doubling(fine[-1]), below]
            fine.append(block(tf.concat(both, axis=-1), training=training))
        results = [fine.pop()]
        for down, block in zip(self.downsample_convs, self.pan_blocks, strict=True):
            both = [down(results[-1], training=training), fine.pop()]
            results.append(block(tf.concat(both, axis=-1), training=training))
        values = []
        for i, layer in enumerate(self.decoder_input_proj):
            each = results[min(i, len(results) - 1)]
            values.append(each if layer is None else layer(each, training=training))
        return Encoded(results, values)

    def _attended(self, cells, layers, training):
        height, width = dimensions(cells, 1, 2)
        (batch,) = dimensions(cells, 0)
        channels = cells.shape[-1]
        positions = sine_positions(height, width, channels, self._options.positional_temperature)
        tokens = flat(cells)
        for layer in layers:
            tokens = layer(tokens, positions, training=training)
        return tf.reshape(tokens, [batch, height, width, channels])


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
                number=_FIRST_DROPOUT + 2 * i,
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
            encoded.append(self._waves(numbers / (last + 1e-6) * (2 * math.pi), channels))
        return flat(tf.concat(encoded, axis=-1))

    def _waves(self, angles, channels: int) -> tf.Tensor:
        """[B, H, W] -> [B, H, W, channels]: sine and cosine of each frequency in turns."""
        exponents = tf.range(channels // 2, dtype=tf.float32) * (2.0 / channels)
        angles = angles[..., tf.newaxis] / tf.pow(10000.0, exponents)
        waves = tf.stack([tf.sin(angles), tf.cos(angles)], axis=-1)
        batch, height, width = dimensions(angles, 0, 1, 2)
        return tf.reshape(waves, [batch, height, width, channels])


@dataclasses.dataclass(frozen=True)
class ProjectorOptions:
    """Sizes of LW-DETR's projector; see the message MultiScaleProjector."""

    width: int
    num_blocks: int
    expansion: float
    activation: str
    epsilon: float


class ConvLayerNorm(keras.layers.Layer):
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
        seen = None
        if true is not None:
            seen = seen_cells(cells, true, size)
            seen = tf.reshape(seen, [tf.shape(seen)[0], -1])
        return Encoded([cells], [cells], seen)
