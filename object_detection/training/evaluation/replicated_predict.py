"""Detections and validation losses, where replicas share batches of one static size."""

from collections.abc import Callable, Mapping

import numpy as np
import tensorflow as tf

from object_detection.core import replicas
from object_detection.core.fields import InputFields
from object_detection.core.shapes import rows_from
from object_detection.training.distribution import strategies

IMAGE = InputFields.IMAGE
Tensors = dict[str, tf.Tensor]
Arrays = dict[str, np.ndarray]
# Part of a batch -> detections, losses, and normalizers of some losses: the numbers that these are
# means over. The other losses are means over the images.
PartFunction = Callable[[Tensors], tuple[Tensors, Tensors, Tensors]]


class ReplicatedPredict:
    """Divides each batch into equal parts, one for each replica of this process.

    A partial batch is filled up with empty images. Their detections are removed; their share of the
    means over images is measured on a batch of empty images alone, and subtracted.

    Args:
      predict_part: computes a part, in replica context.
      element_spec: the spec of the entries of a batch that `predict_part` needs.
      strategy: the strategy that the detector's variables were created in.
      batch_size: size of full batches; rounded up to a multiple of the replicas. None takes that of
        the first batch.
      jit_compile: whether a part is one XLA program.
    """

    def __init__(
        self,
        predict_part: PartFunction,
        element_spec: Mapping[str, tf.TensorSpec],
        *,
        strategy: tf.distribute.Strategy,
        batch_size: int | None = None,
        jit_compile: bool = False,
    ):
        self._predict_part = predict_part
        self._spec = dict(element_spec)
        self._strategy = strategy
        self._parts = strategy.num_replicas_in_sync // strategies.num_workers(strategy)
        self._batch_size = batch_size
        self._jit_compile = jit_compile
        self._run: Callable[[Tensors], tuple[Tensors, Tensors, Tensors]] | None = None

    def __call__(self, batch: Mapping[str, tf.Tensor]) -> tuple[Arrays, Arrays, Arrays]:
        """Returns what the function of `make_predict` does, for the images of the batch alone."""
        batch = {name: batch[name] for name in self._spec}
        count = int(batch[IMAGE].shape[0])
        if self._run is None:
            self._build(self._batch_size or count)
        full = _filled_up(batch, self._part * self._parts)
        detections, losses, normalizers = self._run(full)
        missing = self._part * self._parts - count
        empty_losses, empty_normalizers = losses, normalizers
        if missing and losses:
            _, empty_losses, empty_normalizers = self._run(
                _filled_up(_without_images(batch), self._part * self._parts)
            )
        images = np.clip(count - self._part * np.arange(self._parts), 0, self._part)
        sums, weights = {}, {}
        for name, values in losses.items():  # [parts]
            if name in normalizers:
                weights[name] = np.sum(normalizers[name].numpy().astype(np.float64))
            else:
                weights[name] = np.sum(images)
            of_all = _sum_of_parts(name, values, normalizers, self._part)
            of_empty = _sum_of_parts(name, empty_losses[name], empty_normalizers, self._part)
            sums[name] = np.sum(of_all - (1.0 - images / self._part) * of_empty)
        means = {name: total / (weights[name] or 1.0) for name, total in sums.items()}
        return {name: t.numpy()[:count] for name, t in detections.items()}, means, weights

    def _build(self, batch_size: int) -> None:
        self._part = -(-batch_size // self._parts)
        signature = {
            name: tf.TensorSpec([self._part * self._parts, *spec.shape[1:]], spec.dtype)
            for name, spec in self._spec.items()
        }
        # A signature, since each size of images would be traced again otherwise; no AutoGraph, as
        # in `TrainStep`.
        self._run = tf.function(self._on_replicas, input_signature=[signature], autograph=False)

    def _on_replicas(self, batch: Tensors) -> tuple[Tensors, Tensors, Tensors]:
        """Returns detections [parts * part, ...]; losses and normalizers [parts]."""

        def compute() -> tuple[Tensors, Tensors, Tensors]:
            context = tf.distribute.get_replica_context()
            # Replicas are numbered over all workers.
            index = tf.cast(context.replica_id_in_sync_group, tf.int32) % self._parts
            # Sliced on the host, where the batch is, so that a device receives only its part.
            with tf.device('/device:CPU:0'):
                part = {name: self._cut(tensor, index) for name, tensor in batch.items()}
            with replicas.PerReplica():
                # A function for each replica's trace, whose variables it captures.
                run = tf.function(
                    self._predict_part, jit_compile=self._jit_compile or None, autograph=False
                )
                return run(part)

        per_replica = self._strategy.run(compute)

        def of_parts(join: Callable) -> Callable:
            return lambda value: join(self._strategy.experimental_local_results(value), axis=0)

        detections, *others = per_replica
        return (
            {name: of_parts(tf.concat)(value) for name, value in detections.items()},
            *({name: of_parts(tf.stack)(value) for name, value in each.items()} for each in others),
        )

    def _cut(self, tensor: tf.Tensor, index: tf.Tensor) -> tf.Tensor:
        return rows_from(tensor, index * self._part, self._part)


def _filled_up(batch: Tensors, size: int) -> Tensors:
    """Adds empty images, without objects, to a batch of b <= `size`."""
    missing = size - int(batch[IMAGE].shape[0])
    if not missing:
        return batch

    def fill_up(name: str, tensor: tf.Tensor) -> tf.Tensor:
        if name == InputFields.TRUE_IMAGE_SHAPE:
            rows = tf.tile(tf.shape(batch[IMAGE])[tf.newaxis, 1:], [missing, 1])
        else:
            rows = tf.zeros([missing, *tensor.shape[1:]], tensor.dtype)
        return tf.concat([tensor, tf.cast(rows, tensor.dtype)], axis=0)

    return {name: fill_up(name, tensor) for name, tensor in batch.items()}


def _without_images(batch: Tensors) -> Tensors:
    return {name: tensor[:0] for name, tensor in batch.items()}


def _sum_of_parts(name: str, losses: tf.Tensor, normalizers: Tensors, part: int) -> np.ndarray:
    """Returns what the losses of parts, [parts], are before they are divided by a normalizer.

    Without a normalizer, a loss is a mean over the `part` images of a part.
    """
    weights = normalizers[name].numpy().astype(np.float64) if name in normalizers else part
    return losses.numpy().astype(np.float64) * weights
