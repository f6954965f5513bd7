"""ResNet v1 (https://arxiv.org/abs/1512.03385) as functional Keras models.

Layers are named as in `keras.applications`. Unless `Options` say otherwise, a stage's stride sits
on the first convolution of its first block, as there, and as in the reference implementation
convolutions with a stride are padded alike on both sides (fixed padding), for every size of
their input, and the pooling is not. Convolutions that a norm follows have no bias.
"""

import dataclasses
import enum
from collections.abc import Sequence

import keras
import tensorflow as tf

from object_detection.errors import UserError, expected
from object_detection.models import image_channels, rounding
from object_detection.models.backbones.table import CROP_STAGE_NAME, Backbone, BackboneOptions
from object_detection.models.hyperparams import L2, LayerHyperparams
from object_detection.models.image_values import caffe, subtract_means
from object_detection.models.normalization import BatchNormParams, normalized

FIRST_LEVEL, LAST_LEVEL = 2, 5

_STAGE_FILTERS = {2: 64, 3: 128, 4: 256, 5: 512}


@dataclasses.dataclass(frozen=True)
class _Variant:
    """Number of blocks of the stages 2-5, and whether they are bottlenecks (4 * filters)."""

    blocks: tuple[int, int, int, int]
    bottleneck: bool


_VARIANTS = {
    18: _Variant((2, 2, 2, 2), bottleneck=False),
    34: _Variant((3, 4, 6, 3), bottleneck=False),
    50: _Variant((3, 4, 6, 3), bottleneck=True),
    101: _Variant((3, 4, 23, 3), bottleneck=True),
    152: _Variant((3, 8, 36, 3), bottleneck=True),
    200: _Variant((3, 24, 36, 3), bottleneck=True),
}


