"""Layers into which a following norm can be folded; convolutions train fast on CPUs."""

from collections.abc import Sequence
from typing import Protocol

import keras
import tensorflow as tf

from object_detection.core.tracing import Scope
from object_detection.system import private_names

# Number of output pixels above which gradients by other operations than TensorFlow's are faster.
_LARGE = 4096
# And most of the pixels, padding included, that the gradient of a kernel may go over for each.
_MAX_PADDING = 1.1


class Norm(Protocol):
    """A norm that can be folded into the layer before it, such as `normalization.BatchNorm`."""

    def is_folded(self, layer: 'FoldableLayer', training: bool | None) -> bool:
        """Returns whether the norm is folded into `layer`, which then computes both."""

    def fold(self, layer: 'FoldableLayer') -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the kernel and offset by which `layer` computes both."""


class FoldableLayer(keras.layers.Layer):
    """A layer that is linear in a kernel: a scaled kernel gives scaled outputs.

    Its results and variables are those of the Keras layer from which a subclass is also derived,
    except for the names that the subclass mentions.

    Attributes:
      folds_in_training: whether a norm that does not train is folded into the layer in training
        too, not only in inference.
    """

    folds_in_training = False

    def call(self, inputs, training=None, norm: Norm | None = None):
        """Returns the outputs of the layer, normalized by `norm` if it is folded into the layer."""
        if norm is None or not norm.is_folded(self, training):
            return self.unfolded(inputs, training)
        kernel, offset = norm.fold(self)
        outputs = self.apply_kernel(inputs, tf.cast(kernel, inputs.dtype), training)
        return tf.nn.bias_add(outputs, tf.cast(offset, inputs.dtype))

    def unfolded(self, inputs: tf.Tensor, training: bool | None) -> tf.Tensor:
        """Returns the layer's own outputs."""
        return super().call(inputs)

    def scaled_kernel(self, scale: tf.Tensor) -> tf.Tensor:
        """Returns the stored kernel for outputs whose channels are `scale`, float32 [D], as large.

        The kernel is not rounded to the dtype of the activations.
        """
        kernel = private_names.stored_value(self.kernel)
        return kernel * tf.cast(scale, kernel.dtype)

    def apply_kernel(
        self, inputs: tf.Tensor, kernel: tf.Tensor, training: bool | None = None
    ) -> tf.Tensor:
        """Returns the outputs for another kernel, of the dtype of `inputs`, without the bias."""
        raise NotImplementedError


class Convolution(FoldableLayer, keras.layers.Conv2D):
    """Convolution of [B, H, W, C]."""

    @property
    def folds_in_training(self) -> bool:
        return not self.use_bias

    def unfolded(self, inputs, training):
        outputs = self.apply_kernel(inputs, tf.convert_to_tensor(self.kernel), training)
        if self.use_bias:
            # Not a sum: with an activation, it becomes a part of the convolution on CPUs.
            outputs = tf.nn.bias_add(outputs, tf.convert_to_tensor(self.bias))
        return self.activation(outputs)

    def apply_kernel(self, inputs, kernel, training=None):
        if training and self._has_slow_gradients(inputs):
            return _convolve_with_fast_gradients(inputs, kernel)
        # `conv2d` has no gradients on CPUs with dilations.
        return tf.nn.convolution(
            inputs, kernel, self.strides, self.padding.upper(), dilations=self.dilation_rate
        )

    def _has_slow_gradients(self, maps: tf.Tensor) -> bool:
        """Returns whether TensorFlow's gradients are slower, as on CPUs for many pixels."""
        height, width = maps.shape[1:3]
        return (
            self.padding == 'same'
            and set(self.strides) == set(self.dilation_rate) == {1}
            and all(side % 2 for side in self.kernel_size)
            and maps.dtype == tf.float32
            and None not in (height, width)
            and (maps.shape[0] or 1) * height * width >= _LARGE
            and not PlainGradients.is_on()
            and not _has_accelerators()
        )


