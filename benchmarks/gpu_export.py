"""Writes the training step and inference of a config as portable StableHLO; see gpu.py.

`float32` and `tf32` differ in what products of float32 ask for: the highest precision, or the
default one, which XLA takes TF32 for on GPUs that have it.
"""

import argparse
import dataclasses
import os
import re
from collections.abc import Callable, Sequence
from typing import Any

import gpu_files
import measure
import numpy as np

from object_detection.benchmarking import work

_ALIAS = r'parameter_number = (\d+) : i64}, output_index = array<i64: (\d+)>'
_DETECTIONS = (
    'detection_boxes',
    'detection_classes',
    'detection_scores',
    'detection_masks',
    'num_detections',
)
_SEED = 0
# What an epoch is in schedules: the images of COCO with objects.
_EXAMPLES = 117_266


def export(options: argparse.Namespace) -> None:
    """Writes a file for each work, precision and batch size."""
    os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
    for kind in options.work:
        for precision in options.precision:
            for batch_size in options.batch_size:
                function = _function(kind, precision, batch_size, options)
                function.write(options.directory)
                print(
                    f'{function.name}: {len(function.arguments)} arguments, '
                    f'{function.gigaflop:.0f} GFLOP, {len(function.module) / 1e6:.1f} MB',
                    flush=True,
                )


def _function(
    kind: str, precision: str, batch_size: int, options: argparse.Namespace
) -> gpu_files.Function:
    import keras

    from object_detection.models import convolutions
    from object_detection.models import precision as precisions
    from object_detection.training.monitoring import model_summary

    # Graphs of earlier detectors would stay in memory.
    keras.backend.clear_session()
    pipeline = _pipeline(batch_size, options)
    detector = work.build_detector(pipeline, precision, is_training=kind == 'training')
    side = (options.size,) * 2 if options.size else model_summary.resized_image_size(detector)
    mask_size = None
    if detector.mask_stage is not None:
        mask_size = pipeline.model.faster_rcnn.groundtruth_mask_crop_size
    batch = work.batch(batch_size, side, detector.num_classes, mask_size)
    # Of this machine's CPU no gradients are to be in what a GPU runs.
    with precisions.scope(precision), convolutions.PlainGradients():
        if kind == 'training':
            # Texts are for the host.
            del batch['source_id']
            compute, variables = _training(pipeline, detector, batch)
        else:
            batch = {'image': batch['image']}
            compute, variables = _inference(detector, side), detector.named_variables()
        module, arguments, results, gigaflop = _lowered(compute, batch, variables)
        function = gpu_files.Function(
            work=kind,
            precision=precision,
            batch_size=batch_size,
            image_size=tuple(side),
            num_classes=detector.num_classes,
            mask_size=mask_size,
            is_peers_work=options.config == measure.DEFAULT_CONFIG and not options.set,
            gigaflop=gigaflop,
            arguments=arguments,
            results=results,
            expected=[],
            module=module,
        )
        if batch_size > options.expect:
            return function
        expected = _expected(function, compute, variables)
    return dataclasses.replace(function, expected=expected)


def _pipeline(batch_size: int, options: argparse.Namespace) -> Any:
    from object_detection.config.reader import read_pipeline

    is_default = options.config == measure.DEFAULT_CONFIG
    settings = [*measure.SETTINGS['torchvision' if is_default else 'config'], *options.set]
    pipeline = read_pipeline(measure.find_config(options.config), settings=settings)
    pipeline.train_config.batch_size = batch_size
    return pipeline


def _inference(detector: Any, side: Sequence[int]) -> Callable:
    import tensorflow as tf

    def detect(batch):
        images = batch['image']
        shapes = tf.constant([[*side, 3]] * images.shape[0])
        predictions = detector.predict(detector.normalize(images), shapes)
        found = detector.postprocess(predictions, shapes)
        return {name: found[name] for name in _DETECTIONS if name in found}

    return detect


