"""Makes networks of other packages backbones: their maps, norms, penalties and random numbers."""

import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from object_detection.core import tracing
from object_detection.errors import UserError, expected, format_list
from object_detection.models import image_channels, rounding
from object_detection.models.backbones.table import (
    CROP_STAGE_NAME,
    KERAS_MULTIPLE,
    TRUNK_NAME,
    Backbone,
    BackboneOptions,
)
from object_detection.models.hyperparams import LayerHyperparams
from object_detection.models.normalization import BatchNorm, FrozenBatchNorm
from object_detection.system import private_names

# Side of the images whose maps show the strides of layers: an odd multiple of the largest stride,
# so that a map that is not padded as its stride needs has another size.
SIDE = 7 * KERAS_MULTIPLE
LEVELS = range(1, 6)
# Rank of a map that a level may have: its kind and, of concatenations, the number of channels.
_LOWEST = (1, 0)
# Layers that need no rounding: of images, those that only training has, and those that move values.
_UNROUNDED = {
    keras.layers.Dropout,
    keras.layers.InputLayer,
    keras.layers.Normalization,
    keras.layers.Rescaling,
    keras.layers.Reshape,
}


class Map(NamedTuple):
    """A map of a network.

    Attributes:
      tensor: the map, [B, H, W, C].
      place: index among all outputs of layers.
      is_cut: whether all later ones depend on it alone.
    """

    tensor: keras.KerasTensor
    place: int
    is_cut: bool


