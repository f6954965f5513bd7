"""The networks of KerasHub as backbones: rows named 'keras_hub:<preset>'.

A preset is a name that KerasHub knows, such as resnet_vd_50_imagenet, whose files it downloads once
(`tfod weights download` makes a folder of them), or such a folder.
"""

import contextlib
import functools
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from object_detection.config import overrides
from object_detection.core.shapes import round_up
from object_detection.errors import CheckpointError, UserError, expected
from object_detection.models import image_channels, image_sizes
from object_detection.models.backbones import adoption
from object_detection.models.backbones.efficientnet import IMAGENET
from object_detection.models.backbones.table import (
    KERAS_HUB,
    KERAS_MULTIPLE,
    Backbone,
    BackboneOptions,
)
from object_detection.models.image_values import Preprocess
from object_detection.system import extras, private_names

# Arguments of networks for the shape of images.
_SHAPES = ('image_shape', 'input_shape')
# Shapes of outputs in an error.
_NUM_SHOWN = 4
# Networks whose stochastic depth has no generator of random numbers.
_UNSEEDED = ('MobileNetV5Backbone',)
# Networks that subtract the means of ImageNet from images in 0..1 themselves.
_NORMALIZING = ('ViTDetBackbone',)
_FRACTIONS = Preprocess(mean=(0.0,) * 3, std=(1.0,) * 3, scale=1 / 255)


def row(preset: str) -> Backbone:
    """Returns the row of a preset.

    Its maps are `pyramid_outputs` of the network, by their strides, else its outputs and the last
    ones of further strides. Images are scaled as the preset says, else as those of ImageNet. A
    network that KerasHub makes for images of one size alone is made for the square one of
    `image_sizes`.

    Raises:
      UserError: if KerasHub is not installed, or there is no such preset of a network from images
        to maps.
    """
    kind, config = _network(preset)
    build = functools.partial(_build, preset, kind, config)
    return adoption.row(f'{KERAS_HUB}{preset}', build, _normalization(preset, kind))


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
    backbone = _untrained(preset)
    kind, inputs = type(backbone), keras.tree.flatten(backbone.input)
    if len(inputs) > 1 or len(inputs[0].shape) != 4:
        found = ', '.join(each.name for each in inputs)
        raise _refused(preset, kind, 'a network from images alone', f'one from {found}')
    if any(len(each.shape) != 4 for each in _maps(backbone)):
        raise _refused(preset, kind, 'maps [B, H, W, C] as outputs', _shapes(_maps(backbone)))
    config = backbone.get_config()
    if not any(name in config for name in _SHAPES):
        wanted = f'an option for the shape of images, {" or ".join(_SHAPES)}'
        raise _refused(preset, kind, wanted, 'none')
    if kind.__name__ in _UNSEEDED and config['drop_path_rate']:
        wanted = 'drop_path_rate: 0, as a resumed training would draw other random numbers'
        raise _refused(preset, kind, wanted, config['drop_path_rate'])
    return kind, config


def _untrained(preset: str) -> keras.Model:
    """Returns the network of a preset, with random weights."""
    read = functools.partial(library().models.Backbone.from_preset, preset, load_weights=False)
    try:
        with contextlib.suppress(TypeError), tf.Graph().as_default():
            return read()  # Variables of a graph have no values.
        return read()  # Some read tensors as they are made.
    except Exception as error:  # Whatever Kaggle's client, or a file, raises.
        wanted = 'a preset that can be read'
        raise expected(
            f'backbone: {KERAS_HUB}{preset}', wanted, adoption.first_line(error)
        ) from error


def _normalization(preset: str, kind: type[keras.Model]) -> Callable[[tf.Tensor], tf.Tensor]:
    try:
        converter = library().layers.ImageConverter.from_preset(preset)
    except (ValueError, OSError):  # The preset has none.
        return _FRACTIONS if kind.__name__ in _NORMALIZING else IMAGENET
    scale, offset = converter.scale, converter.offset
    factor = 1.0 if scale is None else np.asarray(scale, np.float32)
    term = 0.0 if offset is None else np.asarray(offset, np.float32)

    def normalize(images: tf.Tensor) -> tf.Tensor:
        return images * tf.cast(factor, images.dtype) + tf.cast(term, images.dtype)

    return normalize


