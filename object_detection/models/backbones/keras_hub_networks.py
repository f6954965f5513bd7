"""The networks of KerasHub as backbones: rows named 'keras_hub:<preset>'.

A preset is a name that KerasHub knows, such as resnet_vd_50_imagenet, whose files it downloads once
(`tfod weights download` makes a folder of them), or such a folder.
"""

import contextlib
import functools
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from object_detection.config import overrides
from object_detection.errors import CheckpointError, UserError, expected
from object_detection.models import image_channels
from object_detection.models.backbones import adoption
from object_detection.models.backbones.efficientnet import IMAGENET
from object_detection.models.backbones.table import KERAS_HUB, Backbone, BackboneOptions
from object_detection.system import extras, private_names


def row(preset: str) -> Backbone:
    """Returns the row of a preset.

    Its maps are `pyramid_outputs` of the network, by their strides. Images are scaled as the preset
    says, else as those of ImageNet.

    Raises:
      UserError: if KerasHub is not installed, or there is no such preset of a network for images.
    """
    network = _network(preset)
    build = functools.partial(_build, preset, *network)
    return adoption.row(f'{KERAS_HUB}{preset}', build, _normalization(preset))


def save(preset: str, folder: str) -> None:
    """Writes the files of a preset, with its weights, to a folder.

    Raises:
      UserError: if KerasHub is not installed, or cannot read the preset.
    """
    hub = library()
    try:
        hub.models.Backbone.from_preset(preset).save_to_preset(folder)
        with contextlib.suppress(ValueError, OSError):  # Some have none.
            hub.layers.ImageConverter.from_preset(preset).save_to_preset(folder)
    except Exception as error:  # Whatever Kaggle's client raises.
        raise expected(f'{KERAS_HUB}{preset}', 'a preset', adoption.first_line(error)) from error


def library() -> ModuleType:
    """Returns KerasHub.

    Raises:
      UserError: if it is not installed.
    """
    extras.check_packages(f'backbone: {KERAS_HUB}...', ['keras_hub'], 'hub')
    import keras_hub

    return keras_hub


def _network(preset: str) -> tuple[type[keras.Model], Mapping[str, Any]]:
    """Returns the class of a preset and the arguments of its constructor."""
    models, path = library().models, f'backbone: {KERAS_HUB}{preset}'
    known = {
        name
        for each in vars(models).values()
        if isinstance(each, type) and issubclass(each, models.Backbone)
        for name in each.presets
    }
    if hasattr(models, preset):
        presets = ', '.join(getattr(getattr(models, preset), 'presets', ())) or 'none'
        raise expected(path, f'a preset, or a folder of one; of the class there are: {presets}')
    if preset not in known and not tf.io.gfile.exists(preset) and '://' not in preset:
        raise UserError(
            f'backbone: {overrides.unknown_choice(preset, sorted(known))} A folder of a preset is '
            'accepted, too.'
        )
    try:
        with tf.Graph().as_default():  # Variables of a graph have no values.
            backbone = models.Backbone.from_preset(preset, load_weights=False)
    except Exception as error:  # Whatever Kaggle's client, or a file, raises.
        raise expected(path, 'a preset that can be read', adoption.first_line(error)) from error
    return type(backbone), backbone.get_config()


def _normalization(preset: str) -> Callable[[tf.Tensor], tf.Tensor]:
    try:
        converter = library().layers.ImageConverter.from_preset(preset)
    except (ValueError, OSError):  # The preset has none.
        return IMAGENET
    scale, offset = converter.scale, converter.offset
    factor = 1.0 if scale is None else np.asarray(scale, np.float32)
    term = 0.0 if offset is None else np.asarray(offset, np.float32)

    def normalize(images: tf.Tensor) -> tf.Tensor:
        return images * tf.cast(factor, images.dtype) + tf.cast(term, images.dtype)

    return normalize


def _build(
    preset: str, kind: type[keras.Model], config: Mapping[str, Any], options: BackboneOptions
) -> adoption.Network:
    make = functools.partial(_make, preset, kind, config)
    backbone, channels = make(image_channels.current()), image_channels.current()
    for layer in private_names.layers_in(backbone):
        if type(layer) is keras.layers.BatchNormalization:
            adoption.set_norm(layer, options)
    outputs = keras.tree.flatten(backbone.output)
    preferred = [*getattr(backbone, 'pyramid_outputs', {}).values()] or outputs
    network = keras.Model(backbone.input, [*preferred, *outputs])
    static, calls = adoption.Calls(), adoption.Calls()
    images = keras.Input((None, None, channels), name='images')
    size = (adoption.SIDE, adoption.SIDE, channels)
    for inputs, each in ((keras.Input(size), static), (images, calls)):
        called = keras.models.clone_model(
            network, inputs, clone_function=lambda layer: layer, call_function=each.call
        )
    maps = calls.maps([each.shape for each in static.outputs], called.outputs[: len(preferred)])

    def read(path: str) -> Mapping[int, np.ndarray]:
        given = make(image_channels.RGB)
        if reason := adoption.load(given, path):
            raise CheckpointError.expected(path, f'weights of {KERAS_HUB}{preset}', reason)
        values = [each.value.numpy() for each in given.weights]
        return {id(each): value for each, value in zip(backbone.weights, values, strict=True)}

    return adoption.Network(images, calls, maps, read)


def _make(
    preset: str, kind: type[keras.Model], config: Mapping[str, Any], channels: int
) -> keras.Model:
    """Returns a new network for images of any size."""
    shape = 'image_shape' if 'image_shape' in config else 'input_shape'
    options = {shape: (None, None, channels), 'dtype': keras.config.dtype_policy().name}
    try:
        with private_names.fresh_layer_names():
            return kind.from_config({**config, **options})
    except (TypeError, ValueError) as error:
        raise expected(
            f'backbone: {KERAS_HUB}{preset}',
            f'a network for images of any size. {kind.__name__}: {adoption.first_line(error)}',
        ) from error
