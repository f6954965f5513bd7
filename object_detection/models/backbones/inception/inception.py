"""What Inception networks share: the rows of their tables, and what builds networks of them.

A network is a mapping of names to rows, in the order of its layers. A block of the name `mixed_3b`
has layers that are named by branch and position: `mixed_3b_branch1_2` is the second convolution of
the second branch. A convolution is followed by `..._bn` and `..._ac`.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import keras

from object_detection.errors import expected
from object_detection.models import image_channels, rounding
from object_detection.models.backbones.table import CROP_STAGE_NAME, TRUNK_NAME, BackboneOptions
from object_detection.models.hyperparams import LayerHyperparams
from object_detection.models.normalization import BatchNormParams, normalized

# Fields of feature extractors that the networks read, the last one for the maps that follow them.
USES = frozenset({'depth_multiplier', 'min_depth', 'use_explicit_padding'})

# Filters and kernel size of a convolution.
Step = tuple[int, int | tuple[int, int]]
# The convolutions of a branch, one after the other; a tuple of them is parallel.
Branch = Sequence[Step | tuple[Step, Step]]


def default_hyperparams() -> LayerHyperparams:
    """Returns the hyperparameters of a backbone unless the config overrides them: no penalty."""
    return LayerHyperparams(
        initializer=keras.initializers.GlorotUniform(),
        activation='relu',
        batch_norm=BatchNormParams(momentum=0.9997, epsilon=0.001, scale=False),
    )


class Layers:
    """Builds convolutions with norm and activation.

    Args:
      options: set-up of all layers, and what their numbers of channels are multiplied by.

    Raises:
      ValueError: if the factor is not positive.
    """

    def __init__(self, options: BackboneOptions):
        if not options.depth_multiplier > 0:
            raise expected('depth_multiplier', 'a positive number', f'{options.depth_multiplier:g}')
        self._options = options

    def depth(self, filters: int) -> int:
        """Returns the number of channels of a layer for the number in the tables."""
        return max(int(filters * self._options.depth_multiplier), self._options.min_depth)

    def conv(
        self,
        x: keras.KerasTensor,
        filters: int,
        kernel_size: int | tuple[int, int],
        *,
        name: str,
        stddev: float | None = None,
        is_separable: bool = False,
        **layout: Any,
    ) -> keras.KerasTensor:
        """Applies convolution, norm and activation; see `Conv` for the arguments."""
        hyperparams, depth = self._options.hyperparams, self.depth(filters)
        if stddev is not None:
            initializer = keras.initializers.TruncatedNormal(stddev=stddev)
            hyperparams = dataclasses.replace(hyperparams, initializer=initializer)
        make = hyperparams.conv
        if is_separable:
            make = hyperparams.separable_conv
            layout['depth_multiplier'] = min(depth // 3, 8)
        convolution = make(depth, kernel_size, name=name, **layout)
        norm = hyperparams.norm(frozen=not self._options.batch_norm_trainable, name=f'{name}_bn')
        activation = hyperparams.activation_layer(name=f'{name}_ac')
        return activation(normalized(convolution, norm, x))


class Row(Protocol):
    """What a network is made of."""

    def append(self, layers: Layers, x: keras.KerasTensor, name: str) -> keras.KerasTensor:
        """Returns what it makes of `x`, by layers of this name or of names that begin with it."""


@dataclasses.dataclass(frozen=True)
class Conv:
    """A convolution with norm and activation.

    Attributes:
      filters: number of channels, before the factor of the options.
      kernel_size, strides, padding: as of Keras's layers.
      stddev: of the truncated normal distribution that initializes the kernel in place of the
        initializer of the hyperparameters; None leaves it to them.
      is_separable: whether it is a depthwise convolution, to 8 channels for each one if there are
        enough, and one of size 1.
    """

    filters: int
    kernel_size: int = 1
    strides: int = 1
    padding: str = 'same'
    stddev: float | None = None
    is_separable: bool = False

    def append(self, layers: Layers, x: keras.KerasTensor, name: str) -> keras.KerasTensor:
        return layers.conv(x, name=name, **vars(self))


@dataclasses.dataclass(frozen=True)
class Pool:
    """A pooling of 3x3 cells."""

    strides: int = 2
    padding: str = 'same'
    is_mean: bool = False

    def append(self, layers: Layers, x: keras.KerasTensor, name: str) -> keras.KerasTensor:
        del layers
        kind = rounding.AveragePooling2D if self.is_mean else rounding.MaxPooling2D
        return kind(3, self.strides, padding=self.padding, name=name)(x)


@dataclasses.dataclass(frozen=True)
class Block:
    """Parallel branches whose outputs are concatenated; the last one begins with a pooling.

    Attributes:
      branches: the others. Their last convolutions have strides and padding of the pooling.
      after_pool: filters of the convolution of size 1 after the pooling; None for none.
      pool: the pooling.
      first_stddev, last_stddev: `Conv.stddev` of the first of several convolutions of a branch, and
        of the convolution after the pooling.
    """

    branches: Sequence[Branch]
    after_pool: int | None = None
    pool: Pool = Pool(1, is_mean=True)
    first_stddev: float | None = None
    last_stddev: float | None = None

    def channels(self, layers: Layers) -> int:
        """Returns the number of channels of a block with a convolution after the pooling."""
        filters = [branch[-1][0] for branch in self.branches]
        return sum(layers.depth(each) for each in (*filters, self.after_pool))

    def append(self, layers: Layers, x: keras.KerasTensor, name: str) -> keras.KerasTensor:
        outputs = [
            self._branch(layers, x, branch, f'{name}_branch{i}')
            for i, branch in enumerate(self.branches)
        ]
        pooled = self.pool.append(layers, x, f'{name}_pool')
        if self.after_pool is not None:
            last = f'{name}_branch{len(outputs)}_1'
            pooled = layers.conv(pooled, self.after_pool, 1, name=last, stddev=self.last_stddev)
        return rounding.Concatenate(name=name)([*outputs, pooled])

    def _branch(
        self, layers: Layers, x: keras.KerasTensor, branch: Branch, name: str
    ) -> keras.KerasTensor:
        for i, step in enumerate(branch, start=1):
            layout = {}
            if i == len(branch):
                layout = {'strides': self.pool.strides, 'padding': self.pool.padding}
            elif i == 1:
                layout = {'stddev': self.first_stddev}
            if isinstance(step[0], int):
                x = layers.conv(x, *step, name=f'{name}_{i}', **layout)
                continue
            parallel = [
                layers.conv(x, *each, name=f'{name}_{j}', **layout)
                for j, each in enumerate(step, start=i)
            ]
            x = rounding.Concatenate(name=name)(parallel)
        return x


def trunk(network: Mapping[str, Row], ends: Sequence[str], options: BackboneOptions) -> keras.Model:
    """Builds a network from the image up to the last of `ends`.

    Args:
      network: its rows.
      ends: names of rows, in their order.
      options: set-up of the layers, and their numbers of channels.

    Returns:
      A model from images [B, H, W, 3] to the outputs of `ends`.
    """
    layers = Layers(options)
    images = keras.Input((None, None, image_channels.current()), name='images')
    x, outputs = images, []
    for name, row in network.items():
        x = row.append(layers, x, name)
        if name in ends:
            outputs.append(x)
        if name == ends[-1]:
            break
    return keras.Model(images, outputs, name=TRUNK_NAME)


def crop_stage(network: Mapping[str, Row], start: str, options: BackboneOptions) -> keras.Model:
    """Builds the rest of a network after the block `start`, from crops of its outputs."""
    layers, names = Layers(options), list(network)
    channels = network[start].channels(layers)
    dtype = keras.config.dtype_policy().compute_dtype
    features = keras.Input((None, None, channels), name='features', dtype=dtype)
    x = features
    for name in names[names.index(start) + 1 :]:
        x = network[name].append(layers, x, name)
    return keras.Model(features, x, name=CROP_STAGE_NAME)
