"""ResNets of any size, plain or of the variant D, as functional Keras models.

The variant D ("ResNet-vd", https://arxiv.org/abs/1812.01187) begins with three convolutions of
size 3 and halves shortcuts by average pooling. RT-DETR (https://arxiv.org/abs/2304.08069) has it;
DETR has the plain network. Both are those of transformers, `rt_detr_resnet` and `resnet`, for all
of their options. Layers are named as in `resnet_v1`, and padded alike on both sides.
"""

import dataclasses
from collections.abc import Callable, Sequence

import keras
import tensorflow as tf

from object_detection.errors import expected
from object_detection.models import activations, image_channels, map_strides, rounding
from object_detection.models.backbones.resnet_v1 import Layers, Options, Padding
from object_detection.models.backbones.table import TRUNK_NAME, Backbone, BackboneOptions
from object_detection.models.hyperparams import LayerHyperparams, of_pytorch
from object_detection.models.image_values import Preprocess

# Channels of a bottleneck's output for each of its 3x3 convolution.
_EXPANSION = 4
_POOLING = 2
# Their results are never below the zeros that a pooling is padded with.
_NOT_NEGATIVE = ('relu', 'relu6', 'sigmoid', 'relu2')


@dataclasses.dataclass(frozen=True, kw_only=True)
class ResNetSpec:
    """A ResNet; the names of transformers' configs are in brackets where they differ.

    Attributes:
      embedding_size: channels of the stem's last convolution.
      hidden_sizes: channels of the output of each stage.
      depths: number of blocks of each stage.
      is_bottleneck: whether blocks have a 3x3 convolution between two 1x1, or two 3x3
        ('bottleneck' or 'basic' as `layer_type`).
      is_deep_stem: whether the stem has three 3x3 convolutions, or one 7x7.
      average_pool_shortcut: whether shortcuts are halved by average pooling instead of the stride
        of their convolution, and the first basic block of every stage has a convolution in its
        shortcut (both, and a deep stem, with `rt_detr_resnet`).
      downsample_in_first_stage: whether the first stage has a stride of 2, too.
      downsample_in_bottleneck: whether the first 1x1 convolution has the stride of a bottleneck, or
        the 3x3.
      activation: of the stem and at the end of blocks, as transformers calls it (`hidden_act`);
        within blocks it is that of the hyperparameters, a ReLU.
    """

    embedding_size: int = 64
    hidden_sizes: Sequence[int] = (256, 512, 1024, 2048)
    depths: Sequence[int] = (3, 4, 6, 3)
    is_bottleneck: bool = True
    is_deep_stem: bool = True
    average_pool_shortcut: bool = True
    downsample_in_first_stage: bool = False
    downsample_in_bottleneck: bool = False
    activation: str = 'relu'

    def __post_init__(self):
        if not self.hidden_sizes or len(self.hidden_sizes) != len(self.depths):
            raise expected(
                'ResNet: depths', 'one number for each of hidden_sizes', list(self.depths)
            )
        least = _EXPANSION if self.is_bottleneck else 1
        if min(self.hidden_sizes) < least or self.embedding_size < 1 + self.is_deep_stem:
            raise expected(
                'ResNet: embedding_size and hidden_sizes',
                'at least one channel in every convolution',
                [self.embedding_size, *self.hidden_sizes],
            )
        if min(self.depths) < 1:
            raise expected('ResNet: depths', 'at least one block a stage', list(self.depths))
        pools_basic = self.average_pool_shortcut and not self.is_bottleneck
        changes = self.hidden_sizes[0] != self.embedding_size
        if pools_basic and changes and not self.downsample_in_first_stage:
            raise expected(
                'ResNet: hidden_sizes[0]',
                f'the embedding_size {self.embedding_size}, since basic blocks whose shortcuts are '
                'pooled change their channels only with a stride of 2',
                self.hidden_sizes[0],
            )

    def stride(self, index: int) -> int:
        """Returns the stride of a map; 0 is the one after the stem, i that of the i-th stage."""
        return map_strides.resnet(len(self.depths), self.downsample_in_first_stage)[index]

    def channels(self, index: int) -> int:
        """Returns the number of channels of a map; see `stride`."""
        return self.hidden_sizes[index - 1] if index else self.embedding_size


