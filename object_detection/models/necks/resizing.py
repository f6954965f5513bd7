"""Layers that double the size of maps and cut them to the size of others.

Transposed convolutions that enlarge the last map of a backbone, as in CenterNet.
"""

from collections.abc import Sequence

import keras
import tensorflow as tf

from object_detection.core import tracing
from object_detection.core.shapes import dimensions
from object_detection.models.hyperparams import LayerHyperparams
from object_detection.models.necks.table import Neck, NeckOptions
from object_detection.models.normalization import normalized
from object_detection.models.rounding import Roundable


class Doubling(Roundable):
    """Doubles the size of maps [B, H, W, C] by nearest neighbour.

    Results are those of Keras's UpSampling2D, in a tenth of the operations to trace.
    """

    def call(self, inputs):
        if tracing.BasicOperations.is_on():
            size = 2 * tf.stack(dimensions(inputs, 1, 2))
            return tf.raw_ops.ResizeNearestNeighbor(images=inputs, size=size)
        return tf.nn.depth_to_space(tf.concat([inputs] * 4, axis=-1), 2)

    def compute_output_shape(self, shape):
        batch, height, width, channels = shape
        doubled = [None if side is None else 2 * side for side in (height, width)]
        return (batch, *doubled, channels)


class CropTo(Roundable):
    """Cuts maps [B, H, W, C] at the bottom and right to the size of others, [B, H', W', C']."""

    def call(self, inputs, like):
        if None not in inputs.shape[1:3] and inputs.shape[1:3] == like.shape[1:3]:
            return inputs
        height, width = dimensions(like, 1, 2)
        return inputs[:, :height, :width]

    def compute_output_shape(self, inputs_shape, like_shape):
        return (*like_shape[:3], inputs_shape[-1])


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


def _build_upsampling(channels: Sequence[int], options: NeckOptions) -> keras.Model:
    return upsampling(channels[-1], **options.settings, **options.arguments())


UPSAMPLING = Neck(_build_upsampling)
