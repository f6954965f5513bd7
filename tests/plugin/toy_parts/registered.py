"""A module for `--plugin toy_parts.registered`: parts that are registered when it is imported."""

import dataclasses

import tensorflow as tf

from object_detection import register


@register.loss('log_cosh')
@dataclasses.dataclass(frozen=True)
class LogCosh:
    """Logarithm of the hyperbolic cosine: squared near zero and linear beyond, but smooth."""

    compares = 'codes'
    sharpness: float = 1.0

    def __call__(self, predictions: tf.Tensor, targets: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        """Returns the loss [B, N] of each anchor; codes are [B, N, D], weights [B, N]."""
        distances = self.sharpness * tf.abs(predictions - targets)
        # log(cosh(d)) without the overflow of cosh.
        losses = distances + tf.math.softplus(-2.0 * distances) - tf.math.log(2.0)
        return weights * tf.reduce_sum(losses, axis=-1) / self.sharpness
