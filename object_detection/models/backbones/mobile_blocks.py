"""Mobile networks whose blocks are rows of a table.

Those of MobileNet v3 (https://arxiv.org/abs/1905.02244), of MobileNet EdgeTPU and of MobileDet
(https://arxiv.org/abs/2004.14525). A network is a convolution of stride 2, its blocks, and for some
of them a last convolution. Padding is SAME unless the table says otherwise. Convolutions have a
norm and no bias, except those of squeeze-and-excitation, which have a bias and no norm.

The layers of a block, such as `ibn_3`, are `ibn_3_expand`, `ibn_3_depthwise` and so on, each
followed by `..._bn` and, unless it is linear, `..._activation`.
"""

import collections
import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import keras

from object_detection.models import image_channels, rounding
from object_detection.models.backbones import mobilenet
from object_detection.models.backbones.resnet_v1 import Padding
from object_detection.models.backbones.table import TRUNK_NAME, Backbone, BackboneOptions
from object_detection.models.hyperparams import LayerHyperparams
from object_detection.models.image_values import scale_to_unit
from object_detection.models.normalization import BatchNormParams

# A name of Keras, or a function.
Activation = str | Callable[[Any], Any]

# Kinds of blocks. An inverted bottleneck expands the channels by a convolution of size 1, convolves
# each of them, and projects them to few by a convolution of size 1.
INVERTED = 'ibn'
INVERTED_WITHOUT_EXPANSION = 'ibn_no_expansion'
# One convolution expands them and is that of the kernel size.
FUSED = 'fused'
# A convolution of size 1 reduces them, and the convolution of the kernel size has few.
TUCKER = 'tucker'
# Share of the channels of a block that squeezed maps have.
_SQUEEZED = 0.25


class Block(NamedTuple):
    """A row of the table of a network.

    Attributes:
      kind: INVERTED, INVERTED_WITHOUT_EXPANSION, FUSED or TUCKER.
      kernel_size, strides: of the convolution that is not of size 1.
      filters: channels of the output, before the factor of the options.
      expansion: channels after the first convolution, as a multiple of those of the input. Unless
        this is more than the input has, an inverted or fused block does not have it.
      core: of TUCKER: channels after the second convolution, as a share of those of the output.
      activation: within the block; None is that of the network.
      squeezes: whether squeeze-and-excitation precedes the last convolution.
      has_skip: whether the input is added to the output, if both have the same shape.
    """

    kind: str
    kernel_size: int
    strides: int
    filters: int
    expansion: float = 1.0
    core: float = 1.0
    activation: Activation | None = None
    squeezes: bool = False
    has_skip: bool = True


@dataclasses.dataclass(frozen=True)
class Network:
    """The table of a network.

    Attributes:
      filters: channels of the first convolution, 3x3 of stride 2.
      blocks: the blocks.
      rounded: a number of channels, and the least one -> the number that a layer has.
      last_filters: channels of a last convolution, of size 1; None if there is none.
      activation: of the first and last convolution, and within blocks that have none of their own.
      squeeze: activations after each of the two convolutions of squeeze-and-excitation, in order.
      hyperparams: of all layers unless the config overrides them.
      depthwise: kernel size -> those of depthwise convolutions that differ unless the config
        overrides them.
      scope: name of all blocks; None names them by their kinds. A number from 0 follows.
      padding: why it has no explicit padding; see `Backbone.refusals`.
      pads_alike: whether convolutions of stride 2 are padded alike on both sides unless the
        options say otherwise, as in PyTorch; and whether the options may say so.
    """

    filters: int
    blocks: Sequence[Block]
    rounded: Callable[[float, int], int]
    hyperparams: LayerHyperparams
    depthwise: Callable[[int], Mapping[str, Any]]
    last_filters: int | None = None
    activation: Activation = 'relu'
    squeeze: tuple[Sequence[Activation], Sequence[Activation]] = (('relu',), ('sigmoid',))
    scope: str | None = None
    padding: str = 'its convolutions always have SAME padding'
    pads_alike: bool = False

    def row(
        self, ends: Mapping[int, str] | None = None, level_strides: Mapping[int, int] | None = None
    ) -> Backbone:
        """Returns the row of the network; see `trunk` and `Backbone` for its maps."""

        def network(levels: Sequence[int], options: BackboneOptions) -> keras.Model:
            return trunk(self, levels, options, ends or {})

        uses = {'depth_multiplier', 'min_depth'}
        if self.pads_alike:
            uses |= {'padding_mode', 'frozen_stages', 'freeze_affine', 'preprocess'}
        return Backbone(
            network,
            range(1, 6 + len(level_strides or {})),
            scale_to_unit,
            self.hyperparams,
            uses=frozenset(uses),
            refusals={'use_explicit_padding': self.padding},
            level_strides=level_strides or {},
            pads_alike=self.pads_alike,
        )


