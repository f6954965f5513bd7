"""Runs a detector over a data set."""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from object_detection.core.fields import DetectionFields, InputFields
from object_detection.core.groundtruth import Groundtruth
from object_detection.meta_architectures.detection_model import DetectionModel
from object_detection.training.step import TOTAL_LOSS, with_total

_logger = logging.getLogger(__name__)

Batch = Mapping[str, np.ndarray]
# Batch -> detections, losses, and what the losses weigh; see `make_predict`.
PredictFunction = Callable[
    [Mapping[str, tf.Tensor]],
    tuple[dict[str, tf.Tensor], dict[str, tf.Tensor], dict[str, tf.Tensor]],
]

# Large, and not needed by any evaluator or picture.
_LEFT_OUT = {
    DetectionFields.RAW_BOXES,
    DetectionFields.RAW_SCORES,
    DetectionFields.MULTICLASS_SCORES,
    DetectionFields.ANCHOR_INDICES,
}
_SECONDS_BETWEEN_MESSAGES = 15.0


class Evaluator(Protocol):
    """What metrics are computed by."""

    def add_batch(self, batch: Batch, detections: Batch) -> None: ...

    def evaluate(self) -> dict[str, float]: ...


def evaluate(
    detector: DetectionModel,
    dataset: tf.data.Dataset,
    evaluators: Sequence[Evaluator],
    *,
    with_losses: bool = True,
    predict: PredictFunction | None = None,
    on_batch: Callable[[Batch, Batch], None] | None = None,
    should_stop: Callable[[], bool] = lambda: False,
    on_images: Callable[[int], None] | None = None,
    max_images: int | None = None,
) -> dict[str, float] | None:
    """Runs a detector over a data set, the last partial batch included.

    Args:
      detector: with its variables built.
      dataset: of batches for evaluation.
      evaluators: empty ones; each sees every image once.
      with_losses: whether to add the means of the losses over the data set.
      predict: what `make_predict` returned for this detector and data set; saves building the
        graph again.
      on_batch: called with each batch and its detections, as numpy.
      should_stop: asked before each batch.
      on_images: called after each batch with the number of images so far; if None, it is logged now
        and then.
      max_images: of the data set's images, only the first so many; None takes all.

    Returns:
      Metric or loss name -> value; None if stopped.
    """
    predict = predict or make_predict(detector, dataset.element_spec, with_losses=with_losses)
    means = _LossMeans()
    images, told = 0, time.monotonic()
    for batch in _first_images(dataset, max_images):
        if should_stop():
            return None
        detections, losses, weights = predict(batch)
        arrays, found = _to_numpy(batch), _to_numpy(detections)
        for evaluator in evaluators:
            evaluator.add_batch(arrays, found)
        if on_batch is not None:
            on_batch(arrays, found)
        images += len(arrays[InputFields.IMAGE])
        means.add(_to_numpy(losses), _to_numpy(weights))
        if on_images is not None:
            on_images(images)
        elif time.monotonic() - told > _SECONDS_BETWEEN_MESSAGES:
            _logger.info('evaluated %d images', images)
            told = time.monotonic()
    metrics: dict[str, float] = {}
    for evaluator in evaluators:
        metrics |= evaluator.evaluate()
    return metrics | means.result()


class _LossMeans:
    """Means of the losses over a data set, whatever its batches are."""

    def __init__(self):
        self._sums: dict[str, float] = {}
        self._weights: dict[str, float] = {}

    def add(self, losses: Batch, weights: Batch) -> None:
        """Adds the losses of a batch, and by the same names what each is a mean over."""
        for name, loss in losses.items():
            weight = float(weights[name])
            self._sums[name] = self._sums.get(name, 0.0) + float(loss) * weight
            self._weights[name] = self._weights.get(name, 0.0) + weight

    def result(self) -> dict[str, float]:
        """The means and their sum; a loss that nothing contributed to is 0."""
        means = {name: total / (self._weights[name] or 1.0) for name, total in self._sums.items()}
        return means | {TOTAL_LOSS: sum(means.values())} if means else {}


def make_predict(
    detector: DetectionModel,
    element_spec: Any,
    *,
    with_losses: bool = True,
    jit_compile: bool = False,
) -> PredictFunction:
    """Makes the function that turns a batch into detections and, if asked for, losses.

    Neither depends on how images are put into batches, once the losses' means are taken by their
    weights: the noise of sampled losses depends on each image's own hash.

    Args:
      detector: with its variables built.
      element_spec: of the batches.
      with_losses: whether to compute losses.
      jit_compile: whether all is one XLA program for each shape of batches: besides that of the
        full ones there is that of a last, partial one.

    Returns:
      Function from a batch to detections, losses, and the weights of the losses by the same names:
      the number of images, or of what else the loss is a mean over (`loss_normalizers` of the
      detector).
    """

    def predict(batch):
        true_shapes = batch[InputFields.TRUE_IMAGE_SHAPE]
        images = detector.normalize(batch[InputFields.IMAGE])
        groundtruth = Groundtruth.from_batch(batch) if with_losses else None
        predictions = detector.predict(images, true_shapes, training=False, groundtruth=groundtruth)
        detections = detector.postprocess(predictions, true_shapes)
        kept = {name: value for name, value in detections.items() if name not in _LEFT_OUT}
        if not with_losses:
            return kept, {}, {}
        hashes = batch[InputFields.HASH_FROM_SOURCE_ID]
        seeds = tf.stack([hashes, tf.zeros_like(hashes)], axis=1)
        losses = detector.loss(predictions, groundtruth, seeds=seeds)
        losses = with_total(losses, detector.regularization_losses())
        # The total is no mean of batches: its parts are means over different things.
        del losses[TOTAL_LOSS]
        weights = dict.fromkeys(losses, tf.cast(tf.shape(true_shapes)[0], tf.float32))
        weights |= detector.loss_normalizers(predictions, groundtruth)
        return kept, losses, weights

    if jit_compile:
        compiled = tf.function(predict, jit_compile=True, autograph=False)

        def run(batch):
            return compiled({name: batch[name] for name in batch if _is_needed(name)})
    else:
        run = predict
    # A signature, because the last batch, or each size of image, would be traced again otherwise;
    # no AutoGraph, as in `TrainStep`.
    return tf.function(run, input_signature=[element_spec], autograph=False)


def _is_needed(name: str) -> bool:
    """Whether `make_predict` reads an entry: the others are texts, or differ in shape."""
    used = (InputFields.IMAGE, InputFields.TRUE_IMAGE_SHAPE, InputFields.HASH_FROM_SOURCE_ID)
    return name in used or name.startswith('groundtruth_')


def _first_images(dataset: tf.data.Dataset, count: int | None) -> Iterator[Mapping[str, tf.Tensor]]:
    """Yields the batches of the first `count` images, the last one cut off; None yields all."""
    left = count
    for batch in dataset:
        if left is not None and left <= len(batch[InputFields.IMAGE]):
            yield {name: tensor[:left] for name, tensor in batch.items()}
            return
        yield batch
        left = None if left is None else left - len(batch[InputFields.IMAGE])


def _to_numpy(tensors: Mapping[str, tf.Tensor]) -> dict[str, np.ndarray]:
    return {name: tensor.numpy() for name, tensor in tensors.items()}
