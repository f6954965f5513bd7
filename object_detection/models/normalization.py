"""Layers that normalize feature maps, and their parameters."""

import contextlib
import dataclasses
from collections.abc import Iterator

import keras
import tensorflow as tf

from object_detection.core import tracing
from object_detection.errors import expected
from object_detection.models.convolutions import FoldableLayer
from object_detection.models.rounding import Roundable
from object_detection.system import private_names

# Numbers in a map from which on group norms are faster by kernels than by operations.
_LARGE = 2**17


@dataclasses.dataclass(frozen=True)
class BatchNormParams:
    """Parameters of batch normalisation (https://arxiv.org/abs/1502.03167).

    Attributes:
      momentum: share of the old value that a step leaves in the moving statistics.
      epsilon: added to the variance.
      center: whether an offset is learnt.
      scale: whether a scale is learnt.
      train: False freezes the layer everywhere.
      synchronized: whether the statistics cover all replicas.
      freeze_affine: whether offset and scale of frozen layers are frozen too.
    """

    momentum: float = 0.999
    epsilon: float = 0.001
    center: bool = True
    scale: bool = False
    train: bool = True
    synchronized: bool = False
    freeze_affine: bool = False


@dataclasses.dataclass(frozen=True)
class GroupNormParams:
    """Parameters of group normalisation (https://arxiv.org/abs/1803.08494).

    Attributes:
      groups: number of groups; it divides the channels of every layer.
      epsilon: added to the variance.
    """

    groups: int = 32
    epsilon: float = 1e-5


@dataclasses.dataclass(frozen=True)
class LayerNormParams:
    """Parameters of layer normalisation (https://arxiv.org/abs/1607.06450).

    Attributes:
      epsilon: added to the variance.
    """

    epsilon: float = 1e-6


