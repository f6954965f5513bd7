"""Runs a detector over a data set: `evaluate` is the function that evaluates.

Detections and validation losses, where replicas share batches of one static size.
"""

import dataclasses
import itertools
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from object_detection.core.fields import DetectionFields, InputFields
from object_detection.core.groundtruth import Groundtruth
from object_detection.core.loss_sum import LossSum, divide
from object_detection.core.shapes import rows_from
from object_detection.meta_architectures import side_inputs
from object_detection.meta_architectures.detection_model import DetectionModel
from object_detection.metrics.evaluator import Batch, Evaluator
from object_detection.optimizers.gradients import TOTAL_LOSS, with_penalties
from object_detection.training.distribution import collectives, strategies

IMAGE = InputFields.IMAGE
Tensors = dict[str, tf.Tensor]
Arrays = dict[str, np.ndarray]
LossSums = Mapping[str, LossSum]
# Part of a batch -> detections and losses.
PartFunction = Callable[[Tensors], tuple[Tensors, LossSums]]


class ReplicatedPredict:
    """Divides each batch into equal parts, one for each replica of this process.

    A partial batch is filled up with empty images. Their detections are removed; their share of the
    losses is measured on a batch of empty images alone, and subtracted.

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
        self._run: PartFunction | None = None

    def __call__(self, batch: Mapping[str, tf.Tensor]) -> tuple[Arrays, LossSums]:
        """Returns what the function of `make_predict` does, for the images of the batch alone."""
        batch = {name: batch[name] for name in self._spec}
        count = int(batch[IMAGE].shape[0])
        if self._run is None:
            self._build(self._batch_size or count)
        full = _filled_up(batch, self._part * self._parts)
        detections, losses = self._run(full)
        missing = self._part * self._parts - count
        sums = _in_double(losses)
        if missing and losses:
            _, empty = self._run(_filled_up(_without_images(batch), self._part * self._parts))
            images = np.clip(count - self._part * np.arange(self._parts), 0, self._part)
            share = 1.0 - images / self._part
            sums = tf.nest.map_structure(lambda own, of: own - share * of, sums, _in_double(empty))
        sums = tf.nest.map_structure(np.sum, sums)
        return {name: t.numpy()[:count] for name, t in detections.items()}, sums

    def _build(self, batch_size: int) -> None:
        self._part = -(-batch_size // self._parts)
        signature = {
            name: tf.TensorSpec([self._part * self._parts, *spec.shape[1:]], spec.dtype)
            for name, spec in self._spec.items()
        }
        # A signature, since each size of images would be traced again otherwise; no AutoGraph, as
        # in `TrainStep`.
        self._run = tf.function(self._on_replicas, input_signature=[signature], autograph=False)

    def _on_replicas(self, batch: Tensors) -> tuple[Tensors, LossSums]:
        """Returns detections [parts * part, ...], and losses of [parts]."""

        def compute() -> tuple[Tensors, LossSums]:
            context = tf.distribute.get_replica_context()
            # Replicas are numbered over all workers.
            index = tf.cast(context.replica_id_in_sync_group, tf.int32) % self._parts
            # Sliced on the host, where the batch is, so that a device receives only its part.
            with tf.device('/device:CPU:0'):
                part = {name: self._cut(tensor, index) for name, tensor in batch.items()}
            # A function for each replica's trace, whose variables it captures.
            run = tf.function(
                self._predict_part, jit_compile=self._jit_compile or None, autograph=False
            )
            return run(part)

        detections, losses = self._strategy.run(compute)

        def of_parts(join: Callable) -> Callable:
            return lambda value: join(self._strategy.experimental_local_results(value), axis=0)

        return (
            {name: of_parts(tf.concat)(value) for name, value in detections.items()},
            {name: LossSum(*map(of_parts(tf.stack), each)) for name, each in losses.items()},
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


def _in_double(losses: LossSums) -> dict[str, LossSum]:
    """Returns the sums and normalizers as float64 arrays."""
    return tf.nest.map_structure(lambda value: np.asarray(value, np.float64), dict(losses))


_logger = logging.getLogger(__name__)

# Batch -> detections and losses; see `make_predict`.
PredictFunction = Callable[[Mapping[str, tf.Tensor]], tuple[Mapping[str, Any], LossSums]]

# These are large, and no evaluator or picture needs them.
_LEFT_OUT = {
    DetectionFields.RAW_BOXES,
    DetectionFields.RAW_SCORES,
    DetectionFields.MULTICLASS_SCORES,
    DetectionFields.ANCHOR_INDICES,
}
_SECONDS_BETWEEN_MESSAGES = 15.0
# Workers wait for each other at a vote.
_BATCHES_BETWEEN_VOTES = 8


def evaluate(
    detector: DetectionModel,
    dataset: Iterable[Batch],
    evaluators: Sequence[Evaluator],
    *,
    with_losses: bool = True,
    losses_by_batch: bool = False,
    predict: PredictFunction | None = None,
    on_batch: Callable[[Batch, Batch], None] | None = None,
    should_stop: Callable[[], bool] = lambda: False,
    on_images: Callable[[int], None] | None = None,
    max_images: int | None = None,
    strategy: tf.distribute.Strategy | None = None,
) -> dict[str, float] | None:
    """Runs a detector over a data set, the last partial batch included.

    Args:
      detector: with its variables built.
      dataset: yields batches for evaluation; a tf.data dataset if `predict` is None.
      evaluators: empty ones; each sees every image once.
      with_losses: whether to add the means of the losses over the data set.
      losses_by_batch: whether each batch counts alike in these means, however many images it holds.
      predict: what `make_predict` returned for this detector and data set; saves building the
        graph again.
      on_batch: called with each batch and its detections, NumPy arrays.
      should_stop: polled before each batch; with several workers before every 8 batches, and one
        stop request stops all workers.
      on_images: called after each batch with the number of images so far; if None, the number is
        logged from time to time.
      max_images: evaluates only so many images at the beginning of the data set; None takes all.
      strategy: all of its workers call this, each with images of its own: collective. None is this
        process alone.

    Returns:
      Metric or loss name -> value on the chief; None on other workers and if any is stopped.
    """
    predict = predict or make_predict(detector, dataset.element_spec, with_losses=with_losses)
    means = _LossMeans(by_batch=losses_by_batch)
    images, logged_at = 0, time.monotonic()
    for batch in _until_stopped(_first_images(dataset, max_images), should_stop, strategy):
        if batch is None:
            means = None
            break
        detections, losses = predict(batch)
        arrays, found = _to_numpy(batch), _to_numpy(detections)
        for evaluator in evaluators:
            evaluator.add_batch(arrays, found)
        if on_batch is not None:
            on_batch(arrays, found)
        images += len(arrays[InputFields.IMAGE])
        means.add(losses)
        if on_images is not None:
            on_images(images)
        elif time.monotonic() - logged_at > _SECONDS_BETWEEN_MESSAGES:
            _logger.info('evaluated %d images', images)
            logged_at = time.monotonic()
    if strategy is not None and strategies.num_workers(strategy) > 1:
        means = _merge(strategy, evaluators, means)
    if means is None:
        return None
    metrics: dict[str, float] = {}
    for evaluator in evaluators:
        metrics |= evaluator.evaluate()
        for note in evaluator.notes:
            _logger.warning('%s', note)
    return metrics | means.result()


def _until_stopped(
    batches: Iterator[Batch],
    should_stop: Callable[[], bool],
    strategy: tf.distribute.Strategy | None,
) -> Iterator[Batch | None]:
    """Yields batches, and None as the last one if this worker, or another one, is to stop.

    Workers have different numbers of batches: a worker without any left keeps voting until all
    workers have none left.
    """
    if strategy is None or strategies.num_workers(strategy) == 1:
        for batch in batches:
            if should_stop():
                yield None
                return
            yield batch
        return
    is_done = False
    while True:
        votes = collectives.gather_rows(strategy, np.array([should_stop(), is_done], np.int64))
        if votes[:, 0].any():
            yield None
            return
        if votes[:, 1].all():
            return
        count = 0
        for batch in itertools.islice(batches, _BATCHES_BETWEEN_VOTES):
            count += 1
            yield batch
        is_done = count < _BATCHES_BETWEEN_VOTES


def _merge(
    strategy: tf.distribute.Strategy, evaluators: Sequence[Evaluator], means: '_LossMeans | None'
) -> '_LossMeans | None':
    """Gives the chief what the workers have collected; returns None where `evaluate` does."""
    own = None if means is None else ([each.part() for each in evaluators], means)
    # The chief need not send its own results.
    is_chief = strategies.is_chief(strategy)
    collected = collectives.gather_values(strategy, own and () if is_chief else own)
    if not is_chief or any(each is None for each in collected):
        return None
    for found, others in collected[1:]:
        for evaluator, part in zip(evaluators, found, strict=True):
            evaluator.merge(part)
        means.merge(others)
    return means


@dataclasses.dataclass
class _LossMeans:
    """Means of the losses over a data set: as of one batch, or `by_batch` of those of batches."""

    by_batch: bool = False
    _sums: dict[str, LossSum] = dataclasses.field(default_factory=dict)

    def add(self, losses: LossSums) -> None:
        """Adds the losses of a batch."""
        if self.by_batch:
            losses = {name: LossSum(loss, 1.0) for name, loss in divide(losses).items()}
        self._add(losses)

    def merge(self, others: '_LossMeans') -> None:
        """Adds the sums of another worker."""
        self._add(others._sums)

    def _add(self, losses: LossSums) -> None:
        for name, each in losses.items():
            sums = self._sums.get(name, (0.0, 0.0))
            self._sums[name] = LossSum(*(a + float(b) for a, b in zip(sums, each, strict=True)))

    def result(self) -> dict[str, float]:
        """Returns the means and their sum; a loss that nothing contributed to is 0."""
        means = {name: float(loss) for name, loss in divide(self._sums).items()}
        return means | {TOTAL_LOSS: sum(means.values())} if means else {}


def make_predict(
    detector: DetectionModel,
    element_spec: Any,
    *,
    with_losses: bool = True,
    jit_compile: bool = False,
    strategy: tf.distribute.Strategy | None = None,
    batch_size: int | None = None,
) -> PredictFunction:
    """Makes the function that turns a batch into detections and, with `with_losses`, losses.

    Detections and the weighted means of losses do not depend on how images are put into batches:
    the noise of sampled losses depends on each image's own hash.

    Args:
      detector: with its variables built.
      element_spec: the spec of the batches.
      with_losses: whether to compute losses.
      jit_compile: whether one XLA program computes all, for each size of images.
      strategy: the strategy that the variables were created in; each of its replicas takes a part
        of a batch. None is the current one.
      batch_size: size of a full batch. A last, partial batch is filled up to it where the shape
        matters: with `jit_compile`, or with several replicas.

    Returns:
      Function from a batch to its detections and its losses, `LossSum` by name.
    """

    # The host evaluates, not the TPUs that train.
    if strategy is None or isinstance(strategy, tf.distribute.TPUStrategy):
        strategy = tf.distribute.get_strategy()
    if jit_compile or strategy.num_replicas_in_sync > 1:
        return ReplicatedPredict(
            lambda batch: predict_part(detector, batch, with_losses=with_losses),
            {name: spec for name, spec in element_spec.items() if _is_needed(name, detector)},
            strategy=strategy,
            batch_size=batch_size,
            jit_compile=jit_compile,
        )

    # A signature, because the last batch, or each size of image, would be traced again otherwise;
    # no AutoGraph, as in `TrainStep`.
    return tf.function(
        lambda batch: predict_part(detector, batch, with_losses=with_losses),
        input_signature=[element_spec],
        autograph=False,
    )


def predict_part(
    detector: DetectionModel, batch: Mapping[str, tf.Tensor], *, with_losses: bool
) -> tuple[Tensors, dict[str, LossSum]]:
    """Returns the detections of images, and their losses."""
    true_shapes = batch[InputFields.TRUE_IMAGE_SHAPE]
    images = detector.normalize_padded(batch[InputFields.IMAGE], true_shapes)
    groundtruth = Groundtruth.from_batch(batch) if with_losses else None
    hashes = batch[InputFields.HASH_FROM_SOURCE_ID]
    seeds = tf.stack([hashes, tf.zeros_like(hashes)], axis=1)
    predictions = detector.predict(
        images,
        true_shapes,
        training=False,
        groundtruth=groundtruth,
        seeds=seeds,
        **side_inputs.select(detector, batch),
    )
    detections = detector.postprocess(predictions, true_shapes)
    kept = {name: value for name, value in detections.items() if name not in _LEFT_OUT}
    if not with_losses:
        return kept, {}
    losses = detector.loss_sums(predictions, groundtruth, seeds)
    return kept, with_penalties(losses, detector.regularization_losses(), tf.shape(images)[0])


def _is_needed(name: str, detector: DetectionModel) -> bool:
    """Whether `predict_part` reads an entry: others are texts, or have varying shapes."""
    used = (InputFields.IMAGE, InputFields.TRUE_IMAGE_SHAPE, InputFields.HASH_FROM_SOURCE_ID)
    return name in (*used, *detector.side_inputs()) or name.startswith('groundtruth_')


def _first_images(dataset: Iterable[Batch], count: int | None) -> Iterator[Mapping[str, tf.Tensor]]:
    """Yields batches of the first `count` images, the last one truncated; None yields all."""
    left = count
    for batch in dataset:
        if left is not None and left <= len(batch[InputFields.IMAGE]):
            yield {name: tensor[:left] for name, tensor in batch.items()}
            return
        yield batch
        left = None if left is None else left - len(batch[InputFields.IMAGE])


def _to_numpy(tensors: Mapping[str, tf.Tensor]) -> dict[str, np.ndarray]:
    return {name: np.asarray(tensor) for name, tensor in tensors.items()}
