"""Random decisions and integers that depend only on a seed."""

from collections.abc import Callable
from typing import TypeVar

import tensorflow as tf

T = TypeVar('T')


def draw_below(least: int | tf.Tensor, greatest: int | tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Draws an integer from `least` on and below `greatest`, int32 []; `least` if there is none."""
    end = tf.maximum(greatest, tf.convert_to_tensor(least) + 1)
    return tf.random.stateless_uniform([], seed, least, end, tf.int32)


def change_randomly(
    random_coef: float, seed: tf.Tensor, change: Callable[[], T], unchanged: T
) -> T:
    """Returns what `change` returns, or with the probability `random_coef` what is unchanged."""
    if random_coef == 0:
        return change()
    number = tf.random.stateless_uniform([], seed)
    return tf.cond(number > random_coef, change, lambda: unchanged)
