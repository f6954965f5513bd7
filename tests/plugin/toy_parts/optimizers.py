"""An optimizer and a learning rate."""

import dataclasses

import tensorflow as tf

from object_detection.optimizers.optimizers import Optimizer
from object_detection.optimizers.schedules import Schedule


class SignOptimizer(Optimizer):
    """Moves by the sign of the mean gradient (Signum, https://arxiv.org/abs/1802.04434)."""

    slot_names = ('mean',)

    def _update(self, variable, gradient, learning_rate, step, *slots):
        share = self._settings['share']
        mean = slots[0].assign(share * slots[0] + (1.0 - share) * gradient)
        return variable.assign_sub(learning_rate * tf.sign(mean))


@dataclasses.dataclass(frozen=True)
class Signum:
    """The optimizer's options.

    Attributes:
      share: share of the old mean that stays in each step.
    """

    share: float = 0.9

    def __call__(self, learning_rate: Schedule) -> Optimizer:
        """Builds the optimizer."""
        return SignOptimizer(learning_rate, share=self.share)


@dataclasses.dataclass(frozen=True)
class InverseRoot:
    """A rate that falls with the root of the number of steps.

    Attributes:
      base: the first rate.
    """

    base: float = 0.01

    def __call__(self, step: tf.Tensor) -> tf.Tensor:
        """Returns the rate, float32, of a step, int64, counted from 0."""
        return self.base * tf.math.rsqrt(tf.cast(step + 1, tf.float32))
