"""The third stage's head: masks of detections."""

import math

import keras
import tensorflow as tf

from object_detection.errors import UserError, expected
from object_detection.models.convolutions import weight
from object_detection.models.hyperparams import LayerHyperparams
from object_detection.models.normalization import normalized


class MaskHead(keras.layers.Layer):
    """Predicts masks from features of boxes (https://arxiv.org/abs/1703.06870).

    Without `convolve_then_upsample`: features are resized to the mask's size (bilinear, corners
    aligned), then convolved. With it: convolved, enlarged by nearest neighbour, convolved once more
    (both in place of a transposed convolution), then convolved to the masks. With `deconvolve`:
    convolved, enlarged by a transposed convolution of size and stride 2 with a bias, ReLU and no
    norm, and by a 1x1 convolution turned into the masks.

    Args:
      num_classes: K, without background.
      hyperparams: set-up of the convolutions.
      mask_size: (height, width) of the masks.
      num_conv_layers: number of convolutions, including the last one that predicts masks, but not
        the enlargement and the convolution after it; at least 1.
      conv_depth: channels of the convolutions; 0 derives it from the numbers of features and
        classes.
      class_agnostic: whether there is one mask for all classes.
      convolve_then_upsample: see above; needs a mask size that is a multiple of the features'.
      deconvolve: see above; needs a mask size that is twice the features'.
      batch_norm_trainable: False freezes the norms.

    Raises:
      ValueError: if `num_conv_layers` is below 1, a size is not positive, or both methods of
        enlargement are set.
    """

    def __init__(
        self,
        num_classes: int,
        *,
        hyperparams: LayerHyperparams,
        mask_size: tuple[int, int] = (15, 15),
        num_conv_layers: int = 2,
        conv_depth: int = 256,
        class_agnostic: bool = False,
        convolve_then_upsample: bool = False,
        deconvolve: bool = False,
        batch_norm_trainable: bool = True,
        name: str = 'mask_head',
    ):
        super().__init__(name=name)
        if num_conv_layers < 1 or conv_depth < 0 or min(mask_size) < 1:
            raise UserError(
                f'{name}: expected at least one layer, a depth of 0 (automatic) or more and a '
                f'positive mask size. Received: num_conv_layers {num_conv_layers}, '
                f'conv_depth {conv_depth}, mask_size {tuple(mask_size)}.'
            )
        if convolve_then_upsample and deconvolve:
            raise expected(name, 'convolve_then_upsample_masks or mask_head_deconv', 'both')
        self._num_classes = num_classes
        self._num_masks = 1 if class_agnostic else num_classes
        self._hyperparams = hyperparams
        self._mask_size = tuple(mask_size)
        self._num_hidden = num_conv_layers - 1
        self._conv_depth = conv_depth
        self._convolve_then_upsample = convolve_then_upsample
        self._deconvolve = deconvolve
        self._batch_norm_trainable = batch_norm_trainable

    def build(self, features_shape):
        self._check_size(tuple(features_shape[1:3]))
        channels = features_shape[-1]
        depth = self._conv_depth or automatic_depth(channels, self._num_classes)
        names = [f'conv_{i}' for i in range(1, self._num_hidden + 1)]
        if self._convolve_then_upsample:
            names.append('conv_upsampled')
        # Created here, since the automatic depth depends on the features.
        self._convs, self._norms = [], []
        for name in names:
            conv = self._hyperparams.conv(depth, 3, name=name)
            norm = self._hyperparams.norm(frozen=not self._batch_norm_trainable, name=f'{name}_bn')
            conv.build((None, None, None, channels))
            norm.build((None, None, None, depth))
            self._convs.append(conv)
            self._norms.append(norm)
            channels = depth
        self._activation = self._hyperparams.activation_layer(name='activation')
        if self._deconvolve:
            self._deconv = keras.layers.Conv2DTranspose(
                depth, 2, strides=2, name='deconv', **self._hyperparams.kernel_options()
            )
            self._deconv.build((None, None, None, channels))
            channels = depth
        size = 1 if self._deconvolve else 3
        self._last = self._hyperparams.conv(self._num_masks, size, use_bias=True, name='masks')
        self._last.build((None, None, None, channels))

    def call(self, features, training=False):
        """Predicts masks, relative to their boxes.

        Args:
          features: [N, h, w, C].
          training: whether the norms act as in training.

        Returns:
          Logits, float32 [N, K or 1, mask height, mask width].
        """
        x = features
        if not (self._convolve_then_upsample or self._deconvolve):
            x = tf.compat.v1.image.resize(x, self._mask_size, align_corners=True)
            x = tf.cast(x, self.compute_dtype)
        for i, (conv, norm) in enumerate(zip(self._convs, self._norms, strict=True)):
            if i == self._num_hidden:
                x = self._enlarge(x)
            x = self._activation(normalized(conv, norm, x, training))
        masks = self._deconvolved_masks(x) if self._deconvolve else self._last(x)
        logits = tf.cast(masks, tf.float32)  # [N, mask height, mask width, K or 1]
        return tf.transpose(logits, [0, 3, 1, 2])

    def _deconvolved_masks(self, features: tf.Tensor) -> tf.Tensor:
        """Transposed convolution, ReLU and 1x1 convolution: [N, h, w, C] -> [N, 2h, 2w, K or 1].

        With a stride of its size, a transposed convolution is a matrix product from each pixel to
        the four it becomes. They are put in their places last, when they have the fewest channels:
        forwards and backwards it takes two thirds of the time of two convolutions under XLA.
        """
        _, height, width, channels = features.shape
        depth = self._deconv.filters
        dtype = features.dtype
        kernel = tf.transpose(weight(self._deconv.kernel, dtype), [3, 0, 1, 2])  # [C, 2, 2, depth]
        x = tf.reshape(features, [-1, channels]) @ tf.reshape(kernel, [channels, 4 * depth])
        # The same bias four times, so that it is added to the product itself.
        x = tf.nn.relu(tf.nn.bias_add(x, tf.tile(weight(self._deconv.bias, dtype), [4])))
        last = weight(self._last.kernel, dtype)[0, 0]
        x = tf.nn.bias_add(tf.reshape(x, [-1, depth]) @ last, weight(self._last.bias, dtype))
        return tf.nn.depth_to_space(tf.reshape(x, [-1, height, width, 4 * self._num_masks]), 2)

    def _enlarge(self, features: tf.Tensor) -> tf.Tensor:
        """Repeats rows and columns up to the masks' size."""
        for axis in (1, 2):
            times = self._mask_size[axis - 1] // features.shape[axis]
            features = tf.repeat(features, times, axis=axis)
        return features

    def _check_size(self, sizes: tuple[int | None, int | None]) -> None:
        if self._deconvolve and self._mask_size != tuple(2 * (size or 0) for size in sizes):
            raise expected(
                f'{self.name}: mask_head_deconv', f'a mask size of twice {sizes}', self._mask_size
            )
        if self._convolve_then_upsample and (
            None in sizes or any(m % s for m, s in zip(self._mask_size, sizes, strict=True))
        ):
            raise expected(self.name, f'a mask size that is a multiple of {sizes}', self._mask_size)


def automatic_depth(feature_channels: int, num_classes: int) -> int:
    """Returns a power of two between the numbers of features and classes.

    It is their geometric mean with weights 2 (features) and 3 (classes), rounded on a log scale.
    """
    mean = (2 * math.log2(feature_channels) + 3 * math.log2(num_classes)) / 5
    return 2 ** round(mean)
