"""A table of a detector's layers: shapes, parameters and floating point operations."""

import contextlib
import dataclasses
from collections.abc import Collection, Iterator

import keras
import tensorflow as tf

from object_detection.meta_architectures import side_inputs
from object_detection.meta_architectures.detection_model import DetectionModel
from object_detection.system import private_names
from object_detection.training.monitoring import flops

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

    leaves = {
        id(layer): (part, layer) for part, top in detector.parts().items() for layer in _leaves(top)
    }
    with _recorded(layer for _, layer in leaves.values()) as calls:
        spec = tf.TensorSpec([1, *image_shape], tf.float32)
        graph = tf.function(run, autograph=False).get_concrete_function(spec).graph
    names = {id(variable): name for name, variable in detector.named_variables().items()}
    rows = []
    for part, layer in leaves.values():
        output, operations = calls.get(id(layer), ((), []))
        sizes = {True: 0, False: 0}
        for weight in layer.weights:
            is_trained = weight.trainable if trained is None else names[id(weight.value)] in trained
            sizes[is_trained] += weight.value.shape.num_elements()
        # A frozen norm runs the convolution before it in its place, whose row counts it.
        is_norm = isinstance(layer, keras.layers.BatchNormalization)
        cost = 0 if is_norm else flops.count_operations(operations).total
        name = layer.path.removeprefix(detector.parts()[part].name + '/')
        rows.append(LayerSummary(part, name, 1, output, sizes[True], sizes[False], cost))
    whole = flops.count(graph)
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
    widths = [max(len(row[column]) for row in cells) for column in range(len(_HEADER))]
    height, width = summary.image_size
    result = [f'{name}: one image of {height} x {width}, multiply and add counted as 2']
    for row in cells:
        left = [cell.ljust(size) for cell, size in zip(row[:3], widths[:3], strict=True)]
        right = [cell.rjust(size) for cell, size in zip(row[3:], widths[3:], strict=True)]
        result.append('  '.join(left + right).rstrip())
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


def _leaves(layer: keras.layers.Layer) -> Iterator[keras.layers.Layer]:
    """Yields the layers in `layer`, itself included, that have weights of their own."""
    for child in private_names.layers_in(layer):
        if child.weights and len(private_names.layers_in(child)) == 1:
            yield child


@contextlib.contextmanager
def _recorded(
    layers: Iterator[keras.layers.Layer],
) -> Iterator[dict[int, tuple[tuple[int | None, ...], list[tf.Operation]]]]:
    """Collects, by the id of each layer called inside, its last output's shape and its nodes."""
    calls: dict[int, tuple[tuple[int | None, ...], list[tf.Operation]]] = {}
    originals = {}

    def record(layer: keras.layers.Layer, original):
        def call(inputs, *arguments, **options):
            graph = tf.nest.flatten(inputs)[0].graph  # of one of the maps that a layer combines
            before = len(graph.get_operations())
            output = original(inputs, *arguments, **options)
            operations = graph.get_operations()[before:]
            earlier = calls[id(layer)][1] if id(layer) in calls else []
            calls[id(layer)] = (tuple(output.shape), earlier + operations)
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
