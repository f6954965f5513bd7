"""Convolutions that are trained fast on CPUs, and that norms can become part of."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import keras
import tensorflow as tf

from object_detection.core.tracing import Scope

# Output pixels from which on gradients by other operations than TensorFlow's own ones are faster.
_LARGE = 4096
# And most of the pixels, padding included, that the gradient of a kernel may go over for each.
_MOST_PADDING = 1.1
# Attribute of the tensors that a convolution returned in a graph.
_CONVOLVED = '_convolved'


class Convolved(NamedTuple):
    """What a tensor without bias is the convolution of.

    Attributes:
      kernel: [k, k, C, D], of the variable's type.
      again: the same convolution by another kernel, of the activations' type.
    """

    kernel: tf.Tensor
    again: Callable[[tf.Tensor], tf.Tensor]


class Convolution(keras.layers.Conv2D):
    """Convolution of [B, H, W, C]; in a graph its results remember what they are made of."""

    def call(self, inputs, training=None):
        def convolve(kernel: tf.Tensor) -> tf.Tensor:
            if training and self._has_slow_gradients(inputs):
                return _convolve_with_fast_gradients(inputs, kernel)
            # Not `conv2d`, which CPUs have no gradients of with dilations.
            return tf.nn.convolution(
                inputs, kernel, self.strides, self.padding.upper(), dilations=self.dilation_rate
            )

        kernel = tf.convert_to_tensor(self.kernel)
        outputs = convolve(kernel)
        if self.use_bias:
            return self.activation(outputs + tf.convert_to_tensor(self.bias))
        if tf.is_symbolic_tensor(outputs) and self.activation is keras.activations.linear:
            setattr(outputs, _CONVOLVED, Convolved(_as_stored(kernel), convolve))
        return self.activation(outputs)

    def _has_slow_gradients(self, maps: tf.Tensor) -> bool:
        """Whether TensorFlow's own gradients are slower, as on CPUs those of many pixels are."""
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


class PlainGradients(Scope):
    """Within it, graphs have TensorFlow's own gradients: for what another device is to run."""


def convolved(outputs: tf.Tensor) -> Convolved | None:
    """What the result of a `Convolution` is made of; None of any other tensor, and eagerly."""
    return getattr(outputs, _CONVOLVED, None)


@tf.custom_gradient
def _convolve_with_fast_gradients(maps: tf.Tensor, kernel: tf.Tensor):
    """A convolution of stride 1 whose gradients are a convolution and matrix products.

    TensorFlow's own ones for CPUs copy all k x k neighbours of all pixels of an image, one image
    after the other by one thread: 0.6 GB for 256 channels of 208 x 336 pixels.
    """

    def gradients(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        turned = tf.transpose(kernel[::-1, ::-1], [0, 1, 3, 2])
        of_maps = tf.nn.conv2d(upstream, turned, 1, 'SAME')
        return of_maps, _gradient_of_kernel(maps, upstream, kernel.shape[:2])

    return tf.nn.conv2d(maps, kernel, 1, 'SAME'), gradients


def _gradient_of_kernel(maps: tf.Tensor, upstream: tf.Tensor, sides: Sequence[int]) -> tf.Tensor:
    """[B, H, W, C], [B, H, W, D] -> [*sides, C, D].

    With zeros around, images are one row of pixels, and the pixels that an element of the kernel
    meets are as many in this row, from another place on: no neighbours need to be copied.
    """
    vertical, horizontal = (side - 1 for side in sides)
    height, width = maps.shape[1:3]
    if (height + vertical) * (width + horizontal) > _MOST_PADDING * height * width:
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


def _as_stored(kernel: tf.Tensor) -> tf.Tensor:
    """Before it was rounded to a type of 16 bits for the activations."""
    is_rounded = tf.is_symbolic_tensor(kernel) and kernel.op.type == 'Cast'
    return kernel.op.inputs[0] if is_rounded else kernel


def _has_accelerators() -> bool:
    return any(device.device_type != 'CPU' for device in tf.config.list_logical_devices())
