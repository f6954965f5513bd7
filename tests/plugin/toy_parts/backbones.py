"""A backbone: convolutions of size 3, each with a norm."""

from collections.abc import Sequence

import keras

from object_detection.models import image_channels
from object_detection.models.backbones.table import Backbone, BackboneOptions
from object_detection.models.hyperparams import LayerHyperparams
from object_detection.models.image_values import scale_to_unit
from object_detection.models.normalization import BatchNormParams, normalized

_CHANNELS = {1: 8, 2: 8, 3: 16, 4: 16, 5: 32}


def trunk(levels: Sequence[int], options: BackboneOptions) -> keras.Model:
    """Builds the network from images [B, H, W, 3] to a map [B, H / 2**l, W / 2**l, C] a level l."""
    x = images = keras.Input((None, None, image_channels.current()), name='images')
    maps = {}
    for level in range(1, levels[-1] + 1):
        x = maps[level] = _block(x, level, options)
    return keras.Model(images, [maps[level] for level in levels], name='backbone')


def stage(options: BackboneOptions) -> keras.Model:
    """Builds the layers over crops of the map of stride 16: [N, h, w, 16] -> [N, h/2, w/2, 32]."""
    dtype = keras.config.dtype_policy().compute_dtype
    features = keras.Input((None, None, _CHANNELS[4]), name='features', dtype=dtype)
    return keras.Model(features, _block(features, 5, options), name='box_classifier')


def _block(x, level: int, options: BackboneOptions):
    hyperparams = options.hyperparams
    conv = hyperparams.conv(_CHANNELS[level], 3, strides=2, name=f'conv_{level}')
    norm = hyperparams.norm(frozen=not options.batch_norm_trainable, name=f'norm_{level}')
    activation = hyperparams.activation_layer(name=f'activation_{level}')
    return activation(normalized(conv, norm, x))


PLAIN = Backbone(
    trunk=trunk,
    levels=range(1, 6),  # Level l has stride 2**l.
    normalize=scale_to_unit,
    hyperparams=LayerHyperparams(activation='relu', batch_norm=BatchNormParams(scale=True)),
    crop_stage=stage,
)
