"""Layers into which a following norm can be folded; convolutions train fast on CPUs."""

import contextvars
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import keras
import tensorflow as tf

from object_detection.core.tracing import Scope, is_compiled
from object_detection.models.convolution_gradients import convolve
from object_detection.models.rounding import Roundable
from object_detection.system import private_names

# Numbers of output pixels from which on gradients by other operations than TensorFlow's are faster,
# for kernels of one pixel and for others.
_LARGE = {tf.float32: (4096, 4096), tf.bfloat16: (0, 32768)}
# And of layers most of whose pixels have no gradient.
_LARGE_IF_SPARSE = 1024
# Activations that integer models compute together with the layer before them.
FUSED_ACTIVATIONS = ('linear', 'relu', 'relu6')


class Norm(Protocol):
    """A norm that can be folded into the layer before it, such as `normalization.BatchNorm`."""

    def is_folded(self, layer: 'FoldableLayer', training: bool | None) -> bool:
        """Returns whether the norm is folded into `layer`, which then computes both."""

    def fold(self, layer: 'FoldableLayer') -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the kernel and offset by which `layer` computes both."""


class FoldableLayer(Roundable):
    """A layer that is linear in a kernel: a scaled kernel gives scaled outputs.

    Its results and variables are those of the Keras layer from which a subclass is also derived,
    except for the names that the subclass mentions.

    Attributes:
      folds_in_training: whether a norm that does not train is folded into the layer in training
        too, not only in inference.
      channel_axes: number of the last axes of the kernel that are the channels of the outputs.
    """

    folds_in_training = False
    channel_axes = 1

    def call(self, inputs, training=None, norm: Norm | None = None):
        """Returns the outputs of the layer, normalized by `norm` if it is folded into the layer."""
        if norm is None or not norm.is_folded(self, training):
            return (self._rounded if self.rounding else self.unfolded)(inputs, training)
        kept = _folded_variables.get()
        kernel, offset = norm.fold(self) if kept is None else kept.folded(self, norm)
        outputs = self.apply_kernel(inputs, tf.cast(kernel, inputs.dtype), training)
        return tf.nn.bias_add(outputs, tf.cast(offset, inputs.dtype))

    def unfolded(self, inputs: tf.Tensor, training: bool | None) -> tf.Tensor:
        """Returns the layer's own outputs."""
        return super().call(inputs)

    def scaled_kernel(self, scale: tf.Tensor) -> tf.Tensor:
        """Returns the stored kernel for outputs whose channels are `scale`, float32 [D], as large.

        The kernel is not rounded to the dtype of the activations, but as `rounding` says.
        """
        kernel = self.stored_kernel()
        return self._round(kernel * tf.cast(self._as_channels(scale), kernel.dtype))

    def stored_kernel(self) -> tf.Variable:
        """Returns the variable of the kernel."""
        return private_names.stored_value(self.kernel)

    def _as_channels(self, scale: tf.Tensor) -> tf.Tensor:
        """Returns factors of the output channels, [D], in the shape of the kernel's channels."""
        return scale

    def _round(self, kernel: tf.Tensor) -> tf.Tensor:
        return kernel if self.rounding is None else self.rounding.weights(kernel, self.channel_axes)

    def _rounded(self, inputs: tf.Tensor, training: bool | None) -> tf.Tensor:
        """Returns the layer's own outputs for its rounded kernel."""
        kernel = self._round(tf.convert_to_tensor(self.stored_kernel()))
        outputs = self.apply_kernel(inputs, kernel, training)
        if self.use_bias:
            outputs = tf.nn.bias_add(outputs, tf.convert_to_tensor(self.bias))
        if keras.activations.serialize(self.activation) not in FUSED_ACTIVATIONS:
            outputs = self.rounding.inner(self, outputs)
        return self.activation(outputs)

    def apply_kernel(
        self, inputs: tf.Tensor, kernel: tf.Tensor, training: bool | None = None
    ) -> tf.Tensor:
        """Returns the outputs for another kernel, of the dtype of `inputs`, without the bias."""
        raise NotImplementedError


