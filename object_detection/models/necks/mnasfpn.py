"""MnasFPN (https://arxiv.org/abs/1912.01106), a feature pyramid found by a search, as a table.

It is the network of the reference: hyperparameters of layers are its own.
"""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import keras

from object_detection.errors import expected
from object_detection.models import rounding
from object_detection.models.backbones.mobilenet import round_to_eights
from object_detection.models.backbones.mobilenet_v2 import SEPARABLE_STDDEV
from object_detection.models.hyperparams import L2, LayerHyperparams
from object_detection.models.necks.resizing import Doubling
from object_detection.models.necks.table import Neck, NeckOptions
from object_detection.models.normalization import BatchNormParams, normalized

# Levels of the maps.
LEVELS = range(3, 7)


class Block(NamedTuple):
    """A block of a cell, which makes a node of two nodes before it.

    Attributes:
      level: of the node; level l has stride 2**l.
      inputs: numbers of the nodes: those of the cell's inputs by level, then one for each block.
      kernel_size: of the separable convolution.
      filters: channels of the sum that it convolves, before the factor of the options.
    """

    level: int
    inputs: tuple[int, int]
    kernel_size: int
    filters: int


# The last nodes are the outputs of the cell, one for each level.
CELL = (
    Block(4, (1, 2), 3, 256),
    Block(3, (0, 4), 3, 128),
    Block(4, (5, 4), 3, 128),
    Block(5, (4, 3), 5, 128),
    Block(6, (4, 3), 3, 96),
)
_NUM_CELLS = 4

HYPERPARAMS = LayerHyperparams(
    initializer=keras.initializers.HeNormal(),
    regularizer=L2(0.5 * 1e-4),
    activation='relu6',
    batch_norm=BatchNormParams(momentum=0.99, epsilon=0.01, scale=True),
    regularize_depthwise=True,
)


def mnasfpn(channels: Sequence[int], options: NeckOptions) -> keras.Model:
    """Builds the cells.

    Args:
      channels: channels of the backbone maps of the levels 3, 4 and 5, finest first.
      options: set-up of the layers; `nominal_depth` are the channels of all maps before the factor.

    Returns:
      A model from the list of backbone maps to that of the levels 3 to 6, [B, H, W, depth], finest
      first, without activations. Heights and widths must halve exactly from level to level.
    """
    dtype = keras.config.dtype_policy().compute_dtype
    inputs = [
        keras.Input((None, None, c), name=f'features_{level}', dtype=dtype)
        for level, c in zip(LEVELS, channels, strict=False)
    ]
    layers = _Layers(options)
    maps = _Halving(name='sizes')([*inputs, layers.top(inputs[-1])])
    for i in range(_NUM_CELLS):
        maps = layers.cell(maps, f'cell_{i}')
    return keras.Model(inputs, maps, name='fpn')


class _Halving(keras.layers.Layer):
    """Checks that maps [B, H, W, C], finest first, are half as large as those before."""

    def call(self, maps):
        for axis in (1, 2):
            sides = [each.shape[axis] for each in maps]
            halved = [sides[0] and sides[0] // 2**i for i in range(len(sides))]
            if None not in sides and sides != halved:
                raise expected(
                    'fpn',
                    'sides of images that are multiples of 64, or that pad_to_multiple: 64 pads '
                    'to one, as the maps must halve exactly',
                    f'maps of {", ".join(map(str, sides))} cells',
                )
        return maps

    def compute_output_shape(self, shapes):
        return shapes


class _Layers:
    """Builds the layers of the cells."""

    def __init__(self, options: NeckOptions):
        self._options = options
        self._hyperparams = options.hyperparams
        initializer = keras.initializers.TruncatedNormal(stddev=SEPARABLE_STDDEV)
        self._separable = dataclasses.replace(self._hyperparams, initializer=initializer)
        self._depth = self._scaled(options.nominal_depth)

    def _scaled(self, filters: int) -> int:
        return round_to_eights(filters * self._options.depth_multiplier, self._options.min_depth)

    def top(self, x):
        """Returns the map of the level above the backbone's last one."""
        unpenalized = dataclasses.replace(self._hyperparams, regularizer=None)
        conv = unpenalized.conv(self._depth, 1, name='top')
        return self._normalize(conv, self._pool(x, 2, 'top_pool'))

    def cell(self, maps: list, name: str) -> list:
        """Returns the maps that a cell makes of maps of the same levels."""
        nodes, levels = list(maps), list(LEVELS)
        for i, block in enumerate(CELL):
            terms = [
                self._resample(nodes[node], levels[node] - block.level, block.filters, input_name)
                for node, input_name in zip(
                    block.inputs, (f'{name}_block_{i}_input_{j}' for j in (0, 1)), strict=True
                )
            ]
            nodes.append(self._combine(terms, block.kernel_size, f'{name}_block_{i}'))
            levels.append(block.level)
        outputs = nodes[-len(maps) :]
        return [
            rounding.Add(name=f'{name}_add_{level}')([before, after])
            if before.shape[-1] == after.shape[-1]
            else after
            for level, before, after in zip(LEVELS, maps, outputs, strict=True)
        ]

    def _resample(self, x, steps: int, filters: int, name: str):
        """Gives a map other channels and `steps` times the double size, or half of it."""
        if steps < 0:
            x = self._pool(x, 2**-steps, f'{name}_pool')
        x = self._normalize(self._hyperparams.conv(self._scaled(filters), 1, name=name), x)
        for i in range(steps):
            x = Doubling(name=f'{name}_doubling_{i}')(x)
        return x

    def _combine(self, maps: list, kernel_size: int, name: str):
        x = rounding.Add(name=f'{name}_add')(maps)
        x = self._hyperparams.activation_layer(name=f'{name}_activation')(x)
        conv = self._separable.separable_conv(self._depth, kernel_size, name=f'{name}_conv')
        return self._normalize(conv, x)

    def _pool(self, x, strides: int, name: str):
        if not self._options.explicit_padding:
            return rounding.MaxPooling2D(3, strides, padding='same', name=name)(x)
        # As in the reference, with zeros, which may be greater than the maps.
        x = rounding.ZeroPadding2D(1, name=f'{name}_pad')(x)
        return rounding.MaxPooling2D(3, strides, padding='valid', name=name)(x)

    def _normalize(self, conv: keras.layers.Layer, x):
        frozen = not self._options.batch_norm_trainable
        return normalized(conv, self._hyperparams.norm(frozen=frozen, name=f'{conv.name}_bn'), x)


MNASFPN = Neck(mnasfpn, frozenset({'fpn'}), hyperparams=HYPERPARAMS, levels=LEVELS)
