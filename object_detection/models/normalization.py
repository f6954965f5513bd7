"""Layers that normalize feature maps, and their parameters."""

import contextlib
import dataclasses
from collections.abc import Iterator

import keras
import tensorflow as tf

from object_detection.core import tracing
from object_detection.errors import UserError
from object_detection.models import convolutions


@dataclasses.dataclass(frozen=True)
class BatchNormParams:
    """Parameters of batch normalisation (https://arxiv.org/abs/1502.03167).

    Attributes:
      momentum: share of the old value that a step leaves in the moving statistics.
      epsilon: added to the variance.
      center: whether an offset is learnt.
      scale: whether a scale is learnt.
      train: False freezes the layer everywhere.
      synchronized: whether the statistics are taken over all replicas.
      freeze_affine: whether offset and scale of frozen layers do not train either.
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


class BatchNorm(keras.layers.BatchNormalization):
    """Batch normalisation of feature maps [B, H, W, C] by one kernel, or by none.

    Keras makes it of a dozen operations, each of which reads and writes the whole map. The numbers
    are the same to rounding, those of the moving variance too (that of the batch, not of the
    population). bfloat16 maps are read as they are; the statistics are float32. Inputs of other
    ranks and statistics over several replicas are left to Keras.

    In graphs, normalising what a convolution without bias returns by the moving statistics becomes
    part of that convolution: its kernel is scaled, an offset added. Training then need not keep
    the maps before the norm, not even for the gradient of its scale.
    """

    def call(self, inputs, training=None, mask=None):
        if len(inputs.shape) != 4 or mask is not None or self.synchronized:
            with self._momentum_of_this_pass():
                return super().call(inputs, training=training, mask=mask)
        mean, variance = self.moving_mean.value, self.moving_variance.value
        inputs = tf.cast(inputs, self.compute_dtype)
        updates = bool(training and self.trainable)
        unused = tf.zeros([0]) if updates else None
        scale = tf.convert_to_tensor(self.gamma.value) if self.scale else tf.ones_like(mean)
        offset = tf.convert_to_tensor(self.beta.value) if self.center else tf.zeros_like(mean)
        convolved = convolutions.convolved(inputs)
        if convolved is not None and not updates:
            # The given result is not needed then, so that it is not computed.
            scale *= tf.math.rsqrt(variance + self.epsilon)
            kernel = convolved.kernel * tf.cast(scale, convolved.kernel.dtype)
            outputs = convolved.again(tf.cast(kernel, inputs.dtype))
            return tf.nn.bias_add(outputs, tf.cast(offset - mean * scale, inputs.dtype))
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
            # The kernel gives the variance of the population that the batch is a sample of.
            share *= _biased_by_unbiased(inputs)
            self.moving_variance.assign(
                variance * self.momentum + normalized.batch_variance * share
            )
        return normalized.y

    @contextlib.contextmanager
    def _momentum_of_this_pass(self) -> Iterator[None]:
        """Keras moves the statistics in any case; with momentum 1 they stay where they are."""
        momentum = self.momentum
        self.momentum = 1.0 if tracing.FrozenStatistics.is_on() else momentum
        try:
            yield
        finally:
            self.momentum = momentum


class FrozenBatchNorm(BatchNorm):
    """Batch normalisation by the moving statistics, which never change.

    Offset and scale stay trainable, as in the reference implementation, unless the layer is made
    with Keras's `trainable=False`.
    """

    def call(self, inputs, training=None, mask=None):
        del training
        return super().call(inputs, training=False, mask=mask)


class GroupNorm(keras.layers.GroupNormalization):
    """Group normalisation that names itself where the channels do not fit."""

    def build(self, input_shape):
        if input_shape[-1] % self.groups:
            raise UserError(
                f'{self.name}: group_norm.groups: expected a number that divides the '
                f'{input_shape[-1]} channels of the layer. Received: {self.groups}.'
            )
        super().build(input_shape)


def _biased_by_unbiased(maps: tf.Tensor) -> float | tf.Tensor:
    """The ratio of the two variances of maps [B, H, W, C]: (n - 1) / n; 0 for one value."""
    count = maps.shape[:3].num_elements()
    if count is None:
        count = tf.cast(tf.reduce_prod(tf.shape(maps)[:3]), tf.float32)
    return (count - 1.0) / count