def default_hyperparams(weight_decay: float = 0.0) -> LayerHyperparams:
    """Returns the hyperparameters of PyTorch's ResNets.

    Args:
      weight_decay: factor of the sum of squares of the kernels.
    """
    initializer = keras.initializers.VarianceScaling(2.0, 'fan_out', 'untruncated_normal')
    return of_pytorch(initializer, weight_decay)


def network(spec: ResNetSpec, out_indices: Sequence[int], options: BackboneOptions) -> keras.Model:
    """Builds a ResNet from the image up to the last of its maps.

    Args:
      spec: the network.
      out_indices: ascending: the maps to return. 0 is the one after the stem, i that of the i-th
        stage.
      options: hyperparameters, and whether batch norms are frozen. With `is_overridden` their
        activation also replaces that of `spec`. `settings` may have 'frozen_stages': the stem and
        the stages up to this number less 1 do not train; see `resnet_v1.Options`.

    Returns:
      A model named 'backbone' from images [B, H, W, C] to a list of
      [B, ceil(H / stride), ceil(W / stride), C'].

    Raises:
      UserError: if there is no such map, or the activation is not known.
    """
    check_indices('ResNet', out_indices, len(spec.depths))
    frozen_stages = options.settings.get('frozen_stages', 0)
    padding = Options(padding=Padding.SYMMETRIC_ALL, frozen_stages=frozen_stages)
    builders = [
        _Builder(
            spec,
            options,
            Layers(
                options.hyperparams,
                is_trained and options.batch_norm_trainable,
                padding,
                trainable=is_trained,
            ),
        )
        for is_trained in (False, True)
    ]
    images = keras.Input((None, None, image_channels.current()), name='images')
    x, maps = images, []
    for index in range(out_indices[-1] + 1):
        builder = builders[index >= frozen_stages]
        x = builder.stage(x, index) if index else builder.stem(x)
        x = builder.layers.end_stage(x, index + 1)
        maps.append(x)
    return keras.Model(images, [maps[index] for index in out_indices], name=TRUNK_NAME)


def check_indices(title: str, out_indices: Sequence[int], last: int) -> None:
    """Checks that indices of the maps to return are ascending, within 0..last."""
    is_ascending = list(out_indices) == sorted(set(out_indices))
    if not out_indices or not is_ascending or not set(out_indices) <= set(range(last + 1)):
        raise expected(
            f'{title}: out_indices', f'ascending numbers within 0..{last}', list(out_indices)
        )


def end_activation(
    field: str, activation: str, options: BackboneOptions
) -> str | Callable[[tf.Tensor], tf.Tensor] | None:
    """Returns an activation of a spec, unless the hyperparameters of a config replace it."""
    if options.is_overridden:
        return options.hyperparams.activation
    return activations.of_pytorch(field, activation)


class _MirroredPadding(rounding.Roundable):
    """Repeats the first and last rows and columns, which does not change the maxima of 3x3."""

    def call(self, inputs):
        return tf.pad(inputs, [[0, 0], [1, 1], [1, 1], [0, 0]], 'SYMMETRIC')

    def compute_output_shape(self, shape):
        batch, height, width, channels = shape
        return batch, height and height + 2, width and width + 2, channels


