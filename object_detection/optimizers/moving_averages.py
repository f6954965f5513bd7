"""Puts the moving averages of weights in their place, to evaluate or export them."""

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
    """Lets variables hold their averages within a `with` block, and the averages the variables.

    Each pair is exchanged by itself, so no second copy of the model is needed, and every value is
    back to the bit afterwards, also after an error. No checkpoint of the training may be saved
    meanwhile. All replicas' copies are exchanged; not to be used inside a `tf.function`.

    Args:
      variables: variables of the model, by name; those without an average keep their values.
      averages: by the same names, as `Optimizer.averages()` gives them; none changes nothing.
      strategy: that the variables were created in; None is the current one. The block is not run
        in its scope, where a variable is created by all workers together or not at all.

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
    # Copies: on CPU, what is read may share the variable's memory.
    values = tf.identity(first.read_value()), tf.identity(second.read_value())
    second.assign(values[0])
    first.assign(values[1])
