"""The head of the region proposal network."""

from typing import NamedTuple

import keras
import tensorflow as tf

from object_detection.errors import expected
from object_detection.models.heads.dense_outputs import anchor_rows
from object_detection.models.hyperparams import LayerHyperparams
from object_detection.models.normalization import normalized

_CODE_SIZE = 4


class RpnPredictions(NamedTuple):
    """The predictions of the region proposal network for each anchor.

    Anchors are concatenated over levels, in the order level, y, x, anchor of the cell.

    Attributes:
      box_codes: float32 [B, N, 4].
      objectness_logits: float32 [B, N, 2], (background, object), or [B, N, 1], object.
      features: one map [B, H, W, depth] per level, from which both are predicted.
    """

    box_codes: tf.Tensor
    objectness_logits: tf.Tensor
    features: list[tf.Tensor]


class RpnHead(keras.layers.Layer):
    """Predicts box codes and objectness of anchors (https://arxiv.org/abs/1506.01497, sec. 3.1).

    Convolutions that all levels share, in the reference implementation one, each with its norm (if
    configured) and activation (always ReLU6 there, regardless of its config); then separate 1x1
    convolutions for each level.

    Args:
      anchors_per_location: number of anchors per cell, one entry per level.
      hyperparams: hyperparameters of all layers.
      depth: channels of the shared convolutions.
      kernel_size: kernel size of the shared convolutions.
      atrous_rate: dilation of the shared convolutions.
      num_convs: number of the shared convolutions, at least 1: conv, conv_2, conv_3, ...
      batch_norm_trainable: False freezes the norms.
      num_logits: number of objectness logits: 2 (background, object) or 1 (object).
    """

    def __init__(
        self,
        anchors_per_location: list[int],
        *,
        hyperparams: LayerHyperparams,
        depth: int = 512,
        kernel_size: int = 3,
        atrous_rate: int = 1,
        num_convs: int = 1,
        batch_norm_trainable: bool = True,
        num_logits: int = 2,
        name: str = 'rpn_head',
    ):
        super().__init__(name=name)
        self._depth = depth
        self._num_logits = num_logits
        names = ['conv', *(f'conv_{number}' for number in range(2, num_convs + 1))]
        # Only the anchors of a small sample, and the cells around them, have gradients.
        self._convs = [
            hyperparams.conv(
                depth, kernel_size, dilation_rate=atrous_rate, sparse_gradients=True, name=name
            )
            for name in names
        ]
        frozen = not batch_norm_trainable
        self._norms = [hyperparams.norm(frozen=frozen, name=f'{name}_bn') for name in names]
        self._activation = hyperparams.activation_layer(name='activation')

        def heads(size: int, kind: str) -> list[keras.layers.Layer]:
            return [
                hyperparams.conv(
                    anchors * size, 1, use_bias=True, sparse_gradients=True, name=f'{kind}_{i}'
                )
                for i, anchors in enumerate(anchors_per_location)
            ]

        self._box_heads = heads(_CODE_SIZE, 'box_codes')
        self._class_heads = heads(num_logits, 'objectness')

    def build(self, features_shape):
        if len(features_shape) != len(self._box_heads):
            raise expected(
                self.name, f'{len(self._box_heads)} maps, as levels', len(features_shape)
            )
        channels = {shape[-1] for shape in features_shape}
        if len(channels) != 1:
            raise expected(self.name, 'feature maps of one depth', sorted(channels))
        self._convs[0].build((None, None, None, channels.pop()))
        for layer in [*self._convs[1:], *self._norms, *self._box_heads, *self._class_heads]:
            layer.build((None, None, None, self._depth))

    def call(self, features, training=False):
        """Maps a list of [B, H, W, C], one per level, to RpnPredictions."""
        for conv, norm in zip(self._convs, self._norms, strict=True):
            features = [
                self._activation(normalized(conv, norm, level, training)) for level in features
            ]
        return RpnPredictions(
            _predict(self._box_heads, features, _CODE_SIZE),
            _predict(self._class_heads, features, self._num_logits),
            features,
        )


def _predict(heads: list[keras.layers.Layer], features: list[tf.Tensor], size: int) -> tf.Tensor:
    """Applies each level's head; returns float32 [B, N, size]."""
    rows = []
    for head, level in zip(heads, features, strict=True):
        rows.append(anchor_rows(head(level), size))
    return tf.concat(rows, axis=1)
