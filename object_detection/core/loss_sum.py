"""Losses as sums, and the numbers that divide them.

The loss of a batch is a sum over its images, objects or cells, divided by their number. Where a
batch is computed in parts (on replicas, by gradient accumulation, in an evaluation), a part knows
its own sum and its own number; the loss is the sum of the one, divided by the sum of the other. So
detectors return both, and `divide` is the only place that divides.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import tensorflow as tf

from object_detection.core.determinism import sum_in_order


class LossSum(NamedTuple):
    """A loss of a batch or of a part of one, before it is divided.

    Attributes:
      sum: float32 scalar, weighted, over what the part holds.
      normalizer: float32 scalar, what divides the sums of all parts together: a number of images,
        objects or cells of this part, which may be 0. No gradient flows through it.
    """

    sum: tf.Tensor
    normalizer: tf.Tensor


def over_images(losses: tf.Tensor) -> LossSum:
    """Returns the loss that is the mean over the images of losses, float32 [B]."""
    return LossSum(tf.reduce_sum(losses), tf.cast(tf.shape(losses)[0], tf.float32))


def add(
    stacks: Sequence[tf.Tensor], normalizer: tf.Tensor, weight: tf.Tensor | float = 1.0
) -> LossSum:
    """Returns the loss that is the mean over stacks of features, or other outputs of one network.

    Args:
      stacks: float tensors of any shape, one or more: the losses of each stack, which are added up.
      normalizer: that of each stack.
      weight: factor of the loss.
    """
    sums = [tf.reduce_sum(losses) for losses in stacks]
    return LossSum(weight * sum_in_order(sums) / len(stacks), normalizer)


def divisors(sums: Mapping[str, LossSum]) -> dict[str, tf.Tensor]:
    """Returns the normalizers by name, float32 scalars without gradient."""
    return {
        name: tf.stop_gradient(tf.cast(each.normalizer, tf.float32)) for name, each in sums.items()
    }


def over_replicas(numbers: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Returns the sums over all replicas of numbers, float32 scalars; with one replica themselves.

    All replicas must call it in the same order, and not inside tf.cond, tf.while_loop or a program
    of XLA.
    """
    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return dict(numbers)
    totals = context.all_reduce(tf.distribute.ReduceOp.SUM, tf.stack(list(numbers.values())))
    return dict(zip(numbers, tf.unstack(totals, num=len(numbers)), strict=True))


def divide(
    sums: Mapping[str, LossSum], totals: Mapping[str, tf.Tensor] | None = None
) -> dict[str, tf.Tensor]:
    """Returns the losses, float32 scalars, by name.

    Args:
      sums: of a batch, or of a part of one.
      totals: the normalizers of the whole batch by the same names; then the losses of its parts
        add up to those of the batch. None takes the normalizers of `sums`.
    """
    totals = divisors(sums) if totals is None else totals
    # At least 1: a batch without objects has sums too, such as those of background.
    return {
        name: tf.cast(each.sum, tf.float32) / tf.maximum(totals[name], 1.0)
        for name, each in sums.items()
    }
