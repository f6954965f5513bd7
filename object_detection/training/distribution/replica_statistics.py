"""The mean of the replicas' moving statistics of batch norms."""

from collections.abc import Mapping

import tensorflow as tf

from object_detection.core import tracing


class StatisticsAverage:
    """Takes the mean of the replicas' moving statistics of batch norms.

    A batch norm that is not synchronized has statistics of its own replica's images, and only those
    of the first replica would be saved. As moving averages are linear, the result does not depend
    on when and how often the mean is taken: it is taken before a checkpoint or an evaluation.

    Args:
      strategy: the strategy that the variables were created in.
      variables: the model's variables, by name.
    """

    def __init__(self, strategy: tf.distribute.Strategy, variables: Mapping[str, tf.Variable]):
        self._strategy = strategy
        self._variables = tracing.moving_statistics(variables)
        self._run = tf.function(lambda: strategy.run(self._average), autograph=False)

    def update(self) -> None:
        """Makes the statistics of all replicas equal. Collective; free for one replica."""
        if self._variables and self._strategy.num_replicas_in_sync > 1:
            self._run()

    def _average(self) -> None:
        context = tf.distribute.get_replica_context()
        replicas = context.num_replicas_in_sync
        is_first = tf.cast(tf.equal(context.replica_id_in_sync_group, 0), tf.float32)
        own = [tf.cast(variable.read_value(), tf.float32) for variable in self._variables]
        # Relative to the first replica, so that equal statistics (frozen ones) stay as they are.
        total = tf.distribute.ReduceOp.SUM
        first = context.all_reduce(total, [value * is_first for value in own])
        differences = [value - base for value, base in zip(own, first, strict=True)]
        differences = context.all_reduce(total, differences)
        for variable, base, difference in zip(self._variables, first, differences, strict=True):
            variable.assign(tf.cast(base + difference / replicas, variable.dtype))