class Padding(enum.Enum):
    """Which layers of stride 2 have equal padding on both sides; others have SAME padding."""

    SYMMETRIC = 'the convolutions'
    SAME = 'none'
    SYMMETRIC_ALL = 'the convolutions and the first pooling'


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of variants of the network; the defaults are those of the reference.

    Attributes:
      stride_in_1x1: whether a bottleneck's stride is at its first 1x1 convolution; False puts it at
        the 3x3 (v1.5).
      padding: padding of the layers of stride 2.
      frozen_stages: the layers conv1 to conv<frozen_stages> do not train: neither kernels nor
        norms, and no gradient is computed below them.
      depth_multiplier: factor of the number of channels of all layers, rounded down.
      min_depth: smallest number of channels of a layer.
    """

    stride_in_1x1: bool = True
    padding: Padding = Padding.SYMMETRIC
    frozen_stages: int = 0
    depth_multiplier: float = 1.0
    min_depth: int = 1

    def scaled(self, filters: int) -> int:
        """Returns the number of channels of a layer that has `filters` in the paper."""
        return max(int(filters * self.depth_multiplier), self.min_depth)


_DEFAULTS = Options()


def options_of(backbone: keras.Model) -> Options | None:
    """Returns the options of a trunk, found in its layers; None for other networks than a ResNet.

    `frozen_stages` and the widths have their defaults. For a trunk that ends with stage 2, or one
    without bottlenecks, `stride_in_1x1` is True.
    """
    layers = {layer.name: layer for layer in backbone.layers}
    if not {'conv1_conv', 'pool1_pool'} <= layers.keys():
        return None
    middle = layers.get('conv3_block1_2_conv')
    padding = Padding.SYMMETRIC if 'conv1_pad' in layers else Padding.SAME
    if 'pool1_pad' in layers:
        padding = Padding.SYMMETRIC_ALL
    return Options(stride_in_1x1=middle is None or middle.strides == (1, 1), padding=padding)


def default_hyperparams(weight_decay: float) -> LayerHyperparams:
    """Returns the hyperparameters of a backbone unless the config overrides them.

    Args:
      weight_decay: factor of the sum of squares of the kernels.
    """
    return LayerHyperparams(
        initializer=keras.initializers.HeNormal(),
        regularizer=L2(weight_decay) if weight_decay else None,
        activation='relu',
        batch_norm=BatchNormParams(momentum=0.997, epsilon=1e-5, scale=True),
    )


def stage_channels(depth: int, level: int, options: Options = _DEFAULTS) -> int:
    """Returns the number of channels of the last feature map of stride 2**level."""
    return options.scaled(_STAGE_FILTERS[level] * (4 if _variant(depth).bottleneck else 1))


def trunk(
    depth: int,
    *,
    levels: Sequence[int],
    hyperparams: LayerHyperparams,
    batch_norm_trainable: bool,
    name: str,
    options: Options = _DEFAULTS,
    stride: int | None = None,
) -> keras.Model:
    """Builds the network from the image up to the last of `levels`.

    Args:
      depth: 18, 34, 50, 101, 152 or 200.
      levels: ascending, within 2..5: the feature maps to return, of stride 2**level.
      hyperparams: set-up of all layers.
      batch_norm_trainable: False freezes the batch norms.
      name: name of the model.
      options: differences from the network of the reference.
      stride: stride of the last map, if it is half of 2**level: its stage then keeps the
        resolution and is dilated (atrous), so that weights for the full stride stay valid: every
        second cell of every second row is what the full stride gives. (Not so with Padding.SAME
        and the stride in the 3x3, where the full stride's shortcuts read other cells than it.)

    Returns:
      A model from images [B, H, W, 3] to a list of [B, ceil(H / stride), ceil(W / stride), C].

    Raises:
      ValueError: if the depth or a level is not supported.
    """
    if not levels or list(levels) != sorted(set(levels)) or not set(levels) <= set(_STAGE_FILTERS):
        raise expected(
            'ResNet v1', f'ascending levels within {FIRST_LEVEL}..{LAST_LEVEL}', list(levels)
        )
    frozen = Layers(hyperparams, False, options, trainable=False)
    learning = Layers(hyperparams, batch_norm_trainable, options)
    images = keras.Input((None, None, image_channels.current()), name='images')
    layers = frozen if options.frozen_stages > 0 else learning
    x = layers.conv_norm(images, 64, 7, strides=2, name='conv1')
    x = layers.end_stage(layers.pool(layers.activate(x, name='conv1_relu')), 1)
    outputs = []
    for level in range(FIRST_LEVEL, levels[-1] + 1):
        layers = frozen if options.frozen_stages >= level else learning
        keeps = level == levels[-1] and stride == 2 ** (level - 1)
        x = layers.end_stage(_stage(layers, x, depth, level, keeps, 2 if keeps else 1), level)
        if level in levels:
            outputs.append(x)
    return keras.Model(images, outputs, name=name)


def stage(
    depth: int,
    level: int,
    *,
    hyperparams: LayerHyperparams,
    batch_norm_trainable: bool,
    name: str,
    options: Options = _DEFAULTS,
    keeps_resolution: bool = False,
) -> keras.Model:
    """Builds one stage as a model of its own: [N, h, w, C] of level - 1 -> [N, h', w', C'].

    It always trains, since `options.frozen_stages` only applies to the trunk. With
    `keeps_resolution`, its stride is 1 instead of 2.
    """
    layers = Layers(hyperparams, batch_norm_trainable, options)
    channels = stage_channels(depth, level - 1, options)
    dtype = keras.config.dtype_policy().compute_dtype
    features = keras.Input((None, None, channels), name='features', dtype=dtype)
    x = _stage(layers, features, depth, level, keeps_resolution)
    return keras.Model(features, x, name=name)


class StopGradient(keras.layers.Layer):
    """The identity, which stops gradients."""

    def call(self, inputs):
        return tf.stop_gradient(inputs)


class Layers:
    """Builds the layers of a component of one network with its hyperparameters.

    Args:
      hyperparams: set-up of all layers.
      batch_norm_trainable: False freezes the batch norms.
      options: of the network.
      trainable: False freezes all layers.
    """

    def __init__(
        self,
        hyperparams: LayerHyperparams,
        batch_norm_trainable: bool,
        options: Options,
        trainable: bool = True,
    ):
        self.options = options
        self._hyperparams = hyperparams
        self._batch_norm_trainable = batch_norm_trainable
        self._trainable = trainable

    def conv_norm(
        self, x, filters: int, kernel_size: int, *, name: str, strides: int = 1, dilation: int = 1
    ):
        """Convolution and norm, as wide as the options say, and padded where it has a stride."""
        padding = 'same'
        if kernel_size > 1 and strides > 1 and self.options.padding is not Padding.SAME:
            before = (kernel_size - 1) // 2
            after = kernel_size - 1 - before
            pads = ((before, after), (before, after))
            x = rounding.ZeroPadding2D(pads, name=f'{name}_pad')(x)
            padding = 'valid'
        conv = self._hyperparams.conv(
            self.options.scaled(filters),
            kernel_size,
            strides=strides,
            padding=padding,
            dilation_rate=dilation,
            trainable=self._trainable,
            name=f'{name}_conv',
        )
        norm = self._hyperparams.norm(
            frozen=not self._batch_norm_trainable, trainable=self._trainable, name=f'{name}_bn'
        )
        return normalized(conv, norm, x)

    def pool(self, x):
        """Applies the pooling after the first convolution."""
        padding = 'same'
        if self.options.padding is Padding.SYMMETRIC_ALL:
            # Zeros are the padding in other systems too; no value after a ReLU is smaller.
            x = rounding.ZeroPadding2D(1, name='pool1_pad')(x)
            padding = 'valid'
        return rounding.MaxPooling2D(3, strides=2, padding=padding, name='pool1_pool')(x)

    def end_stage(self, x, level: int):
        """Stops the gradient before a stage that is not trained."""
        return x if self._trainable else StopGradient(name=f'conv{level}_frozen')(x)

    def activate(self, x, *, name: str):
        return self._hyperparams.activation_layer(name=name)(x)


def _variant(depth: int) -> _Variant:
    if depth not in _VARIANTS:
        raise UserError(f'ResNet v1: expected a depth of {list(_VARIANTS)}. Received: {depth}.')
    return _VARIANTS[depth]


def _stage(
    layers: Layers, x, depth: int, level: int, keeps_resolution: bool = False, dilation: int = 1
):
    """Appends the blocks of the stage whose output has stride 2**level.

    Args:
      layers: makes the layers.
      x: the input.
      depth: of the network.
      level: of the stage.
      keeps_resolution: whether it has a stride of 1 instead of 2.
      dilation: dilation of the 3x3 convolutions after the position of the stride.
    """
    variant = _variant(depth)
    block = _bottleneck_block if variant.bottleneck else _basic_block
    filters = _STAGE_FILTERS[level]
    for i in range(1, variant.blocks[level - FIRST_LEVEL] + 1):
        # Because of the pooling, the input of stage 2 already has its stride.
        begins = i == 1 and level > FIRST_LEVEL
        strides = 2 if begins and not keeps_resolution else 1
        # Dilations of the convolution at the position of the stride, and of those after it.
        dilations = (1 if begins else dilation, dilation)
        x = block(layers, x, filters, strides, dilations, f'conv{level}_block{i}')
    return x


def _bottleneck_block(
    layers: Layers, x, filters: int, strides: int, dilations: tuple[int, int], name: str
):
    shortcut = _shortcut(layers, x, 4 * filters, strides, name)
    in_1x1 = layers.options.stride_in_1x1
    first, second = (strides, 1) if in_1x1 else (1, strides)
    dilation = dilations[1] if in_1x1 else dilations[0]
    x = layers.conv_norm(x, filters, 1, strides=first, name=f'{name}_1')
    x = layers.activate(x, name=f'{name}_1_relu')
    x = layers.conv_norm(x, filters, 3, strides=second, dilation=dilation, name=f'{name}_2')
    x = layers.activate(x, name=f'{name}_2_relu')
    x = layers.conv_norm(x, 4 * filters, 1, name=f'{name}_3')
    return _add(layers, shortcut, x, name)


def _basic_block(
    layers: Layers, x, filters: int, strides: int, dilations: tuple[int, int], name: str
):
    shortcut = _shortcut(layers, x, filters, strides, name)
    x = layers.conv_norm(x, filters, 3, strides=strides, dilation=dilations[0], name=f'{name}_1')
    x = layers.activate(x, name=f'{name}_1_relu')
    x = layers.conv_norm(x, filters, 3, dilation=dilations[1], name=f'{name}_2')
    return _add(layers, shortcut, x, name)


def _shortcut(layers: Layers, x, filters: int, strides: int, name: str):
    """Returns the input of the block, projected if the block changes its shape."""
    if strides == 1 and x.shape[-1] == layers.options.scaled(filters):
        return x
    return layers.conv_norm(x, filters, 1, strides=strides, name=f'{name}_0')


def _add(layers: Layers, shortcut, x, name: str):
    x = rounding.Add(name=f'{name}_add')([shortcut, x])
    return layers.activate(x, name=f'{name}_out')


# Fields of feature extractors that a row reads: of the network, of its norms and of its images.
_USES = frozenset(
    {'depth_multiplier', 'min_depth'}
    | {'stride_in_1x1', 'padding_mode', 'frozen_stages', 'freeze_affine', 'preprocess'}
)
# Factor of the sum of squares of a backbone under TensorFlow 1: TF-Slim's weight decay is 1e-4, and
# its penalty is half of the sum of squares.
_SLIM_PENALTY = 0.5 * 1e-4


def _options(options: BackboneOptions) -> Options:
    return Options(
        depth_multiplier=options.depth_multiplier, min_depth=options.min_depth, **options.settings
    )


def _row(depth: int, penalty: float) -> Backbone:
    def network(levels: Sequence[int], options: BackboneOptions) -> keras.Model:
        return trunk(
            depth,
            levels=levels,
            stride=options.stride,
            options=_options(options),
            **options.arguments(),
        )

    def crop_stage(options: BackboneOptions) -> keras.Model:
        return stage(
            depth,
            5,
            keeps_resolution=options.keeps_crops,
            options=_options(options),
            **options.arguments(CROP_STAGE_NAME),
        )

    # Without bottlenecks a stride has one place.
    unread = set() if _VARIANTS[depth].bottleneck else {'stride_in_1x1'}
    return Backbone(
        network,
        range(FIRST_LEVEL, LAST_LEVEL + 1),
        subtract_means,
        default_hyperparams(penalty),
        uses=_USES - unread,
        crop_stage=crop_stage,
        strides=(8, 16),
    )


def _biased_row(depth: int) -> Backbone:
    """Returns the row of a network of keras.applications, whose convolutions have biases."""

    def network(levels: Sequence[int], options: BackboneOptions) -> keras.Model:
        return trunk(
            depth,
            levels=levels,
            options=Options(padding=Padding.SYMMETRIC_ALL),
            **options.arguments(),
        )

    hyperparams = LayerHyperparams(
        batch_norm=BatchNormParams(momentum=0.99, epsilon=1.001e-5, scale=True), force_use_bias=True
    )
    return Backbone(network, range(FIRST_LEVEL, LAST_LEVEL + 1), caffe, hyperparams)


RESNET_V1_18 = _row(18, 1e-4)
RESNET_V1_34 = _row(34, 1e-4)
RESNET_V1_50 = _row(50, 1e-4)
RESNET_V1_101 = _row(101, 1e-4)
RESNET_V1_152 = _row(152, 1e-4)
RESNET_V1_200 = _row(200, 1e-4)
RESNET_V1_50_SLIM = _row(50, _SLIM_PENALTY)
RESNET_V1_101_SLIM = _row(101, _SLIM_PENALTY)
RESNET_V1_152_SLIM = _row(152, _SLIM_PENALTY)
RESNET_V1_50_UNPENALIZED = _row(50, 0.0)
RESNET_V1_101_UNPENALIZED = _row(101, 0.0)
RESNET_V1_152_UNPENALIZED = _row(152, 0.0)
RESNET_V1_50_BIASED = _biased_row(50)
RESNET_V1_101_BIASED = _biased_row(101)
