"""Bidirectional feature pyramids, BiFPN (https://arxiv.org/abs/1911.09070)."""

import dataclasses
import functools
from collections.abc import Iterator, Sequence

import keras
import tensorflow as tf

from object_detection.errors import expected
from object_detection.models import rounding
from object_detection.models.hyperparams import LayerHyperparams, SeparableSetup
from object_detection.models.necks.resizing import CropTo, Doubling
from object_detection.models.necks.table import Neck, NeckOptions
from object_detection.models.normalization import normalized

# Fast attention: added to the sum of the weights that it divides by.
_EPSILON = 1e-4


@dataclasses.dataclass(frozen=True)
class Node:
    """One map of the pyramid, made of maps before it.

    Attributes:
      name: as in the reference: iteration, direction and level, such as '1_dn_lvl_6'.
      level: its stride is 2**level.
      inputs: names of maps of the same level, and of levels beside it.
      is_combined: whether it is a combination, activated and convolved; otherwise it is its only
        input in another size.
    """

    name: str
    level: int
    inputs: tuple[str, ...]
    is_combined: bool = True


@dataclasses.dataclass(frozen=True)
class Options:
    """The size of a pyramid; the defaults are those of EfficientDet-D0.

    Attributes:
      min_level, max_level: levels of the finest and the coarsest map; level l has stride 2**l.
      num_iterations: number of repetitions of the way down and up.
      num_filters: number of channels of all levels.
      combine_method: how the inputs of a node are added; one of COMBINE_METHODS.
    """

    min_level: int = 3
    max_level: int = 7
    num_iterations: int = 3
    num_filters: int = 64
    combine_method: str = 'fast_attention'


def check(options: Options) -> None:
    """Checks the options of a pyramid.

    Raises:
      ValueError: if a number is out of its range, or there is no such way to combine.
    """
    low, high = options.min_level, options.max_level
    if high <= low:
        raise expected('bifpn', 'min_level < max_level', f'min_level {low}, max_level {high}')
    for field in ('num_iterations', 'num_filters'):
        if getattr(options, field) < 1:
            raise expected(f'bifpn.{field}', 'at least 1', getattr(options, field))
    if options.combine_method not in COMBINE_METHODS:
        raise expected(
            'bifpn.combine_method',
            f'one of {", ".join(COMBINE_METHODS)}',
            repr(options.combine_method),
        )


def nodes(options: Options, top_level: int) -> Iterator[Node]:
    """Yields the nodes in the order of the reference.

    Args:
      options: of the pyramid.
      top_level: level of the coarsest map of the backbone, whose maps are '0_up_lvl_<level>'.
    """
    low, high = options.min_level, options.max_level
    for level in range(top_level + 1, high + 1):
        yield Node(f'0_up_lvl_{level}', level, (f'0_up_lvl_{level - 1}',), is_combined=False)
    before = {level: f'0_up_lvl_{level}' for level in range(low, high + 1)}
    for iteration in range(1, options.num_iterations + 1):
        down, up = f'{iteration}_dn_lvl_', f'{iteration}_up_lvl_'
        coarser = before[high]
        for level in range(high - 1, low - 1, -1):
            yield Node(f'{down}{level}', level, (before[level], coarser))
            coarser = f'{down}{level}'
        finer = coarser
        after = {low: finer}
        for level in range(low + 1, high + 1):
            here = (before[level], f'{down}{level}')[: 1 if level == high else 2]
            yield Node(f'{up}{level}', level, (*here, finer))
            finer = after[level] = f'{up}{level}'
        before = after


def output_names(options: Options) -> list[str]:
    """Returns the names of the nodes that are the pyramid's maps, finest first."""
    last, low = options.num_iterations, options.min_level
    coarser = range(low + 1, options.max_level + 1)
    return [f'{last}_dn_lvl_{low}', *[f'{last}_up_lvl_{level}' for level in coarser]]


