"""Moving averages of weights: an optimizer that keeps them, and their exchange with the weights."""

import contextlib
from collections.abc import Iterator, Mapping

import tensorflow as tf

from object_detection.errors import UserError, expected
from object_detection.optimizers.optimizers import Optimizer


class Averaging(Optimizer):
    """Wraps an optimizer and maintains exponential moving averages of its variables.

    After update t, counted from 1: average += (1 - d) * (variable - average), where
    d = min(decay, (1 + t) / (10 + t)), so that the influence of the first updates decays quickly.
    As in the reference, an average starts at zero, whose influence vanishes after some 20 updates.
    With a ramp d = decay * (1 - exp(-t / ramp)), and d = 0 for t = 1: the first average is the
    weights themselves, and if the ramp is 2000, the next 40 nearly are.

    Args:
      optimizer: the wrapped optimizer.
      decay: the weight of the old average, in [0, 1].
      ramp: the number of updates in which that weight rises; 0 takes the first formula.

    Raises:
      ValueError: if `decay` is outside [0, 1] or `ramp` is negative.
    """

    slot_names = ('average',)

    def __init__(self, optimizer: Optimizer, *, decay: float, ramp: float = 0.0):
        if not 0 <= decay <= 1:
            raise expected('moving_average_decay', '0 to 1', f'{decay:g}')
        if ramp < 0:
            raise expected('moving_average_ramp', 'at least 0', f'{ramp:g}')
        super().__init__(optimizer.learning_rate)
        self._optimizer = optimizer
        self._share, self._ramp = decay, ramp

    def build(self, variables, *, multipliers=None):
        self._optimizer.build(variables, multipliers=multipliers)
        super().build(variables)

    @property
    def decayed(self):
        return self._optimizer.decayed

    def state(self):
        return {**self._optimizer.state(), **super().state()}

    def averages(self):
        return super().state()['average']

    def apply_gradients(self, gradients, step, condition=None):
        self._optimizer.apply_gradients(gradients, step, condition)
        super().apply_gradients(gradients, step, condition)

    def _update(self, variable, gradient, learning_rate, step, *slots):
        updates = tf.cast(step + 1, tf.float32)
        if self._ramp:
            decay = self._share * (1 - tf.exp(-updates / self._ramp))
            # The zero at which it starts would stay in the averages of a short ramp.
            decay = tf.where(step > 0, decay, 0.0)
        else:
            decay = tf.minimum(self._share, (1 + updates) / (10 + updates))
        return slots[0].assign_add((1 - decay) * (variable - slots[0]))


@contextlib.contextmanager
def swapped(
    variables: Mapping[str, tf.Variable],
    averages: Mapping[str, tf.Variable],
    strategy: tf.distribute.Strategy | None = None,
) -> Iterator[None]:
    """Exchanges the values of variables and their averages during a `with` block.

    Pairs are exchanged one by one, so no second copy of the model is needed. Afterwards, also after
    an error, all values are bitwise restored. No checkpoint of the training may be saved meanwhile.
    The copies of all replicas are exchanged. It cannot be used inside a `tf.function`.

    Args:
      variables: variables of the model, by name; those without an average keep their values.
      averages: name -> average, from `Optimizer.averages()`; an empty mapping has no effect.
      strategy: strategy in which the variables were created; None is the current one. The block
        does not run in its scope, where all workers would have to create variables together.

    Raises:
      ValueError: if an average's name is not among `variables`.
    """
    unknown = sorted(averages.keys() - variables.keys())
    if unknown:
        raise UserError(
            'moving_averages.swapped: expected averages of variables of the model. '
            f'Received averages of: {unknown[:5]}.'
        )
    strategy = strategy or tf.distribute.get_strategy()
    exchanged = []
    try:
        with strategy.scope():
            for name, average in averages.items():
                _exchange(variables[name], average)
                exchanged.append(name)
        yield
    finally:
        with strategy.scope():
            for name in exchanged:
                _exchange(variables[name], averages[name])


def _exchange(first: tf.Variable, second: tf.Variable) -> None:
    # Copied, since on CPUs a value that is read may share the variable's memory.
    values = tf.identity(first.read_value()), tf.identity(second.read_value())
    second.assign(values[0])
    first.assign(values[1])
