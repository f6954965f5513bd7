"""A table of a detector's layers: shapes, parameters and floating point operations.

Counts the floating point operations of a traced function by its static shapes.

It counts convolutions, their gradients, matrix products and einsums, two operations for each
multiplication with addition; the rest of a detector is a few percent.
"""

import contextlib
import dataclasses
import functools
import math
from collections.abc import Callable, Collection, Iterable, Iterator

import keras
import tensorflow as tf

from object_detection.meta_architectures import side_inputs
from object_detection.meta_architectures.detection_model import DetectionModel
from object_detection.system import private_names, texts


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


# Side of the square image that is assumed if the resizer depends on the image.
_SIDE = 640
_HEADER = ('part', 'layers', 'output', 'trained', 'frozen', 'GFLOP')


@dataclasses.dataclass
class LayerSummary:
    """One layer, or a group of layers.

    Attributes:
      part: first component of the variables' names, e.g. 'backbone'.
      name: name of the layer, or what the names of a group have in common.
      layers: number of layers.
      output: shape of the last output; empty for a layer that did not run.
      trained, frozen: number of parameters that training changes, and that it does not.
      flops: floating point operations of a forward pass.
    """

    part: str
    name: str
    layers: int
    output: tuple[int | None, ...]
    trained: int
    frozen: int
    flops: int


@dataclasses.dataclass(frozen=True)
class ModelSummary:
    """A forward pass on images [1, height, width, 3].

    Attributes:
      image_size: (height, width) after resizing.
      layers: all layers with parameters, in the order of the parts.
      flops: floating point operations of the whole model; loops are counted once.
      unknown: operations that could not be counted.
    """

    image_size: tuple[int, int]
    layers: list[LayerSummary]
    flops: int
    unknown: list[str]


def summarize(
    detector: DetectionModel,
    *,
    trained: Collection[str] | None = None,
    image_size: tuple[int, int] | None = None,
) -> ModelSummary:
    """Traces inference on one image; nothing is computed.

    Args:
      detector: with all variables built.
      trained: names of the variables that training changes; None takes all trainable ones.
      image_size: (height, width) of the images after resizing; None asks the resizer.
    """
    height, width = image_size or resized_image_size(detector)
    image_shape = [height, width, detector.num_image_channels]
    shape = tf.constant([image_shape])

    def run(images: tf.Tensor) -> dict[str, tf.Tensor]:
        predictions = detector.predict(images, shape, **side_inputs.zeros(detector))
        return detector.postprocess(predictions, shape)

    owners = {
        id(layer): (part, layer, weights)
        for part, top in detector.parts().items()
        for layer, weights in _owners(top)
    }
    with _recorded(layer for _, layer, _ in owners.values()) as calls:
        spec = tf.TensorSpec([1, *image_shape], tf.float32)
        graph = tf.function(run, autograph=False).get_concrete_function(spec).graph
    names = {id(variable): name for name, variable in detector.named_variables().items()}
    rows = []
    for part, layer, weights in owners.values():
        output, operations = calls.get(id(layer), ((), []))
        sizes = {True: 0, False: 0}
        for weight in weights:
            is_trained = weight.trainable if trained is None else names[id(weight.value)] in trained
            sizes[is_trained] += weight.value.shape.num_elements()
        # A frozen norm runs the convolution before it in its place, whose row counts it.
        is_norm = isinstance(layer, keras.layers.BatchNormalization)
        cost = 0 if is_norm else count_operations(operations).total
        name = layer.path.removeprefix(detector.parts()[part].name + '/')
        rows.append(LayerSummary(part, name, 1, output, sizes[True], sizes[False], cost))
    whole = count(graph)
    return ModelSummary((height, width), rows, whole.total, whole.unknown)


def lines(
    detector: DetectionModel,
    *,
    trained: Collection[str] | None = None,
    image_size: tuple[int, int] | None = None,
    every_layer: bool = False,
) -> list[str]:
    """Returns the table of a detector, for a log or a file; see `summarize` and `table`."""
    summary = summarize(detector, trained=trained, image_size=image_size)
    return table(summary, detector.name, every_layer=every_layer)