def bidirectional_pyramid(
    channels: Sequence[int],
    *,
    hyperparams: LayerHyperparams,
    batch_norm_trainable: bool,
    name: str,
    options: Options,
) -> keras.Model:
    """Builds the pyramid.

    Inputs of a node that differ from it in channels are first convolved (1x1, with a norm, without
    activation); then they are max-pooled, or doubled in size by nearest neighbour. Their
    combination is activated and convolved (separable 3x3), with a norm.

    Args:
      channels: channels of the backbone maps, finest first, from `options.min_level` on.
      hyperparams: hyperparameters of all layers; initializer and penalty apply to both kernels of
        a separable convolution, as in the reference.
      batch_norm_trainable: False freezes the batch norms.
      name: name of the model.
      options: size of the pyramid.

    Returns:
      A model from the list of backbone maps, each half as large as the one before, rounded up, to
      the list of pyramid maps [B, H, W, num_filters], finest first. Layers are named by the
      positions of nodes in `nodes`, and those of inputs by their positions in a node.

    Raises:
      ValueError: in the cases of `check`.
    """
    check(options)
    # A model converts its inputs to the dtypes of its `Input`s; the maps of the backbone fit.
    dtype = keras.config.dtype_policy().compute_dtype
    inputs = {
        f'0_up_lvl_{level}': keras.Input((None, None, c), name=f'features_{level}', dtype=dtype)
        for level, c in enumerate(channels, start=options.min_level)
    }
    maps = dict(inputs)
    levels = {map_name: int(map_name.rpartition('_')[2]) for map_name in inputs}
    layers = _Layers(hyperparams, batch_norm_trainable, options)
    for number, node in enumerate(nodes(options, max(levels.values()))):
        same_size = [each for each in node.inputs if levels[each] == node.level]
        resampled = [
            layers.resample(
                maps[each],
                levels[each] - node.level,
                maps[same_size[0]] if same_size else None,
                f'node_{number}_input_{position}',
            )
            for position, each in enumerate(node.inputs)
        ]
        if node.is_combined:
            maps[node.name] = layers.combine(resampled, f'node_{number}')
        else:
            (maps[node.name],) = resampled
        levels[node.name] = node.level
    outputs = [maps[each] for each in output_names(options)]
    return keras.Model(list(inputs.values()), outputs, name=name)


class _Layers:
    """Builds the layers of a pyramid."""

    def __init__(self, hyperparams: LayerHyperparams, batch_norm_trainable: bool, options: Options):
        self._hyperparams = hyperparams
        self._batch_norm_trainable = batch_norm_trainable
        self._options = options

    def resample(self, x, steps: int, like, name: str):
        """Gives a map the channels of the pyramid, and `steps` times the double size.

        Args:
          x: the map.
          steps: 1, 0, or -1 for half of the size.
          like: a map of the size to cut a doubled map to.
          name: beginning of the layers' names.
        """
        filters = self._options.num_filters
        if x.shape[-1] != filters:
            conv = self._hyperparams.conv(filters, 1, name=f'{name}_conv')
            x = self._normalize(conv, x)
        if steps < 0:
            return rounding.MaxPooling2D(3, strides=2, padding='same', name=f'{name}_pool')(x)
        if steps > 0:
            x = Doubling(name=f'{name}_doubling')(x)
            return CropTo(name=f'{name}_crop')(x, like)
        return x

    def combine(self, maps: list, name: str):
        """Adds maps of the same size, activates and convolves them."""
        x = Combination(self._options.combine_method, name=f'{name}_weights')(maps)
        x = self._hyperparams.activation_layer(name=f'{name}_activation')(x)
        conv = self._hyperparams.separable_conv(
            self._options.num_filters, 3, name=f'{name}_conv', setup=SeparableSetup.BOTH
        )
        return self._normalize(conv, x)

    def _normalize(self, conv: keras.layers.Layer, x):
        norm = self._hyperparams.norm(frozen=not self._batch_norm_trainable, name=f'{conv.name}_bn')
        return normalized(conv, norm, x)


class Combination(rounding.Roundable):
    """Adds n maps [B, H, W, C] with learnt factors.

    Its variable `bifpn_combine_weights`, float32 [n, 1], begins with ones; a plain sum has none.

    Args:
      method: one of COMBINE_METHODS.
    """

    def __init__(self, method: str, *, name: str):
        super().__init__(name=name)
        self._factors = COMBINE_METHODS[method]

    def build(self, shapes):
        self._learnt = None
        if self._factors is not None:
            self._learnt = self.add_weight(
                name='bifpn_combine_weights',
                shape=(len(shapes), 1),
                initializer='ones',
                autocast=False,
            )

    def call(self, maps):
        if self._learnt is None:
            return tf.add_n(maps)
        factors = self._factors(tf.convert_to_tensor(self._learnt)[:, 0])
        factors = tf.unstack(tf.cast(factors, maps[0].dtype))
        return tf.add_n([x * factor for x, factor in zip(maps, factors, strict=True)])

    def compute_output_shape(self, shapes):
        return shapes[0]


def _fast_attention(weights: tf.Tensor) -> tf.Tensor:
    weights = tf.nn.relu(weights)
    return weights / (tf.reduce_sum(weights) + _EPSILON)


# Method -> factors [n] of the weights [n]; None has no weights.
COMBINE_METHODS = {
    'sum': None,
    'weighted_sum': tf.identity,
    'attention': functools.partial(tf.nn.softmax, axis=0),
    'fast_attention': _fast_attention,
}


def _build(channels: Sequence[int], options: NeckOptions) -> keras.Model:
    size = Options(options.levels[0], options.levels[-1], **options.settings)
    return bidirectional_pyramid(channels, options=size, **options.arguments())


BIFPN = Neck(_build, frozenset({'bifpn'}))
