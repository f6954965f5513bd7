"""Counts the floating point operations of a traced function by its static shapes.

It counts convolutions, their gradients, matrix products and einsums, two operations for each
multiplication with addition; the rest of a detector is a few percent.
"""

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator

import tensorflow as tf

from object_detection.system import private_names


class UnknownShapeError(ValueError):
    """An operation whose cost depends on a size that is not static."""


@dataclasses.dataclass
class FlopCount:
    """What a graph computes.

    Attributes:
      by_operation: name of a node of the graph -> its operations; the names of nodes in nested
        functions are preceded by those of the calls.
      unknown: names of nodes that should count, but whose shapes are not static.
      loops: names of loops with operations to count and an unknown number of iterations. Their
        bodies are counted once; those of other loops by their largest number of iterations.
    """

    by_operation: dict[str, int] = dataclasses.field(default_factory=dict)
    unknown: list[str] = dataclasses.field(default_factory=list)
    loops: list[str] = dataclasses.field(default_factory=list)

    @property
    def total(self) -> int:
        return sum(self.by_operation.values())


def count(graph: tf.Graph) -> FlopCount:
    """Counts `graph`, e.g. `tf.function(f).get_concrete_function(...).graph`, and what it calls.

    The most expensive branch of a condition counts. Nodes that nothing depends on do not run, so
    they do not count: gradients of the inputs of the first trained layer, for example.
    """
    return count_operations(_that_run(graph))


def count_operations(operations: Iterable[tf.Operation]) -> FlopCount:
    """Counts the given nodes of a graph and what they call."""
    result = FlopCount()
    for operation in operations:
        if operation.type in _RULES:
            try:
                flops = _RULES[operation.type](operation)
            except UnknownShapeError:
                result.unknown.append(operation.name)
            else:
                result.by_operation[operation.name] = flops
        else:
            _add_called(result, operation)
    return result


def running_operations(graph: tf.Graph) -> Iterator[tf.Operation]:
    """Yields the nodes of a graph that run, those of the functions that they call included."""
    for operation in _that_run(graph):
        yield operation
        for called in _called_graphs(operation):
            yield from running_operations(called)


def _that_run(graph: tf.Graph) -> list[tf.Operation]:
    """Returns the nodes that a function's outputs or effects need; all nodes of other graphs."""
    if not private_names.is_function_graph(graph):
        return graph.get_operations()
    pending = [tensor.op for tensor in graph.outputs] + list(graph.control_outputs)
    running = set()
    while pending:
        operation = pending.pop()
        if operation not in running:
            running.add(operation)
            pending += [tensor.op for tensor in operation.inputs] + operation.control_inputs
    return [operation for operation in graph.get_operations() if operation in running]


def _add_called(result: FlopCount, operation: tf.Operation) -> None:
    """Adds the functions that an operation calls."""
    called = [count(graph) for graph in _called_graphs(operation)]
    if not called:
        return
    if operation.type in _BRANCHING:
        called = [max(called, key=lambda branch: branch.total)]
    times = 1
    if operation.type in _LOOPS and any(part.by_operation for part in called):
        times = _iterations(operation)
        if times is None:
            result.loops.append(operation.name)
            times = 1
    for part in called:
        for name, flops in part.by_operation.items():
            result.by_operation[f'{operation.name}/{name}'] = flops * times
        result.unknown += [f'{operation.name}/{name}' for name in part.unknown]
        result.loops += [f'{operation.name}/{name}' for name in part.loops]


def _iterations(loop: tf.Operation) -> int | None:
    """Returns the limit of a loop of `tf.while_loop`, or of its gradient; None if it is unknown.

    The inputs of such a loop begin with a counter and the limit.
    """
    if len(loop.inputs) < 2 or loop.inputs[1].dtype != tf.int32:
        return None
    limit = tf.get_static_value(loop.inputs[1])
    return int(limit) if limit is not None and limit.ndim == 0 and limit >= 0 else None


