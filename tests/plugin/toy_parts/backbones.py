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
    hyperparams, maps = options.hyperparams, {}
    for level in range(1, levels[-1] + 1):
        conv = hyperparams.conv(_CHANNELS[level], 3, strides=2, name=f'conv_{level}')
        norm = hyperparams.norm(frozen=not options.batch_norm_trainable, name=f'norm_{level}')
        activation = hyperparams.activation_layer(name=f'activation_{level}')
        x = maps[level] = activation(normalized(conv, norm, x))
    return keras.Model(images, [maps[level] for level in levels], name='backbone')


PLAIN = Backbone(
    trunk=trunk,
    levels=range(1, 6),
    normalize=scale_to_unit,
    hyperparams=LayerHyperparams(activation='relu', batch_norm=BatchNormParams(scale=True)),
)
