"""Transposed convolutions that enlarge the last map of a backbone, as in CenterNet."""

import keras

from object_detection.models.hyperparams import LayerHyperparams
from object_detection.models.normalization import normalized

_CHANNELS = (256, 128, 64)


def upsampling(
    channels: int,
    *,
    hyperparams: LayerHyperparams,
    batch_norm_trainable: bool,
    kernel_size: int = 3,
    name: str = 'fpn',
) -> keras.Model:
    """Builds three times: a convolution, and a transposed one of 3x3 that doubles the size.

    Batch norm and ReLU follow each of them.

    Args:
      channels: number of channels of the map of the backbone.
      hyperparams: set-up of all layers.
      batch_norm_trainable: False freezes the batch norms.
      kernel_size: of the convolutions that keep the size.
      name: name of the model.

    Returns:
      A model from [B, H, W, C] to [B, 8 * H, 8 * W, 64].
    """
    dtype = keras.config.dtype_policy().compute_dtype
    features = keras.Input((None, None, channels), dtype=dtype)
    x = features
    for i, count in enumerate(_CHANNELS):
        norm = hyperparams.norm(frozen=not batch_norm_trainable, name=f'conv_{i}_bn')
        x = normalized(hyperparams.conv(count, kernel_size, name=f'conv_{i}'), norm, x)
        x = hyperparams.activation_layer(name=f'conv_{i}_relu')(x)
        x = keras.layers.Conv2DTranspose(
            count,
            3,
            strides=2,
            padding='same',
            use_bias=hyperparams.use_bias,
            name=f'doubling_{i}',
            **hyperparams.kernel_options(),
        )(x)
        x = hyperparams.norm(frozen=not batch_norm_trainable, name=f'doubling_{i}_bn')(x)
        x = hyperparams.activation_layer(name=f'doubling_{i}_relu')(x)
    return keras.Model(features, x, name=name)
