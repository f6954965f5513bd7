"""The head that predicts a heat map of each keypoint in a region."""

import keras
import tensorflow as tf

from object_detection.errors import UserError, expected
from object_detection.models.hyperparams import LayerHyperparams
from object_detection.models.normalization import normalized

# How much larger the transposed convolution makes features, and bilinear enlargement after it.
_SCALES = (2, 2)


class KeypointHead(keras.layers.Layer):
    """Predicts heat maps of keypoints (https://arxiv.org/abs/1703.06870, section 5).

    3x3 convolutions, each with its norm and activation; a transposed convolution of size 4 and
    stride 2 to one map for each keypoint; bilinear enlargement by 2.

    Args:
      num_keypoints: K.
      hyperparams: set-up of the convolutions.
      num_convs: number of 3x3 convolutions.
      conv_depth: their channels.
      batch_norm_trainable: False freezes the norms.

    Raises:
      ValueError: if there are no keypoints, or convolutions without channels.
    """

    def __init__(
        self,
        num_keypoints: int,
        *,
        hyperparams: LayerHyperparams,
        num_convs: int = 8,
        conv_depth: int = 512,
        batch_norm_trainable: bool = True,
        name: str = 'keypoint_head',
    ):
        super().__init__(name=name)
        if num_keypoints < 1:
            raise UserError(f'num_keypoints: expected at least 1. Received: {num_keypoints}.')
        if num_convs and conv_depth < 1:
            raise expected('conv_depth', f'at least 1 for num_convs: {num_convs}', conv_depth)
        self.num_keypoints = num_keypoints
        names = [f'conv_{i}' for i in range(1, num_convs + 1)]
        self._convs = [hyperparams.conv(conv_depth, 3, name=name) for name in names]
        frozen = not batch_norm_trainable
        self._norms = [hyperparams.norm(frozen=frozen, name=f'{name}_bn') for name in names]
        self._activation = hyperparams.activation_layer(name='activation')
        self._deconv = keras.layers.Conv2DTranspose(
            num_keypoints,
            4,
            strides=_SCALES[0],
            padding='same',
            name='keypoints',
            **hyperparams.kernel_options(),
        )

    @staticmethod
    def output_size(height: int, width: int) -> tuple[int, int]:
        """Returns the (height, width) of the heat maps of features."""
        scale = _SCALES[0] * _SCALES[1]
        return scale * height, scale * width

    def build(self, features_shape):
        shape = (None, None, None, features_shape[-1])
        for conv, norm in zip(self._convs, self._norms, strict=True):
            conv.build(shape)
            shape = (*shape[:-1], conv.filters)
            norm.build(shape)
        self._deconv.build(shape)

    def call(self, features, training=False):
        """Predicts heat maps over the regions of crops.

        Args:
          features: [N, h, w, C], of static h and w.
          training: whether the norms act as in training.

        Returns:
          Logits, float32 [N, K, 4h, 4w].
        """
        x = features
        for conv, norm in zip(self._convs, self._norms, strict=True):
            x = self._activation(normalized(conv, norm, x, training))
        x = tf.cast(self._deconv(x), tf.float32)
        size = self.output_size(*features.shape[1:3])
        x = tf.image.resize(x, size, tf.image.ResizeMethod.BILINEAR)
        return tf.transpose(x, [0, 3, 1, 2])