def _build(
    preset: str, kind: type[keras.Model], config: Mapping[str, Any], options: BackboneOptions
) -> adoption.Network:
    channels = image_channels.current()
    backbone, size = _make(preset, kind, config, channels)
    for layer in private_names.layers_in(backbone):
        if type(layer) is keras.layers.BatchNormalization:
            adoption.set_norm(layer, options)
    outputs, preferred = keras.tree.flatten(backbone.output), _maps(backbone)
    network = keras.Model(backbone.input, [*preferred, *outputs])
    side = size or adoption.SIDE
    images = keras.Input((size, size, channels), name='images')
    static, calls = adoption.Calls(), adoption.Calls()
    sized, called = (
        keras.models.clone_model(
            network, inputs, clone_function=lambda layer: layer, call_function=each.call
        ).outputs[: len(preferred)]
        for inputs, each in ((keras.Input((side, side, channels)), static), (images, calls))
    )
    maps = calls.maps([each.shape for each in static.outputs], called, side)
    if not any(each.tensor is tensor for each in maps.values() for tensor in called):
        found = f'{_shapes(sized)} for images of {side} x {side}'
        raise _refused(preset, kind, 'outputs of stride 2, 4, 8, 16 or 32', found)

    def read(path: str) -> Mapping[int, np.ndarray]:
        given, _ = _make(preset, kind, config, image_channels.RGB, size)
        if reason := adoption.load(given, path):
            raise CheckpointError.expected(path, f'weights of {KERAS_HUB}{preset}', reason)
        values = [each.value.numpy() for each in given.weights]
        return {id(each): value for each, value in zip(backbone.weights, values, strict=True)}

    return adoption.Network(images, calls, maps, read)


def _maps(backbone: keras.Model) -> list[keras.KerasTensor]:
    """Returns the outputs that are meant as maps: those of its pyramid, else all."""
    pyramid = getattr(backbone, 'pyramid_outputs', {})
    return [*pyramid.values()] or keras.tree.flatten(backbone.output)


def _shapes(outputs: Sequence[keras.KerasTensor]) -> str:
    different = [*dict.fromkeys(str(each.shape) for each in outputs)]
    return ', '.join(different[:_NUM_SHOWN]) + ', ...' * (len(different) > _NUM_SHOWN)


def _make(
    preset: str,
    kind: type[keras.Model],
    config: Mapping[str, Any],
    channels: int,
    side: int | None = None,
) -> tuple[keras.Model, int | None]:
    """Returns a new network, and the side of the only images that it takes.

    Args:
      preset: its name.
      kind, config: see `_network`.
      channels: number of channels of images.
      side: of images; None makes the network for images of any size, if it can be made so, or else
        for those of `image_sizes`.

    Raises:
      UserError: if it is no network from images to maps, or needs images of one square size.
    """
    if side is None:
        with contextlib.suppress(TypeError, ValueError, NotImplementedError):
            return _of_size(kind, config, (None, None, channels)), None
        size = image_sizes.current()
        if size is None or size[0] != size[1]:
            raise _refused(
                preset,
                kind,
                'images of one square size, such as of fixed_shape_resizer { height: 512 width: '
                '512 }, as it takes no others',
                'images of any size' if size is None else f'images of {size[0]} x {size[1]}',
            )
        side = round_up(size[0], KERAS_MULTIPLE)
    try:
        return _of_size(kind, config, (side, side, channels)), side
    except (TypeError, ValueError, NotImplementedError) as error:
        wanted = f'a network for images of {side} x {side} x {channels}'
        raise _refused(preset, kind, wanted, adoption.first_line(error)) from error


def _of_size(
    kind: type[keras.Model], config: Mapping[str, Any], shape: tuple[int | None, ...]
) -> keras.Model:
    name = next(name for name in _SHAPES if name in config)
    options = {name: shape, 'dtype': keras.config.dtype_policy().name}
    with private_names.fresh_layer_names():
        return kind.from_config({**config, **options})


def _refused(preset: str, kind: type[keras.Model], wanted: str, received: object) -> UserError:
    return expected(f'backbone: {KERAS_HUB}{preset}: {kind.__name__}', wanted, received)