def _called_graphs(operation: tf.Operation) -> Iterator[tf.Graph]:
    for attribute in operation.node_def.attr.values():
        names = [attribute.func.name, *(function.name for function in attribute.list.func)]
        for name in filter(None, names):
            yield private_names.function_graph(operation.graph, name)


def _size(shape: tf.TensorShape) -> int:
    return math.prod(_static(shape))


def _static(shape: tf.TensorShape) -> list[int]:
    if not shape.is_fully_defined():
        raise UnknownShapeError
    return shape.as_list()


def _convolution(operation: tf.Operation) -> int:
    height, width, channels, _ = _static(operation.inputs[1].shape)
    return 2 * _size(operation.outputs[0].shape) * height * width * channels


def _convolution_input_gradient(operation: tf.Operation) -> int:
    height, width, channels, _ = _static(operation.inputs[1].shape)
    return 2 * _size(operation.inputs[2].shape) * height * width * channels


def _convolution_filter_gradient(operation: tf.Operation) -> int:
    height, width, channels, _ = _static(operation.outputs[0].shape)
    return 2 * _size(operation.inputs[2].shape) * height * width * channels


def _depthwise(operation: tf.Operation) -> int:
    height, width, *_ = _static(operation.inputs[1].shape)
    return 2 * _size(operation.outputs[0].shape) * height * width


def _depthwise_input_gradient(operation: tf.Operation) -> int:
    height, width, *_ = _static(operation.inputs[1].shape)
    return 2 * _size(operation.inputs[2].shape) * height * width


def _depthwise_filter_gradient(operation: tf.Operation) -> int:
    height, width, *_ = _static(operation.outputs[0].shape)
    return 2 * _size(operation.inputs[2].shape) * height * width


def _product(transposed: str) -> Callable[[tf.Operation], int]:
    """A matrix product, batched or not; `transposed` is the attribute about its first factor."""

    def rule(operation: tf.Operation) -> int:
        inner = _static(operation.inputs[0].shape)[-2 if operation.get_attr(transposed) else -1]
        return 2 * _size(operation.outputs[0].shape) * inner

    return rule


def _einsum(operation: tf.Operation) -> int:
    """Counts two operations for each combination of indices; one with a single factor."""
    terms = operation.get_attr('equation').decode().split('->')[0].split(',')
    sizes: dict[str, int] = {}
    for term, tensor in zip(terms, operation.inputs, strict=True):
        shape = _static(tensor.shape)
        if '.' in term:
            first, last = term.split('...')
            term = first + '.' * (len(shape) - len(first) - len(last)) + last
        # Broadcast indices are named by their position from the right.
        dots = term.count('.')
        for letter, size in zip(term, shape, strict=True):
            if letter == '.':
                letter, dots = f'.{dots}', dots - 1
            sizes[letter] = max(size, sizes.get(letter, 1))
    return math.prod(sizes.values()) * len(terms)


_RULES: dict[str, Callable[[tf.Operation], int]] = {
    'Conv2D': _convolution,
    'Conv2DBackpropInput': _convolution_input_gradient,
    'Conv2DBackpropFilter': _convolution_filter_gradient,
    'DepthwiseConv2dNative': _depthwise,
    'DepthwiseConv2dNativeBackpropInput': _depthwise_input_gradient,
    'DepthwiseConv2dNativeBackpropFilter': _depthwise_filter_gradient,
    'MatMul': _product('transpose_a'),
    'BatchMatMul': _product('adj_x'),
    'BatchMatMulV2': _product('adj_x'),
    'BatchMatMulV3': _product('adj_x'),
    'Einsum': _einsum,
}
# Types of the nodes that are counted.
COUNTED = frozenset(_RULES)
_BRANCHING = {'If', 'StatelessIf', 'Case', 'StatelessCase'}
_LOOPS = {'While', 'StatelessWhile'}
