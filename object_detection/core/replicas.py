"""Sums over all replicas of a tf.distribute strategy, for values of the whole batch.

A training step runs on every replica with a part of the batch, and takes the mean of the losses of
all replicas. If each loss is divided by a count of its own part (such as positives), all parts have
the same weight; divided by `global_normalizer`, the mean is the loss of the whole batch.
"""

import tensorflow as tf

from object_detection.core.tracing import Scope

# Minimum of the normalizer of a part of a batch: it must not be 0, as the losses of a part are
# scaled by it, but counts as 0 next to the minimum of a whole batch.
_PART_MINIMUM = 1e-6


class PerReplica(Scope):
    """A context in which sums cover only the part of the batch of each replica.

    It is for parts of a batch whose losses are weighted afterwards, and for programs in which
    replicas cannot synchronize. Since no replica waits within it, the threads in which a strategy
    traces replicas do not alternate there, so that they can share the counter.
    """


def global_sum(value: tf.Tensor) -> tf.Tensor:
    """Sums a tensor over the replicas; returns it unchanged if there is one replica.

    All replicas must call it in the same order, and not inside tf.cond or tf.while_loop. It has no
    gradient.
    """
    value = tf.stop_gradient(value)
    context = _several_replicas()
    return value if context is None else context.all_reduce(tf.distribute.ReduceOp.SUM, value)


def global_normalizer(value: tf.Tensor, minimum: float = 1.0) -> tf.Tensor:
    """Returns the divisor of a replica's sum of losses for a correct mean over replicas.

    Args:
      value: float32 scalar, this replica's part of the normalizer.
      minimum: minimum of the whole normalizer, which prevents a division by zero.

    Returns:
      The sum of all parts, at least `minimum`, divided by the number of replicas.
    """
    if PerReplica.is_on():
        return part_normalizer(value, minimum)
    context = _several_replicas()
    whole = tf.maximum(global_sum(value), minimum)
    return whole if context is None else whole / context.num_replicas_in_sync


def part_normalizer(value: tf.Tensor, minimum: float = 1.0) -> tf.Tensor:
    """Returns the divisor of the sum of losses of a batch or, in `PerReplica`, of a part of one.

    It is the weight of the loss in a mean over parts. The weights of all parts of a batch sum to
    its normalizer, unless that is below `minimum`.

    Args:
      value: float32 scalar, the normalizer of the batch or of the part.
      minimum: minimum of the normalizer of a whole batch.
    """
    return tf.maximum(tf.stop_gradient(value), _PART_MINIMUM if PerReplica.is_on() else minimum)


def _several_replicas() -> tf.distribute.ReplicaContext | None:
    """Returns the context of the current replica; None across replicas, or for a single one."""
    if PerReplica.is_on():
        return None
    context = tf.distribute.get_replica_context()
    return context if context is not None and context.num_replicas_in_sync > 1 else None
