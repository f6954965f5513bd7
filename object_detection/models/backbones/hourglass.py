"""Stacked hourglass networks (https://arxiv.org/abs/1603.06937), as in CornerNet (1808.01244)."""

import dataclasses
from collections.abc import Sequence

import keras
import tensorflow as tf

from object_detection.models import image_channels, rounding
from object_detection.models.backbones.table import TRUNK_NAME, Backbone, BackboneOptions
from object_detection.models.hyperparams import LayerHyperparams
from object_detection.models.normalization import BatchNormParams, normalized

# Its norms are over all replicas in the reference implementation, too.
HYPERPARAMS = LayerHyperparams(
    batch_norm=BatchNormParams(momentum=0.1, epsilon=1e-5, scale=True, synchronized=True)
)


@dataclasses.dataclass(frozen=True)
class Variant:
    """The size of a network.

    Attributes:
      stem: channels of the first convolution.
      channels: channels of the map at each scale, from the stride 4 on; each scale halves the size.
      blocks: residual blocks of the encoder and of the decoder at each scale.
      stacks: number of hourglasses.
      halves: whether the size halves from scale to scale.
      has_shortcuts: whether the blocks of a scale are in sum with those of all smaller scales.
    """

    stem: int
    channels: tuple[int, ...]
    blocks: tuple[int, ...]
    stacks: int = 1
    halves: bool = True
    has_shortcuts: bool = True


# Factors of the channels, and blocks at each scale.
_SCALES = {
    10: ((2, 2), (1, 1)),
    20: ((2, 2, 3), (1, 2, 2)),
    32: ((2, 2, 3, 3), (2, 2, 2, 2)),
    52: ((2, 2, 3, 3, 3, 4), (2, 2, 2, 2, 2, 4)),
    100: ((2, 2, 3, 3, 3, 4), (4, 4, 4, 4, 4, 8)),
}


def variant(depth: int, width: int, **options) -> Variant:
    """Returns a network of one or more hourglasses.

    Args:
      depth: convolutions of a hourglass: 10, 20, 32, 52 or 100.
      width: channels of the first convolution, of which all others have multiples.
      **options: further arguments of `Variant`.
    """
    factors, blocks = _SCALES[depth]
    return Variant(width, tuple(width * factor for factor in factors), blocks, **options)


VARIANTS = {
    10: variant(10, 32),
    20: variant(20, 48),
    32: variant(32, 48),
    52: variant(52, 64),
    104: variant(52, 128, stacks=2),
}


def size_multiple(variant: Variant) -> int:
    """Returns the multiple that the sides of maps must be of, so that all scales halve evenly."""
    return 2 ** (len(variant.channels) - 1) if variant.halves else 1


def pad_multiple(variant: Variant) -> int:
    """Returns the multiple that the sides of images must be of; see `size_multiple`."""
    return 4 * size_multiple(variant)


def trunk(variant: Variant, *, batch_norm_trainable: bool, name: str) -> keras.Model:
    """Builds the network.

    Layers are named by their paths in the checkpoints of the reference, with -- for slashes.

    Args:
      variant: its size, one of `VARIANTS`.
      batch_norm_trainable: False freezes the batch norms.
      name: name of the model.

    Returns:
      A model from images [B, H, W, C], whose sides are multiples of `pad_multiple(variant)`, to a
      list of one map [B, H / 4, W / 4, D] for each stack, where D is the first of the channels.
    """
    layers = _Layers(frozen=not batch_norm_trainable)
    images = keras.Input((None, None, image_channels.current()), name='images')
    width = variant.channels[0]
    x = layers.conv_norm(images, variant.stem, 7, 'downsample_input--conv_block', strides=2)
    x = layers.relu(x, 'downsample_input--conv_block')
    x = layers.residual(x, width, 'downsample_input--residual_block', strides=2, projects=True)
    outputs = []
    for i in range(variant.stacks):
        y = layers.hourglass(x, variant, f'hourglass_network--{i}')
        y = layers.relu(layers.conv_norm(y, width, 3, f'output_conv--{i}'), f'output_conv--{i}')
        outputs.append(y)
        if i < variant.stacks - 1:
            x = layers.conv_norm(x, width, 1, f'intermediate_conv1--{i}')
            y = layers.conv_norm(y, width, 1, f'intermediate_conv2--{i}')
            x = layers.relu(rounding.Add(name=f'intermediate--{i}--add')([x, y]), f'between--{i}')
            x = layers.residual(x, width, f'intermediate_residual--{i}')
    return keras.Model(images, outputs, name=name)


