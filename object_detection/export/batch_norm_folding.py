"""Folds batch normalisation into the convolution before it, for inference."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import keras
import tensorflow as tf

from object_detection.system import private_names

_FOLDABLE = (keras.layers.Conv2D, keras.layers.Dense)


def fold(parts: Iterable[keras.layers.Layer], run: Callable[[], object]) -> int:
    """Folds every batch norm of `parts` that directly follows a convolution or dense layer.

    With y = gamma * (conv(x) + bias - mean) / sqrt(variance + epsilon) + beta, the scale moves into
    the kernel and the rest into one addition. Afterwards the layers compute the same up to
    rounding, but can no longer be trained.

    Args:
      parts: built layers or models; their weights and the batch norms' `call` are changed.
      run: runs the parts once, in inference mode, on constants; it is traced, not executed, and
        which layers follow each other is read off the graph. It returns whatever of the parts'
        outputs its own graph does not read.

    Returns:
      The number of batch norms folded. One stays as it is if its input does not come straight from
      a layer, if that layer runs twice, or if anything but this batch norm reads its output.
    """
    pairs = _pairs({id(layer): layer for part in parts for layer in _leaves(part)}.values(), run)
    for layer, norm in pairs:
        _fold_pair(layer, norm)
    return len(pairs)


def _leaves(layer: keras.layers.Layer) -> Iterator[keras.layers.Layer]:
    """All layers in `layer` that are batch norms or may have one folded into them."""
    for child in private_names.layers_in(layer):
        if isinstance(child, (*_FOLDABLE, keras.layers.BatchNormalization)):
            yield child


class _Call(NamedTuple):
    """One call of a layer; `operations` are the names of what it added to the graph."""

    inputs: tf.Tensor
    output: tf.Tensor
    operations: set[str]


def _pairs(
    layers: Iterable[keras.layers.Layer], run: Callable[[], object]
) -> list[tuple[keras.layers.Layer, keras.layers.BatchNormalization]]:
    """Traces `run` and returns the layers whose output one batch norm reads, and that alone."""
    calls: dict[keras.layers.Layer, list[_Call]] = defaultdict(list)
    originals = {layer: layer.call for layer in layers}

    def record(layer: keras.layers.Layer) -> Callable:
        def call(inputs: tf.Tensor, *args, **kwargs) -> tf.Tensor:
            # The inputs of a first layer may be a constant of no graph.
            graph = tf.compat.v1.get_default_graph()
            before = len(graph.get_operations())
            output = originals[layer](inputs, *args, **kwargs)
            added = {operation.name for operation in graph.get_operations()[before:]}
            calls[layer].append(_Call(inputs, output, added))
            return output

        return call

    for layer in originals:
        layer.call = record(layer)
    try:
        tf.function(run, autograph=False).get_concrete_function()
    finally:
        for layer, original in originals.items():
            layer.call = original
    sources = {
        id(made[0].output): (layer, made[0].output)
        for layer, made in calls.items()
        if isinstance(layer, _FOLDABLE) and len(made) == 1 and _has_no_activation(layer)
    }
    pairs = []
    for norm, made in calls.items():
        if not isinstance(norm, keras.layers.BatchNormalization) or len(made) != 1:
            continue
        layer, output = sources.get(id(made[0].inputs), (None, None))
        if layer and {reader.name for reader in output.consumers()} <= made[0].operations:
            pairs.append((layer, norm))
    return pairs


def _has_no_activation(layer: keras.layers.Layer) -> bool:
    return layer.activation is keras.activations.linear


def _fold_pair(layer: keras.layers.Layer, norm: keras.layers.BatchNormalization) -> None:
    scale = tf.math.rsqrt(tf.constant(norm.moving_variance.value) + norm.epsilon)
    if norm.gamma is not None:
        scale *= norm.gamma.value
    shift = -norm.moving_mean.value * scale
    if norm.beta is not None:
        shift += norm.beta.value
    if layer.use_bias:
        shift += layer.bias.value * scale
        layer.bias.assign(tf.zeros_like(layer.bias.value))
    layer.kernel.assign(layer.kernel.value * scale)
    shift = tf.constant(shift)
    norm.call = lambda inputs, *args, **kwargs: inputs + tf.cast(shift, inputs.dtype)
