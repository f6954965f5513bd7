"""Activations that Keras does not have, or not in a form that other operations fuse with.

Convolutions on CPUs compute `hard_swish` with their bias, and TFLite has an operation of it.
"""

import tensorflow as tf

# The factor in the squeeze-and-excitation of MobileNet v3, as its weights were trained with it.
_SIXTH = 0.16667


def hard_swish(x: tf.Tensor) -> tf.Tensor:
    """x * relu6(x + 3) / 6, of MobileNet v3 (https://arxiv.org/abs/1905.02244)."""
    return x * tf.nn.relu6(x + 3.0) * (1.0 / 6.0)


def shifted_relu6(x: tf.Tensor) -> tf.Tensor:
    """relu6(x + 3), which `sixth` makes a gate of values in 0..1.00002."""
    return tf.nn.relu6(x + 3.0)


def sixth(x: tf.Tensor) -> tf.Tensor:
    """x * 0.16667."""
    return x * _SIXTH


def exact_sixth(x: tf.Tensor) -> tf.Tensor:
    """x / 6, which makes `shifted_relu6` the hard sigmoid of PyTorch."""
    return x * (1.0 / 6.0)
