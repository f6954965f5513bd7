"""Runs a detector over a data set."""

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from object_detection.core.fields import DetectionFields, InputFields
from object_detection.core.groundtruth import Groundtruth
from object_detection.meta_architectures.detection_model import DetectionModel
from object_detection.training.step import with_total

_logger = logging.getLogger(__name__)

Batch = Mapping[str, np.ndarray]
PredictFunction = Callable[
    [Mapping[str, tf.Tensor]], tuple[dict[str, tf.Tensor], dict[str, tf.Tensor]]
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
) -> dict[str, float] | None:
    """Runs a detector over a data set, the last partial batch included.

    Args:
      detector: with its variables built.
      dataset: of batches for evaluation.
      evaluators: empty ones; each sees every image once.
      with_losses: whether to add the means of the losses over all images.
      predict: what `make_predict` returned for this detector and data set; saves building the
        graph again.
      on_batch: called with each batch and its detections, as numpy.
      should_stop: asked before each batch.
      on_images: called after each batch with the number of images so far; if None, it is logged now
        and then.

    Returns:
      Metric or loss name -> value; None if stopped.
    """
    predict = predict or make_predict(detector, dataset.element_spec, with_losses=with_losses)
    sums: dict[str, float] = defaultdict(float)
    images, told = 0, time.monotonic()
    for batch in dataset:
        if should_stop():
            return None
        detections, losses = predict(batch)
        arrays, found = _to_numpy(batch), _to_numpy(detections)
        for evaluator in evaluators:
            evaluator.add_batch(arrays, found)
        if on_batch is not None:
            on_batch(arrays, found)
        count = len(arrays[InputFields.IMAGE])
        images += count
        for name, value in losses.items():
            sums[name] += float(value) * count
        if on_images is not None:
            on_images(images)
        elif time.monotonic() - told > _SECONDS_BETWEEN_MESSAGES:
            _logger.info('evaluated %d images', images)
            told = time.monotonic()
    metrics: dict[str, float] = {}
    for evaluator in evaluators:
        metrics |= evaluator.evaluate()
    return metrics | {name: total / images for name, total in sums.items()}


def make_predict(
    detector: DetectionModel, element_spec: Any, *, with_losses: bool = True
) -> PredictFunction:
    """Makes the function that turns a batch into detections and, if asked for, losses.

    The noise of sampled losses depends on each image's own hash, so what is sampled does not
    depend on the batch size. The mask loss does: it is a mean over the positives of the batch, so
    images with few of them weigh more where batches are small.
    """

    def predict(batch):
        true_shapes = batch[InputFields.TRUE_IMAGE_SHAPE]
        images = detector.normalize(batch[InputFields.IMAGE])
        groundtruth = Groundtruth.from_batch(batch) if with_losses else None
        predictions = detector.predict(images, true_shapes, training=False, groundtruth=groundtruth)
        detections = detector.postprocess(predictions, true_shapes)
        kept = {name: value for name, value in detections.items() if name not in _LEFT_OUT}
        if not with_losses:
            return kept, {}
        hashes = batch[InputFields.HASH_FROM_SOURCE_ID]
        seeds = tf.stack([hashes, tf.zeros_like(hashes)], axis=1)
        losses = detector.loss(predictions, groundtruth, seeds=seeds)
        return kept, with_total(losses, detector.regularization_losses())

    # A signature, because the last batch, or each size of image, would be traced again otherwise;
    # no AutoGraph, as in `TrainStep`.
    return tf.function(predict, input_signature=[element_spec], autograph=False)


def _to_numpy(tensors: Mapping[str, tf.Tensor]) -> dict[str, np.ndarray]:
    return {name: tensor.numpy() for name, tensor in tensors.items()}
