"""The networks of keras.applications as backbones: rows named 'keras:<function>'."""

import functools
import inspect
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from object_detection.config import overrides
from object_detection.errors import CheckpointError, UserError, expected, format_list
from object_detection.models import image_channels, rounding
from object_detection.models.backbones.table import (
    CROP_STAGE_NAME,
    KERAS,
    KERAS_MULTIPLE,
    TRUNK_NAME,
    Backbone,
    BackboneOptions,
)
from object_detection.models.hyperparams import LayerHyperparams
from object_detection.models.normalization import BatchNorm, FrozenBatchNorm

# Side of the images whose maps show the strides of layers: an odd multiple of the largest stride,
# so that a map that is not padded as its stride needs has another size.
_SIDE = 7 * KERAS_MULTIPLE
_SHAPE = (_SIDE, _SIDE, image_channels.RGB)
_LEVELS = range(1, 6)
_REGULARIZERS = tuple(f'{kind}_regularizer' for kind in ('kernel', 'depthwise', 'pointwise'))


def row(network: str) -> Backbone:
    """Returns the row of a function of keras.applications, such as 'ConvNeXtTiny'.

    The map of a level is the last one of its stride that all later layers depend on alone. Weights
    are random until `read_weights` of a model reads a file, see `_read_weights`. As in an
    EfficientNet of this package, a config that overrides the hyperparameters determines the penalty
    alone.

    Raises:
      UserError: if there is no such function.
    """
    functions = _functions()
    if network not in functions:
        problem = overrides.unknown_choice(
            f'{KERAS}{network}', [f'{KERAS}{name}' for name in functions]
        )
        raise UserError(f'backbone: {problem}')
    module, function = functions[network]

    def trunk(levels: Sequence[int], options: BackboneOptions) -> keras.Model:
        images, maps, places = _maps(network, function, options)
        _check_levels(network, levels, maps)
        model = keras.Model(images, [maps[level] for level in levels], name=TRUNK_NAME)
        model.read_weights = functools.partial(_read_weights, network, places, model)
        return model

    def crop_stage(options: BackboneOptions) -> keras.Model:
        _, maps, places = _maps(network, function, options)
        _check_levels(network, (4, 5), maps)
        model = keras.Model(maps[4], maps[5], name=CROP_STAGE_NAME)
        model.read_weights = functools.partial(_read_weights, network, places, model)
        return model

    return Backbone(
        trunk,
        _LEVELS,
        module.preprocess_input,
        LayerHyperparams(),
        padding_multiple=KERAS_MULTIPLE,
        crop_stage=crop_stage,
    )


def _functions() -> dict[str, tuple[Any, Callable[..., keras.Model]]]:
    """Returns the module and the function of each network."""
    functions = inspect.getmembers(keras.applications, inspect.isfunction)
    return {name: (inspect.getmodule(function), function) for name, function in functions}


def _check_levels(network: str, levels: Sequence[int], maps: dict[int, Any]) -> None:
    missing = [str(2**level) for level in levels if level not in maps]
    if missing:
        strides = format_list([str(2**level) for level in maps]) or 'none of these strides'
        raise UserError(
            f'backbone: {KERAS}{network}: expected a network with maps of the strides '
            f'{format_list([str(2**level) for level in levels])}, each of ceil(size / stride). '
            f'Received one with {strides}.'
        )


def _maps(
    network: str, function: Callable[..., keras.Model], options: BackboneOptions
) -> tuple[keras.KerasTensor, dict[int, keras.KerasTensor], dict[str, int]]:
    """Returns a new network for images of any size: its input, and its maps by their levels.

    The third value is the index of the layer in a network of Keras for the name of each new one.
    """
    if rounding.current() is not None:
        raise expected(f'backbone: {KERAS}{network}', 'no quantization in training', 'one')
    if image_channels.current() != image_channels.RGB:
        raise expected(
            f'backbone: {KERAS}{network}', 'images of 3 channels', image_channels.current()
        )
    with tf.Graph().as_default():  # Variables of a graph have no values.
        given = function(include_top=False, weights=None, input_shape=_SHAPE)
    images = keras.Input((None, None, image_channels.RGB), name='images')
    renewal = _Renewal(options, given.layers)
    keras.models.clone_model(
        given, images, clone_function=renewal.layer, call_function=renewal.call
    )
    return images, renewal.maps(), renewal.places


