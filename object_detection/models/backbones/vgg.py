"""VGG16 (https://arxiv.org/abs/1409.1556) as SSD has it (https://arxiv.org/abs/1512.02325).

The first two fully connected layers of the classifier are convolutions, the first of them with gaps
between the cells that it sees, and the pooling before them has no stride. The map of stride 8 is
normalised, since its values are greater than those of the other maps
(https://arxiv.org/abs/1506.04579). Poolings round sizes up.
"""

from collections.abc import Sequence

import keras
import tensorflow as tf

from object_detection.models import image_channels, rounding
from object_detection.models.backbones.table import TRUNK_NAME, Backbone, BackboneOptions
from object_detection.models.hyperparams import LayerHyperparams
from object_detection.models.image_values import Preprocess
from object_detection.models.normalization import normalized

# Channels and convolutions of the stages, each of which ends where the next one halves its map.
_STAGES = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))
_DENSE_FILTERS, _DILATION = 1024, 6
# Those of ImageNet that its ports from Caffe subtract, red first.
MEANS = (0.48235 * 255, 0.45882 * 255, 0.40784 * 255)
_FIRST_SCALE = 20.0
# The square of a norm below which nothing is divided by it.
_LEAST_SQUARE = 1e-24


class ScaledNorm(rounding.Roundable):
    """Divides the channels of a cell by their Euclidean norm, then multiplies each by a factor.

    The factors are learnt; they begin as 20.
    """

    def build(self, input_shape):
        self.scale = self.add_weight(
            name='scale',
            shape=(input_shape[-1],),
            initializer=keras.initializers.Constant(_FIRST_SCALE),
        )

    def call(self, inputs):
        # Sums of squares exceed float16.
        units = tf.math.l2_normalize(tf.cast(inputs, tf.float32), -1, _LEAST_SQUARE)
        return tf.cast(units, inputs.dtype) * tf.cast(self.scale, inputs.dtype)


def trunk(levels: Sequence[int], options: BackboneOptions) -> keras.Model:
    """Builds the network.

    Args:
      levels: ascending, of 3 and 4: the normalised `conv4_3`, and `fc7`.
      options: of the layers and their numbers of channels; `settings` may have `frozen_stages`, how
        many of the first stages do not train.

    Returns:
      A model from images [B, H, W, C] to a list of [B, ceil(H / 2**level), ceil(W / 2**level), C'].
    """

    def conv(x, filters: int, kernel_size: int, name: str, dilation: int = 1):
        depth = max(int(filters * options.depth_multiplier), options.min_depth)
        layer = options.hyperparams.conv(depth, kernel_size, dilation_rate=dilation, name=name)
        norm = options.hyperparams.norm(frozen=not options.batch_norm_trainable, name=f'{name}_bn')
        activation = options.hyperparams.activation_layer(name=f'{name}_activation')
        return activation(normalized(layer, norm, x))

    x = images = keras.Input((None, None, image_channels.current()), name='images')
    maps = {}
    for stage, (filters, count) in enumerate(_STAGES, start=1):
        if stage > 1:
            x = rounding.MaxPooling2D(2, strides=2, padding='same', name=f'pool{stage - 1}')(x)
        for i in range(1, count + 1):
            x = conv(x, filters, 3, f'conv{stage}_{i}')
        if stage == options.settings.get('frozen_stages', 0):
            for layer in keras.Model(images, x).layers:
                layer.trainable = False
        if stage == 4:
            maps[3] = ScaledNorm(name='conv4_3_scaled')(x)
    x = rounding.MaxPooling2D(3, strides=1, padding='same', name='pool5')(x)
    x = conv(x, _DENSE_FILTERS, 3, 'fc6', _DILATION)
    maps[4] = conv(x, _DENSE_FILTERS, 1, 'fc7')
    return keras.Model(images, [maps[level] for level in levels], name=TRUNK_NAME)


VGG16 = Backbone(
    trunk,
    range(3, 5),
    Preprocess(mean=MEANS),
    LayerHyperparams(),
    uses=frozenset({'depth_multiplier', 'min_depth', 'frozen_stages'}),
    refusals={'use_explicit_padding': 'the maps after it are padded alike on both sides anyway'},
    pads_alike=True,
)
