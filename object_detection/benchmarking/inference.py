"""Measures the inference of a model, as Python programs and `tfod predict` run it."""

import contextlib
import itertools
import os
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf import text_format
from PIL import Image

from object_detection.benchmarking import convolutions, node_times, rows, static_graph, work
from object_detection.benchmarking.jobs import BenchmarkJob
from object_detection.builders import image_resizer_builder
from object_detection.config import families
from object_detection.config.reader import read_pipeline
from object_detection.core.fields import DetectionFields, InputFields
from object_detection.errors import UserError
from object_detection.export import saved_model
from object_detection.meta_architectures import side_inputs as model_side_inputs
from object_detection.models import precision as precisions
from object_detection.prediction import loading
from object_detection.runtime import side_inputs
from object_detection.runtime.images import read_image
from object_detection.runtime.runtime import Runtime
from object_detection.training.distribution import strategies
from object_detection.training.evaluation.inference import ReplicatedPredict
from object_detection.training.monitoring import model_summary

# Size of images where the model does not determine one.
_SIZE = (640, 640)
# Rounds of the comparison with the convolutions alone, after two that do not count.
_MAX_ROUNDS = 10


def export(job: BenchmarkJob, start: float) -> dict[str, Any]:
    """Writes a config's model with random weights as a SavedModel to `job.output`.

    Returns:
      image_size: (height, width) of a square photo after the resizer.
      precision: the precision in which it computes.
    """
    del start
    pipeline = read_pipeline(job.source, settings=job.settings)
    precision = precisions.write(pipeline.train_config, job.precision)
    detector = work.build_with_spread_scores(pipeline, precision)
    saved_model.export(
        detector,
        job.output,
        input_type='image_tensor',
        save_checkpoint=os.mkdir,
        pipeline_text=text_format.MessageToString(pipeline),
        precision=precision,
    )
    return {'image_size': model_summary.resized_image_size(detector), 'precision': precision}


def measure(job: BenchmarkJob, start: float) -> dict[str, Any]:
    """Measures the latency of a model, its memory, its roof and where the time goes.

    Args:
      job: what to measure; the precision of an exported model is its own.
      start: `time.perf_counter()` when the process started.

    Returns:
      A row of the report without the imports.
    """
    strategy = work.set_up_devices(job)
    replicas = strategy.num_replicas_in_sync
    if replicas == 1:
        detector = loading.load(job.source, precision=job.precision)
        run_batch = detector
        precision, size = detector.precision, _image_size(job, detector)
    else:
        strategies.check_batch_size(strategy, job.batch_size, '--batch_size')
        model, precision = _replicated_model(job, strategy)
        detector, size = None, job.image_size or model_summary.resized_image_size(model)
        run_batch = _replicated(model, strategy, job.batch_size)
    batches = _batches(job, size)
    if detector is not None and detector.value_range is not None:
        batches = (batch.astype(np.float32) for batch in batches)
    found = {}

    def run() -> None:
        outputs = run_batch(next(batches))
        found.update({name: np.asarray(value) for name, value in outputs.items()})

    with precisions.scope(precision) if precision else contextlib.nullcontext():
        run()
        first = time.perf_counter() - start
        for _ in range(job.warmup):
            run()
        measured = rows.timed(run, job, precision or 'float32')
        result = measured | {
            'first': first,
            'precision': precision or (detector and detector.quantization) or 'not known',
            'image_size': list(size),
            'devices': work.device_names(),
            'replicas': replicas,
            'images': len(job.images),
            'detections': float(np.mean(found[DetectionFields.NUM_DETECTIONS])),
        }
        function = detector and detector.traced_function
        if function is not None:
            batch = _arguments(function, detector, next(batches))
            result |= _analysis(job, function, batch, run)
    return rows.with_rates(result)


def _arguments(function: Any, detector: Runtime, batch: np.ndarray) -> list[tf.Tensor]:
    """Returns the arguments of a traced function: a batch, and no context."""
    positional, named = function.structured_input_signature
    spec = positional[0] if positional else named.get('input_tensor', next(iter(named.values())))
    if spec.dtype == tf.string:
        images = tf.stack([tf.io.encode_jpeg(image) for image in batch])
    else:
        images = tf.cast(batch, spec.dtype)
    given = side_inputs.or_zeros({}, detector.side_inputs, len(batch))
    if positional or not given:
        return [images, *given.values()]
    # The flat inputs of a signature are in the order of their names.
    return [value for _, value in sorted({**given, 'input_tensor': images}.items())]


