"""Activations that Keras does not have, or not in a form that other operations fuse with.

Convolutions on CPUs compute `hard_swish` with their bias, and TFLite has an operation of it.
"""

from collections.abc import Callable

import tensorflow as tf

from object_detection.errors import expected

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


# Names of activations in configs of networks of PyTorch -> what Keras's `Activation` takes. With
# 'gelu', which is exact, `LayerHyperparams` makes a layer of its own.
_OF_PYTORCH: dict[str, str | Callable[[tf.Tensor], tf.Tensor]] = {
    **{name: name for name in ('relu', 'relu6', 'silu', 'sigmoid', 'tanh', 'mish', 'linear')},
    **dict.fromkeys(('gelu', 'gelu_python'), 'gelu'),
    **dict.fromkeys(
        ('gelu_new', 'gelu_fast', 'gelu_accurate', 'gelu_pytorch_tanh', 'gelu_python_tanh'),
        lambda x: tf.nn.gelu(x, approximate=True),
    ),
    'swish': 'silu',
    'hardswish': hard_swish,
    'leaky_relu': lambda x: tf.nn.leaky_relu(x, 0.01),
    'quick_gelu': lambda x: x * tf.sigmoid(1.702 * x),
    'relu2': lambda x: tf.square(tf.nn.relu(x)),
}


def of_pytorch(field: str, name: str) -> str | Callable[[tf.Tensor], tf.Tensor]:
    """Returns an activation for `LayerHyperparams.activation`, by its name in transformers.

    Args:
      field: what has the name, for the message.
      name: such as 'relu' or 'gelu_new'.

    Raises:
      UserError: if it is none of those that are known.
    """
    if name not in _OF_PYTORCH:
        raise expected(field, f'one of {", ".join(_OF_PYTORCH)}', repr(name))
    return _OF_PYTORCH[name]
