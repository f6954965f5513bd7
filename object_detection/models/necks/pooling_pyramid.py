"""The pyramid of pooled maps of PPN (https://arxiv.org/abs/1807.03284)."""

import keras

from object_detection.errors import UserError
from object_detection.models import rounding
from object_detection.models.hyperparams import LayerHyperparams
from object_detection.models.normalization import normalized


def pooling_pyramid(
    channels: int,
    *,
    depth: int | None,
    num_maps: int,
    hyperparams: LayerHyperparams,
    batch_norm_trainable: bool,
    name: str,
) -> keras.Model:
    """Builds the maps that are pooled from one map of a backbone, one after the other.

    The poolings take the maximum of 2x2 cells and have no weights, so one predictor that all maps
    share sees the same features at each size.

    Args:
      channels: channels of the backbone map.
      depth: channels of all maps, to which a convolution of size 1 with norm and activation, named
        `base`, converts the backbone map first; None leaves the backbone map as it is.
      num_maps: number of maps.
      hyperparams: hyperparameters of the convolution.
      batch_norm_trainable: False freezes its batch norm.
      name: name of the model.

    Returns:
      A model from a map [B, H, W, channels] to the list of maps, the finest first, each half as
      large as the one before, rounded up.

    Raises:
      ValueError: if the number of maps is not positive.
    """
    if num_maps < 1:
        raise UserError(f'num_layers: expected at least 1. Received: {num_maps}.')
    # An output that is the input keeps the dtype of the backbone.
    dtype = keras.config.dtype_policy().compute_dtype
    features = keras.Input((None, None, channels), name='features', dtype=dtype)
    x = features
    if depth is not None:
        conv = hyperparams.conv(depth, 1, name='base')
        norm = hyperparams.norm(frozen=not batch_norm_trainable, name='base_bn')
        x = hyperparams.activation_layer(name='base_activation')(normalized(conv, norm, x))
    maps = [x]
    for index in range(1, num_maps):
        pool = rounding.MaxPooling2D(2, strides=2, padding='same', name=f'pool_{index}')
        maps.append(pool(maps[-1]))
    return keras.Model(features, maps, name=name)
