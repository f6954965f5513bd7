"""Deterministic operations and sums, for `train_config.deterministic_ops`."""

import time
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from object_detection.system import private_names

_state = {'is_on': False}


def switch_on() -> None:
    """Makes TensorFlow compute everything in a fixed order, for the rest of the process.

    Call it after the global seed is set, before any dataset or graph is built.

    TensorFlow's determinism does not cover sums of three or more tensors (`AddN`): the tensor whose
    memory is reused is added first, and graphs that need much memory add in the order of arrival.
    Therefore gradients are added two at a time here, and TensorFlow is prevented from merging such
    additions into one operation again.
    """
    tf.config.experimental.enable_op_determinism()
    tf.config.optimizer.set_experimental_options({'arithmetic_optimization': False})
    private_names.add_gradients_by(_add_gradients)
    _state['is_on'] = True


def is_on() -> bool:
    return _state['is_on']


def timestamp() -> tf.Tensor:
    """Returns seconds since 1970, a float64 scalar on the host, also in deterministic graphs.

    TensorFlow's own operation raises an error there.
    """
    return tf.numpy_function(time.time, [], tf.float64) if is_on() else tf.timestamp()


def sum_in_order(tensors: Sequence[tf.Tensor]) -> tf.Tensor:
    """Adds one or more tensors of one shape, from the first to the last.

    `tf.add_n` may add three or more tensors in a different order each time, see `switch_on`.
    """
    total = tensors[0]
    for tensor in tensors[1:]:
        total = total + tensor
    return total


def _add_gradients(gradients: Sequence[Any]) -> Any:
    if all(isinstance(gradient, tf.Tensor) for gradient in gradients):
        return sum_in_order(gradients)
    return private_names.add_gradients(gradients)
