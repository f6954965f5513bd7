"""A pyramid that merges the maps of a backbone into a single one, the finest, as CenterNet has."""

from collections.abc import Sequence

import keras

from object_detection.models import rounding
from object_detection.models.hyperparams import LayerHyperparams, SeparableSetup
from object_detection.models.necks.fpn import BilinearUpsampling
from object_detection.models.necks.resizing import Doubling
from object_detection.models.normalization import normalized

# Channels of the merged maps on a ResNet, coarse to fine.
RESNET_DEPTHS = (256, 128, 64)


def merged_pyramid(
    channels: Sequence[int],
    *,
    hyperparams: LayerHyperparams,
    batch_norm_trainable: bool,
    depths: Sequence[int] = RESNET_DEPTHS,
    use_separable: bool = False,
    bilinear: bool = False,
    name: str = 'fpn',
) -> keras.Model:
    """Builds the pyramid on maps of strides 4, 8, 16 and 32.

    The coarsest map is projected; then, three times, it is doubled in size, added
    to the projection of the next map, and convolved (3x3, batch norm, ReLU).

    Args:
      channels: numbers of channels of the maps of the backbone, fine to coarse.
      hyperparams: set-up of all layers.
      batch_norm_trainable: False freezes the batch norms.
      depths: numbers of channels of the merged maps, coarse to fine.
      use_separable: whether the 3x3 convolutions are separable.
      bilinear: whether maps are doubled in size linearly, not by nearest neighbour.
      name: name of the model.

    Returns:
      A model from the maps [B, H, W, C] to the merged one, of stride 4.
    """
    dtype = keras.config.dtype_policy().compute_dtype
    maps = [keras.Input((None, None, count), dtype=dtype) for count in channels]
    double = BilinearUpsampling if bilinear else Doubling
    x = hyperparams.conv(depths[0], 1, name='projection_top')(maps[-1])
    for i, (features, count) in enumerate(zip(maps[-2::-1], depths, strict=True)):
        x = double(name=f'doubling_{i}')(x)
        x = rounding.Add(name=f'sum_{i}')(
            [x, hyperparams.conv(count, 1, name=f'lateral_{i}')(features)]
        )
        following = depths[min(i + 1, len(depths) - 1)]
        if use_separable:
            convolution = hyperparams.separable_conv(
                following, 3, name=f'merge_{i}', setup=SeparableSetup.BOTH
            )
        else:
            convolution = hyperparams.conv(following, 3, name=f'merge_{i}')
        norm = hyperparams.norm(frozen=not batch_norm_trainable, name=f'merge_{i}_bn')
        x = normalized(convolution, norm, x)
        x = hyperparams.activation_layer(name=f'merge_{i}_relu')(x)
    return keras.Model(maps, x, name=name)
