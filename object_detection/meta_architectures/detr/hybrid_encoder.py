"""The hybrid encoder of RT-DETR, with its blocks and those of D-FINE.

Layers are named as in the published networks, so that the rules for their weights are short.
"""

import dataclasses
from collections.abc import Sequence

import keras
import tensorflow as tf

from object_detection.core.shapes import dimensions
from object_detection.meta_architectures.detr.encoders import FIRST_DROPOUT, Encoded, flat
from object_detection.models import rounding
from object_detection.models.composite import Composite
from object_detection.models.hyperparams import LayerHyperparams
from object_detection.models.necks.resizing import Doubling
from object_detection.models.normalization import BatchNormParams, normalized
from object_detection.models.transformer import EncoderLayer, activation_layer, sine_positions

# Convolutions of a block of the pyramid, before a factor.
_BLOCK_LAYERS = 3


def batch_normed(epsilon: float) -> LayerHyperparams:
    """Returns the set-up of convolutions with a batch norm, as PyTorch has them."""
    return LayerHyperparams(
        batch_norm=BatchNormParams(momentum=0.9, epsilon=epsilon, scale=True), activation=None
    )


class ConvNorm(Composite):
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


class RepVggBlock(Composite):
    """Two convolutions side by side (https://arxiv.org/abs/2101.03697)."""

    def __init__(self, filters: int, activation: str, *, name: str, **options):
        super().__init__(name=name)
        self.conv1 = ConvNorm(filters, 3, name='conv1', **options)
        self.conv2 = ConvNorm(filters, 1, name='conv2', **options)
        self.activation = activation_layer(activation)

    def call(self, x, training=False):
        return self.activation(self.conv1(x, training=training) + self.conv2(x, training=training))


class CspRepBlock(Composite):
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


class ElanBlock(Composite):
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


class SeparableDown(Composite):
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
            number=FIRST_DROPOUT + 2 * number,
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
