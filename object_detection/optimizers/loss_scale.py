"""Scaling of the loss for gradients in float16 (https://arxiv.org/abs/1710.03740, sec. 3.2)."""

from collections.abc import Mapping

import tensorflow as tf

# Maximum of the scale: the next power of two is infinite in float32.
_LARGEST = 2.0**127


class LossScale:
    """A constant factor of the loss during differentiation.

    Without it, gradients below float16's smallest number would become zero. A power of two does not
    round.

    Args:
      value: the factor.
    """

    def __init__(self, value: float):
        self._value = value

    @property
    def value(self) -> tf.Tensor:
        """The current factor, float32 scalar."""
        return tf.constant(self._value, tf.float32)

    def scaled(self, objective: tf.Tensor) -> tf.Tensor:
        """Returns the objective, float32 scalar, times the factor."""
        return objective * self.value

    def unscaled(self, gradients: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Divides gradients of the scaled objective, float tensors by name; returns float32."""
        value = self.value
        return {name: tf.cast(values, tf.float32) / value for name, values in gradients.items()}

    def can_fall(self) -> tf.Tensor:
        """Whether the factor can decrease after gradients that are not finite, bool scalar."""
        return tf.constant(False)

    def update(self, is_finite: tf.Tensor) -> None:
        """Updates the factor; `is_finite`, bool scalar: whether all gradients were finite."""
        del is_finite

    def state(self) -> dict[str, tf.Variable]:
        """Returns the variables to save for a resumed training, by name."""
        return {}


class DynamicLossScale(LossScale):
    """A factor that is as large as finite gradients allow.

    It doubles after `growth_steps` consecutive steps with finite gradients, and is halved, down to
    1, by each step whose gradients are not finite. It must be created in the scope of the strategy.
    With several replicas, all must pass the same value to `update`.

    Args:
      initial: the initial factor, at least 1.
      growth_steps: number of steps before it doubles, at least 1.
    """

    def __init__(self, initial: float = 32768.0, growth_steps: int = 2000):
        super().__init__(initial)
        self._growth_steps = growth_steps
        options = {
            'trainable': False,
            # All replicas write the same value.
            'synchronization': tf.VariableSynchronization.ON_WRITE,
            'aggregation': tf.VariableAggregation.ONLY_FIRST_REPLICA,
        }
        self._scale = tf.Variable(initial, dtype=tf.float32, name='loss_scale', **options)
        self._finite_steps = tf.Variable(0, dtype=tf.int64, name='finite_steps', **options)

    @property
    def value(self) -> tf.Tensor:
        return self._scale.read_value()

    def can_fall(self) -> tf.Tensor:
        return self.value > 1.0

    def update(self, is_finite: tf.Tensor) -> None:
        scale, steps = self._scale.read_value(), self._finite_steps.read_value() + 1
        grows = steps >= self._growth_steps
        raised = tf.where(grows, tf.minimum(scale * 2.0, _LARGEST), scale)
        self._scale.assign(tf.where(is_finite, raised, tf.maximum(scale / 2.0, 1.0)))
        self._finite_steps.assign(tf.where(is_finite & ~grows, steps, 0))

    def state(self) -> dict[str, tf.Variable]:
        return {'scale': self._scale, 'finite_steps': self._finite_steps}