def _analysis(
    job: BenchmarkJob, function: Any, arguments: list[tf.Tensor], run: Callable
) -> dict[str, Any]:
    """Counts the operations; times the parts, and the convolutions alone in turns with the model.

    To be called after everything else: it takes memory.
    """
    graph = static_graph.trace(function, arguments, model_summary.COUNTED)
    counted = model_summary.count(graph)
    result = {
        'gigaflop': counted.total / 1e9,
        'not_counted': len(counted.unknown),
        'parts': node_times.parts(run, counted.by_operation),
    }
    try:
        found = convolutions.collect(graph)
    except UserError:  # A convolution in a loop, whose shapes are not known.
        return result
    functions = {'whole': run, 'convolutions': convolutions.loop(found)}
    rows.turns(functions, 2)
    seconds = rows.turns(functions, min(job.steps, _MAX_ROUNDS))
    shares = [
        alone / whole
        for whole, alone in zip(seconds['whole'], seconds['convolutions'], strict=True)
    ]
    return result | {
        'convolutions': statistics.median(seconds['convolutions']),
        'share_of_convolutions': statistics.median(shares),
    }


def _image_size(job: BenchmarkJob, detector: Runtime) -> tuple[int, int]:
    """Returns (height, width) of random images: that for which the model was made, if known."""
    if job.image_size:
        return job.image_size
    if job.images:
        return read_image(job.images[0])[0].shape[:2]
    if detector.model is not None:
        return model_summary.resized_image_size(detector.model)
    if detector.input_size is not None:
        return detector.input_size
    config = loading.find_config(job.source)
    options = None if config is None else families.options(read_pipeline(config).model)
    if options is None:
        return _SIZE
    resizer = image_resizer_builder.build(options.image_resizer)
    height, width, _ = resizer(tf.zeros([*_SIZE, 3]))[0].shape
    return height, width


def _batches(job: BenchmarkJob, size: tuple[int, int]) -> Iterator[np.ndarray]:
    """Yields batches for ever, uint8 [B, H, W, 3]: of the given images in turn, or random ones.

    Single photos keep their size, unless the job has one; those of a larger batch get `size`.
    """
    if not job.images:
        yield from itertools.repeat(work.images(job.batch_size, size).astype(np.uint8))
    keeps_size = job.batch_size == 1 and not job.image_size
    images = []
    for path in job.images:
        image = read_image(path)[0]
        if not keeps_size:
            image = np.asarray(Image.fromarray(image).resize(size[::-1]))
        images.append(image)
    cycle = itertools.cycle(images)
    while True:
        yield np.stack(list(itertools.islice(cycle, job.batch_size)))


def _replicated_model(job: BenchmarkJob, strategy: tf.distribute.Strategy) -> tuple[Any, str]:
    """Returns a model whose variables all replicas have, and its precision."""
    with strategy.scope():
        if job.is_config:
            pipeline = read_pipeline(job.source, settings=job.settings)
            precision = precisions.write(pipeline.train_config, job.precision)
            return work.build_with_spread_scores(pipeline, precision), precision
        detector = loading.load(job.source, precision=job.precision)
    if detector.model is None:
        raise UserError(
            f'--device, --strategy: {job.source} is an exported model, which runs on one device; '
            'name one with --device, or give a config or a model_dir.'
        )
    return detector.model, detector.precision


def _replicated(
    model: Any, strategy: tf.distribute.Strategy, batch_size: int
) -> Callable[[np.ndarray], dict[str, np.ndarray]]:
    """Returns a function that detects in batches of one size, divided among the replicas."""

    def predict_part(batch: dict[str, tf.Tensor]) -> tuple[dict, dict]:
        images, shapes = model.preprocess(tf.cast(batch[InputFields.IMAGE], tf.float32))
        given = model_side_inputs.zeros(model, tf.shape(images)[0])
        return model.postprocess(model.predict(images, shapes, **given), shapes), {}

    predict: list[ReplicatedPredict] = []

    def run(batch: np.ndarray) -> dict[str, np.ndarray]:
        batch = tf.constant(batch)
        if not predict:
            spec = {InputFields.IMAGE: tf.TensorSpec(batch.shape, batch.dtype)}
            predict.append(
                ReplicatedPredict(predict_part, spec, strategy=strategy, batch_size=batch_size)
            )
        return predict[0]({InputFields.IMAGE: batch})[0]

    return run
