"""Measures the training step of a config by name: forward, backward and update.

    python benchmarks/training.py
    python benchmarks/training.py --config NAME --batch_size 2 --precision float32 \
        --precision bfloat16

A model with masks is measured twice: with a fixed number of mask RoIs, and with the positive ones
alone. "time" is the median; "first" the time from the start of the process to the first step's
losses, imports apart; "own MB" the peak memory without what the process held after imports; "share"
that of the rate of matrix products in the same precision, measured between the steps.
"""

import os
import time

_START = time.perf_counter()

import agreement  # noqa: E402
import measure  # noqa: E402

from object_detection.benchmarking import node_times, rows, training_step, work  # noqa: E402


def measure_training(job: measure.Job) -> dict:
    os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
    before = time.perf_counter()
    import tensorflow  # noqa: F401

    from object_detection.config.reader import read_pipeline
    from object_detection.models import precision as precisions
    from object_detection.protos import train_pb2

    imports, imports_memory = time.perf_counter() - before, rows.peak_memory()
    precision = precisions.canonical(job.precision)
    pipeline = read_pipeline(measure.find_config(job.config), settings=job.all_settings)
    pipeline.train_config.batch_size = job.batch_size
    pipeline.train_config.precision = train_pb2.TrainConfig.Precision.Value(precision.upper())
    detector, batch = _model_and_batch(job, pipeline, precision)
    step = training_step.build_step(pipeline, detector, batch, job.jit_compile)
    regions = training_step.count_mask_rows(detector)

    def run() -> dict:
        return {name: value.numpy() for name, value in step(batch).items()}

    with precisions.scope(precision):
        losses = run()
        first = time.perf_counter() - _START - imports
        for _ in range(job.warmup):
            run()
        before_timing = int(regions)
        seconds, rate = rows.run(run, job.steps, precision)
        mask_rois = (int(regions) - before_timing) / job.steps
        memory = rows.peak_memory()
        counted = training_step.count_flops(pipeline, step, batch, round(mask_rois))
        result = measure.result(
            job=job,
            image_size=batch['image'].shape[1:3],
            imports=imports,
            imports_memory=imports_memory,
            first=first,
            seconds=seconds,
            matmul_rate=rate,
            flops=counted,
        )
        if job.profile:
            result['parts'] = node_times.parts(run, counted.by_operation)
    result |= {'peak_memory': memory, 'memory_beyond_imports': memory - imports_memory}
    result['counts'] = {'ground-truth objects': work.OBJECTS}
    if pipeline.model.HasField('faster_rcnn'):
        result['counts'] |= {
            'proposals': pipeline.model.faster_rcnn.first_stage_max_proposals,
            'RoIs': pipeline.model.faster_rcnn.second_stage_batch_size,
        }
    if training_step.mask_stage(detector) is not None:
        result['mask_rois'] = mask_rois
    result['losses'] = {name: float(value) for name, value in losses.items()}
    if job.compare:
        del step
        plain, _ = _model_and_batch(job, pipeline, 'float32')
        with precisions.scope('float32'):
            wanted = _plain_step(pipeline, plain, batch)
        result['agreement'] = agreement.losses(losses, wanted, precision)
    return result


def _model_and_batch(job: measure.Job, pipeline, precision: str) -> tuple:
    import tensorflow as tf

    from object_detection.training.monitoring import model_summary

    detector = work.build_detector(pipeline, precision, is_training=True)
    side = (job.size, job.size) if job.size else model_summary.resized_image_size(detector)
    made = training_step.arrays(pipeline, detector, job.batch_size, side)
    return detector, {name: tf.constant(array) for name, array in made.items()}


def _plain_step(pipeline, detector, batch) -> dict:
    """The losses and the norm of the gradients of the first step, eagerly."""
    import tensorflow as tf

    from object_detection.optimizers.gradients import TOTAL_LOSS
    from object_detection.training.step import GRADIENT_NORM, sampling_seeds

    step = training_step.build_step(pipeline, detector, batch)
    seeds = sampling_seeds(
        training_step.SEED, tf.constant(0, tf.int64), tf.constant(len(batch['image']))
    )
    with tf.GradientTape() as tape:
        losses = step.losses(batch, seeds)
    gradients = tape.gradient(
        losses[TOTAL_LOSS],
        list(step.optimizer.variables.values()),
        unconnected_gradients=tf.UnconnectedGradients.ZERO,
    )
    return {name: value.numpy() for name, value in losses.items()} | {
        GRADIENT_NORM: tf.linalg.global_norm(gradients).numpy()
    }


if __name__ == '__main__':
    measure.command('training step', measure_training, ('padded', 'real'))()