class Convolution(FoldableLayer, keras.layers.Conv2D):
    """Convolution of [B, H, W, C].

    Args:
      *args: of Keras's layer.
      sparse_gradients: whether most pixels of the gradients of the outputs are zero. On CPUs,
        gradients are then computed from the others alone, where they are few.
      **options: of Keras's layer.
    """

    def __init__(self, *args: Any, sparse_gradients: bool = False, **options: Any):
        super().__init__(*args, **options)
        self._sparse_gradients = sparse_gradients

    @property
    def folds_in_training(self) -> bool:
        return not self.use_bias

    def unfolded(self, inputs, training):
        outputs = self.apply_kernel(inputs, weight(self.kernel, inputs.dtype), training)
        if self.use_bias:
            # Not a sum: with an activation, it becomes a part of the convolution on CPUs.
            outputs = tf.nn.bias_add(outputs, weight(self.bias, inputs.dtype))
        return self.activation(outputs)

    def apply_kernel(self, inputs, kernel, training=None):
        if training and self._has_slow_gradients(inputs):
            return convolve(inputs, kernel, is_sparse=self._has_sparse_gradients)
        # `conv2d` has no gradients on CPUs with dilations.
        return tf.nn.convolution(
            inputs, kernel, self.strides, self.padding.upper(), dilations=self.dilation_rate
        )

    def _has_slow_gradients(self, maps: tf.Tensor) -> bool:
        """Returns whether TensorFlow's gradients are slower, as on CPUs for many pixels."""
        height, width = maps.shape[1:3]
        return (
            self.padding == 'same'
            and set(self.strides) == set(self.dilation_rate) == {1}
            and all(side % 2 for side in self.kernel_size)
            and maps.dtype in _LARGE
            and None not in (height, width)
            and (maps.shape[0] or 1) * height * width >= self._least_pixels(maps.dtype)
            and not PlainGradients.is_on()
            and not _has_accelerators()
        )

    def _least_pixels(self, dtype: tf.DType) -> int:
        least = _LARGE[dtype][max(self.kernel_size) > 1]
        return min(least, _LARGE_IF_SPARSE) if self._has_sparse_gradients else least

    @property
    def _has_sparse_gradients(self) -> bool:
        # XLA does not know how many pixels there are.
        return self._sparse_gradients and not is_compiled()


class DepthwiseConvolution(FoldableLayer, keras.layers.DepthwiseConv2D):
    """Separate convolution of each channel of [B, H, W, C], to [B, H', W', C * multiplier].

    Its kernel [k, k, C, multiplier] is named `depthwise_kernel`, as in checkpoints of Keras 2. The
    output channels are ordered by the channel of the input, then by the multiplier.
    """

    channel_axes = 2

    def _as_channels(self, scale):
        return tf.reshape(scale, self.kernel.shape[2:])

    def add_weight(self, *args, name=None, **options):
        name = 'depthwise_kernel' if name == 'kernel' else name
        return super().add_weight(*args, name=name, **options)

    @property
    def folds_in_training(self) -> bool:
        return not self.use_bias

    def apply_kernel(self, inputs, kernel, training=None):
        return keras.ops.depthwise_conv(
            inputs,
            kernel,
            strides=self.strides,
            padding=self.padding,
            dilation_rate=self.dilation_rate,
        )


