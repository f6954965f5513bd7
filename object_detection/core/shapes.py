"""Sizes of tensors, static where they are known."""

import contextlib
from collections.abc import Iterable
from typing import Any

import tensorflow as tf


def dimensions(tensor: tf.Tensor, *axes: int) -> tuple[Any, ...]:
    """Returns the sizes of the given axes: integers where static, else int32 scalar tensors."""
    dynamic = tf.shape(tensor)
    return tuple(
        dynamic[axis] if tensor.shape[axis] is None else tensor.shape[axis] for axis in axes
    )


def is_same(size: Iterable[int | tf.Tensor], other: Iterable[int | tf.Tensor]) -> bool:
    """Returns whether two sizes are known to be the same: equal integers or the same tensors."""
    return all(
        a is b or (isinstance(a, int) and isinstance(b, int) and a == b)
        for a, b in zip(size, other, strict=True)
    )


def smaller(size: int | tf.Tensor, other: int | tf.Tensor) -> int | tf.Tensor:
    """Returns the smaller size: an integer if both are, else an int32 scalar."""
    if tf.is_tensor(size) or tf.is_tensor(other):
        return tf.minimum(size, other)
    return min(size, other)


def round_up(size: int | tf.Tensor, multiple: int) -> int | tf.Tensor:
    """Returns the smallest multiple that is not below a size."""
    # Of negative int32 tensors tf2onnx rounds quotients and remainders towards zero.
    return (size + multiple - 1) // multiple * multiple


def rows_from(tensor: tf.Tensor, start: int | tf.Tensor, count: int) -> tf.Tensor:
    """Returns `count` rows of a tensor [B, ...] from row `start` on.

    The number of rows is constant, as XLA needs where `start` is a tensor.
    """
    shape = [count, *tensor.shape[1:]]
    begin = tf.one_hot(0, len(shape), dtype=tf.int32) * start
    # -1 is all of an axis.
    sizes = [-1 if length is None else length for length in shape]
    return tf.ensure_shape(tf.slice(tensor, begin, sizes), shape)


def asserted(
    condition: tf.Tensor, *message: object, summarize: int | None = None
) -> contextlib.AbstractContextManager:
    """A block whose operations run if `condition`, bool [], holds; else the error is `message`."""
    check = tf.debugging.Assert(condition, [*message], summarize)
    return tf.control_dependencies([check] if check is not None else [])
