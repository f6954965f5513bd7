"""Lowers the learning rate when a score of evaluations no longer improves."""

from collections.abc import Mapping

import tensorflow as tf

# Each number of the state: dtype, value before the first evaluation. Steps are those of
# evaluations, -1 for none; `best` is known from `best_step` 0 on; the others count evaluations.
_STATE = {
    'factor': (tf.float32, 1.0),
    'best': (tf.float64, 0.0),
    'best_step': (tf.int64, -1),
    'step': (tf.int64, -1),
    'waited': (tf.int64, 0),
    'cooldown': (tf.int64, 0),
}


class Plateau:
    """A factor of the learning rate that falls after evaluations without an improvement.

    It must be created in the scope of the strategy, and all workers must give it the same scores.

    Args:
      factor: factor of each reduction, between 0 and 1.
      patience: so many evaluations in a row without an improvement lower the rate.
      min_delta: an improvement is more than this.
      cooldown: evaluations after a reduction that do not count as without improvement.
      min_factor: lower bound of all reductions together.

    Attributes:
      factor: float32 scalar variable, the factor so far.
    """

    def __init__(
        self,
        *,
        factor: float,
        patience: int,
        min_delta: float = 0.0,
        cooldown: int = 0,
        min_factor: float = 0.0,
    ):
        self._reduction, self._min_factor = factor, min_factor
        self._patience, self._min_delta, self._cooldown = patience, min_delta, cooldown
        self._strategy = tf.distribute.get_strategy()
        self._state = {
            name: tf.Variable(
                value,
                dtype=dtype,
                trainable=False,
                name=f'plateau_{name}',
                # All replicas write the same value.
                synchronization=tf.VariableSynchronization.ON_WRITE,
                aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
            )
            for name, (dtype, value) in _STATE.items()
        }
        self.factor = self._state['factor']

    @property
    def step(self) -> int:
        """The step of the newest evaluation that was taken; -1 before the first."""
        return int(self._state['step'].numpy())

    def state(self) -> Mapping[str, tf.Variable]:
        """Returns the variables to save for a resumed training, by name."""
        return dict(self._state)

    def update(self, step: int, score: float | None) -> bool:
        """Takes the result of an evaluation; to be called outside of a step.

        Args:
          step: the number of steps done before the evaluation; later than that of the last call.
          score: more is better; None if it is not defined, which is no improvement.

        Returns:
          Whether it lowers the rate.
        """
        now = {name: variable.numpy() for name, variable in self._state.items()}
        now['step'], lowers = step, False
        is_first = now['best_step'] < 0
        now['waited'] += 1
        if score is not None and (is_first or score > now['best'] + self._min_delta):
            now['best'], now['best_step'], now['waited'] = score, step, 0
        if now['cooldown'] > 0:
            now['cooldown'], now['waited'] = now['cooldown'] - 1, 0
        if now['waited'] >= self._patience:
            lowered = max(now['factor'] * self._reduction, self._min_factor)
            lowers = lowered < now['factor']
            now |= {'factor': lowered, 'waited': 0, 'cooldown': self._cooldown}
        with self._strategy.scope():
            for name, variable in self._state.items():
                variable.assign(now[name])
        return lowers
