"""Quantization-aware training (https://arxiv.org/abs/1712.05877): rounding as in an integer model.

Weights are rounded to levels that are symmetric around 0, with a scale for each output channel, as
TFLite's integer kernels need them. Rounding commutes with scaling the channels, so that a batch
norm may be folded before or after it: the training needs no second convolution for the norm.
Activations are rounded within ranges, one for a tensor, that are moving averages of the smallest
and largest values of a batch. Gradients pass rounding unchanged, except for values out of range.
"""

import dataclasses
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import keras
import tensorflow as tf

from object_detection.core import tracing
from object_detection.errors import UserError
from object_detection.models import convolutions, normalization, rounding
from object_detection.models.necks import bifpn, fpn, resizing
from object_detection.system import private_names

# Share of a range that a batch leaves, after the first batches, whose mean is taken.
_MOMENTUM = 0.999
# Ranges of a detector that was never trained, as in TensorFlow 1.
_INITIAL = 6.0
# Smallest width of a range, and smallest maximum of a channel of a kernel.
_SMALLEST = 1e-6
# Layers that an integer model computes together with the layer before them: only the result of the
# last one is rounded.
_FUSED = (normalization.BatchNorm, keras.layers.Identity)
# Layers whose results are rounded because they are new values.
_COMPUTING = (
    convolutions.FoldableLayer,
    normalization.GroupNorm,
    normalization.LayerNorm,
    normalization.LearnableAffine,
    keras.layers.Activation,
    keras.layers.LeakyReLU,
    rounding.Gelu,
    keras.layers.Add,
    keras.layers.Concatenate,
    keras.layers.Multiply,
    keras.layers.AveragePooling2D,
    keras.layers.GlobalAveragePooling2D,
    bifpn.Combination,
)
# Layers that keep the range of their input, as their integer kernels do.
_MOVING = (
    keras.layers.ZeroPadding2D,
    keras.layers.MaxPooling2D,
    fpn.BilinearUpsampling,
    resizing.CropTo,
    resizing.Doubling,
)


@dataclasses.dataclass(frozen=True)
class QuantizationParams:
    """How a detector is quantized.

    Attributes:
      delay: number of steps of a training before it rounds; it learns the ranges from the start.
        Evaluations and exports always round.
      weight_bits, activation_bits: 2 to 16.
      symmetric: whether ranges of activations are as wide below 0 as above, except for one level
        more below, as in two's complement. Those of weights are symmetric in any case.
    """

    delay: int = 0
    weight_bits: int = 8
    activation_bits: int = 8
    symmetric: bool = False


