"""The reduction of gradients over replicas."""

from collections.abc import Sequence

import tensorflow as tf


class GradientReduction:
    """The sum of gradients over all replicas.

    Args:
      bytes_per_pack: number of bytes of gradients that are sent at a time, so that the first pack
        is sent while other gradients are computed; 0 sends all gradients at once.
      implementation: 'AUTO', 'RING' or 'NCCL', see `tf.distribute.experimental`.
      in_bfloat16: whether gradients are sent and summed in bfloat16, which halves the traffic.
    """

    def __init__(
        self,
        *,
        bytes_per_pack: int = 0,
        implementation: str = 'AUTO',
        in_bfloat16: bool = False,
    ):
        self._options = tf.distribute.experimental.CommunicationOptions(
            bytes_per_pack=bytes_per_pack,
            implementation=tf.distribute.experimental.CommunicationImplementation[implementation],
        )
        self._in_bfloat16 = in_bfloat16

    def __call__(self, gradients: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Sums gradients in replica context; the results have the dtypes of the gradients."""
        context = tf.distribute.get_replica_context()
        total = tf.distribute.ReduceOp.SUM
        # A single replica sends nothing, so it does not round.
        if not self._in_bfloat16 or context.num_replicas_in_sync == 1:
            return list(context.all_reduce(total, list(gradients), options=self._options))
        sent = [tf.cast(gradient, tf.bfloat16) for gradient in gradients]
        sums = context.all_reduce(total, sent, options=self._options)
        return [tf.cast(s, own.dtype) for s, own in zip(sums, gradients, strict=True)]
