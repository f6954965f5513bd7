"""A loss of classes."""

import dataclasses

import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class Asymmetric:
    """Cross entropy of a sigmoid for each class, in which background counts by a factor.

    Attributes:
      background: the factor.
    """

    background: float = 0.5

    def __call__(self, predictions: tf.Tensor, targets: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        """Returns the losses [B, N, C] of logits and targets [B, N, C]; weights are [B, N, C or 1].

        The caller sums and normalizes them.
        """
        losses = tf.nn.sigmoid_cross_entropy_with_logits(targets, predictions)
        return weights * losses * (targets + self.background * (1.0 - targets))