class _Builder:
    """Appends the parts of a network.

    Args:
      spec: the network.
      options: as for `network`.
      layers: makes the convolutions and norms.
    """

    def __init__(self, spec: ResNetSpec, options: BackboneOptions, layers: Layers):
        self.layers = layers
        self._spec = spec
        activation = end_activation('ResNet: activation', spec.activation, options)
        self._end = dataclasses.replace(options.hyperparams, activation=activation)

    def stem(self, x):
        size = self._spec.embedding_size
        if self._spec.is_deep_stem:
            for i, filters in enumerate((size // 2, size // 2, size), 1):
                x = self.layers.conv_norm(x, filters, 3, strides=3 - min(i, 2), name=f'conv1_{i}')
                x = self._activate(x, f'conv1_{i}_relu')
        else:
            x = self._activate(
                self.layers.conv_norm(x, size, 7, strides=2, name='conv1'), 'conv1_relu'
            )
        if self._end.activation in _NOT_NEGATIVE:
            return self.layers.pool(x)
        x = _MirroredPadding(name='pool1_pad')(x)
        return rounding.MaxPooling2D(3, strides=2, padding='valid', name='pool1_pool')(x)

    def stage(self, x, index: int):
        """Appends the blocks of the stage with a number from 1 on."""
        filters = self._spec.hidden_sizes[index - 1]
        block = self._bottleneck_block if self._spec.is_bottleneck else self._basic_block
        for i in range(1, self._spec.depths[index - 1] + 1):
            halves = i == 1 and (index > 1 or self._spec.downsample_in_first_stage)
            name = f'conv{index + 1}_block{i}'
            strides = 2 if halves else 1
            shortcut = self._shortcut(x, filters, strides, i == 1, name)
            x = rounding.Add(name=f'{name}_add')([shortcut, block(x, filters, strides, name)])
            x = self._activate(x, f'{name}_out')
        return x

    def _basic_block(self, x, filters: int, strides: int, name: str):
        x = self.layers.conv_norm(x, filters, 3, strides=strides, name=f'{name}_1')
        x = self.layers.activate(x, name=f'{name}_1_relu')
        return self.layers.conv_norm(x, filters, 3, name=f'{name}_2')

    def _bottleneck_block(self, x, filters: int, strides: int, name: str):
        inner = filters // _EXPANSION
        in_1x1 = self._spec.downsample_in_bottleneck
        first, second = (strides, 1) if in_1x1 else (1, strides)
        x = self.layers.conv_norm(x, inner, 1, strides=first, name=f'{name}_1')
        x = self.layers.activate(x, name=f'{name}_1_relu')
        x = self.layers.conv_norm(x, inner, 3, strides=second, name=f'{name}_2')
        x = self.layers.activate(x, name=f'{name}_2_relu')
        return self.layers.conv_norm(x, filters, 1, name=f'{name}_3')

    def _shortcut(self, x, filters: int, strides: int, is_first: bool, name: str):
        """Returns the input of a block, projected where the block changes it."""
        pools = self._spec.average_pool_shortcut
        changes = strides > 1 or x.shape[-1] != filters
        # A basic block that keeps its channels is halved by the convolution all the same.
        projects_all = pools and not self._spec.is_bottleneck
        if not changes and not (is_first and projects_all):
            return x
        if pools and strides > 1 and (self._spec.is_bottleneck or x.shape[-1] != filters):
            pooling = rounding.AveragePooling2D(_POOLING, padding='same', name=f'{name}_0_pool')
            x, strides = pooling(x), 1
        return self.layers.conv_norm(x, filters, 1, strides=strides, name=f'{name}_0')

    def _activate(self, x, name: str):
        return self._end.activation_layer(name=name)(x)


# Fields of feature extractors that a row reads.
_USES = frozenset({'frozen_stages', 'freeze_affine', 'preprocess'})
# RT-DETR's images, which its weights are of, are only divided by 255.
UNIT = Preprocess(scale=1 / 255)


def _row(spec: ResNetSpec) -> Backbone:
    def trunk(levels: Sequence[int], options: BackboneOptions) -> keras.Model:
        return network(spec, [level - 1 for level in levels], options)

    return Backbone(trunk, range(2, 6), UNIT, default_hyperparams(1e-4), uses=_USES)


def _basic(*depths: int) -> ResNetSpec:
    return ResNetSpec(hidden_sizes=(64, 128, 256, 512), depths=depths, is_bottleneck=False)


RESNET_VD_18 = _row(_basic(2, 2, 2, 2))
RESNET_VD_34 = _row(_basic(3, 4, 6, 3))
RESNET_VD_50 = _row(ResNetSpec())
RESNET_VD_101 = _row(ResNetSpec(depths=(3, 4, 23, 3)))
