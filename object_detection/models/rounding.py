"""Layers whose values a quantized detector rounds; they take what rounds them when they are made.

`quantization.Quantization` says what is rounded. All layers of a network are of these classes, the
Keras layers without weights too; elsewhere they are what Keras's are.
"""

import contextlib
import contextvars
from collections.abc import Callable
from typing import Any, Protocol

import keras
import tensorflow as tf

from object_detection.core import scopes, tracing


class Rounding(Protocol):
    """What rounds the values of layers."""

    def rounds(self, layer: keras.layers.Layer) -> bool:
        """Returns whether it rounds the values of a layer by now."""

    def call(
        self, layer: keras.layers.Layer, run: Callable, inputs: Any, /, *args: Any, **options: Any
    ) -> Any:
        """Calls a layer by `run(inputs, *args, **options)`, and rounds its inputs and outputs."""

    def weights(self, kernel: tf.Tensor, channel_axes: int = 1) -> tf.Tensor:
        """Rounds a kernel, given the number of its last axes that are its channels."""

    def inner(self, layer: keras.layers.Layer, values: tf.Tensor) -> tf.Tensor:
        """Rounds values that an integer model stores between two operations of a layer."""


_current: contextvars.ContextVar[Rounding | None] = contextvars.ContextVar('rounding', default=None)


def current() -> Rounding | None:
    """Returns what rounds layers that are made now."""
    return _current.get()


def rounded_by(rounding: Rounding | None) -> contextlib.AbstractContextManager:
    """Layers that are made in the block are rounded by `rounding`; by nothing if it is None."""
    return scopes.scope(_current, rounding)


class Roundable(keras.layers.Layer):
    """A layer whose values can be rounded."""

    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, **options)
        self._rounding = _current.get()

    @property
    def rounding(self) -> Rounding | None:
        """What rounds the values of the layer; None if nothing does."""
        is_rounded = self._rounding is not None and self._rounding.rounds(self)
        return self._rounding if is_rounded else None

    def __call__(self, inputs: Any, *args: Any, **options: Any) -> Any:
        if self.rounding is None:
            return super().__call__(inputs, *args, **options)
        return self.rounding.call(self, super().__call__, inputs, *args, **options)


class Activation(Roundable, keras.layers.Activation):
    """Keras's layer."""


class Add(Roundable, keras.layers.Add):
    """Keras's layer."""


class AveragePooling2D(Roundable, keras.layers.AveragePooling2D):
    """Keras's layer."""


class Concatenate(Roundable, keras.layers.Concatenate):
    """Keras's layer."""


class GlobalAveragePooling2D(Roundable, keras.layers.GlobalAveragePooling2D):
    """Keras's layer."""


class Identity(Roundable, keras.layers.Identity):
    """Keras's layer."""


class Gelu(Roundable):
    """Keras's GELU; in exports by operations that ONNX has, too."""

    def call(self, inputs):
        if tracing.BasicOperations.is_on():
            return 0.5 * inputs * (1.0 + tf.math.erf(inputs * 0.5**0.5))
        return keras.activations.gelu(inputs, approximate=False)


class LeakyReLU(Roundable, keras.layers.LeakyReLU):
    """Keras's layer."""


class MaxPooling2D(Roundable, keras.layers.MaxPooling2D):
    """Keras's layer."""


class Multiply(Roundable, keras.layers.Multiply):
    """Keras's layer."""


class ZeroPadding2D(Roundable, keras.layers.ZeroPadding2D):
    """Keras's layer."""