class BatchNorm(Roundable, keras.layers.BatchNormalization):
    """Batch normalisation of feature maps [B, H, W, C] by one kernel, or by none.

    Keras uses a dozen operations, each of which reads and writes the whole map. Results are the
    same up to rounding, except for the moving variance, see `population_variance`. bfloat16 maps
    are read without conversion; the statistics are float32. Keras normalizes inputs of other ranks,
    and with statistics over several replicas; one replica alone needs no exchange.

    In graphs, normalisation by the moving statistics is folded into the layer before it if
    `normalized` calls both: the kernel is scaled and an offset added. Training then need not
    keep the maps before the norm, not even for the gradient of its scale.

    Attributes:
      population_variance: whether maps move the variance towards n / (n - 1) times that of their n
        pixels, an estimate of the population's, as where the reference implementation calls the
        kernel. Its norms of other ranks, and over replicas, move it towards that of the pixels.
    """

    population_variance = True

    def call(self, inputs, training=None, mask=None, layer: FoldableLayer | None = None):
        """Normalizes `inputs`, the outputs of `layer`, unless the norm is folded into `layer`."""
        if layer is not None and self.is_folded(layer, training):
            return inputs
        updates = self._updates(training)
        if len(inputs.shape) != 4 or mask is not None or self._spans_replicas():
            with self._momentum_of_this_pass():
                return super().call(inputs, training=updates, mask=mask)
        mean, variance = self.moving_mean.value, self.moving_variance.value
        inputs = tf.cast(inputs, self.compute_dtype)
        unused = tf.zeros([0]) if updates else None
        scale, offset = self._scale_and_offset()
        normalized = tf.raw_ops.FusedBatchNormV3(
            x=inputs,
            scale=scale,
            offset=offset,
            mean=unused if updates else mean,
            variance=unused if updates else variance,
            epsilon=self.epsilon,
            is_training=updates,
        )
        if updates and not tracing.FrozenStatistics.is_on():
            share = 1.0 - self.momentum
            self.moving_mean.assign(mean * self.momentum + normalized.batch_mean * share)
            if self.synchronized or not self.population_variance:
                share *= _biased_by_unbiased(inputs)
            self.moving_variance.assign(
                variance * self.momentum + normalized.batch_variance * share
            )
        return normalized.y

    def is_folded(self, layer: FoldableLayer, training: bool | None) -> bool:
        """Returns whether `layer` normalizes its outputs in a call with this norm in this mode.

        In eager execution, layer and norm are called one after the other.
        """
        if tf.executing_eagerly() or self._updates(training):
            return False
        if layer.compute_dtype != self.compute_dtype:
            return False
        return not training or (layer.folds_in_training and not self._spans_replicas())

    def fold(self, layer: FoldableLayer) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the kernel and offset with which `layer` computes its normalized outputs.

        With y = gamma * (layer(x) + bias - mean) / sqrt(variance + epsilon) + beta, the scale
        becomes part of the kernel; the rest is the offset, float32 [D].
        """
        scale, offset = self._scale_and_offset()
        scale *= tf.math.rsqrt(self.moving_variance.value + self.epsilon)
        offset -= self.moving_mean.value * scale
        if layer.use_bias:
            offset += private_names.stored_value(layer.bias) * scale
        return layer.scaled_kernel(scale), offset

    def _updates(self, training: bool | None) -> bool:
        """Returns whether a call normalizes by the statistics of its batch."""
        return bool(training and self.trainable)

    def _spans_replicas(self) -> bool:
        return self.synchronized and tf.distribute.get_strategy().num_replicas_in_sync > 1

    def _scale_and_offset(self) -> tuple[tf.Tensor, tf.Tensor]:
        mean = self.moving_mean.value
        scale = tf.convert_to_tensor(self.gamma.value) if self.scale else tf.ones_like(mean)
        offset = tf.convert_to_tensor(self.beta.value) if self.center else tf.zeros_like(mean)
        return scale, offset

    @contextlib.contextmanager
    def _momentum_of_this_pass(self) -> Iterator[None]:
        """Sets momentum 1 for frozen statistics, since Keras always updates the statistics."""
        momentum = self.momentum
        self.momentum = 1.0 if tracing.FrozenStatistics.is_on() else momentum
        try:
            yield
        finally:
            self.momentum = momentum


class FrozenBatchNorm(BatchNorm):
    """Batch normalisation by the moving statistics, which never change.

    Offset and scale stay trainable, as in the reference implementation, unless the layer is built
    with Keras's `trainable=False`.
    """

    def _updates(self, training):
        return False


class GroupNorm(Roundable, keras.layers.GroupNormalization):
    """Group normalisation of feature maps [B, H, W, C] in few passes over them.

    Keras moves whole maps through a dozen operations; two of them sum over the pixels of a group of
    few channels, which is slow and less exact. Here the moments of a group follow from those of its
    channels, and the maps are multiplied once by a scale of each channel, and an offset added. For
    a single large image both are one kernel each, which reads bfloat16 maps without conversion, and
    an activation that follows may become part of the second one. Results are the same up to
    rounding; the moments are float32. Keras normalizes inputs of other ranks.
    """

    def build(self, input_shape):
        if input_shape[-1] % self.groups:
            raise expected(
                f'{self.name}: group_norm.groups', f'a divisor of {input_shape[-1]}', self.groups
            )
        super().build(input_shape)

    def call(self, inputs):
        if len(inputs.shape) != 4:
            return super().call(inputs)
        by_kernel = _suits_kernel(inputs)
        # Parts of the gradient may nearly cancel where few pixels are normalized.
        maps = tf.cast(inputs, self.compute_dtype if by_kernel else tf.float32)
        scale, offset = self._scale_and_offset(*_moments(maps, by_kernel))
        return tf.cast(_scaled(maps, scale, offset, by_kernel), self.compute_dtype)

    def _scale_and_offset(self, mean: tf.Tensor, variance: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """Returns scale and offset of each channel, given its moments: float32 [B, C] each."""
        shape = [self.groups, mean.shape[1] // self.groups]
        mean, between = tf.nn.moments(tf.reshape(mean, [-1, *shape]), axes=[2], keepdims=True)
        within = tf.reduce_mean(tf.reshape(variance, [-1, *shape]), axis=2, keepdims=True)
        scale = tf.math.rsqrt(within + between + self.epsilon)
        scale *= tf.reshape(self.gamma.value, shape) if self.scale else tf.ones(shape)
        offset = -mean * scale
        if self.center:
            offset += tf.reshape(self.beta.value, shape)
        return tuple(tf.reshape(each, tf.shape(variance)) for each in (scale, offset))


class LayerNorm(Roundable, keras.layers.LayerNormalization):
    """Layer normalisation over the channels of each pixel, as in ConvNeXt."""


class LearnableAffine(Roundable):
    """x * scale + bias with one learnt number each, as after the activations of HGNetV2."""

    def build(self, input_shape):
        self.scale = self.add_weight(shape=(1,), initializer='ones', name='scale')
        self.bias = self.add_weight(shape=(1,), initializer='zeros', name='bias')
        super().build(input_shape)

    def call(self, inputs):
        scale, bias = (tf.cast(each.value, inputs.dtype) for each in (self.scale, self.bias))
        return inputs * scale + bias

    def compute_output_shape(self, shape):
        return shape


def normalized(
    layer: keras.layers.Layer,
    norm: keras.layers.Layer,
    inputs: tf.Tensor,
    training: bool | None = None,
) -> tf.Tensor:
    """Returns `norm(layer(inputs))`, in one step if the norm can be folded into the layer.

    Args:
      layer: a convolution or dense layer.
      norm: any norm, or the identity; a layer may have several, such as one for each level.
      inputs: inputs of the layer, which may be symbolic tensors of Keras.
      training: the mode of both layers; None leaves it to Keras.
    """
    options = {} if training is None else {'training': training}
    is_foldable = isinstance(norm, BatchNorm) and isinstance(layer, FoldableLayer)
    if not is_foldable or layer.activation is not keras.activations.linear:
        return norm(layer(inputs), **options)
    if not norm.built:
        norm.build(layer.compute_output_shape(tuple(inputs.shape)))
    return norm(layer(inputs, norm=norm, **options), layer=layer, **options)


def _suits_kernel(maps: tf.Tensor) -> bool:
    """Whether kernels for batch norms suit: maps [B, H, W, C] are of one image, and large.

    XLA joins operations itself, and converters do not know the kernel for training.
    """
    if tracing.is_compiled() or tracing.BasicOperations.is_on():
        return False
    is_one = maps.shape[0] == 1 or tracing.SingleImages.is_on()
    count = maps.shape[1:].num_elements()
    return is_one and (count is None or count >= _LARGE)


def _moments(maps: tf.Tensor, by_kernel: bool) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns mean and variance of each channel of each image.

    Args:
      maps: float [B, H, W, C]; float32 without a kernel.
      by_kernel: whether to use the kernel for the statistics of a batch, here of one image.

    Returns:
      Float32 [B, C] each.
    """

    def run(maps: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        if not by_kernel:
            # Where maps have two axes of pixels, tf2onnx takes the variance over others.
            pixels = tf.reshape(maps, [tf.shape(maps)[0], -1, maps.shape[3]])
            return tf.nn.moments(pixels, axes=[1])
        ones, unused = tf.ones(maps.shape[3:]), tf.zeros([0])
        found = tf.raw_ops.FusedBatchNormV3(
            x=maps, scale=ones, offset=ones, mean=unused, variance=unused, is_training=True
        )
        variance = found.batch_variance * _biased_by_unbiased(maps)
        return found.batch_mean[tf.newaxis], variance[tf.newaxis]

    # The gradient of the kernel is that of its first output alone.
    @tf.custom_gradient
    def with_gradient(maps: tf.Tensor):
        mean, variance = run(maps)

        def gradient(of_mean: tf.Tensor, of_variance: tf.Tensor) -> tf.Tensor:
            count = tf.cast(tf.reduce_prod(tf.shape(maps)[1:3]), tf.float32)
            scale = of_variance * (2.0 / count)
            return _scaled(maps, scale, of_mean / count - mean * scale, by_kernel)

        return (mean, variance), gradient

    # Converters do not know the operation that holds a gradient, and need none.
    return run(maps) if tracing.BasicOperations.is_on() else with_gradient(maps)


def _scaled(maps: tf.Tensor, scale: tf.Tensor, offset: tf.Tensor, by_kernel: bool) -> tf.Tensor:
    """Returns maps * scale + offset, rounded once to the type of the maps.

    Args:
      maps: float [B, H, W, C]; float32 without a kernel.
      scale, offset: float32 [B, C].
      by_kernel: whether to use the kernel for norms by given statistics, here of one image.
    """
    if not by_kernel:
        scale, offset = (each[:, tf.newaxis, tf.newaxis] for each in (scale, offset))
        return maps * scale + offset
    zeros = tf.zeros(maps.shape[3:])
    return tf.raw_ops.FusedBatchNormV3(
        x=maps,
        scale=scale[0],
        offset=offset[0],
        mean=zeros,
        variance=zeros + 1.0,
        epsilon=0.0,
        is_training=False,
    ).y


def _biased_by_unbiased(maps: tf.Tensor) -> float | tf.Tensor:
    """Returns biased / unbiased variance, (n - 1) / n, for the n pixels of maps [B, H, W, C]."""
    count = maps.shape[:3].num_elements()
    if count is None:
        count = tf.cast(tf.reduce_prod(tf.shape(maps)[:3]), tf.float32)
    return (count - 1.0) / count