def _training(pipeline: Any, detector: Any, batch: dict) -> tuple[Callable, dict]:
    """Returns the step, and all variables by name: weights, the optimizer's state, the count."""
    import tensorflow as tf

    from object_detection.builders import optimizer_builder
    from object_detection.optimizers.gradients import TOTAL_LOSS
    from object_detection.training import setup
    from object_detection.training.step import sampling_seeds

    config = pipeline.train_config
    if config.optimizer.learning_rate_unit == config.optimizer.EPOCHS:
        in_steps = optimizer_builder.in_steps(config.optimizer, _EXAMPLES / config.batch_size)
        config.optimizer.CopyFrom(in_steps)
    specs = {name: tf.TensorSpec(array.shape, array.dtype) for name, array in batch.items()}
    specs['source_id'] = tf.TensorSpec(len(batch['image']), tf.string)
    step = setup.build_step(config, detector, specs, _SEED)

    def train(batch):
        seeds = sampling_seeds(_SEED, step.step, tf.constant(batch['image'].shape[0]))
        with tf.GradientTape() as tape:
            losses = step.losses(batch, seeds)
        gradients = tape.gradient(
            losses[TOTAL_LOSS],
            step.optimizer.variables,
            unconnected_gradients=tf.UnconnectedGradients.ZERO,
        )
        step.optimizer.apply_gradients(gradients, step.step)
        step.step.assign_add(1)
        return losses

    variables = dict(detector.named_variables())
    for slot, kept in step.optimizer.state().items():
        variables |= {f'{slot}/{name}': variable for name, variable in kept.items()}
    return train, variables | {'step': step.step}


def _lowered(
    compute: Callable, batch: dict[str, np.ndarray], variables: dict[str, Any]
) -> tuple[bytes, list[gpu_files.Argument], list[gpu_files.Result], float]:
    """Compiles `compute` to StableHLO; also its arguments, results and GFLOP."""
    import tensorflow as tf

    from object_detection.export.formats import stablehlo
    from object_detection.training.monitoring import model_summary

    specs = {name: tf.TensorSpec(array.shape, array.dtype) for name, array in batch.items()}
    lowered = stablehlo.lower(compute, specs, lambda: variables)
    arguments = [
        # The order in which a dict is flattened.
        gpu_files.Argument(name, tuple(batch[name].shape), str(batch[name].dtype))
        for name in sorted(batch)
    ]
    for name in lowered.captured:
        values = variables[name].numpy()
        arguments.append(
            gpu_files.Argument(
                name, values.shape, str(values.dtype), float(values.mean()), float(values.std())
            )
        )
    gigaflop = model_summary.count(lowered.traced.graph).total / 1e9
    return lowered.module, arguments, _results(lowered.traced, arguments, lowered.text), gigaflop


def _results(
    traced: Any, arguments: Sequence[gpu_files.Argument], text: str
) -> list[gpu_files.Result]:
    """What the module returns: what the function does, and then each variable it assigned.

    The module says which of its results replaces which argument.
    """
    outputs = traced.structured_outputs
    results = [
        gpu_files.Result(name, tuple(outputs[name].shape), outputs[name].dtype.name)
        # The order in which a dict is flattened.
        for name in sorted(outputs)
    ]
    for parameter, output in re.findall(_ALIAS, text):
        argument = arguments[int(parameter)]
        if int(output) != len(results):
            raise ValueError(f'Expected the variables last. Received {argument.name} as {output}.')
        results.append(
            gpu_files.Result(argument.name, argument.shape, argument.dtype, int(parameter))
        )
    return results


def _expected(
    function: gpu_files.Function, compute: Callable, variables: dict[str, Any]
) -> list[dict[str, Any]]:
    """What TensorFlow computes without XLA for the random arguments.

    Of the training step the second call too, which tells whether the first changed what it should.
    """
    import tensorflow as tf

    batch = {}
    values = gpu_files.random_arguments(function)
    for argument, value in zip(function.arguments, values, strict=True):
        if argument.mean is None:
            batch[argument.name] = tf.constant(value)
        else:
            variables[argument.name].assign(value)
    run = tf.function(compute, autograph=False)
    calls = 2 if function.work == 'training' else 1
    return [
        {name: np.asarray(value).tolist() for name, value in run(batch).items()}
        for _ in range(calls)
    ]
