"""How the layers of a part of the network are set up: initializer, penalty, norm, activation."""

import dataclasses
from typing import Any

import keras


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
    """

    momentum: float = 0.999
    epsilon: float = 0.001
    center: bool = True
    scale: bool = False
    train: bool = True
    synchronized: bool = False


class FrozenBatchNorm(keras.layers.BatchNormalization):
    """Batch normalisation by the moving statistics, which never change.

    Offset and scale stay trainable, as in the reference implementation: Keras's
    `trainable = False` would freeze them too.
    """

    def call(self, inputs, training=None, mask=None):
        del training
        return super().call(inputs, training=False, mask=mask)


@dataclasses.dataclass(frozen=True)
class LayerHyperparams:
    """Set-up that layers share; makes convolutions, norms and activations by it.

    Attributes:
      initializer: of kernels; every layer draws with a seed of its own.
      regularizer: penalty of kernels, or None.
      activation: name of a Keras activation; None is the identity.
      batch_norm: None means no normalisation.
      force_use_bias: whether convolutions have a bias although a centred norm follows.
    """

    initializer: keras.initializers.Initializer = dataclasses.field(
        default_factory=keras.initializers.GlorotUniform
    )
    regularizer: keras.regularizers.Regularizer | None = None
    activation: str | None = 'relu'
    batch_norm: BatchNormParams | None = None
    force_use_bias: bool = False

    @property
    def use_bias(self) -> bool:
        """Whether a layer that a norm follows has a bias of its own."""
        return self.force_use_bias or self.batch_norm is None or not self.batch_norm.center

    def kernel_options(self) -> dict[str, Any]:
        """Returns `kernel_initializer` and `kernel_regularizer` for one layer's constructor."""
        # A Keras initializer gives the same numbers at each call: without a copy, layers of the
        # same shape would start equal.
        return {
            'kernel_initializer': self.initializer.clone(),
            'kernel_regularizer': self.regularizer,
        }

    def conv(
        self, filters: int, kernel_size: int, *, name: str, **options: Any
    ) -> keras.layers.Conv2D:
        """Returns a convolution without activation; `options` go to Conv2D.

        It has `use_bias` and SAME padding unless `options` say otherwise.
        """
        options = {'padding': 'same', 'use_bias': self.use_bias} | options
        return keras.layers.Conv2D(
            filters, kernel_size, name=name, **self.kernel_options(), **options
        )

    def norm(self, *, frozen: bool, name: str, **options: Any) -> keras.layers.Layer:
        """Returns the normalisation layer, or the identity if there is none.

        Args:
          frozen: whether it keeps to its moving statistics in training; see FrozenBatchNorm.
          name: of the layer.
          **options: go to BatchNormalization (e.g. `dtype`).
        """
        if self.batch_norm is None:
            return keras.layers.Identity(name=name, **options)
        params = self.batch_norm
        kind = FrozenBatchNorm if frozen or not params.train else keras.layers.BatchNormalization
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
        return keras.layers.Activation(self.activation or 'linear', name=name)
