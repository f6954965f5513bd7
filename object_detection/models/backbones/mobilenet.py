"""What both versions of MobileNet share: options, hyperparameters and the groups of layers."""

import dataclasses

import keras

from object_detection.errors import UserError
from object_detection.models import rounding
from object_detection.models.hyperparams import L2, LayerHyperparams
from object_detection.models.normalization import BatchNormParams, normalized


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of variants of the network.

    Attributes:
      depth_multiplier: factor of the numbers of channels (alpha in `keras.applications`).
      min_depth: minimum number of channels after a convolution, except for depthwise ones and the
        expansions of MobileNet v2.
      explicit_padding: whether convolutions of stride 2 are padded alike on both sides (fixed
        padding), whatever the size of their input; False is SAME padding.

    Raises:
      ValueError: if the factor is not positive, or the minimum is not.
    """

    depth_multiplier: float = 1.0
    min_depth: int = 1
    explicit_padding: bool = False

    def __post_init__(self):
        if not self.depth_multiplier > 0:
            raise UserError(
                f'depth_multiplier: expected a positive number. Received: {self.depth_multiplier}.'
            )
        if self.min_depth < 1:
            raise UserError(f'min_depth: expected at least 1. Received: {self.min_depth}.')


def default_hyperparams() -> LayerHyperparams:
    """Returns the hyperparameters of a backbone unless the config overrides them.

    The penalty includes depthwise kernels.
    """
    return LayerHyperparams(
        initializer=keras.initializers.TruncatedNormal(stddev=0.09),
        regularizer=L2(0.5 * 4e-5),
        activation='relu6',
        batch_norm=BatchNormParams(momentum=0.9997, epsilon=0.001, scale=True),
    )


class Layers:
    """Builds convolutions without bias, each with its norm, as both versions have them.

    Args:
      hyperparams: set-up of all layers.
      batch_norm_trainable: False freezes the batch norms.
      options: of the network.
    """

    def __init__(self, hyperparams: LayerHyperparams, batch_norm_trainable: bool, options: Options):
        self.options = options
        self._hyperparams = hyperparams
        self._batch_norm_trainable = batch_norm_trainable

    def conv_norm(
        self, x, filters: int, kernel_size: int, *, name: str, norm_name: str, strides: int = 1
    ):
        """Applies a convolution and its norm."""
        x, padding = self._pad(x, kernel_size, strides, name)
        conv = self._hyperparams.conv(
            filters, kernel_size, strides=strides, padding=padding, use_bias=False, name=name
        )
        return self._normalize(conv, x, norm_name)

    def depthwise_norm(self, x, *, name: str, norm_name: str, strides: int):
        """Applies a depthwise 3x3 convolution and its norm."""
        x, padding = self._pad(x, 3, strides, name)
        conv = self._hyperparams.depthwise_conv(
            3, strides=strides, padding=padding, use_bias=False, name=name
        )
        return self._normalize(conv, x, norm_name)

    def activate(self, x, *, name: str):
        return self._hyperparams.activation_layer(name=name)(x)

    def _pad(self, x, kernel_size: int, strides: int, name: str):
        """Returns the padded input, and the padding that the convolution does itself.

        With a stride of 1, both kinds of padding are the same.
        """
        if not self.options.explicit_padding or strides == 1:
            return x, 'same'
        return rounding.ZeroPadding2D(kernel_size // 2, name=f'{name}_pad')(x), 'valid'

    def _normalize(self, conv: keras.layers.Layer, x, norm_name: str):
        norm = self._hyperparams.norm(frozen=not self._batch_norm_trainable, name=norm_name)
        return normalized(conv, norm, x)
