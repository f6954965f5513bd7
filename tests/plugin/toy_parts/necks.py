"""A neck: a convolution of size 1 on each map, and coarser maps from the last one."""

from collections.abc import Sequence

import keras

from object_detection.models.necks.table import Neck, NeckOptions
from object_detection.models.normalization import normalized


def build(channels: Sequence[int], options: NeckOptions) -> keras.Model:
    """Builds the network from the maps of `options.inputs` to those of `options.levels`."""
    # A model converts its inputs to their dtypes; those of the backbone may be bfloat16.
    dtype = keras.config.dtype_policy().compute_dtype
    inputs = [keras.Input((None, None, depth), dtype=dtype) for depth in channels]
    hyperparams = options.hyperparams

    def block(x, level: int, size: int, strides: int):
        conv = hyperparams.conv(options.depth, size, strides=strides, name=f'conv_{level}')
        norm = hyperparams.norm(frozen=not options.batch_norm_trainable, name=f'norm_{level}')
        activation = hyperparams.activation_layer(name=f'activation_{level}')
        return activation(normalized(conv, norm, x))

    maps = [block(x, level, 1, 1) for level, x in zip(options.inputs, inputs, strict=True)]
    for level in range(options.inputs[-1] + 1, options.levels[-1] + 1):
        maps.append(block(maps[-1], level, 3, 2))
    return keras.Model(inputs, maps, name='fpn')


# It reads the message `fpn` of a config: its levels, and its depth.
LATERALS = Neck(build, frozenset({'fpn'}))
