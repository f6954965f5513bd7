"""Activations that Keras does not have, or not in the form that fuses with other operations."""

import tensorflow as tf

# The factor in the squeeze-and-excitation of MobileNet v3, as its weights were trained with it.
_SIXTH = 0.16667


def hard_swish(x: tf.Tensor) -> tf.Tensor:
    """x * relu6(x + 3) / 6, of MobileNet v3 (https://arxiv.org/abs/1905.02244)."""
    return x * tf.nn.relu6(x + 3.0) * (1.0 / 6.0)


def hard_sigmoid(x: tf.Tensor) -> tf.Tensor:
    """relu6(x + 3) * 0.16667, the gate of MobileNet v3; its greatest value is 1.00002."""
    return tf.nn.relu6(x + 3.0) * _SIXTH