def trunk(
    network: Network, levels: Sequence[int], options: BackboneOptions, ends: Mapping[int, str]
) -> keras.Model:
    """Builds a network.

    Args:
      network: its table.
      levels: ascending, of 1 to 5: those of the maps that it returns.
      options: of the layers and their numbers of channels.
      ends: level -> the output that is its map, such as `ibn_3`, a block, `ibn_3_expand`, the
        expansion within it, or `last_conv`; of other levels it is the last output of stride
        2**level.

    Returns:
      A model from images [B, H, W, 3] to a list of [B, ceil(H / stride), ceil(W / stride), C].
    """
    layers = _Layers(network, options)
    images = keras.Input((None, None, image_channels.current()), name='images')
    first = layers.depth(network.filters)
    x = layers.conv(images, first, 3, strides=2, name='first_conv', activation=network.activation)
    level, last, outputs = 1, {1: x}, {}
    counts: collections.defaultdict = collections.defaultdict(itertools.count)
    for block in network.blocks:
        scope = network.scope or block.kind
        level += block.strides - 1
        name = f'{scope}_{next(counts[scope])}'
        x = last[level] = outputs[name] = layers.block(x, block, name, outputs)
    if network.last_filters is not None:
        depth = layers.depth(network.last_filters)
        x = layers.conv(x, depth, name='last_conv', activation=network.activation)
        last[level] = outputs['last_conv'] = x
    maps = [outputs[ends[level]] if level in ends else last[level] for level in levels]
    model = keras.Model(images, maps, name=TRUNK_NAME)
    if frozen := options.settings.get('frozen_stages', 0):
        _freeze(keras.Model(images, last[min(frozen, level)]))
    return model


def _freeze(beginning: keras.Model) -> None:
    """Stops the training of the layers of the beginning of a network, norms included."""
    for layer in beginning.layers:
        layer.trainable = False


class _Layers(mobilenet.Layers):
    """Builds the layers of a network with their norms and activations."""

    def __init__(self, network: Network, options: BackboneOptions):
        hyperparams = options.hyperparams
        if hyperparams.group_norm is None:
            # As in the reference, a config does not change whether norms have both.
            norm = hyperparams.batch_norm or BatchNormParams()
            norm = dataclasses.replace(norm, center=True, scale=True)
            hyperparams = dataclasses.replace(hyperparams, batch_norm=norm)
        super().__init__(
            hyperparams,
            options.batch_norm_trainable,
            mobilenet.Options(
                options.depth_multiplier,
                options.min_depth,
                network.pads_alike and options.settings.get('padding') is not Padding.SAME,
            ),
        )
        self._network = network
        self._is_overridden = options.is_overridden

    def depth(self, filters: int) -> int:
        """Returns the number of channels of a layer that has `filters` at factor 1."""
        return self._network.rounded(
            filters * self.options.depth_multiplier, self.options.min_depth
        )

    def conv(
        self,
        x,
        filters: int,
        kernel_size: int = 1,
        *,
        name: str,
        strides: int = 1,
        activation: Activation | None,
    ):
        """Applies a convolution, its norm and, unless it is None, its activation."""
        x = self.conv_norm(
            x, filters, kernel_size, strides=strides, name=name, norm_name=f'{name}_bn'
        )
        if activation is None:
            return x
        return rounding.Activation(activation, name=f'{name}_activation')(x)

    def block(self, x, block: Block, name: str, outputs: dict):
        """Applies a block and adds its expansion to `outputs`."""
        inputs, filters = x, self.depth(block.filters)
        sized = {'kernel_size': block.kernel_size, 'strides': block.strides}
        activation = block.activation or self._network.activation
        inner = self._network.rounded(block.expansion * x.shape[-1], 8)
        if block.kind == TUCKER:
            core = self._network.rounded(block.core * filters, 8)
            x = self.conv(x, inner, name=f'{name}_reduce', activation=activation)
            x = self.conv(x, core, name=f'{name}_core', activation=activation, **sized)
        elif inner > x.shape[-1]:
            size = sized if block.kind == FUSED else {}
            x = self.conv(x, inner, name=f'{name}_expand', activation=activation, **size)
            outputs[f'{name}_expand'] = x
        if block.kind in (INVERTED, INVERTED_WITHOUT_EXPANSION):
            x = self._depthwise(x, f'{name}_depthwise', activation, **sized)
        if block.squeezes:
            x = self._squeeze(x, name)
        x = self.conv(x, filters, name=f'{name}_project', activation=None)
        if block.has_skip and block.strides == 1 and inputs.shape[-1] == filters:
            x = rounding.Add(name=f'{name}_add')([inputs, x])
        return x

    def _depthwise(self, x, name: str, activation: Activation, *, kernel_size: int, strides: int):
        changes = {} if self._is_overridden else self._network.depthwise(kernel_size)
        x = self.depthwise_norm(
            x,
            kernel_size,
            strides=strides,
            name=name,
            norm_name=f'{name}_bn',
            hyperparams=dataclasses.replace(self._hyperparams, **changes),
        )
        return rounding.Activation(activation, name=f'{name}_activation')(x)

    def _squeeze(self, x, name: str):
        """Multiplies the channels by factors that depend on their means."""
        channels = x.shape[-1]
        squeezed = self._network.rounded(_SQUEEZED * channels, 8)
        factors = rounding.GlobalAveragePooling2D(keepdims=True, name=f'{name}_pool')(x)
        for part, filters, activations in zip(
            ('squeeze', 'excite'), (squeezed, channels), self._network.squeeze, strict=True
        ):
            conv = self._hyperparams.conv(filters, 1, use_bias=True, name=f'{name}_{part}')
            factors = conv(factors)
            # Integer models store the value after each of them.
            for i, activation in enumerate(activations, start=1):
                layer = rounding.Activation(activation, name=f'{name}_{part}_activation_{i}')
                factors = layer(factors)
        return rounding.Multiply(name=f'{name}_scale')([x, factors])
