"""Sums over all replicas of a tf.distribute strategy, for what belongs to the whole batch.

A training step runs once a replica, each with its part of the batch, and takes the mean of the
replicas' losses. A loss that is divided by the part's own count (of positives, say) weighs the
parts alike, whatever they hold; divided by `global_normalizer` it is that of the whole batch.
"""

import tensorflow as tf

from object_detection.core.tracing import Scope


class PerReplica(Scope):
    """A context in which each replica is for itself: sums are of its own part alone.

    For parts of a batch whose losses are weighted afterwards, and for programs in which replicas
    cannot wait for each other. Within it no replica waits, so that the threads in which a strategy
    traces them do not take turns there, and share the number.
    """


def global_sum(value: tf.Tensor) -> tf.Tensor:
    """Sums a tensor over the replicas; outside of several replicas returns it as it is.

    All replicas must call it, in the same order; not inside tf.cond or tf.while_loop. No gradient
    flows through it.
    """
    value = tf.stop_gradient(value)
    context = _several_replicas()
    return value if context is None else context.all_reduce(tf.distribute.ReduceOp.SUM, value)


def global_normalizer(value: tf.Tensor, minimum: float = 1.0) -> tf.Tensor:
    """What a replica's sum of losses is divided by, so that the replicas' mean is right.

    Args:
      value: float32 scalar, this replica's part of the normalizer.
      minimum: of the whole normalizer, against a division by zero.

    Returns:
      The sum of all parts, at least `minimum`, divided by the number of replicas.
    """
    context = _several_replicas()
    whole = tf.maximum(global_sum(value), minimum)
    return whole if context is None else whole / context.num_replicas_in_sync


def _several_replicas() -> tf.distribute.ReplicaContext | None:
    """The current replica's context; None across replicas, or where there is only one."""
    if PerReplica.is_on():
        return None
    context = tf.distribute.get_replica_context()
    return context if context is not None and context.num_replicas_in_sync > 1 else None
