"""Folds batch normalisation into the convolution before it, for inference."""

from collections import defaultdict
from collections.abc import Callable, Iterator

import keras
import tensorflow as tf

_FOLDABLE = (keras.layers.Conv2D, keras.layers.Dense)


def fold(part: keras.layers.Layer, run: Callable[[], object]) -> int:
    """Folds every batch norm of `part` that directly follows a convolution or dense layer.

    With y = gamma * (conv(x) + bias - mean) / sqrt(variance + epsilon) + beta, the scale moves into
    the kernel and the rest into one addition. `part` computes the same (to rounding) afterwards,
    but can no longer be trained.

    Args:
      part: a built layer or model; its weights and the batch norms' `call` are changed.
      run: runs `part` eagerly once, in inference mode; which layers follow each other is read off
        that run.

    Returns:
      The number of batch norms folded. One whose input does not come from a layer of its own (or
      is shared) stays as it is.
    """
    layers = list(_leaves(part))
    producers = _producers(layers, run)
    folded = 0
    for norm, inputs in producers.items():
        if len(inputs) == 1:
            _fold_pair(inputs[0], norm)
            folded += 1
    return folded


def _leaves(layer: keras.layers.Layer) -> Iterator[keras.layers.Layer]:
    """All layers below `layer` that compute something themselves, each once."""
    seen = set()
    for child in layer._flatten_layers(include_self=True, recursive=True):
        if (
            isinstance(child, (*_FOLDABLE, keras.layers.BatchNormalization))
            and id(child) not in seen
        ):
            seen.add(id(child))
            yield child


def _producers(
    layers: list[keras.layers.Layer], run: Callable[[], object]
) -> dict[keras.layers.BatchNormalization, list[keras.layers.Layer]]:
    """Runs once and records which foldable layer's output each batch norm reads.

    Layers that feed several batch norms, and batch norms that read several layers, get an empty
    list.
    """
    outputs: dict[int, tuple[keras.layers.Layer, tf.Tensor]] = {}
    reads: dict[keras.layers.BatchNormalization, list[keras.layers.Layer]] = defaultdict(list)
    calls: dict[int, int] = defaultdict(int)
    originals = {layer: layer.call for layer in layers}

    def record(layer: keras.layers.Layer) -> Callable:
        original = originals[layer]

        def call(inputs: tf.Tensor, *args, **kwargs) -> tf.Tensor:
            if isinstance(layer, keras.layers.BatchNormalization):
                source = outputs.get(id(inputs))
                reads[layer].append(source[0] if source else None)
                return original(inputs, *args, **kwargs)
            result = original(inputs, *args, **kwargs)
            # Keeping the tensor keeps its id from being used again.
            outputs[id(result)] = (layer, result)
            calls[id(layer)] += 1
            return result

        return call

    for layer in layers:
        layer.call = record(layer)
    try:
        run()
    finally:
        for layer, original in originals.items():
            layer.call = original
    return {
        norm: sources
        if len(sources) == 1
        and sources[0] is not None
        and calls[id(sources[0])] == 1
        and _has_no_activation(sources[0])
        else []
        for norm, sources in reads.items()
    }


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
