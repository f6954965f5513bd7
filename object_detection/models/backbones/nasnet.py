"""NASNet-A (https://arxiv.org/abs/1707.07012) as tables of the operations of its cells.

It is the network of the reference under TensorFlow 1. Layers are named by the scopes there:
`cell_3_comb_iter_0_left_separable_5x5_1`. The first convolution is not padded; everything else has
SAME padding.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import keras
import tensorflow as tf

from object_detection.core import tracing
from object_detection.core.sampling import noise_of_images
from object_detection.core.shapes import dimensions
from object_detection.models import image_channels, rounding
from object_detection.models.backbones.table import (
    CROP_STAGE_NAME,
    TRUNK_NAME,
    Backbone,
    BackboneOptions,
)
from object_detection.models.hyperparams import L2, LayerHyperparams
from object_detection.models.image_values import scale_to_unit
from object_detection.models.normalization import BatchNormParams, normalized

# An operation on a state of a cell: its name, and the number of the state.
_Operation = tuple[str, int]

# Two rounds of activation, separable convolution and norm; the stride is in the first.
_SEPARABLE_3, _SEPARABLE_5, _SEPARABLE_7 = 'separable_3x3', 'separable_5x5', 'separable_7x7'
_SIZES = {_SEPARABLE_3: 3, _SEPARABLE_5: 5, _SEPARABLE_7: 7}
# Poolings of 3x3 cells.
_MEAN, _MAXIMUM = 'avg_pool_3x3', 'max_pool_3x3'
_IDENTITY = 'none'


class _Kind(NamedTuple):
    """A kind of cells.

    Attributes:
      sums: pairs of operations, whose results are added: the states from number 2 on. State 0 is
        the input of a cell, state 1 that of the cell before, both convolved.
      outputs: the states that are concatenated.
      strides: of operations on the states 0 and 1.
    """

    sums: Sequence[tuple[_Operation, _Operation]]
    outputs: Sequence[int]
    strides: int


_NORMAL = _Kind(
    (
        ((_SEPARABLE_5, 0), (_SEPARABLE_3, 1)),
        ((_SEPARABLE_5, 1), (_SEPARABLE_3, 1)),
        ((_MEAN, 0), (_IDENTITY, 1)),
        ((_MEAN, 1), (_MEAN, 1)),
        ((_SEPARABLE_3, 0), (_IDENTITY, 0)),
    ),
    outputs=(1, 2, 3, 4, 5, 6),
    strides=1,
)
_REDUCTION = _Kind(
    (
        ((_SEPARABLE_5, 0), (_SEPARABLE_7, 1)),
        ((_MAXIMUM, 0), (_SEPARABLE_7, 1)),
        ((_MEAN, 0), (_SEPARABLE_5, 1)),
        ((_IDENTITY, 3), (_MEAN, 2)),
        ((_SEPARABLE_3, 2), (_MAXIMUM, 0)),
    ),
    outputs=(3, 4, 5, 6),
    strides=2,
)


@dataclasses.dataclass(frozen=True)
class Size:
    """The size of a network.

    Attributes:
      cells: number of normal cells of each of the three stages.
      filters: of the cells of the first stage; each reduction doubles them.
      stem_filters: of the first convolution.
    """

    cells: int
    filters: int
    stem_filters: int

    def num_cells(self) -> int:
        """Returns the number of all cells: those of the stages, two of the stem, two reductions."""
        return 3 * self.cells + 4


LARGE = Size(cells=6, filters=168, stem_filters=96)

# In training, operations of the last cell are left out of an image with this probability, from the
# step on at which it is reached; with less in earlier cells and steps.
_DROP_RATE, _DROP_STEPS = 0.3, 250_000


class _Cell(NamedTuple):
    """A cell: its name, its kind, its filters, and its number in the network.

    After a reduction between stages, the next cell sees the input of the cell before that
    reduction, not the input of the reduction (`skips`).
    """

    name: str
    kind: _Kind
    filters: int
    number: int
    skips: bool = False


def _stage(size: Size, stage: int) -> Iterator[_Cell]:
    """Yields the cells of a stage, from 0, after the reduction before it."""
    filters, number = size.filters * 2**stage, 2 + stage * (size.cells + 1)
    if stage:
        name = f'reduction_cell_{stage - 1}'
        yield _Cell(name, _REDUCTION, filters, number - 1, skips=True)
    for i in range(size.cells):
        yield _Cell(f'cell_{stage * size.cells + i}', _NORMAL, filters, number + i)


def _trunk_cells(size: Size) -> Iterator[_Cell]:
    for i in range(2):
        yield _Cell(f'cell_stem_{i}', _REDUCTION, size.filters // (4, 2)[i], i)
    yield from _stage(size, 0)
    yield from _stage(size, 1)


class _Map(NamedTuple):
    """A feature map, and its stride relative to the input of the network."""

    tensor: keras.KerasTensor
    stride: int


def trunk(size: Size, options: BackboneOptions) -> keras.Model:
    """Builds the network from the image up to the second stage.

    Returns:
      A model from images [B, H, W, 3] to the maps of the last two cells, concatenated, of stride
      16: [B, h, w, 4032] of the large network, where h is ceil(((H - 1) // 2) / 8).
    """
    layers = _Layers(size, options)
    images = keras.Input((None, None, image_channels.current()), name='images')
    x = layers.conv_norm(images, size.stem_filters, 3, 'conv0', strides=2, padding='valid')
    maps = layers.run(_trunk_cells(size), None, _Map(x, 2))
    x = rounding.Concatenate(name='last_cells')([each.tensor for each in maps])
    return keras.Model(images, x, name=TRUNK_NAME)


def crop_stage(size: Size, options: BackboneOptions) -> keras.Model:
    """Builds the third stage, on crops of the map of `trunk`.

    Returns:
      A model from crops [N, h, w, 4032] to [N, ceil(h / 2), ceil(w / 2), 4032], of the large
      network.
    """
    layers = _Layers(size, options)
    channels = len(_NORMAL.outputs) * size.filters * 2
    dtype = keras.config.dtype_policy().compute_dtype
    features = keras.Input((None, None, 2 * channels), name='features', dtype=dtype)
    previous, current = (
        _Map(_Channels(i * channels, channels, name=name)(features), 1)
        for i, name in enumerate(('previous_cell', 'last_cell'))
    )
    _, current = layers.run(_stage(size, 2), previous, current)
    return keras.Model(features, layers.activate(current.tensor, 'last_relu'), name=CROP_STAGE_NAME)


class _Channels(rounding.Roundable):
    """Takes some of the channels of maps."""

    def __init__(self, first: int, count: int, *, name: str):
        super().__init__(name=name)
        self._first, self._count = first, count

    def call(self, maps):
        return maps[..., self._first : self._first + self._count]

    def compute_output_shape(self, shape):
        return (*shape[:-1], self._count)


class _Shift(rounding.Roundable):
    """Moves maps by one cell to the top and left; the last row and column become zeros."""

    def call(self, maps):
        return tf.pad(maps[:, 1:, 1:], [[0, 0], [0, 1], [0, 1], [0, 0]])

    def compute_output_shape(self, shape):
        return shape


class DropPath(rounding.Roundable):
    """In training, sets the maps of some images to zero and scales the others accordingly.

    This is scheduled drop path: the share of images is proportional to the step, until it is
    reached. Outside of `tracing.training_step` the step is 0, and nothing changes.

    Args:
      rate: the share of images that it reaches.
      number: of the layer; see `noise_of_images`.
    """

    def __init__(self, rate: float, number: int, *, name: str):
        super().__init__(name=name)
        self._rate, self._number = rate, number

    def call(self, maps, training=False):
        step = tracing.current_step()
        if not training or step is None:
            return maps
        rate = self._rate * tf.minimum(tf.cast(step, tf.float32) / _DROP_STEPS, 1.0)
        is_kept = noise_of_images(dimensions(maps, 0)[0], self._number) >= rate
        scaled = maps / tf.cast(1.0 - rate, maps.dtype)
        is_kept = is_kept[:, tf.newaxis, tf.newaxis, tf.newaxis]
        return tf.where(is_kept, scaled, tf.zeros_like(maps))

    def compute_output_shape(self, shape):
        return shape


class _Layers:
    """Builds the layers of one network with its hyperparameters."""

    def __init__(self, size: Size, options: BackboneOptions):
        self._size = size
        self._hyperparams = options.hyperparams
        self._is_frozen = not options.batch_norm_trainable
        self._num_drops = 0

    def run(
        self, cells: Iterator[_Cell], previous: _Map | None, current: _Map
    ) -> tuple[_Map, _Map]:
        """Appends cells, each on the maps of the two before it; returns the last two maps."""
        for cell in cells:
            made = self._cell(cell, previous, current)
            previous, current = previous if cell.skips else current, made
        return previous, current

    def activate(self, x, name: str):
        return self._hyperparams.activation_layer(name=name)(x)

    def conv_norm(self, x, filters: int, kernel_size: int, name: str, norm: str = '', **layout):
        """Applies a convolution and its norm, which may have a name of its own."""
        conv = self._hyperparams.conv(filters, kernel_size, name=name, **layout)
        return normalized(conv, self._norm(norm or f'{name}_bn'), x)

    def _norm(self, name: str) -> keras.layers.Layer:
        return self._hyperparams.norm(frozen=self._is_frozen, name=name)

    def _cell(self, cell: _Cell, previous: _Map | None, current: _Map) -> _Map:
        x = self.activate(current.tensor, f'{cell.name}_relu')
        x = self.conv_norm(x, cell.filters, 1, f'{cell.name}_1x1', f'{cell.name}_beginning_bn')
        before = current.tensor
        if previous is not None:
            before = self._adjusted(cell, previous, current.stride)
        states, strides = [x, before], [cell.kind.strides] * 2 + [1] * len(cell.kind.sums)
        for i, pair in enumerate(cell.kind.sums):
            names = [f'{cell.name}_comb_iter_{i}_{side}' for side in ('left', 'right')]
            terms = [
                self._operation(cell, operation, states[state], strides[state], name)
                for (operation, state), name in zip(pair, names, strict=True)
            ]
            states.append(rounding.Add(name=f'{cell.name}_comb_iter_{i}')(terms))
        outputs = [states[i] for i in cell.kind.outputs]
        joined = rounding.Concatenate(name=f'{cell.name}_outputs')(outputs)
        return _Map(joined, current.stride * cell.kind.strides)

    def _adjusted(self, cell: _Cell, previous: _Map, stride: int):
        """Gives the map of the cell before the last one the size and the channels of a cell."""
        x, filters, name = previous.tensor, cell.filters, cell.name
        if previous.stride == stride and x.shape[-1] == filters:
            return x
        x = self.activate(x, f'{name}_previous_relu')
        if previous.stride == stride:
            return self.conv_norm(x, filters, 1, f'{name}_prev_1x1', f'{name}_prev_bn')
        halves = [
            self._hyperparams.conv(count, 1, strides=2, name=f'{name}_path{i}_conv')(start)
            for i, count, start in (
                (1, filters // 2, x),
                (2, filters - filters // 2, _Shift(name=f'{name}_shift')(x)),
            )
        ]
        x = rounding.Concatenate(name=f'{name}_paths')(halves)
        return self._norm(f'{name}_final_path_bn')(x)

    def _operation(self, cell: _Cell, operation: str, x, strides: int, name: str):
        if operation == _IDENTITY:
            return x
        if operation in _SIZES:
            x = self._separable(x, cell.filters, operation, strides, name)
        else:
            kind = rounding.AveragePooling2D if operation == _MEAN else rounding.MaxPooling2D
            x = kind(3, strides, padding='same', name=f'{name}_{operation}')(x)
        rate = _DROP_RATE * (cell.number + 1) / self._size.num_cells()
        # The third stage counts from 0 again, in cells of other numbers.
        drop = DropPath(rate, 1000 * cell.number + self._num_drops, name=f'{name}_drop_path')
        self._num_drops += 1
        return drop(x)

    def _separable(self, x, filters: int, operation: str, strides: int, name: str):
        for i in (1, 2):
            layer = f'{name}_{operation}_{i}'
            x = self.activate(x, f'{layer}_relu')
            conv = self._hyperparams.separable_conv(
                filters, _SIZES[operation], strides=strides if i == 1 else 1, name=layer
            )
            norm = layer.replace('separable', 'bn_sep')
            x = normalized(conv, self._norm(norm), x)
        return x


def default_hyperparams() -> LayerHyperparams:
    """Returns the hyperparameters of a backbone unless the config overrides them."""
    return LayerHyperparams(
        initializer=keras.initializers.VarianceScaling(2.0, mode='fan_out'),
        regularizer=L2(0.5 * 5e-5),
        activation='relu',
        batch_norm=BatchNormParams(momentum=0.9997, epsilon=0.001, scale=True),
        regularize_depthwise=True,
    )


def row(size: Size) -> Backbone:
    """Returns the row of a network of a size."""

    def network(levels: Sequence[int], options: BackboneOptions) -> keras.Model:
        del levels  # It has one.
        return trunk(size, options)

    return Backbone(
        network,
        range(4, 5),
        scale_to_unit,
        default_hyperparams(),
        crop_stage=lambda options: crop_stage(size, options),
        is_aligned=False,
    )


NASNET_LARGE = row(LARGE)