class DepthwiseConvolution(FoldableLayer, keras.layers.DepthwiseConv2D):
    """Separate convolution of each channel of [B, H, W, C], to [B, H', W', C * multiplier].

    Its kernel [k, k, C, multiplier] is named `depthwise_kernel`, as in checkpoints of Keras 2.
    """

    def add_weight(self, *args, name=None, **options):
        name = 'depthwise_kernel' if name == 'kernel' else name
        return super().add_weight(*args, name=name, **options)

    @property
    def folds_in_training(self) -> bool:
        return not self.use_bias

    def scaled_kernel(self, scale):
        # The output channels are ordered by the channel of the input, then by the multiplier.
        return super().scaled_kernel(tf.reshape(scale, self.kernel.shape[2:]))

    def apply_kernel(self, inputs, kernel, training=None):
        return keras.ops.depthwise_conv(
            inputs,
            kernel,
            strides=self.strides,
            padding=self.padding,
            dilation_rate=self.dilation_rate,
        )


class SeparableConvolution(FoldableLayer, keras.layers.SeparableConv2D):
    """A depthwise convolution of [B, H, W, C], then one of size 1, into which norms are folded."""

    def scaled_kernel(self, scale):
        kernel = private_names.stored_value(self.pointwise_kernel)
        return kernel * tf.cast(scale, kernel.dtype)

    def apply_kernel(self, inputs, kernel, training=None):
        return keras.ops.separable_conv(
            inputs,
            tf.convert_to_tensor(self.depthwise_kernel),
            kernel,
            strides=self.strides,
            padding=self.padding,
            dilation_rate=self.dilation_rate,
        )


class Dense(FoldableLayer, keras.layers.Dense):
    """Fully connected layer."""

    def unfolded(self, inputs, training):
        outputs = self.apply_kernel(inputs, tf.convert_to_tensor(self.kernel))
        if self.use_bias:
            outputs = tf.nn.bias_add(outputs, tf.convert_to_tensor(self.bias))
        return self.activation(outputs)

    def apply_kernel(self, inputs, kernel, training=None):
        return keras.ops.matmul(inputs, kernel)


class PlainGradients(Scope):
    """A context in which graphs have TensorFlow's gradients, for graphs of other devices."""


@tf.custom_gradient
def _convolve_with_fast_gradients(maps: tf.Tensor, kernel: tf.Tensor):
    """A convolution of stride 1 whose gradients are a convolution and matrix products.

    TensorFlow's gradients for CPUs copy all k x k neighbours of all pixels of an image, one image
    after the other in one thread: 0.6 GB for 256 channels of 208 x 336 pixels.
    """

    def gradients(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        turned = tf.transpose(kernel[::-1, ::-1], [0, 1, 3, 2])
        of_maps = tf.nn.conv2d(upstream, turned, 1, 'SAME')
        return of_maps, _gradient_of_kernel(maps, upstream, kernel.shape[:2])

    return tf.nn.conv2d(maps, kernel, 1, 'SAME'), gradients


def _gradient_of_kernel(maps: tf.Tensor, upstream: tf.Tensor, sides: Sequence[int]) -> tf.Tensor:
    """[B, H, W, C], [B, H, W, D] -> [*sides, C, D].

    With zeros around the images, all pixels form one row, and the pixels for an element of the
    kernel are a slice of this row, from another index on: no neighbours need to be copied.
    """
    vertical, horizontal = (side - 1 for side in sides)
    height, width = maps.shape[1:3]
    if (height + vertical) * (width + horizontal) > _MAX_PADDING * height * width:
        sizes = [*sides, maps.shape[3], upstream.shape[3]]
        return tf.raw_ops.Conv2DBackpropFilter(
            input=maps,
            filter_sizes=sizes,
            out_backprop=upstream,
            strides=[1, 1, 1, 1],
            padding='SAME',
        )
    around = [[vertical // 2] * 2, [horizontal // 2] * 2]
    pixels = _pixels(maps, around)
    gradients = _pixels(upstream, [[0, vertical], [0, horizontal]])
    count = tf.shape(pixels)[0]
    starts = [y * (width + horizontal) + x for y in range(sides[0]) for x in range(sides[1])]
    products = [
        tf.matmul(pixels[start:], gradients[: count - start], transpose_a=True) for start in starts
    ]
    return tf.reshape(tf.stack(products), [*sides, maps.shape[3], upstream.shape[3]])


def _pixels(maps: tf.Tensor, paddings: Sequence[Sequence[int]]) -> tf.Tensor:
    """[B, H, W, C] -> [B * H' * W', C], with zeros around."""
    if any(map(any, paddings)):
        maps = tf.pad(maps, [[0, 0], *paddings, [0, 0]])
    return tf.reshape(maps, [-1, maps.shape[3]])


def _has_accelerators() -> bool:
    return any(device.device_type != 'CPU' for device in tf.config.list_logical_devices())