def table(summary: ModelSummary, name: str, *, every_layer: bool = False) -> list[str]:
    """Returns the lines of the table.

    Args:
      summary: what `summarize` returned.
      name: name of the detector.
      every_layer: whether each layer with parameters has a line; otherwise layers are grouped by
        the first word of their names, so that the table fits a screen.
    """
    rows = summary.layers if every_layer else _grouped(summary.layers)
    layers_flops = sum(row.flops for row in rows)
    cells = [_HEADER, *(_cells(row, every_layer) for row in rows)]
    if summary.flops - layers_flops > 1e7:
        cells.append(('(other)', '', '', '0', '0', _giga(summary.flops - layers_flops)))
    totals = [sum(getattr(row, key) for row in rows) for key in ('trained', 'frozen')]
    cells.append(('total', '', '', *(f'{total:,}' for total in totals), _giga(summary.flops)))
    height, width = summary.image_size
    result = [f'{name}: one image of {height} x {width}, multiply and add counted as 2']
    result += texts.aligned(cells, left=3)
    if summary.unknown:
        result.append(f'not counted, sizes are not static: {", ".join(summary.unknown)}')
    return result


def resized_image_size(detector: DetectionModel) -> tuple[int, int]:
    """Returns (height, width) of a square photo after the detector's resizer."""
    photo = tf.TensorSpec([1, _SIDE, _SIDE, 3], tf.float32)
    traced = tf.function(detector.preprocess, autograph=False).get_concrete_function(photo)
    height, width = traced.structured_outputs[0].shape[1:3]
    if None in (height, width):
        height, width = traced(tf.zeros(photo.shape))[0].shape[1:3]
    return height, width


def _owners(layer: keras.layers.Layer) -> list[tuple[keras.layers.Layer, list[keras.Variable]]]:
    """Returns the layers in `layer`, itself included, with weights of their own, and these."""
    found, known = [], set[int]()
    for child in private_names.layers_in(layer):
        inside = private_names.layers_in(child, include_self=False)
        others = known.union(id(weight) for each in inside for weight in each.weights)
        own = [weight for weight in child.weights if id(weight) not in others]
        if own:
            found.append((child, own))
            known.update(id(weight) for weight in own)
    return found


@contextlib.contextmanager
def _recorded(
    layers: Iterator[keras.layers.Layer],
) -> Iterator[dict[int, tuple[tuple[int | None, ...], list[tf.Operation]]]]:
    """Collects, by the id of each layer called inside, the shape of its output and its nodes.

    Of several outputs the first one counts, of several calls the last one. A node is that of the
    innermost layer.
    """
    calls: dict[int, tuple[tuple[int | None, ...], list[tf.Operation]]] = {}
    originals = {}
    claimed: set[tf.Operation] = set()

    def record(layer: keras.layers.Layer, original):
        @functools.wraps(original)  # Keras reads its signature.
        def call(*arguments, **options):
            graph = tf.compat.v1.get_default_graph()
            before = len(graph.get_operations())
            output = original(*arguments, **options)
            operations = [each for each in graph.get_operations()[before:] if each not in claimed]
            claimed.update(operations)
            earlier = calls[id(layer)][1] if id(layer) in calls else []
            shape = tuple(tf.nest.flatten(output)[0].shape)
            calls[id(layer)] = (shape, earlier + operations)
            return output

        return call

    for layer in layers:
        originals[layer] = layer.call
        layer.call = record(layer, layer.call)
    try:
        yield calls
    finally:
        for layer, original in originals.items():
            layer.call = original


def _grouped(rows: list[LayerSummary]) -> list[LayerSummary]:
    groups: dict[tuple[str, str], LayerSummary] = {}
    for row in rows:
        word = row.name.split('/')[-1].split('_')[0]
        group = groups.setdefault((row.part, word), LayerSummary(row.part, word, 0, (), 0, 0, 0))
        group.layers += 1
        group.output = row.output or group.output
        for name in ('trained', 'frozen', 'flops'):
            setattr(group, name, getattr(group, name) + getattr(row, name))
    return list(groups.values())


def _cells(row: LayerSummary, every_layer: bool) -> tuple[str, ...]:
    name = row.name if every_layer else f'{row.name} ({row.layers})'
    output = ' x '.join('?' if size is None else str(size) for size in row.output)
    return row.part, name, output, f'{row.trained:,}', f'{row.frozen:,}', _giga(row.flops)


def _giga(count: int) -> str:
    return f'{count / 1e9:.2f}'
