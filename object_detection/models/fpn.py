"""Feature pyramid networks (https://arxiv.org/abs/1612.03144) as functional Keras models."""

from collections.abc import Sequence

import keras

from object_detection.models.hyperparams import LayerHyperparams


def feature_pyramid(
    channels: Sequence[int],
    *,
    min_level: int,
    depth: int,
    num_coarse_levels: int,
    hyperparams: LayerHyperparams,
    batch_norm_trainable: bool,
    name: str,
) -> keras.Model:
    """Builds the top-down pyramid and the coarser levels behind it.

    Each level is a 1x1 projection (with a bias, without norm and activation) of its backbone map
    plus the next coarser level, doubled in size by nearest neighbour, smoothed by a 3x3
    convolution, norm and activation. The top level is not smoothed. Levels that the backbone does
    not have are 3x3 convolutions of stride 2, norm and activation, chained on the top level.
    Like the reference implementation, and unlike the paper, what is propagated down is the
    smoothed map.

    Args:
      channels: channels of the backbone maps, finest first.
      min_level: level of the first of them; level l has stride 2**l.
      depth: channels of all levels of the pyramid.
      num_coarse_levels: levels beyond the backbone's.
      hyperparams: set-up of all layers.
      batch_norm_trainable: False freezes the batch norms.
      name: of the model.

    Returns:
      A model from the list of backbone maps, each exactly half as large as the one before, to the
      list of pyramid maps [B, H, W, depth], finest first.
    """
    top_level = min_level + len(channels) - 1
    inputs = {
        level: keras.Input((None, None, c), name=f'features_{level}')
        for level, c in enumerate(channels, start=min_level)
    }

    def finish(x, suffix: str):
        x = hyperparams.norm(frozen=not batch_norm_trainable, name=f'{suffix}_bn')(x)
        return hyperparams.activation_layer(name=f'{suffix}_activation')(x)

    def project(level: int):
        return hyperparams.conv(depth, 1, use_bias=True, name=f'projection_{level}')(inputs[level])

    x = project(top_level)
    outputs = [x]
    for level in range(top_level - 1, min_level - 1, -1):
        x = keras.layers.UpSampling2D(2, interpolation='nearest', name=f'upsampling_{level}')(x)
        x = keras.layers.Add(name=f'add_{level}')([x, project(level)])
        x = finish(hyperparams.conv(depth, 3, name=f'smoothing_{level}')(x), f'smoothing_{level}')
        outputs.insert(0, x)
    for level in range(top_level + 1, top_level + 1 + num_coarse_levels):
        x = hyperparams.conv(depth, 3, strides=2, name=f'coarse_{level}')(outputs[-1])
        outputs.append(finish(x, f'coarse_{level}'))
    return keras.Model(list(inputs.values()), outputs, name=name)
