"""Layers between the crops of proposals and the second stage's head."""

import keras
import tensorflow as tf

from object_detection.errors import UserError, expected
from object_detection.models.convolutions import Dense
from object_detection.models.hyperparams import LayerHyperparams
from object_detection.models.normalization import normalized


class BoxClassifier(keras.layers.Layer):
    """Convolutions, then fully connected layers, over a crop of a pyramid.

    Two fully connected layers are the head of https://arxiv.org/abs/1612.03144; four convolutions
    and one fully connected layer that of https://arxiv.org/abs/1803.08494, there with group norm.
    A norm (if configured) and the activation follow each layer.

    Args:
      conv_hyperparams: hyperparameters of the convolutions; not needed without convolutions.
      fc_hyperparams: hyperparameters of the fully connected layers.
      num_convs: number of 3x3 convolutions.
      conv_depth: channels of the convolutions.
      num_fcs: number of fully connected layers.
      fc_depth: units of the fully connected layers.
      batch_norm_trainable: False freezes the norms.

    Raises:
      ValueError: if there are convolutions without hyperparameters, or layers without a width.
    """

    def __init__(
        self,
        *,
        conv_hyperparams: LayerHyperparams | None,
        fc_hyperparams: LayerHyperparams,
        num_convs: int,
        conv_depth: int,
        num_fcs: int,
        fc_depth: int,
        batch_norm_trainable: bool = True,
        name: str = 'box_classifier',
    ):
        super().__init__(name=name)
        if num_convs and conv_hyperparams is None:
            raise UserError(f'num_convs needs conv_hyperparams. Received: {num_convs}, and none.')
        for kind, number, depth in (('conv', num_convs, conv_depth), ('fc', num_fcs, fc_depth)):
            if number and depth < 1:
                raise expected(f'{kind}_depth', f'at least 1 for num_{kind}s: {number}', depth)
        frozen = not batch_norm_trainable
        names = [f'conv_{i}' for i in range(1, num_convs + 1)]
        self._convs = [conv_hyperparams.conv(conv_depth, 3, name=name) for name in names]
        self._conv_norms = [
            conv_hyperparams.norm(frozen=frozen, name=f'{name}_bn') for name in names
        ]
        names = [f'dense_{i}' for i in range(1, num_fcs + 1)]
        self._denses = [
            Dense(
                fc_depth,
                use_bias=fc_hyperparams.use_bias,
                name=name,
                **fc_hyperparams.kernel_options(),
            )
            for name in names
        ]
        self._dense_norms = [
            fc_hyperparams.norm(frozen=frozen, name=f'{name}_bn') for name in names
        ]
        if num_convs:
            self._conv_activation = conv_hyperparams.activation_layer(name='conv_activation')
        self._dense_activation = fc_hyperparams.activation_layer(name='dense_activation')

    def build(self, crops_shape):
        shape = [None, *crops_shape[1:]]
        if None in shape[1:]:
            raise expected(self.name, 'crops of known size and depth', tuple(crops_shape))
        for conv, norm in zip(self._convs, self._conv_norms, strict=True):
            conv.build(shape)
            shape[-1] = conv.filters
            norm.build(shape)
        for dense, norm in zip(self._denses, self._dense_norms, strict=True):
            if len(shape) == 4:
                shape = [None, shape[1] * shape[2] * shape[3]]
            dense.build(shape)
            shape = [None, dense.units]
            norm.build(shape)

    def call(self, crops, training=False):
        """Returns the features of crops.

        Args:
          crops: [N, h, w, C], of static h, w and C.
          training: whether norms act as in training.

        Returns:
          [N, 1, 1, fc_depth]; without fully connected layers [N, h, w, conv_depth].
        """
        x = crops
        for conv, norm in zip(self._convs, self._conv_norms, strict=True):
            x = self._conv_activation(normalized(conv, norm, x, training))
        if not self._denses:
            return x
        x = tf.reshape(x, [-1, x.shape[1] * x.shape[2] * x.shape[3]])
        for dense, norm in zip(self._denses, self._dense_norms, strict=True):
            x = self._dense_activation(normalized(dense, norm, x, training))
        return x[:, tf.newaxis, tf.newaxis, :]
