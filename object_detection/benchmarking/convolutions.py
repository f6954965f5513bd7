"""The roof of a detector's speed: its convolutions alone, one after the other.

`collect` finds the convolutions that a traced function runs; `loop` makes a function that computes
the same ones, and nothing else, on random values. Kernels are constants, so that a library may lay
them out once for all runs. Each convolution waits for the one before, as in a network.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from object_detection.errors import UserError

_TYPES = ('Conv2D', 'DepthwiseConv2dNative')
_ATTRIBUTES = ('strides', 'padding', 'explicit_paddings', 'dilations')


class Convolution(NamedTuple):
    """A node of a graph.

    Attributes:
      type: of the node: 'Conv2D' or 'DepthwiseConv2dNative'.
      dtype: name of the data type.
      image: [B, H, W, C], the shape of its input.
      kernel: shape of its kernel.
      attributes: strides and paddings.
      flops: floating point operations.
    """

    type: str
    dtype: str
    image: tuple[int, ...]
    kernel: tuple[int, ...]
    attributes: dict[str, Any]
    flops: int

    @property
    def is_3x3(self) -> bool:
        return self.type == 'Conv2D' and self.kernel[:2] == (3, 3)


def collect(graph: Any) -> list[Convolution]:
    """Returns the convolutions of a graph and of the functions that it calls, in their order.

    Args:
      graph: a tf.Graph, e.g. `tf.function(f).get_concrete_function(...).graph`.

    Raises:
      UserError: if a shape is not static.
    """
    from object_detection.training.monitoring import model_summary

    return [
        Convolution(
            type=operation.type,
            dtype=operation.inputs[0].dtype.name,
            image=_static(operation.inputs[0]),
            kernel=_static(operation.inputs[1]),
            attributes={name: operation.get_attr(name) for name in _ATTRIBUTES},
            flops=model_summary.count_operations([operation]).total,
        )
        for operation in model_summary.running_operations(graph)
        if operation.type in _TYPES
    ]


def loop(convolutions: Sequence[Convolution]) -> Callable[[], float]:
    """Returns a function that computes the convolutions once; its result is of no use."""
    import tensorflow as tf

    rng = np.random.default_rng(0)
    inputs = list(dict.fromkeys((row.image, row.dtype) for row in convolutions))
    images = [tf.cast(rng.standard_normal(shape, np.float32), dtype) for shape, dtype in inputs]
    # All differ: a graph's optimizer computes what is equal once.
    kernels = [rng.standard_normal(row.kernel, np.float32) for row in convolutions]

    @tf.function(autograph=False)
    def compute(images: list) -> tf.Tensor:
        total = tf.zeros([])
        previous = []
        for row, kernel in zip(convolutions, kernels, strict=True):
            image = images[inputs.index((row.image, row.dtype))]
            with tf.control_dependencies(previous):
                result = _compute(row, image, tf.constant(kernel))
            previous = [result]
            # One value, so that the node runs, and its result's memory is free again.
            total += tf.cast(tf.reshape(result, [-1])[0], tf.float32)
        return total

    # Images are arguments: a graph's optimizer computes what depends on constants alone.
    return lambda: float(compute(images))


def _static(tensor: Any) -> tuple[int, ...]:
    if not tensor.shape.is_fully_defined():
        raise UserError(f'expected a static shape. Received: {tensor.shape} of {tensor.name}.')
    return tuple(tensor.shape)


def _compute(row: Convolution, image: Any, kernel: Any) -> Any:
    import tensorflow as tf

    operation = {
        'Conv2D': tf.raw_ops.Conv2D,
        'DepthwiseConv2dNative': tf.raw_ops.DepthwiseConv2dNative,
    }[row.type]
    return operation(input=image, filter=tf.cast(kernel, row.dtype), **row.attributes)
