"""Networks that compute their maps again in the backward pass, instead of keeping them.

Of the maps of a network, only those between its segments are kept. The others are computed again
for one segment after the other, as gradients come back to it (https://arxiv.org/abs/1604.06174). A
step then takes one more forward pass of the network. Losses and gradients are the same: layers draw
the same random numbers, and moving statistics are updated once.
"""

import contextvars
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from object_detection.core import tracing
from object_detection.system import private_names


class Segment(NamedTuple):
    """Calls of layers that follow each other.

    Attributes:
      nodes: the calls, each after those that make its inputs.
      inputs: the symbolic tensors that it takes from before.
      outputs: those that it makes for others.
    """

    nodes: list[private_names.Node]
    inputs: list[Any]
    outputs: list[Any]

    def __call__(self, inputs: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Returns the values of `outputs` in training, given those of `inputs`."""
        values = dict(zip(map(id, self.inputs), inputs, strict=True))
        for node in self.nodes:
            values |= zip(map(id, node.outputs), node.run(values, training=True), strict=True)
        return [values[id(each)] for each in self.outputs]


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
        return _recomputed(lambda given: _run_whole(network, given), inputs)
    # As functional models convert them.
    inputs = [tf.cast(each, own.dtype) for each, own in zip(inputs, network.inputs, strict=True)]
    values = dict(zip(map(id, network.inputs), inputs, strict=True))
    with tf.name_scope(network.name):
        for segment in segments(nodes, network.outputs):
            found = _recomputed(segment, [values[id(each)] for each in segment.inputs])
            values |= zip(map(id, segment.outputs), found, strict=True)
    return [values[id(each)] for each in network.outputs]


def _run_whole(network: keras.Model, inputs: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    outputs = network(inputs[0] if len(inputs) == 1 else list(inputs), training=True)
    return tf.nest.flatten(outputs)


def segments(nodes: list[private_names.Node], outputs: list[Any]) -> Iterator[Segment]:
    """Divides a network at places where a single map is all that later layers need.

    Args:
      nodes: calls of the layers, each after those that make its inputs.
      outputs: of the network, which are kept in any case.
    """
    last_uses = {id(each): at for at, node in enumerate(nodes) for each in node.inputs}
    kept = {id(each) for each in outputs}
    # As many calls in a segment as there are segments: about the least memory for all of them.
    min_calls, first, pending = math.isqrt(len(nodes)), 0, set()
    for at, node in enumerate(nodes):
        pending |= {id(each) for each in node.outputs}
        pending = {each for each in pending if last_uses.get(each, at) > at}
        if at + 1 < len(nodes) and (at + 1 - first < min_calls or len(pending) > 1):
            continue
        part, first = nodes[first : at + 1], at + 1
        made = {id(each): each for node in part for each in node.outputs}
        taken = {id(each): each for node in part for each in node.inputs}
        yield Segment(
            part,
            [each for key, each in taken.items() if key not in made],
            [each for key, each in made.items() if key in pending | kept],
        )


def _recomputed(
    function: Callable[[Sequence[tf.Tensor]], list[tf.Tensor]], inputs: list[tf.Tensor]
) -> list[tf.Tensor]:
    """Runs a function now, and once more when its gradients are computed."""
    # The second pass sees the context variables of the first, such as the seeds.
    context = contextvars.copy_context()

    @tf.custom_gradient
    def run(*inputs: tf.Tensor):
        def gradient(*upstream: tf.Tensor, variables: Any = ()) -> tuple[list, list]:
            with tracing.FrozenStatistics(), tf.GradientTape() as tape:
                again = _after(upstream, inputs)
                tape.watch(again)
                outputs = context.run(function, again)
            sources = (again, list(variables))
            return tape.gradient(outputs, sources, output_gradients=upstream)

        return function(inputs), gradient

    return tf.nest.flatten(run(*inputs))


def _after(upstream: tuple[tf.Tensor, ...], inputs: tuple[tf.Tensor, ...]) -> list[tf.Tensor]:
    """Returns the inputs, but not before the gradients are there.

    So compilers cannot make one of both passes.
    """
    if tracing.is_compiled():
        return private_names.behind_barrier([*inputs, *upstream])[: len(inputs)]
    with tf.control_dependencies(upstream):
        return [tf.identity(each) for each in inputs]