def same_size_network(
    variant: Variant, *, num_inputs: int, batch_norm_trainable: bool, name: str
) -> keras.Model:
    """Builds a single hourglass whose result has the size of its input.

    Args:
      variant: its size.
      num_inputs: channels C of the input.
      batch_norm_trainable: False freezes the batch norms.
      name: name of the model.

    Returns:
      A model from [N, h, w, C] to [N, h, w, D], where D is the first of the channels; h and w are
      multiples of `size_multiple(variant)`.
    """
    layers = _Layers(frozen=not batch_norm_trainable)
    dtype = keras.config.dtype_policy().compute_dtype
    inputs = keras.Input((None, None, num_inputs), name='inputs', dtype=dtype)
    width = variant.channels[0]
    x = layers.relu(
        layers.conv_norm(inputs, variant.stem, 3, 'conv_input--conv_block'),
        'conv_input--conv_block',
    )
    x = layers.residual(x, width, 'conv_input--residual_block', projects=True)
    x = layers.hourglass(x, variant, 'hourglass_network--0')
    x = layers.relu(layers.conv_norm(x, width, 3, 'output_conv--0'), 'output_conv--0')
    return keras.Model(inputs, x, name=name)


class _Layers:
    """Builds the layers of a network; `path` is where the checkpoints have them."""

    def __init__(self, *, frozen: bool):
        self._frozen = frozen

    def relu(self, x, path: str):
        return HYPERPARAMS.activation_layer(name=f'{path}--relu')(x)

    def conv_norm(self, x, filters: int, size: int, path: str, strides: int = 1):
        """Convolution, with zeros alike on all sides, and norm."""
        if size > 1:
            x = rounding.ZeroPadding2D(size // 2, name=f'{path}--pad')(x)
        conv = HYPERPARAMS.conv(
            filters, size, name=f'{path}--conv', strides=strides, padding='valid', use_bias=False
        )
        norm = HYPERPARAMS.norm(frozen=self._frozen, name=f'{path}--norm')
        return normalized(conv, norm, x)

    def residual(self, x, filters: int, path: str, *, strides: int = 1, projects: bool = False):
        """Two 3x3 convolutions, and a sum with the input or with a projection of it."""
        y = self.conv_norm(x, filters, 3, f'{path}--conv_block', strides)
        y = self.conv_norm(self.relu(y, f'{path}--conv_block'), filters, 3, path)
        if projects:
            x = self.conv_norm(x, filters, 1, f'{path}--skip', strides)
        return self.relu(rounding.Add(name=f'{path}--add')([y, x]), path)

    def residuals(self, x, filters: list[int], path: str, strides: int = 1):
        """A residual block for each number of filters; the stride is that of the first."""
        for i, count in enumerate(filters):
            stride = strides if i == 0 else 1
            projects = stride > 1 or x.shape[-1] != count
            x = self.residual(x, count, f'{path}--{i}', strides=stride, projects=projects)
        return x

    def hourglass(self, x, variant: Variant, path: str):
        """Blocks at this scale, in sum with those of all smaller scales."""
        outer, inner, *_ = variant.channels
        count = variant.blocks[0]
        stride = 2 if variant.halves else 1
        same = None
        if variant.has_shortcuts:
            same = self.residuals(x, [outer] * count, f'{path}--encoder_block1')
        y = self.residuals(x, [inner] * count, f'{path}--encoder_block2', strides=stride)
        if len(variant.channels) > 2:
            smaller = dataclasses.replace(
                variant, channels=variant.channels[1:], blocks=variant.blocks[1:]
            )
            y = self.hourglass(y, smaller, f'{path}--inner_block--0')
        else:
            y = self.residuals(y, [inner] * variant.blocks[1], f'{path}--inner_block')
        y = self.residuals(y, [inner] * (count - 1) + [outer], f'{path}--decoder_block')
        if stride > 1:
            y = keras.layers.UpSampling2D(stride, name=f'{path}--doubling')(y)
        return y if same is None else rounding.Add(name=f'{path}--add')([same, y])


def _row(depth: int) -> Backbone:
    size = VARIANTS[depth]

    def network(levels: Sequence[int], options: BackboneOptions) -> keras.Model:
        del levels  # It has one, in each stack.
        return trunk(size, batch_norm_trainable=options.batch_norm_trainable, name=TRUNK_NAME)

    return Backbone(
        network, range(2, 3), tf.identity, HYPERPARAMS, padding_multiple=pad_multiple(size)
    )


HOURGLASS_10 = _row(10)
HOURGLASS_20 = _row(20)
HOURGLASS_32 = _row(32)
HOURGLASS_52 = _row(52)
HOURGLASS_104 = _row(104)
