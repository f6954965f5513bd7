"""TF-Slim's own Inception networks with random weights, of which it keeps the names.

Its layers need a package that TensorFlow no longer has, so they are written anew here; what they
are connected like, and called, is TF-Slim's.
"""

import contextlib
import re
from collections.abc import Iterator
from unittest import mock

import numpy as np
import tensorflow as tf
import tf_slim
from tf_slim.nets import inception_v2, inception_v3

_MODULES = {'inception_v2': inception_v2, 'inception_v3': inception_v3}
_EPSILON = 0.001


class Inception:
    """Maps images [B, H, W, 3] to a dict of all its feature maps.

    Args:
      network: 'inception_v2' or 'inception_v3'.
      depth_multiplier: factor of the numbers of channels, which stay at least 16.

    Attributes:
      arrays: name in a checkpoint -> value; filled by the first call.
    """

    def __init__(self, network: str, depth_multiplier: float):
        self.arrays: dict[str, np.ndarray] = {}
        self._network, self._module = network, _MODULES[network]
        self._depth_multiplier = depth_multiplier
        self._random = np.random.default_rng(0)

    def __call__(self, images: np.ndarray) -> dict[str, tf.Tensor]:
        with self._layers():
            base = getattr(self._module, f'{self._network}_base')
            _, endpoints = base(tf.constant(images), depth_multiplier=self._depth_multiplier)
        return endpoints

    @contextlib.contextmanager
    def _layers(self) -> Iterator[None]:
        @tf_slim.add_arg_scope
        def conv2d(inputs, depth, size, stride=1, padding='SAME', scope=None, **_):
            weights = self._weights(f'{scope}/weights', [*size, inputs.shape[-1], depth])
            return self._normalize(tf.nn.conv2d(inputs, weights, stride, padding), scope)

        @tf_slim.add_arg_scope
        def separable_conv2d(
            inputs, depth, size, depth_multiplier, stride=1, padding='SAME', scope=None, **_
        ):
            channels = inputs.shape[-1]
            depthwise = self._weights(
                f'{scope}/depthwise_weights', [*size, channels, depth_multiplier]
            )
            pointwise = self._weights(
                f'{scope}/pointwise_weights', [1, 1, channels * depth_multiplier, depth]
            )
            strides = [1, stride, stride, 1]
            outputs = tf.nn.separable_conv2d(inputs, depthwise, pointwise, strides, padding)
            return self._normalize(outputs, scope)

        @tf_slim.add_arg_scope
        def max_pool2d(inputs, size, stride=2, padding='VALID', scope=None):
            return tf.nn.max_pool2d(inputs, size, stride, padding)

        @tf_slim.add_arg_scope
        def avg_pool2d(inputs, size, stride=2, padding='VALID', scope=None):
            return tf.nn.avg_pool2d(inputs, size, stride, padding)

        layers = mock.Mock(conv2d=conv2d, separable_conv2d=separable_conv2d)
        pooling = mock.Mock(max_pool2d=max_pool2d, avg_pool2d=avg_pool2d)
        with (
            mock.patch.object(self._module, 'layers', layers),
            mock.patch.object(self._module, 'layers_lib', pooling),
        ):
            yield

    def _weights(self, name: str, shape: list[int]) -> np.ndarray:
        fan_in = np.prod(shape[:-1])
        return self._array(name, self._random.normal(0, np.sqrt(2 / fan_in), shape))

    def _array(self, name: str, value: np.ndarray) -> np.ndarray:
        # A second network of a process has a number in its scope.
        scope = re.sub(r'^(\w+V\d)_\d+', r'\1', tf.compat.v1.get_variable_scope().name)
        name = f'{scope}/{name}'
        return self.arrays.setdefault(name, value.astype(np.float32))

    def _normalize(self, inputs: tf.Tensor, scope: str) -> tf.Tensor:
        channels = inputs.shape[-1]
        beta, mean = (
            self._array(f'{scope}/BatchNorm/{name}', self._random.normal(0, 0.1, [channels]))
            for name in ('beta', 'moving_mean')
        )
        variance = self._random.uniform(0.5, 1.5, [channels])
        variance = self._array(f'{scope}/BatchNorm/moving_variance', variance)
        return tf.nn.relu((inputs - mean) / np.sqrt(variance + _EPSILON) + beta)