class SeparableConvolution(FoldableLayer, keras.layers.SeparableConv2D):
    """A depthwise convolution of [B, H, W, C], then one of size 1, into which norms are folded."""

    def stored_kernel(self):
        return private_names.stored_value(self.pointwise_kernel)

    def apply_kernel(self, inputs, kernel, training=None):
        if self.rounding is not None:
            return self._apply_rounded(inputs, kernel)
        return keras.ops.separable_conv(
            inputs,
            tf.convert_to_tensor(self.depthwise_kernel),
            kernel,
            strides=self.strides,
            padding=self.padding,
            dilation_rate=self.dilation_rate,
        )

    def _apply_rounded(self, inputs: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
        """Rounds the kernel and the outputs of the depthwise convolution too."""
        depthwise = tf.convert_to_tensor(private_names.stored_value(self.depthwise_kernel))
        maps = keras.ops.depthwise_conv(
            inputs,
            self.rounding.weights(depthwise, 2),
            strides=self.strides,
            padding=self.padding,
            dilation_rate=self.dilation_rate,
        )
        return tf.nn.conv2d(self.rounding.inner(self, maps), kernel, 1, 'VALID')


class Dense(FoldableLayer, keras.layers.Dense):
    """Fully connected layer."""

    def unfolded(self, inputs, training):
        outputs = self.apply_kernel(inputs, weight(self.kernel, inputs.dtype))
        if self.use_bias:
            outputs = tf.nn.bias_add(outputs, weight(self.bias, inputs.dtype))
        return self.activation(outputs)

    def apply_kernel(self, inputs, kernel, training=None):
        return keras.ops.matmul(inputs, kernel)


class FoldedVariables:
    """A context in which graphs of inference read folded kernels and offsets from variables.

    The variables are computed once from the weights at the time of tracing; otherwise a graph
    computes the values in each run. A layer with several norms, such as a layer that levels share,
    has a kernel and an offset for each norm.

    Args:
      converts: whether variables have the dtype of the computation, those of layers without a
        folded norm included; otherwise they are float32, and graphs convert them in each run.
    """

    def __init__(self, *, converts: bool = False):
        self.converts = converts
        self._made: dict[tuple, list[tf.Variable]] = {}

    def __enter__(self) -> None:
        self._token = _folded_variables.set(self)

    def __exit__(self, *error: object) -> None:
        _folded_variables.reset(self._token)

    @property
    def variables(self) -> list[tf.Variable]:
        return [variable for made in self._made.values() for variable in made]

    def folded(self, layer: FoldableLayer, norm: Norm) -> list[tf.Variable]:
        """Returns the kernel and offset of `Norm.fold`."""
        dtype = layer.compute_dtype if self.converts else None
        names = [f'{layer.name}_kernel', f'{norm.name}_offset']
        return self._keep((layer, norm), dtype, names, lambda: norm.fold(layer))

    def converted(self, variable: keras.Variable, dtype: tf.DType) -> tf.Variable:
        """Returns a weight in another dtype than it is stored in."""
        stored = private_names.stored_value(variable)
        return self._keep((id(stored), dtype), dtype, [variable.name], lambda: [stored])[0]

    def _keep(
        self,
        key: tuple,
        dtype: tf.DType | str | None,
        names: Sequence[str],
        compute: Callable[[], Sequence[tf.Tensor]],
    ) -> list[tf.Variable]:
        if key not in self._made:
            with tf.init_scope():
                values = [tf.cast(each, dtype or each.dtype) for each in compute()]
                self._made[key] = [
                    private_names.new_variable(*each) for each in zip(values, names, strict=True)
                ]
        return self._made[key]


_folded_variables: contextvars.ContextVar[FoldedVariables | None] = contextvars.ContextVar(
    'folded_variables', default=None
)


def weight(variable: keras.Variable, dtype: tf.DType) -> tf.Tensor:
    """Returns the value of a layer's weight in the dtype of its computation.

    Within `FoldedVariables` that convert, the graph need not do so in each run.
    """
    kept = _folded_variables.get()
    converts = kept is not None and kept.converts
    if converts and private_names.stored_value(variable).dtype != dtype:
        return tf.convert_to_tensor(kept.converted(variable, dtype))
    return tf.cast(tf.convert_to_tensor(variable), dtype)


class PlainGradients(Scope):
    """A context in which graphs have TensorFlow's gradients, for graphs of other devices."""


def _has_accelerators() -> bool:
    return any(device.device_type != 'CPU' for device in tf.config.list_logical_devices())
