"""The head of R-FCN's second stage: classes and refined boxes from score maps."""

import keras
import tensorflow as tf

from object_detection.core import roi_align
from object_detection.errors import expected
from object_detection.models.hyperparams import LayerHyperparams
from object_detection.models.normalization import normalized


class RfcnHead(keras.layers.Layer):
    """Predicts classes and box codes of proposals (R-FCN, https://arxiv.org/abs/1605.06409).

    All layers process the whole feature map: a 1x1 convolution, norm (if configured) and
      activation;
    then, for each output, a 1x1 convolution and norm (if configured) that compute score maps. A
    proposal's prediction is the mean over its position-sensitive crop of the maps, in which each
    bin has separate maps; there is no layer after the crops. Score maps are averaged in float32
    under any dtype policy.

    Args:
      num_classes: K, without background.
      hyperparams: set-up of the convolutions; the activation is that of the first one.
      depth: channels of the first convolution.
      crop_size: (height, width) of a crop, multiples of the numbers of bins.
      num_bins: (rows, columns) of the grid of bins of a proposal.
      code_size: D, the code size of the box coder.
      batch_norm_trainable: False freezes the norms.

    Raises:
      ValueError: if a number is not positive, or `crop_size` is not a multiple of `num_bins`.
    """

    def __init__(
        self,
        num_classes: int,
        *,
        hyperparams: LayerHyperparams,
        depth: int = 1024,
        crop_size: tuple[int, int] = (12, 12),
        num_bins: tuple[int, int] = (3, 3),
        code_size: int = 4,
        batch_norm_trainable: bool = True,
        name: str = 'rfcn_head',
    ):
        # Keras would otherwise cast boxes to bfloat16 too.
        super().__init__(name=name, autocast=False)
        if min(depth, code_size, *num_bins) < 1:
            raise expected(
                name, 'depth, code_size and num_bins above 0', f'{depth}, {code_size}, {num_bins}'
            )
        roi_align.check_crop_size(crop_size, num_bins)
        self._num_classes = num_classes
        self._crop_size, self._num_bins = tuple(crop_size), tuple(num_bins)
        self._code_size, self._depth = code_size, depth

        def branch(channels: int, kind: str) -> tuple[keras.layers.Layer, keras.layers.Layer]:
            conv = hyperparams.conv(channels, 1, name=kind)
            return conv, hyperparams.norm(frozen=not batch_norm_trainable, name=f'{kind}_bn')

        groups = num_bins[0] * num_bins[1]
        self._reduce_conv, self._reduce_norm = branch(depth, 'reduce_depth')
        self._activation = hyperparams.activation_layer(name='reduce_depth_activation')
        self._box_conv, self._box_norm = branch(groups * num_classes * code_size, 'box_codes')
        self._class_conv, self._class_norm = branch(groups * (num_classes + 1), 'classes')

    def build(self, features_shape, boxes_shape):
        del boxes_shape
        self._reduce_conv.build((None, None, None, features_shape[-1]))
        self._reduce_norm.build((None, None, None, self._depth))
        for conv, norm in ((self._box_conv, self._box_norm), (self._class_conv, self._class_norm)):
            conv.build((None, None, None, self._depth))
            norm.build((None, None, None, conv.filters))

    def call(self, features, boxes, training=False, box_gradients=False):
        """Predicts from feature maps of whole images.

        Args:
          features: [B, H, W, C].
          boxes: float32 [B, P, 4], proposals, normalized to the area that the maps cover.
          training: whether norms act as in training.
          box_gradients: whether gradients flow to the boxes.

        Returns:
          Box codes float32 [B * P, K, D] and class logits float32 [B * P, K + 1], background first.
        """
        x = self._activation(normalized(self._reduce_conv, self._reduce_norm, features, training))

        def branch(conv: keras.layers.Layer, norm: keras.layers.Layer) -> tf.Tensor:
            maps = tf.cast(normalized(conv, norm, x, training), tf.float32)
            # [B, P, channels / bins]
            return roi_align.mean_crop(
                maps, boxes, self._crop_size, self._num_bins, box_gradients=box_gradients
            )

        box_codes = tf.reshape(
            branch(self._box_conv, self._box_norm), [-1, self._num_classes, self._code_size]
        )
        logits = branch(self._class_conv, self._class_norm)
        return box_codes, tf.reshape(logits, [-1, self._num_classes + 1])