class Calls:
    """The calls of the layers of a network, in their order; an entry for each output of a call.

    Attributes:
      layers: the layers.
      outputs: the outputs.
    """

    def __init__(self):
        self.layers: list[Any] = []
        self.outputs: list[keras.KerasTensor] = []
        self._inputs: list[list[int]] = []

    def call(self, layer: Any, *arguments: Any, **options: Any) -> Any:
        """Calls a layer, and notes it."""
        output = self.run(layer, *arguments, **options)
        inputs = [id(each) for each in keras.tree.flatten((arguments, options))]
        for tensor in keras.tree.flatten(output):
            self._inputs.append(inputs)
            self.layers.append(layer)
            self.outputs.append(tensor)
        return output

    def run(self, layer: Any, *arguments: Any, **options: Any) -> Any:
        """Calls a layer."""
        return layer(*arguments, **options)

    def maps(
        self,
        shapes: Sequence[Sequence[int | None]],
        preferred: Sequence[keras.KerasTensor] = (),
        side: int = SIDE,
    ) -> dict[int, Map]:
        """Returns for each level the last of the preferred maps of its stride.

        Without any, it is the last one that all later ones depend on alone; without one of them,
        as in NASNet, whose cells read the two before them, it is the widest concatenation, and the
        last one of those.

        Args:
          shapes: of all outputs for images of `side`.
          preferred: some outputs.
          side: in pixels.
        """
        last_use = self._last_uses()
        preferred_ids = {id(each) for each in preferred}
        found: dict[int, tuple[tuple[int, int], Map]] = {}
        used = 0
        for place, shape in enumerate(shapes):
            is_cut, used = used <= place, max(used, last_use[place])
            tensor, layer = self.outputs[place], self.layers[place]
            rank = max((3 * (id(tensor) in preferred_ids), 0), (2 * is_cut, 0))
            if isinstance(layer, keras.layers.Concatenate):
                rank = max(rank, (1, shape[-1]))
            for level in LEVELS:
                is_of_level = len(shape) == 4 and set(shape[1:3]) == {side // 2**level}
                if is_of_level and rank >= found.get(level, (_LOWEST,))[0]:
                    found[level] = rank, Map(tensor, place, is_cut)
        return {level: each for level, (_, each) in found.items()}

    def _last_uses(self) -> list[int]:
        """Returns for each output the index of the last one that is computed of it."""
        made = {id(tensor): place for place, tensor in enumerate(self.outputs)}
        last_use = list(range(len(self.outputs)))
        for place, inputs in enumerate(self._inputs):
            for tensor in inputs:
                if tensor in made:
                    last_use[made[tensor]] = place
        return last_use


class Network(NamedTuple):
    """A new network.

    Attributes:
      images: its input, of any size or of a square one.
      calls: of its layers.
      maps: those of some levels.
      read: path of a file of weights -> values of the variables, by the ids of these.
    """

    images: keras.KerasTensor
    calls: Calls
    maps: Mapping[int, Map]
    read: Callable[[str], Mapping[int, np.ndarray]]


def row(
    name: str,
    build: Callable[[BackboneOptions], Network],
    normalize: Callable[[tf.Tensor], tf.Tensor],
    uses: Collection[str] = (),
) -> Backbone:
    """Returns the row of a network of another package.

    Weights are random until `read_weights` of a model reads a file: it yields its variables and
    their values. A config that overrides the hyperparameters determines the penalty, and momentum
    and epsilon of batch norms: layers, initializers and activations are always the network's own.

    Args:
      name: of the backbone in configs.
      build: options -> a new network.
      normalize: converts float32 images [B, H, W, 3], RGB in 0..255, to its input.
      uses: fields that it reads besides those of all such networks.
    """

    def trunk(levels: Sequence[int], options: BackboneOptions) -> keras.Model:
        network = _checked(name, build, options)
        _check_levels(name, levels, network.maps)
        outputs = [network.maps[level].tensor for level in levels]
        model = _finish(keras.Model(network.images, outputs, name=TRUNK_NAME), network, options)
        _freeze(network, options.settings.get('frozen_stages', 0))
        return model

    def crop_stage(options: BackboneOptions) -> keras.Model:
        network = _checked(name, build, options)
        _check_levels(name, (4, 5), network.maps)
        if network.images.shape[1] is not None:
            raise expected(
                f'backbone: {name}',
                'a network for images of any size, as its last stage takes crops',
            )
        if not network.maps[4].is_cut:
            raise expected(
                f'backbone: {name}', 'a network whose last stage reads the map of stride 16 alone'
            )
        ends = [network.maps[level].tensor for level in (4, 5)]
        return _finish(keras.Model(*ends, name=CROP_STAGE_NAME), network, options)

    return Backbone(
        trunk,
        LEVELS,
        _of_any_channels(normalize),
        LayerHyperparams(),
        padding_multiple=KERAS_MULTIPLE,
        uses=frozenset({'frozen_stages', *uses}),
        crop_stage=crop_stage,
    )


def _checked(
    name: str, build: Callable[[BackboneOptions], Network], options: BackboneOptions
) -> Network:
    if options.hyperparams.group_norm or options.hyperparams.layer_norm:
        raise expected(f'backbone: {name}', 'no group_norm or layer_norm, as its norms stay', 'one')
    with private_names.fresh_layer_names():
        network = build(options)
    others = {type(layer) for layer in network.calls.layers} - _UNROUNDED
    others = [kind.__name__ for kind in others if not issubclass(kind, rounding.Roundable)]
    if rounding.current() is not None and others:
        raise expected(
            f'backbone: {name}',
            'no quantization in training, or layers that can be quantized',
            format_list(sorted(others)),
        )
    return network


def _check_levels(name: str, levels: Sequence[int], maps: Mapping[int, Map]) -> None:
    missing = [level for level in levels if level not in maps]
    if missing:
        strides = format_list([str(2**level) for level in sorted(maps)]) or 'none of these strides'
        raise UserError(
            f'backbone: {name}: expected a network with maps of the strides '
            f'{format_list([str(2**level) for level in levels])}, each of ceil(size / stride). '
            f'Received one with {strides}.'
        )


def _finish(model: keras.Model, network: Network, options: BackboneOptions) -> keras.Model:
    """Sets what the model of a part of a network needs that its layers do not have."""
    for variable in model.weights:
        if variable.path.endswith('kernel'):
            variable.regularizer = options.hyperparams.regularizer
    for number, layer in enumerate(private_names.layers_in(model)):
        for generator in vars(layer).values():
            if isinstance(generator, keras.random.SeedGenerator):
                generator.__class__, generator.number = _StepSeeds, number

    def read_weights(path: str) -> Iterator[tuple[keras.Variable, np.ndarray]]:
        values = network.read(path)
        for each in model.weights:
            value, shape = values[id(each)], tuple(each.shape)
            # A depthwise kernel has its last two axes exchanged, of which one is 1.
            yield each, value.reshape(shape) if value.size == np.prod(shape) else value

    model.read_weights = read_weights
    return model


def _freeze(network: Network, stages: int) -> None:
    """Freezes all layers up to the map of level `stages`, or up to the next finer one."""
    ends = [each.place for level, each in network.maps.items() if level <= stages]
    if stages and not ends:
        raise expected('frozen_stages', f'0, or {min(network.maps)} to 5', stages)
    count = max(ends, default=-1) + 1
    frozen, others = network.calls.layers[:count], network.calls.layers[count:]
    for layer in frozen:
        if any(layer is other for other in others):
            raise expected('frozen_stages', f'0, as {layer.name} computes further stages', stages)
        if isinstance(layer, keras.layers.Layer):
            layer.trainable = False


def set_norm(norm: keras.layers.BatchNormalization, options: BackboneOptions) -> None:
    """Makes a batch norm of Keras, which may be built, one of this package."""
    params = options.hyperparams.batch_norm
    frozen = not options.batch_norm_trainable
    if params is not None:
        frozen = frozen or not params.train
        norm.momentum, norm.epsilon = params.momentum, params.epsilon
        norm.synchronized = params.synchronized
        norm.trainable = not (frozen and params.freeze_affine)
    # Both are Keras's class with another `call`.
    norm.__class__ = FrozenBatchNorm if frozen else BatchNorm
    norm._rounding = rounding.current()


def load(network: keras.Model, path: str) -> str | None:
    """Loads all weights of a file that Keras wrote; returns why it is not of this network."""
    try:
        with warnings.catch_warnings():
            # Keras warns of layers that keep their random weights.
            warnings.simplefilter('error', UserWarning)
            network.load_weights(path)
    except (ValueError, OSError, KeyError, UserWarning) as error:
        return first_line(error)
    return None


def first_line(error: Exception) -> str:
    return str(error).strip().partition('\n')[0]


class _StepSeeds(keras.random.SeedGenerator):
    """Seeds that follow from those of the images, so that a resumed training draws the same."""

    number = 0

    def next(self, ordered: bool = True) -> tf.Tensor:
        seeds = tracing.image_seeds()
        if seeds is None:
            return super().next(ordered)
        total = tf.reduce_sum(tf.cast(seeds, tf.int32), axis=0)
        return tf.random.experimental.stateless_fold_in(total, self.number)


def _of_any_channels(
    normalize: Callable[[tf.Tensor], tf.Tensor],
) -> Callable[[tf.Tensor], tf.Tensor]:
    """Extends a normalization of RGB images, an affine function of each channel, to other channels.

    Grey images, and channels after the third, are converted as the three are on average.
    """

    def converted(images: tf.Tensor) -> tf.Tensor:
        if images.shape[-1] == image_channels.RGB:
            return normalize(images)
        zero, one = (normalize(tf.fill([1, 1, 1, 3], value))[0, 0, 0] for value in (0.0, 1.0))
        scale, offset = tf.reduce_mean(one - zero), tf.reduce_mean(zero)
        others = images[..., image_channels.RGB :] if images.shape[-1] > 3 else images
        others = others * tf.cast(scale, images.dtype) + tf.cast(offset, images.dtype)
        if images.shape[-1] < image_channels.RGB:
            return others
        return tf.concat([normalize(images[..., : image_channels.RGB]), others], axis=-1)

    return converted