def _read_weights(
    network: str, places: Mapping[str, int], model: keras.Model, path: str
) -> Iterator[tuple[keras.Variable, np.ndarray]]:
    """Yields each variable of a model of a network, and its value in a file of Keras' weights.

    Args:
      network: name of the function.
      places: name of a layer of the model -> its index in a network of Keras.
      model: a part of the network.
      path: a file that Keras publishes, or `save_weights` writes, with or without the top.

    Raises:
      CheckpointError: if the file is of another network.
    """
    module, function = _functions()[network]
    if module.__name__.endswith('.efficientnet'):
        raise CheckpointError(
            f'{path}: expected the backbone efficientnet-{network[-2:].lower()}, as '
            f'{KERAS}{network} normalizes images in another way than these weights were made for. '
            f'Received: {KERAS}{network}.'
        )
    reasons = []
    for top in ({'include_top': False, 'input_shape': _SHAPE}, {}):
        given = function(weights=None, **top)
        try:
            with warnings.catch_warnings():
                # Keras warns of layers that keep their random weights.
                warnings.simplefilter('error', UserWarning)
                given.load_weights(path)
        except (ValueError, OSError, KeyError, UserWarning) as error:
            reasons.append(str(error).partition('\n')[0])
            continue
        for layer in model.layers:
            if layer.weights:
                values = given.layers[places[layer.name]].weights
                yield from zip(layer.weights, [each.value.numpy() for each in values], strict=True)
        return
    raise CheckpointError(
        f'{path}: expected weights of keras.applications.{network}, which Keras loads. '
        f'Received: {reasons[0]}'
    )


class _Renewal:
    """Makes the layers of a backbone of those of a network, and notes their calls.

    Attributes:
      places: name of a new layer -> index of the given one.
    """

    def __init__(self, options: BackboneOptions, layers: Sequence[keras.layers.Layer]):
        self._options = options
        self._indices = {id(layer): index for index, layer in enumerate(layers)}
        self.places: dict[str, int] = {}
        # Of each call: the shape for images of `_SIDE`, the ids of inputs, and the output.
        self._shapes: list[Sequence[int | None]] = []
        self._inputs: list[list[int]] = []
        self._outputs: list[keras.KerasTensor] = []

    def layer(self, given: Any) -> Any:
        """Returns a new layer of the same kind and name, with the norms of this package."""
        self._shapes.append(given.output.shape)
        if not isinstance(given, keras.layers.Layer):
            return given
        config, kind = given.get_config(), type(given)
        hyperparams = self._options.hyperparams
        automatic = _snake_case(kind)
        if re.fullmatch(rf'{automatic}(_\d+)?', given.name):
            # Keras counts the layers of a process; variables have the same name in each.
            config['name'] = f'{automatic}_{len(self._shapes)}'
        if isinstance(given, keras.layers.BatchNormalization):
            kind = BatchNorm if self._options.batch_norm_trainable else FrozenBatchNorm
            norm = hyperparams.batch_norm
            config['synchronized'] = norm is not None and norm.synchronized
        if {'init_values', 'projection_dim'} <= config.keys():
            kind = _LayerScale
        self.places[config['name']] = self._indices[id(given)]
        config |= {name: hyperparams.regularizer for name in _REGULARIZERS if name in config}
        return kind.from_config(config)

    def call(self, layer: Any, *arguments: Any, **options: Any) -> keras.KerasTensor:
        """Calls a new layer."""
        output = layer(*arguments, **options)
        self._inputs.append([id(each) for each in keras.tree.flatten((arguments, options))])
        self._outputs.append(output)
        return output

    def maps(self) -> dict[int, keras.KerasTensor]:
        """Returns for each level the last map of its stride that all later calls depend on."""
        made = {id(output): place for place, output in enumerate(self._outputs)}
        last_use = list(range(len(made)))
        for place, inputs in enumerate(self._inputs):
            for tensor in inputs:
                if tensor in made:
                    last_use[made[tensor]] = place
        found, used = {}, 0
        for place, shape in enumerate(self._shapes):
            is_passed_by_all, used = used <= place, max(used, last_use[place])
            for level in _LEVELS:
                side = _SIDE // 2**level
                if is_passed_by_all and tuple(shape[1:3]) == (side, side):
                    found[level] = self._outputs[place]
        return found


class _LayerScale(keras.layers.Layer):
    """The layer of ConvNeXt, a factor for each channel, whose variable Keras gives no name."""

    def __init__(self, init_values: float, projection_dim: int, **options: Any):
        super().__init__(**options)
        self._initial, self._depth = init_values, projection_dim

    def build(self, _):
        initializer = keras.initializers.Constant(self._initial)
        self._gamma = self.add_weight(name='gamma', shape=(self._depth,), initializer=initializer)

    def call(self, inputs):
        return inputs * self._gamma


def _snake_case(kind: type) -> str:
    """Returns the name that Keras gives a layer of a class, without its number."""
    return re.sub(r'([a-z0-9])([A-Z])', r'\1_\2', kind.__name__).lower()
