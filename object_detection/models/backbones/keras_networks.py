"""The networks of keras.applications as backbones: rows named 'keras:<function>'."""

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from object_detection.config import overrides
from object_detection.errors import CheckpointError, UserError
from object_detection.models import convolutions, image_channels, rounding
from object_detection.models.backbones import adoption
from object_detection.models.backbones.table import KERAS, Backbone, BackboneOptions
from object_detection.models.normalization import BatchNorm, normalized
from object_detection.system import private_names

_SHAPE = (adoption.SIDE, adoption.SIDE, image_channels.RGB)
# Networks whose windows with VALID padding become SAME, as in the reference's Inception-ResNet:
# their maps then are of size / stride. A map of Keras's own network is smaller.
_ALIGNED = ('InceptionResNetV2', 'InceptionV3', 'Xception')
# Networks whose first convolution alone has VALID padding: rows and columns of zeros below and to
# the right of images, which make it SAME.
_PADDED = {'NASNetLarge': 1, 'NASNetMobile': 1}
# Networks whose residual blocks may be left out in training, and the probability of the last one
# that the functions of EfficientNets have.
_WITH_DROP_PATH, _EFFICIENTNET_RATE = ('ConvNeXt', 'EfficientNet'), 0.2
# Layers of Keras -> those of this package, whose results are the same.
_KINDS = {
    keras.layers.Activation: rounding.Activation,
    keras.layers.Add: rounding.Add,
    keras.layers.AveragePooling2D: rounding.AveragePooling2D,
    keras.layers.Concatenate: rounding.Concatenate,
    keras.layers.Conv2D: convolutions.Convolution,
    keras.layers.Dense: convolutions.Dense,
    keras.layers.DepthwiseConv2D: convolutions.DepthwiseConvolution,
    keras.layers.GlobalAveragePooling2D: rounding.GlobalAveragePooling2D,
    keras.layers.MaxPooling2D: rounding.MaxPooling2D,
    keras.layers.Multiply: rounding.Multiply,
    keras.layers.SeparableConv2D: convolutions.SeparableConvolution,
    keras.layers.ZeroPadding2D: rounding.ZeroPadding2D,
}


def row(network: str) -> Backbone:
    """Returns the row of a function of keras.applications, such as 'ConvNeXtTiny'.

    Raises:
      UserError: if there is no such function.
    """
    functions = _functions()
    if network not in functions:
        problem = overrides.unknown_choice(
            f'{KERAS}{network}', [f'{KERAS}{name}' for name in functions]
        )
        raise UserError(f'backbone: {problem}')
    module, _ = functions[network]
    build = functools.partial(_build, network)
    uses = {'drop_path_rate'} if network.startswith(_WITH_DROP_PATH) else ()
    return adoption.row(f'{KERAS}{network}', build, module.preprocess_input, uses)


def _functions() -> dict[str, tuple[Any, Callable[..., keras.Model]]]:
    """Returns the module and the function of each network."""
    functions = inspect.getmembers(keras.applications, inspect.isfunction)
    return {name: (inspect.getmodule(function), function) for name, function in functions}


def _build(network: str, options: BackboneOptions) -> adoption.Network:
    _, function = _functions()[network]
    pad = _PADDED.get(network, 0)
    height, width, channels = _SHAPE
    with tf.Graph().as_default():  # Variables of a graph have no values.
        given = function(
            include_top=False, weights=None, input_shape=(height + pad, width + pad, channels)
        )
        if network in _ALIGNED:
            given = keras.models.clone_model(given, clone_function=_with_same_padding)
    images = x = keras.Input((None, None, image_channels.current()), name='images')
    if pad:
        x = rounding.ZeroPadding2D(((0, pad), (0, pad)), name='images_pad')(x)
    renewal = _Renewal(options, _drop_path_rates(given, options.drop_path_rate))
    keras.models.clone_model(given, x, clone_function=renewal.layer, call_function=renewal.call)
    read = functools.partial(_read, network, renewal.layers)
    return adoption.Network(images, renewal, renewal.maps(renewal.shapes), read)


def _drop_path_rates(given: keras.Model, rate: float | None) -> dict[str, float]:
    """Returns the names of the layers that leave residual blocks out -> their probabilities.

    Those of an EfficientNet are in proportion to Keras's; a ConvNeXt has identities in their place,
    whose probabilities rise from 0.

    Args:
      given: a network.
      rate: probability of the last block; None leaves the network as it is.
    """
    if rate is None:
        return {}
    dropouts = [each for each in given.layers if getattr(each, 'noise_shape', None)]
    if dropouts:
        return {each.name: each.rate * rate / _EFFICIENTNET_RATE for each in dropouts}
    names = [each.name for each in given.layers if each.name.endswith('_identity')]
    return dict(zip(names, np.linspace(0.0, rate, len(names)).tolist(), strict=True))


