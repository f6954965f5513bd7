"""Networks that compute their maps again in the backward pass, instead of keeping them.

Of the maps of a network, only those between its segments are kept. The others are computed again
for one segment after the other, as gradients come back to it (https://arxiv.org/abs/1604.06174). A
step then takes one more forward pass of the network. Losses and gradients are the same: layers draw
the same random numbers, and moving statistics are updated once.
"""

import contextvars
import math
from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf

from object_detection.core import tracing
from object_detection.system import private_names


def call(network: keras.Model, inputs: Any, training: bool) -> Any:
    """Returns `network(inputs, training=training)`.

    In training, within `tracing.Recomputed`, the maps inside are not kept for the gradients.

    Args:
      network: a functional model, which is divided into segments, or any other one, which is a
        single segment.
      inputs: of the network, a tensor or a list of tensors.
      training: the mode of its layers.
    """
    if not (training and tracing.Recomputed.is_on()):
        return network(inputs, training=training)
    inputs = tf.nest.flatten(inputs)
    nodes = private_names.nodes(network)
    if not nodes:
        return _recomputed(network, inputs)
    values = dict(zip(map(id, network.inputs), inputs, strict=True))
    for taken, made in _segments(nodes, network.outputs):
        found = _recomputed(keras.Model(taken, made), [values[id(each)] for each in taken])
        values |= zip(map(id, made), found, strict=True)
    return [values[id(each)] for each in network.outputs]


def _segments(nodes: list[private_names.Node], outputs: list[Any]) -> Iterator[tuple[list, list]]:
    """Divides a network at places where a single map is all that later layers need.

    Args:
      nodes: calls of the layers, each after those that make its inputs.
      outputs: of the network, which are kept in any case.

    Yields:
      For each segment the symbolic tensors that it takes, and those that it makes for others.
    """
    last_uses = {id(each): at for at, node in enumerate(nodes) for each in node.inputs}
    kept = {id(each) for each in outputs}
    # As many calls in a segment as there are segments: about the least memory for all of them.
    fewest, first, pending = math.isqrt(len(nodes)), 0, set()
    for at, node in enumerate(nodes):
        pending |= {id(each) for each in node.outputs}
        pending = {each for each in pending if last_uses.get(each, at) > at}
        if at + 1 < len(nodes) and (at + 1 - first < fewest or len(pending) > 1):
            continue
        segment, first = nodes[first : at + 1], at + 1
        made = {id(each): each for node in segment for each in node.outputs}
        taken = {id(each): each for node in segment for each in node.inputs}
        yield (
            [each for key, each in taken.items() if key not in made],
            [each for key, each in made.items() if key in pending | kept],
        )


def _recomputed(network: keras.Model, inputs: list[tf.Tensor]) -> list[tf.Tensor]:
    """Runs a network now, and once more when its gradients are computed."""
    # The seeds of this pass, for one thing.
    context = contextvars.copy_context()

    @tf.custom_gradient
    def run(*inputs: tf.Tensor):
        def gradient(*upstream: tf.Tensor, variables: Any = ()) -> tuple[list, list]:
            with tracing.FrozenStatistics(), tf.GradientTape() as tape:
                again = _after(upstream, inputs)
                tape.watch(again)
                outputs = context.run(network, again, training=True)
                outputs = tf.nest.flatten(outputs)
            variables = list(variables)
            return tape.gradient(outputs, (again, variables), output_gradients=upstream)

        return tf.nest.flatten(network(list(inputs), training=True)), gradient

    return tf.nest.flatten(run(*inputs))


def _after(upstream: tuple[tf.Tensor, ...], inputs: tuple[tf.Tensor, ...]) -> list[tf.Tensor]:
    """Returns the inputs, as soon as the gradients are there; compilers do not see the equality."""
    if tracing.is_compiled():
        return private_names.behind_barrier([*inputs, *upstream])[: len(inputs)]
    with tf.control_dependencies(upstream):
        return [tf.identity(each) for each in inputs]
