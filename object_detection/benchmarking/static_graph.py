"""The graph of a function with the shapes that its tensors have for given inputs.

The graphs of exported models accept images of any number and size, so that the shapes of their
convolutions are unknown. One run on given inputs determines them.
"""

from collections.abc import Collection, Sequence
from typing import Any

import tensorflow as tf

from object_detection.system import private_names


def trace(function: Any, inputs: Sequence[tf.Tensor], types: Collection[str]) -> tf.Graph:
    """Returns a copy of a function's graph, without calls of other functions and variables.

    Args:
      function: a concrete function. It is not changed.
      inputs: its arguments; they are run once.
      types: types of the nodes whose inputs and outputs get the static shapes of this run. The
        nodes of loops and conditions keep theirs.
    """
    frozen = private_names.with_constants(function)
    tensors = {
        tensor.name: tensor
        for node in frozen.graph.get_operations()
        if node.type in types
        for tensor in (*node.inputs, *node.outputs)
        if tensor.shape.rank is not None and not tensor.shape.is_fully_defined()
    }
    if not tensors:
        return frozen.graph
    with frozen.graph.as_default():
        # One output: a pruned function with as many outputs as there are tensors does not run.
        together = tf.concat([tf.shape(tensor) for tensor in tensors.values()], axis=0)
    sizes = iter(frozen.prune(frozen.inputs, together)(*inputs).numpy())
    for tensor in tensors.values():
        tensor.set_shape([next(sizes) for _ in range(tensor.shape.rank)])
    return frozen.graph