class Quantization:
    """Rounds the weights and activations of the layers of a detector.

    Layers that are made within `rounding.rounded_by` of it ask it in every call. `build` observes
    one run of the detector and makes a range for each tensor that an integer model stores; before,
    nothing is rounded. Layers that are called several times in a run, such as the heads that levels
    share, have a range for each call.

    Args:
      params: how to quantize.

    Attributes:
      ranges: '<layer>/moving_min' and '<layer>/moving_max', '<layer>/call_<i>/...' for a further
        call, float32 scalars; with '/input_<i>' after the layer for an input that no layer rounds,
        '/inner' for a value within the layer.
    """

    def __init__(self, params: QuantizationParams):
        self.params = params
        self.ranges: dict[str, tf.Variable] = {}
        # Counts the batches in the ranges, so that a training continues with restored ranges.
        self._count = _variable('count', 0.0)
        self._names: dict[int, str] = {}
        self._calls: Counter[str] = Counter()
        self._this_pass = threading.local()  # replicas may be traced in turns, in threads
        self._observed: _Observation | None = None

    def build(
        self, layers: Iterable[tuple[str, keras.layers.Layer]], run: Callable[[], Any]
    ) -> None:
        """Makes the ranges; from now on the layers are rounded.

        Args:
          layers: all layers of the detector, with unique names. They must be built.
          run: runs the detector on any images, in inference.

        Raises:
          UserError: if a layer cannot be quantized; the message names it.
        """
        leaves = check(layers)
        self._names = {id(layer): name for name, layer in leaves}
        self._observed = _Observation()
        run()
        self._calls = self._counts()
        for place in self._observed.places():
            for end, value in (('min', -_INITIAL), ('max', _INITIAL)):
                self.ranges[f'{place}/moving_{end}'] = _variable(f'moving_{end}', value)
        self._observed = None
        self._this_pass.counts = Counter()

    @property
    def variables(self) -> dict[str, tf.Variable]:
        """Returns the ranges, and `count`, the number of batches that they are means of."""
        return {**self.ranges, 'count': self._count}

    def rounds(self, layer: keras.layers.Layer) -> bool:
        return id(layer) in self._names

    def weights(self, kernel: tf.Tensor, channel_axes: int = 1) -> tf.Tensor:
        """Rounds a kernel, float32, each channel by itself; see `rounding.Rounding`."""
        if self._observed is not None:
            return kernel
        levels = 2.0 ** (self.params.weight_bits - 1) - 1.0
        axes = list(range(len(kernel.shape) - channel_axes))
        largest = tf.reduce_max(tf.abs(kernel), axes, keepdims=True)
        scale = tf.maximum(largest, _SMALLEST) / levels
        if tracing.current_step() is None:
            return _round_to(kernel, scale)
        return self._after_delay(_round_straight_through(kernel, scale), kernel)

    def inner(self, layer: keras.layers.Layer, values: tf.Tensor) -> tf.Tensor:
        name = self._names[id(layer)]
        place = f'{_numbered(name, self._call_number(name))}/inner'
        if self._observed is not None:
            self._observed.needed[place] = None
            return values
        return self._rounded(place, values)

    def call(
        self, layer: keras.layers.Layer, run: Callable, inputs: Any, /, *args: Any, **options: Any
    ) -> Any:
        name = self._names[id(layer)]
        self._count_call(name)
        place = _numbered(name, self._call_number(name))
        if self._observed is not None:
            outputs = run(inputs, *args, **options)
            # A norm that does not follow a convolution cannot be folded.
            is_apart = isinstance(layer, normalization.BatchNorm) and options.get('layer') is None
            kind = 'computing' if is_apart else _kind(layer)
            self._observed.add(place, kind, inputs, outputs)
            return outputs
        return self._rounded(place, run(self._rounded_inputs(place, inputs), *args, **options))

    def _count_call(self, name: str) -> None:
        counts = self._counts()
        # A run of the detector begins with its first layer, whose calls are the first to be known.
        is_first = name == next(iter(self._calls), None)
        if is_first and counts[name] % self._calls[name] == 0:
            counts.clear()
            if _learns():
                self._count.assign_add(1.0)
        counts[name] += 1

    def _counts(self) -> Counter[str]:
        if not hasattr(self._this_pass, 'counts'):
            self._this_pass.counts = Counter()
        return self._this_pass.counts

    def _call_number(self, name: str) -> int:
        """Returns the number of the present call of a layer in this run, from 0."""
        number = self._counts()[name] - 1
        return number % self._calls[name] if self._calls[name] else number

    def _rounded_inputs(self, place: str, inputs: Any) -> Any:
        if not isinstance(inputs, list | tuple):
            return self._rounded(f'{place}/input_0', inputs)
        return [self._rounded(f'{place}/input_{i}', x) for i, x in enumerate(inputs)]

    def _rounded(self, place: str, values: tf.Tensor) -> tf.Tensor:
        """Rounds values in the range of a place; values of a place without a range as they are."""
        if f'{place}/moving_min' not in self.ranges:
            return values
        low, high = (self.ranges[f'{place}/moving_{end}'] for end in ('min', 'max'))
        limits = low.read_value(), high.read_value()
        if _learns():
            share = 1.0 / tf.maximum(self._count.read_value(), 1.0)
            share = tf.maximum(share, 1.0 - _MOMENTUM)
            newest = self._limits(tf.stop_gradient(values))
            limits = tuple(
                old + share * (new - old) for old, new in zip(limits, newest, strict=True)
            )
            low.assign(limits[0])
            high.assign(limits[1])
        rounded = tf.quantization.fake_quant_with_min_max_vars(
            tf.cast(values, tf.float32), *limits, num_bits=self.params.activation_bits
        )
        return self._after_delay(tf.cast(rounded, values.dtype), values)

    def _limits(self, values: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the range of values, float32 scalars; it includes 0."""
        values = tf.cast(values, tf.float32)
        low = tf.minimum(tf.reduce_min(values), 0.0)
        high = tf.maximum(tf.reduce_max(values), low + _SMALLEST)
        high = tf.maximum(high, 0.0)
        if self.params.symmetric:
            half = 2.0 ** (self.params.activation_bits - 1)
            low = tf.minimum(low, -high * half / (half - 1.0))
            high = -low * (half - 1.0) / half
        return low, high

    def _after_delay(self, rounded: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
        step = tracing.current_step()
        if step is None or not self.params.delay:
            return rounded
        return tf.where(tf.cast(step, tf.int64) >= self.params.delay, rounded, values)


class _Observation:
    """The tensors of a run, and which of them an integer model stores.

    Attributes:
      needed: the places whose values are rounded, apart from results of layers; as an ordered set.
    """

    def __init__(self):
        self.needed: dict[str, None] = {}
        self._computed: dict[str, None] = {}
        # Tensor -> the place that computed it; the tensor too, so that its id stays its own.
        self._origins: dict[int, tuple[str, tf.Tensor]] = {}

    def places(self) -> list[str]:
        """Returns all places whose values are rounded."""
        return [*self.needed, *self._computed]

    def add(self, place: str, kind: str, inputs: Any, outputs: tf.Tensor) -> None:
        """Adds a call of a layer of a kind that `_kind` returns."""
        inputs = inputs if isinstance(inputs, list | tuple) else [inputs]
        origins = [self._origins.get(id(x), (None, None))[0] for x in inputs]
        if kind == 'fused':
            self._computed.pop(origins[0], None)
        else:
            for i, origin in enumerate(origins):
                if origin is None:
                    self.needed[f'{place}/input_{i}'] = None
        if kind == 'moving':
            # Of an input that is rounded on entry, the result is rounded too.
            place = origins[0] or f'{place}/input_0'
        else:
            self._computed[place] = None
        self._origins[id(outputs)] = place, outputs


def _learns() -> bool:
    """Whether what is traced now updates the ranges."""
    return tracing.current_step() is not None and not tracing.FrozenStatistics.is_on()


def _variable(name: str, value: float) -> tf.Variable:
    return tf.Variable(
        value,
        trainable=False,
        name=name,
        synchronization=tf.VariableSynchronization.ON_READ,
        aggregation=tf.VariableAggregation.MEAN,
    )


def _kind(layer: keras.layers.Layer) -> str | None:
    """Returns 'fused', 'computing' or 'moving'; None for layers that nothing is known of."""
    activation = getattr(layer, 'activation', None)
    is_activation = isinstance(layer, keras.layers.Activation)
    if isinstance(layer, _FUSED) or (
        is_activation and keras.activations.serialize(activation) in convolutions.FUSED_ACTIVATIONS
    ):
        return 'fused'
    if isinstance(layer, _COMPUTING):
        return 'computing'
    return 'moving' if isinstance(layer, _MOVING) else None


def check(layers: Iterable[tuple[str, keras.layers.Layer]]) -> list[tuple[str, keras.layers.Layer]]:
    """Checks the layers of a detector that was built within `rounding.rounded_by`.

    Returns:
      Those that have no further layers within.

    Raises:
      UserError: if a layer cannot be quantized; the message names it.
    """
    leaves = [(name, layer) for name, layer in layers if not _has_layers(layer)]
    unknown = [
        f'{name} ({type(layer).__name__})'
        for name, layer in leaves
        if (layer.weights if _kind(layer) is None else not isinstance(layer, rounding.Roundable))
    ]
    if unknown:
        raise UserError(
            'expected a detector of convolutions, dense layers and norms. Received one with '
            f'{", ".join(unknown)}, which cannot be quantized.'
        )
    return leaves


def _has_layers(layer: keras.layers.Layer) -> bool:
    return bool(private_names.layers_in(layer, include_self=False))


def _numbered(name: str, call: int) -> str:
    return f'{name}/call_{call}' if call else name


def _round_to(kernel: tf.Tensor, scale: tf.Tensor) -> tf.Tensor:
    """Rounds to multiples of `scale`."""
    return tf.round(kernel / scale) * scale


@tf.custom_gradient
def _round_straight_through(kernel: tf.Tensor, scale: tf.Tensor):
    """As `_round_to`, but with the gradient of the identity."""
    return _round_to(kernel, scale), lambda upstream: (upstream, None)
