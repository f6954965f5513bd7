"""Sizes of tensors, static where they are known."""

from typing import Any

import tensorflow as tf


def dimensions(tensor: tf.Tensor, *axes: int) -> tuple[Any, ...]:
    """Returns the sizes of the given axes: integers where static, else int32 scalar tensors."""
    dynamic = tf.shape(tensor)
    return tuple(
        dynamic[axis] if tensor.shape[axis] is None else tensor.shape[axis] for axis in axes
    )


def round_up(size: Any, multiple: int) -> Any:
    """Returns the smallest multiple that is not below `size`, an integer or a scalar tensor."""
    return -(-size // multiple) * multiple
