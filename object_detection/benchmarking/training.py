"""Measures the training step of a config on random images and objects."""

import time
from typing import Any

import tensorflow as tf

from object_detection.benchmarking import node_times, rows, training_step, work
from object_detection.benchmarking.jobs import BenchmarkJob
from object_detection.config.reader import read_pipeline
from object_detection.models import precision as precisions
from object_detection.optimizers.gradients import TOTAL_LOSS
from object_detection.training.distribution import strategies
from object_detection.training.monitoring import model_summary
from object_detection.training.step import TrainStep


def measure(job: BenchmarkJob, start: float) -> dict[str, Any]:
    """Measures a training step: forward pass, gradients and update.

    Args:
      job: what to measure.
      start: `time.perf_counter()` when the process started.

    Returns:
      A row of the report without the imports.
    """
    strategy = work.set_up_devices(job)
    strategies.check_batch_size(strategy, job.batch_size, '--batch_size')
    pipeline = read_pipeline(job.source, settings=job.settings)
    precision = precisions.write(pipeline.train_config, job.precision)
    pipeline.train_config.batch_size = job.batch_size
    with strategy.scope(), precisions.scope(precision):
        step, batch, size = _build(pipeline, precision, job, strategy)
        # With padding, or several replicas, the graph has the numbers.
        masks = training_step.mask_stage(step.detector)
        is_padded = masks is None or masks.pad_regions or strategy.num_replicas_in_sync > 1
        mask_rows = None if is_padded else training_step.count_mask_rows(step.detector)

        def run() -> dict[str, Any]:
            return {name: value.numpy() for name, value in step(batch).items()}

        losses = run()
        first = time.perf_counter() - start
        for _ in range(job.warmup):
            run()
        before = 0 if is_padded else int(mask_rows)
        measured = rows.timed(run, job, precision)
        if is_padded:
            counted = step.count_flops()
        else:
            per_image = round((int(mask_rows) - before) / job.steps)
            counted = training_step.count_flops(pipeline, step, batch, per_image)
        parts = node_times.parts(run, counted.by_operation)
    return rows.with_rates(
        measured
        | {
            'first': first,
            'precision': precision,
            'image_size': list(size),
            'devices': work.device_names(),
            'replicas': strategy.num_replicas_in_sync,
            'objects': work.OBJECTS,
            'loss': float(losses[TOTAL_LOSS]),
            'gigaflop': counted.total / 1e9,
            'not_counted': len(counted.unknown),
            'parts': parts,
        }
    )


def _build(
    pipeline: Any, precision: str, job: BenchmarkJob, strategy: tf.distribute.Strategy
) -> tuple[TrainStep, dict[str, Any], tuple[int, int]]:
    """Returns the step, a batch for all replicas and the (height, width) of its images."""
    detector = work.build_detector(pipeline, precision, is_training=True)
    size = job.image_size or model_summary.resized_image_size(detector)
    replicas = strategy.num_replicas_in_sync
    arrays = training_step.arrays(pipeline, detector, job.batch_size // replicas, size)
    if replicas == 1:
        batch = {name: tf.constant(array) for name, array in arrays.items()}
    else:
        # Equal parts: what they hold has no effect on the time.
        dataset = tf.data.Dataset.from_tensors(arrays).repeat()
        batch = next(iter(strategy.distribute_datasets_from_function(lambda context: dataset)))
    step = training_step.build_step(pipeline, detector, batch, jit_compile=None)
    return step, batch, size
