"""Layers into which a following norm can be folded; convolutions train fast on CPUs.

Convolutions whose gradients are faster on CPUs than TensorFlow's; values are the same.
"""

import contextvars
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import keras
import tensorflow as tf

from object_detection.core.tracing import Scope, is_compiled
from object_detection.models.rounding import Roundable
from object_detection.system import private_names

# Of the pixels that the gradient of a kernel goes over, at most this many for each are padding.
_MAX_PADDING = 1.1
# Pixels with an upstream gradient that is not zero are few if there are this many others for each.
_FEW = 16


def convolve(maps: tf.Tensor, kernel: tf.Tensor, *, is_sparse: bool = False) -> tf.Tensor:
    """Convolves with stride 1 and SAME padding; gradients are by matrix products.

    TensorFlow's gradients in float32 copy all k x k neighbours of all pixels of an image, one image
    after the other in one thread: 0.6 GB for 256 channels of 208 x 336 pixels. In bfloat16 they
    convert the layout of whole maps.

    Args:
      maps: float [B, H, W, C], of static sizes except B.
      kernel: [k, k', C, D] of the same dtype, k and k' odd.
      is_sparse: whether most pixels of the upstream gradient may be zero, such as those of anchors
        that are not sampled. If so, gradients are computed from the others alone.

    Returns:
      [B, H, W, D] of the same dtype.
    """

    @tf.custom_gradient
    def run(maps: tf.Tensor, kernel: tf.Tensor):
        def gradients(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            compute = _gradients_if_sparse if is_sparse else _gradients
            return compute(maps, kernel, upstream)

        return tf.nn.conv2d(maps, kernel, 1, 'SAME'), gradients

    return run(maps, kernel)


def _gradients(
    maps: tf.Tensor, kernel: tf.Tensor, upstream: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    return _gradient_of_maps(maps, kernel, upstream), _gradient_of_kernel(
        maps, upstream, kernel.shape[:2]
    )


def _gradient_of_maps(maps: tf.Tensor, kernel: tf.Tensor, upstream: tf.Tensor) -> tf.Tensor:
    if maps.dtype != tf.float32:
        return tf.raw_ops.Conv2DBackpropInput(
            input_sizes=tf.shape(maps),
            filter=kernel,
            out_backprop=upstream,
            strides=[1, 1, 1, 1],
            padding='SAME',
        )
    turned = tf.transpose(kernel[::-1, ::-1], [0, 1, 3, 2])
    return tf.nn.conv2d(upstream, turned, 1, 'SAME')


def _gradient_of_kernel(maps: tf.Tensor, upstream: tf.Tensor, sides: Sequence[int]) -> tf.Tensor:
    """[B, H, W, C], [B, H, W, D] -> [*sides, C, D].

    With zeros around the images, all pixels form one row, and the pixels for an element of the
    kernel are a slice of this row, from another index on: no neighbours need to be copied.
    """
    vertical, horizontal = (side - 1 for side in sides)
    height, width = maps.shape[1:3]
    if (height + vertical) * (width + horizontal) > _MAX_PADDING * height * width:
        sizes = [*sides, maps.shape[3], upstream.shape[3]]
        return tf.raw_ops.Conv2DBackpropFilter(
            input=maps,
            filter_sizes=sizes,
            out_backprop=upstream,
            strides=[1, 1, 1, 1],
            padding='SAME',
        )
    around = [[vertical // 2] * 2, [horizontal // 2] * 2]
    pixels = _pixels(maps, around)
    gradients = _pixels(upstream, [[0, vertical], [0, horizontal]])
    count = tf.shape(pixels)[0]
    starts = [y * (width + horizontal) + x for y in range(sides[0]) for x in range(sides[1])]
    products = [
        tf.matmul(pixels[start:], gradients[: count - start], transpose_a=True) for start in starts
    ]
    return tf.reshape(tf.stack(products), [*sides, maps.shape[3], upstream.shape[3]])


def _pixels(maps: tf.Tensor, paddings: Sequence[Sequence[int]]) -> tf.Tensor:
    """[B, H, W, C] -> [B * H' * W', C], with zeros around."""
    if any(map(any, paddings)):
        maps = tf.pad(maps, [[0, 0], *paddings, [0, 0]])
    return tf.reshape(maps, [-1, maps.shape[3]])


def _gradients_if_sparse(
    maps: tf.Tensor, kernel: tf.Tensor, upstream: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the gradients, from few pixels where that suffices."""
    pixels = _nonzero_rows(tf.reshape(upstream, [-1, upstream.shape[3]]))
    count = tf.size(upstream) // upstream.shape[3]
    return tf.cond(
        tf.size(pixels) * _FEW < count,
        lambda: _gradients_of_few(maps, kernel, upstream, pixels),
        lambda: _gradients(maps, kernel, upstream),
    )


def _nonzero_rows(values: tf.Tensor) -> tf.Tensor:
    """Float [N, D] -> int32 [n], rows that are not zero; the bits of rows of zeros are zeros."""
    if values.dtype.size == 2 and values.shape[1] % 2 == 0:
        # Pairs of numbers, as integers, are compared faster.
        bits = tf.bitcast(tf.reshape(values, [-1, values.shape[1] // 2, 2]), tf.int32)
    elif values.dtype.size == 4:
        bits = tf.bitcast(values, tf.int32)
    else:
        bits = tf.bitcast(tf.cast(values, tf.float32), tf.int32)
    is_zero = (tf.reduce_max(bits, axis=1) == 0) & (tf.reduce_min(bits, axis=1) == 0)
    return tf.cast(tf.where(~is_zero)[:, 0], tf.int32)


def _gradients_of_few(
    maps: tf.Tensor, kernel: tf.Tensor, upstream: tf.Tensor, pixels: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the gradients from the given pixels, int32 [n], of the upstream gradient.

    Products and sums are in float32.
    """
    height, width, channels = maps.shape[1:]
    vertical, horizontal, _, depth = kernel.shape
    taps = vertical * horizontal
    rows = tf.cast(tf.gather(tf.reshape(upstream, [-1, depth]), pixels), tf.float32)
    sources, is_inside = _neighbours(pixels, (height, width), (vertical, horizontal))
    flat = tf.reshape(maps, [-1, channels])
    values = tf.gather(flat, tf.where(is_inside, sources, 0))  # [n, taps, C]
    values = tf.where(is_inside[..., tf.newaxis], tf.cast(values, tf.float32), 0.0)
    of_kernel = tf.matmul(tf.reshape(values, [-1, taps * channels]), rows, transpose_a=True)
    weights = tf.reshape(tf.cast(kernel, tf.float32), [taps * channels, depth])
    of_values = tf.reshape(tf.matmul(rows, weights, transpose_b=True), [-1, taps, channels])
    of_values = tf.boolean_mask(of_values, is_inside)
    touched, positions = tf.unique(tf.boolean_mask(sources, is_inside))
    sums = tf.math.unsorted_segment_sum(of_values, positions, tf.size(touched))
    of_maps = tf.scatter_nd(touched[:, tf.newaxis], tf.cast(sums, maps.dtype), tf.shape(flat))
    return (
        tf.reshape(of_maps, tf.shape(maps)),
        tf.cast(tf.reshape(of_kernel, kernel.shape), kernel.dtype),
    )


def _neighbours(
    pixels: tf.Tensor, size: Sequence[int], sides: Sequence[int]
) -> tuple[tf.Tensor, tf.Tensor]:
    """Pixels int32 [n] of maps -> those that a kernel sees, and which exist, [n, taps]."""
    height, width = size
    y, x = pixels // width % height, pixels % width
    rows = tf.repeat(tf.range(sides[0]) - sides[0] // 2, sides[1])
    columns = tf.tile(tf.range(sides[1]) - sides[1] // 2, sides[:1])
    y, x = y[:, tf.newaxis] + rows, x[:, tf.newaxis] + columns
    is_inside = (y >= 0) & (y < height) & (x >= 0) & (x < width)
    return pixels[:, tf.newaxis] + rows * width + columns, is_inside


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

    @property
    def geometry(self) -> dict[str, Any]:
        """What a convolution's kernel is moved by, and how maps are padded."""
        names = ('strides', 'padding', 'dilation_rate')
        return {name: getattr(self, name) for name in names}

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
        return keras.ops.depthwise_conv(inputs, kernel, **self.geometry)


class SeparableConvolution(FoldableLayer, keras.layers.SeparableConv2D):
    """A depthwise convolution of [B, H, W, C], then one of size 1, into which norms are folded."""

    def stored_kernel(self):
        return private_names.stored_value(self.pointwise_kernel)

    def apply_kernel(self, inputs, kernel, training=None):
        if self.rounding is not None:
            return self._apply_rounded(inputs, kernel)
        depthwise = tf.convert_to_tensor(self.depthwise_kernel)
        return keras.ops.separable_conv(inputs, depthwise, kernel, **self.geometry)

    def _apply_rounded(self, inputs: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
        """Rounds the kernel and the outputs of the depthwise convolution too."""
        depthwise = tf.convert_to_tensor(private_names.stored_value(self.depthwise_kernel))
        rounded = self.rounding.weights(depthwise, 2)
        maps = keras.ops.depthwise_conv(inputs, rounded, **self.geometry)
        return tf.nn.conv2d(self.rounding.inner(self, maps), kernel, 1, 'VALID')


class Dense(FoldableLayer, keras.layers.Dense):
    """Fully connected layer."""

    unfolded = Convolution.unfolded

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
