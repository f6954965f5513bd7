"""What all versions of MobileNet share: options, hyperparameters and the groups of layers.

MobileNet v1 (https://arxiv.org/abs/1704.04861) as a functional Keras model.

Layers are named as in `keras.applications`. As in the reference implementation, padding is SAME
unless `Options` say otherwise (`keras.applications` pads layers of stride 2 at the bottom and
right only).
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import keras

from object_detection.errors import UserError, expected
from object_detection.models import image_channels, rounding
from object_detection.models.backbones.table import Backbone, BackboneOptions
from object_detection.models.hyperparams import L2, LayerHyperparams
from object_detection.models.image_values import scale_to_unit
from object_detection.models.normalization import BatchNormParams, normalized


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of variants of the network.

    Attributes:
      depth_multiplier: factor of the numbers of channels (alpha in `keras.applications`).
      min_depth: minimum number of channels after a convolution, except for depthwise ones and the
        expansions of MobileNet v2.
      explicit_padding: whether convolutions of stride 2 are padded alike on both sides (fixed
        padding), for every size of their input; False is SAME padding.

    Raises:
      ValueError: if the factor is not positive, or the minimum is not.
    """

    depth_multiplier: float = 1.0
    min_depth: int = 1
    explicit_padding: bool = False

    def __post_init__(self):
        if not self.depth_multiplier > 0:
            raise expected('depth_multiplier', 'a positive number', self.depth_multiplier)
        if self.min_depth < 1:
            raise UserError(f'min_depth: expected at least 1. Received: {self.min_depth}.')


def default_hyperparams() -> LayerHyperparams:
    """Returns the hyperparameters of a backbone unless the config overrides them.

    The penalty includes depthwise kernels.
    """
    return LayerHyperparams(
        initializer=keras.initializers.TruncatedNormal(stddev=0.09),
        regularizer=L2(0.5 * 4e-5),
        activation='relu6',
        batch_norm=BatchNormParams(momentum=0.9997, epsilon=0.001, scale=True),
    )