def _with_same_padding(layer: keras.layers.Layer) -> keras.layers.Layer:
    config = layer.get_config()
    if config.get('padding') == 'valid':
        config['padding'] = 'same'
    return type(layer).from_config(config)


def _read(network: str, layers: list[Any], path: str) -> Mapping[int, np.ndarray]:
    """Returns the values of the variables of a network, by their ids, in a file of Keras' weights.

    Args:
      network: name of the function.
      layers: of the new network; names are those of the layers of Keras' own.
      path: a file that Keras publishes, or `save_weights` or `save` writes, with or without the
        top. Of a file of `save`, the weights alone are read, and no code.

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
        with private_names.fresh_layer_names():
            given = function(weights=None, **top)
        if reason := adoption.load(given, path):
            reasons.append(reason)
            continue
        return {
            id(variable): np.asarray(value.value.numpy())
            for layer in layers
            if getattr(layer, 'weights', None)
            for variable, value in zip(
                layer.weights, given.get_layer(layer.name).weights, strict=True
            )
        }
    raise CheckpointError(
        f'{path}: expected weights of keras.applications.{network}, which Keras loads. '
        f'Received: {reasons[0]}'
    )


class _Renewal(adoption.Calls):
    """Makes the layers of a backbone of those of a network, and notes their calls.

    Args:
      options: of the backbone.
      drop_path_rates: see `_drop_path_rates`.

    Attributes:
      shapes: of the outputs of the calls, for images of `adoption.SIDE`.
    """

    def __init__(self, options: BackboneOptions, drop_path_rates: Mapping[str, float]):
        super().__init__()
        self.shapes: list[tuple[int | None, ...]] = []
        self._options = options
        self._drop_path_rates = drop_path_rates
        # Output of a layer that a norm may be folded into -> the layer and its input.
        self._foldable: dict[int, tuple[keras.layers.Layer, Any]] = {}

    def layer(self, given: Any) -> Any:
        """Returns a new layer of the same name, of this package where it has such a layer."""
        self.shapes.append(tuple(given.output.shape))
        return self._renewed(given)

    def _renewed(self, given: Any) -> Any:
        if not isinstance(given, keras.layers.Layer):
            return given
        if isinstance(given, keras.Sequential):
            layers = [self._renewed(each) for each in given.layers]
            return keras.Sequential(layers, name=given.name)
        if given.name in self._drop_path_rates:
            rate = self._drop_path_rates[given.name]
            # A whole map of an image is dropped, or divided by the probability that it is not.
            return keras.layers.Dropout(rate, noise_shape=(None, 1, 1, 1), name=given.name)
        config, kind = given.get_config(), type(given)
        if isinstance(given, keras.layers.BatchNormalization):
            norm = BatchNorm.from_config(config)
            adoption.set_norm(norm, self._options)
            return norm
        if isinstance(given, keras.layers.Normalization) and config['mean'] is not None:
            for name in ('mean', 'variance'):
                values = np.ravel(config[name]).tolist()
                config[name] = image_channels.of_channels(values, image_channels.current())
        if {'init_values', 'projection_dim'} <= config.keys():
            kind = _LayerScale
        if kind is keras.layers.Conv2D and given.groups > 1:
            return _as_depthwise(given, config)
        if kind is keras.layers.ReLU and given.max_value == 6:
            return rounding.Activation('relu6', name=given.name)
        return _KINDS.get(kind, kind).from_config(config)

    def run(self, layer: Any, *arguments: Any, **options: Any) -> Any:
        """Calls a layer; a norm together with the convolution before it."""
        inputs = arguments[0]
        if isinstance(layer, BatchNorm) and id(inputs) in self._foldable:
            return normalized(self._foldable[id(inputs)][0], layer, self._foldable[id(inputs)][1])
        output = layer(*arguments, **options)
        if isinstance(layer, convolutions.FoldableLayer):
            self._foldable[id(output)] = layer, inputs
        return output


def _as_depthwise(given: keras.layers.Conv2D, config: dict[str, Any]) -> keras.layers.Layer:
    """Returns a convolution of one group for each channel as a depthwise one.

    Keras has XLA compile those of groups, which exported models should do without.
    """
    if given.kernel.shape[2] > 1 or given.kernel.shape[3] != given.groups:
        return type(given).from_config(config)
    names = ('kernel_initializer', 'kernel_regularizer', 'kernel_constraint')
    renamed = {name.replace('kernel', 'depthwise'): config.pop(name) for name in names}
    del config['filters'], config['groups']
    return convolutions.DepthwiseConvolution.from_config(config | renamed)


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
