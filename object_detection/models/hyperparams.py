"""Hyperparameters that layers share: initializer, penalty, norm and activation."""

import dataclasses
import enum
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from object_detection.models import convolutions, normalization, rounding

# Activations with layers of their own.
GELU, LEAKY_RELU = 'gelu', 'leaky_relu'


class L2(keras.regularizers.L2):
    """Keras's L2 penalty, l2 * sum(x^2), with a third of the operations to trace."""

    def __call__(self, x):
        return tf.nn.l2_loss(x) * (2.0 * self.l2)


class SeparableSetup(enum.Enum):
    """Which kernels of a separable convolution the hyperparameters apply to.

    The other kernel has Keras's defaults: Glorot uniform, and no penalty.
    """

    # As in TF-Slim: the initializer of both; the penalty of the pointwise kernel, and of the other
    # one with `regularize_depthwise`.
    SLIM = enum.auto()
    # As in towers and pyramids of the reference, independent of `regularize_depthwise`.
    DEPTHWISE = enum.auto()
    # With the reference's `apply_conv_hyperparams_pointwise`, and in bidirectional pyramids.
    BOTH = enum.auto()
    # As in heads of the reference without `apply_conv_hyperparams_to_heads`.
    NEITHER = enum.auto()


@dataclasses.dataclass(frozen=True)
class LayerHyperparams:
    """Hyperparameters that layers share; builds convolutions, norms and activations.

    Attributes:
      initializer: initializer of kernels; every layer has its own seed.
      regularizer: penalty of kernels, or None.
      activation: name of a Keras activation, or a function; None is the identity.
      leaky_relu_slope: slope of `LEAKY_RELU` below zero.
      batch_norm: None means no batch normalisation.
      group_norm: None means no group normalisation.
      layer_norm: None means no layer normalisation. At most one of the three is set.
      force_use_bias: whether convolutions have a bias although a centred norm follows.
      regularize_depthwise: whether the penalty includes depthwise kernels in separable convolutions
        like those of TF-Slim.
    """

    initializer: keras.initializers.Initializer = dataclasses.field(
        default_factory=keras.initializers.GlorotUniform
    )
    regularizer: keras.regularizers.Regularizer | None = None
    activation: str | Callable[[tf.Tensor], tf.Tensor] | None = 'relu'
    leaky_relu_slope: float = 0.1
    batch_norm: normalization.BatchNormParams | None = None
    group_norm: normalization.GroupNormParams | None = None
    layer_norm: normalization.LayerNormParams | None = None
    force_use_bias: bool = False
    regularize_depthwise: bool = False

    @property
    def use_bias(self) -> bool:
        """Whether a layer before a norm has a bias of its own."""
        has_center = self.batch_norm.center if self.batch_norm else self.has_norm
        return self.force_use_bias or not has_center

    @property
    def has_norm(self) -> bool:
        """Whether there is a normalisation."""
        return any((self.batch_norm, self.group_norm, self.layer_norm))

    def without_norm(self) -> 'LayerHyperparams':
        """Returns the same without a normalisation."""
        return dataclasses.replace(self, batch_norm=None, group_norm=None, layer_norm=None)

    def kernel_options(self) -> dict[str, Any]:
        """Returns `kernel_initializer` and `kernel_regularizer` for one layer's constructor."""
        return self._of_kernel('kernel')

    def conv(
        self, filters: int, kernel_size: int, *, name: str, **options: Any
    ) -> convolutions.Convolution:
        """Returns a convolution without activation; `options` go to Conv2D.

        It has `use_bias` and SAME padding unless `options` override them.
        """
        options = {'padding': 'same', 'use_bias': self.use_bias} | options
        return convolutions.Convolution(
            filters, kernel_size, name=name, **self.kernel_options(), **options
        )

    def depthwise_conv(
        self,
        kernel_size: int,
        *,
        name: str,
        setup: SeparableSetup = SeparableSetup.DEPTHWISE,
        **options: Any,
    ) -> convolutions.DepthwiseConvolution:
        """Returns a convolution of each channel by itself; see `conv`.

        As in the reference, the initializer and the penalty apply to its kernel for every value
        of `regularize_depthwise`, unless `setup` is NEITHER.
        """
        options = {'padding': 'same', 'use_bias': self.use_bias} | options
        if setup is not SeparableSetup.NEITHER:
            options |= self._of_kernel('depthwise')
        return convolutions.DepthwiseConvolution(kernel_size, name=name, **options)

    def separable_conv(
        self,
        filters: int,
        kernel_size: int,
        *,
        name: str,
        setup: SeparableSetup = SeparableSetup.SLIM,
        **options: Any,
    ) -> convolutions.SeparableConvolution:
        """Returns a depthwise convolution followed by one of size 1; see `conv`.

        `setup` determines which of the two kernels have the initializer and the penalty.
        """
        options = {'padding': 'same', 'use_bias': self.use_bias} | options
        if setup is not SeparableSetup.NEITHER:
            options |= self._of_kernel('depthwise')
        if setup in (SeparableSetup.SLIM, SeparableSetup.BOTH):
            options |= self._of_kernel('pointwise')
        if setup is SeparableSetup.SLIM and not self.regularize_depthwise:
            options['depthwise_regularizer'] = None
        return convolutions.SeparableConvolution(filters, kernel_size, name=name, **options)

    def _of_kernel(self, kind: str) -> dict[str, Any]:
        """Returns the initializer and penalty arguments for a kind of kernels.

        A Keras initializer returns the same numbers at each call: without a copy, layers of the
        same shape would have equal initial values.
        """
        return {
            f'{kind}_initializer': self.initializer.clone(),
            f'{kind}_regularizer': self.regularizer,
        }

    def norm(self, *, frozen: bool, name: str, **options: Any) -> keras.layers.Layer:
        """Returns the normalisation layer, or the identity if there is none.

        Args:
          frozen: whether a batch norm uses its moving statistics in training; see
            FrozenBatchNorm.
          name: name of the layer.
          **options: arguments of the layer (e.g. `dtype`, `trainable`).
        """
        if self.group_norm is not None:
            params = self.group_norm
            return normalization.GroupNorm(
                params.groups, epsilon=params.epsilon, name=name, **options
            )
        if self.layer_norm is not None:
            return normalization.LayerNorm(epsilon=self.layer_norm.epsilon, name=name, **options)
        if self.batch_norm is None:
            return rounding.Identity(name=name, **options)
        params = self.batch_norm
        frozen = frozen or not params.train
        if frozen and params.freeze_affine:
            options = {**options, 'trainable': False}
        kind = normalization.FrozenBatchNorm if frozen else normalization.BatchNorm
        return kind(
            momentum=params.momentum,
            epsilon=params.epsilon,
            center=params.center,
            scale=params.scale,
            synchronized=params.synchronized,
            name=name,
            **options,
        )

    def activation_layer(self, *, name: str) -> keras.layers.Layer:
        if self.activation == LEAKY_RELU:
            return rounding.LeakyReLU(self.leaky_relu_slope, name=name)
        if self.activation == GELU:
            return rounding.Gelu(name=name)
        return rounding.Activation(self.activation or 'linear', name=name)


def of_pytorch(
    initializer: keras.initializers.Initializer, weight_decay: float = 0.0
) -> LayerHyperparams:
    """Returns hyperparameters with the batch norm that PyTorch has by default, and ReLU.

    Args:
      initializer: initializer of kernels.
      weight_decay: factor of the sum of squares of the kernels.
    """
    return LayerHyperparams(
        initializer=initializer,
        regularizer=L2(weight_decay) if weight_decay else None,
        batch_norm=normalization.BatchNormParams(momentum=0.9, epsilon=1e-5, scale=True),
    )