class Layers:
    """Builds convolutions without bias, each with its norm, as all versions have them.

    Args:
      hyperparams: set-up of all layers.
      batch_norm_trainable: False freezes the batch norms.
      options: of the network.
    """

    def __init__(self, hyperparams: LayerHyperparams, batch_norm_trainable: bool, options: Options):
        self.options = options
        self._hyperparams = hyperparams
        self._batch_norm_trainable = batch_norm_trainable

    def conv_norm(
        self, x, filters: int, kernel_size: int, *, name: str, norm_name: str, strides: int = 1
    ):
        """Applies a convolution and its norm."""
        x, padding = self._pad(x, kernel_size, strides, name)
        conv = self._hyperparams.conv(
            filters, kernel_size, strides=strides, padding=padding, use_bias=False, name=name
        )
        return self._normalize(conv, x, norm_name)

    def depthwise_norm(
        self,
        x,
        kernel_size: int = 3,
        *,
        name: str,
        norm_name: str,
        strides: int,
        hyperparams: LayerHyperparams | None = None,
    ):
        """Applies a depthwise convolution, which may have other hyperparameters, and its norm."""
        x, padding = self._pad(x, kernel_size, strides, name)
        conv = (hyperparams or self._hyperparams).depthwise_conv(
            kernel_size, strides=strides, padding=padding, use_bias=False, name=name
        )
        return self._normalize(conv, x, norm_name)

    def activate(self, x, *, name: str):
        return self._hyperparams.activation_layer(name=name)(x)

    def _pad(self, x, kernel_size: int, strides: int, name: str):
        """Returns the padded input, and the padding that the convolution does itself.

        With a stride of 1, both kinds of padding are the same.
        """
        if not self.options.explicit_padding or strides == 1:
            return x, 'same'
        return rounding.ZeroPadding2D(kernel_size // 2, name=f'{name}_pad')(x), 'valid'

    def _normalize(self, conv: keras.layers.Layer, x, norm_name: str):
        norm = self._hyperparams.norm(frozen=not self._batch_norm_trainable, name=norm_name)
        return normalized(conv, norm, x)


def round_to_eights(channels: float, least: int = 8) -> int:
    """Returns the multiple of 8 nearest to `channels`, or `least`, at least 90 % of `channels`."""
    rounded = max(least, int(channels + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * channels else rounded


# Level l, of stride 2**l -> the last block of that stride.
LEVELS = {2: 3, 3: 5, 4: 11, 5: 13}

# Channels of the first convolution, then of the blocks 1 to 13.
_FIRST_FILTERS = 32
_FILTERS = (64, 128, 128, 256, 256, 512, 512, 512, 512, 512, 512, 1024, 1024)
# Of the last blocks under a pyramid with separable convolutions.
_THIN_FILTERS = (512, 256)
# Blocks that halve the resolution.
_STRIDED = (2, 4, 6, 12)
_DEFAULTS = Options()


def trunk(
    blocks: Sequence[int],
    *,
    hyperparams: LayerHyperparams,
    batch_norm_trainable: bool,
    name: str,
    options: Options = _DEFAULTS,
    last_filters: tuple[int, int] | None = None,
    squares_multiplier: bool = False,
) -> keras.Model:
    """Builds the network from the image up to the last of `blocks`.

    Args:
      blocks: ascending, within 1..13: the blocks of which the outputs are returned.
      hyperparams: set-up of all layers.
      batch_norm_trainable: False freezes the batch norms.
      name: name of the model.
      options: variant of the network.
      last_filters: channels of the blocks 12 and 13, before the factor of the options; None: as
        in the paper.
      squares_multiplier: whether the factor of the options counts twice for the paper's numbers of
        channels, as in the reference under TensorFlow 2.

    Returns:
      A model from images [B, H, W, 3] to a list of [B, ceil(H / stride), ceil(W / stride), C].

    Raises:
      ValueError: if there is no such block.
    """
    if not blocks or list(blocks) != sorted(set(blocks) & set(range(1, len(_FILTERS) + 1))):
        raise expected('MobileNet v1', f'ascending blocks within 1..{len(_FILTERS)}', list(blocks))
    layers = Layers(hyperparams, batch_norm_trainable, options)
    first_filters, *filters = [
        int(each * options.depth_multiplier) if squares_multiplier else each
        for each in (_FIRST_FILTERS, *_FILTERS)
    ]
    if last_filters is not None:
        filters[-2:] = last_filters
    images = keras.Input((None, None, image_channels.current()), name='images')
    x = layers.conv_norm(
        images, _depth(first_filters, options), 3, strides=2, name='conv1', norm_name='conv1_bn'
    )
    x = layers.activate(x, name='conv1_relu')
    outputs = []
    for block in range(1, blocks[-1] + 1):
        x = _block(layers, x, block, _depth(filters[block - 1], options))
        if block in blocks:
            outputs.append(x)
    return keras.Model(images, outputs, name=name)


def _block(layers: Layers, x, block: int, filters: int):
    """Appends a depthwise convolution and one of size 1, each with norm and activation."""
    name = f'conv_dw_{block}'
    strides = 2 if block in _STRIDED else 1
    x = layers.depthwise_norm(x, strides=strides, name=name, norm_name=f'{name}_bn')
    x = layers.activate(x, name=f'{name}_relu')
    name = f'conv_pw_{block}'
    x = layers.conv_norm(x, filters, 1, name=name, norm_name=f'{name}_bn')
    return layers.activate(x, name=f'{name}_relu')


def _depth(filters: int, options: Options) -> int:
    return max(int(filters * options.depth_multiplier), options.min_depth)


def arguments(options: BackboneOptions) -> dict[str, Any]:
    """Returns the arguments of both versions: the set-up of layers, the name and `Options`."""
    network = Options(
        depth_multiplier=options.depth_multiplier,
        min_depth=options.min_depth,
        explicit_padding=options.explicit_padding,
    )
    return {'options': network, **options.arguments()}


def row(network: Callable[[Sequence[int], BackboneOptions], keras.Model]) -> Backbone:
    """Returns the row of a MobileNet of either version."""
    return Backbone(
        network,
        range(2, 6),
        scale_to_unit,
        default_hyperparams(),
        uses=frozenset({'depth_multiplier', 'min_depth', 'use_explicit_padding'}),
    )


def _row(*, squares_multiplier: bool) -> Backbone:
    def network(levels: Sequence[int], options: BackboneOptions) -> keras.Model:
        return trunk(
            [LEVELS[level] for level in levels],
            squares_multiplier=squares_multiplier,
            last_filters=_THIN_FILTERS if options.is_thin else None,
            **arguments(options),
        )

    return row(network)


MOBILENET_V1 = _row(squares_multiplier=True)
MOBILENET_V1_SLIM = _row(squares_multiplier=False)
