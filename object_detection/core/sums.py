"""Sums whose order does not depend on when their parts are ready."""

from collections.abc import Sequence

import tensorflow as tf


def in_order(tensors: Sequence[tf.Tensor]) -> tf.Tensor:
    """Adds up one or more tensors of one shape, from the first to the last.

    `tf.add_n` may add three or more in another order each time; see
    `object_detection.core.determinism`.
    """
    total = tensors[0]
    for tensor in tensors[1:]:
        total = total + tensor
    return total
