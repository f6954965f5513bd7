"""Exchanges weights and their moving averages, to evaluate or export the averages."""

import contextlib
from collections.abc import Iterator, Mapping

import tensorflow as tf

from object_detection.errors import UserError


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
