"""Operations whose results never change: `train_config.deterministic_ops`."""

import time

import tensorflow as tf

_state = {'is_on': False}


def switch_on() -> None:
    """Makes TensorFlow compute everything in a fixed order, for the rest of the process.

    To be called after the global seed is set, before any dataset or graph is built.
    """
    tf.config.experimental.enable_op_determinism()
    _state['is_on'] = True


def is_on() -> bool:
    return _state['is_on']


def timestamp() -> tf.Tensor:
    """Seconds since 1970, float64 scalar on the host; works in deterministic graphs too.

    TensorFlow's own operation is refused there.
    """
    return tf.numpy_function(time.time, [], tf.float64) if is_on() else tf.timestamp()
