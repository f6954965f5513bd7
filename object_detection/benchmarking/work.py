"""What speed benchmarks run (weights, images, ground truth), and the machine that they run on."""

import importlib.metadata
import os
import pathlib
import platform
import re
import sys
import tempfile
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from object_detection.benchmarking.jobs import BenchmarkJob
from object_detection.config.job_options import JobOptions
from object_detection.system import cpu

if TYPE_CHECKING:
    import tensorflow as tf


OBJECTS = 20
# Padded rows of ground truth, objects included.
_ROWS = 100


def build_detector(
    pipeline: Any, precision: str, *, is_training: bool, weights: str | None = None
) -> Any:
    """Builds the detector of a config; its random weights are the same in every process.

    Residual blocks end with a factor of 0.2, without which the values of a deep network of random
    weights are thousands and its scores all 0 or 1. No bias, mean or variance has the value with
    which it begins: the optimizer of a graph removes additions of zeros, which no trained network
    has.
    """
    import keras

    from object_detection.builders import model_builder
    from object_detection.meta_architectures import trainable_variables
    from object_detection.models import precision as precisions

    keras.utils.set_random_seed(0)
    with precisions.scope(precision):
        detector = model_builder.build(pipeline.model, is_training=is_training)
        detector.build_variables()
    trainable_variables.install_weight_decay(detector, pipeline.train_config)
    named = detector.named_variables()
    for variable in _last_of_blocks(named):
        variable.assign(variable * 0.2)
    _disturb(named)
    if weights is not None:
        variables = detector.named_variables()
        for name, values in np.load(weights).items():
            variables[name].assign(values)
    return detector


def build_with_spread_scores(pipeline: Any, precision: str) -> Any:
    """Builds a detector for inference; a single-shot one with weights of `write_weights`."""
    if not pipeline.model.HasField('ssd'):
        return build_detector(pipeline, precision, is_training=False)
    with tempfile.TemporaryDirectory() as folder:
        path = f'{folder}/weights.npz'
        write_weights(pipeline, path)
        return build_detector(pipeline, precision, is_training=False, weights=path)


def write_weights(pipeline: Any, path: str) -> None:
    """Writes weights with which a detector without regions gives values like a trained one's.

    With random weights the values of a deep network vanish, so that all scores are equal, and
    suppression has other work than it has in use. Here each batch norm has the statistics of an
    image, class logits vary by 1.5 about their bias, and box codes by 1.

    Args:
      pipeline: the config.
      path: of the file, .npz: name of a variable -> what differs from `build_detector`'s.
    """
    import keras
    import tensorflow as tf

    from object_detection.meta_architectures import side_inputs
    from object_detection.training.monitoring import model_summary

    detector = build_detector(pipeline, 'float32', is_training=True)
    for part in detector.parts().values():
        for layer in part._flatten_layers():
            if isinstance(layer, keras.layers.BatchNormalization):
                # The next update takes the image's statistics alone.
                layer.momentum = 0.0
    side = model_summary.resized_image_size(detector)
    pixels = detector.normalize(tf.constant(images(1, side)))
    seeds = tf.zeros([1, 2], tf.int32)
    given = side_inputs.zeros(detector)
    shapes = tf.constant([[*side, 3]])
    predictions = detector.predict(pixels, shapes, training=True, seeds=seeds, **given)
    spreads, changed = _spreads(predictions), {}
    # The modules of CenterNet draw seeds when they load, so that a second detector has others.
    keeps_all = isinstance(predictions, Mapping)
    for name, variable in detector.named_variables().items():
        layer = re.fullmatch(r'(.+)/(?:pointwise_)?kernel', name)
        if layer and layer[1] in spreads:
            changed[name] = variable.numpy() / spreads[layer[1]]
        elif 'moving_' in name or keeps_all:
            changed[name] = variable.numpy()
    np.savez(path, **changed)


def _spreads(predictions: Any) -> dict[str, float]:
    """Returns by how much the kernels of last layers are too large: name of the layer -> factor."""
    if not isinstance(predictions, Mapping):
        return {
            'box_predictor/classes': np.std(predictions.class_logits) / 1.5,
            'box_predictor/box_codes': np.std(predictions.box_codes),
        }
    # The maps of a CenterNet, one for each stack.
    return {
        f'heads/{name.replace("/", "--")}_{stack}_output': np.std(each)
        for name, maps in predictions.items()
        if isinstance(maps, list)
        for stack, each in enumerate(maps)
    }


def _disturb(variables: dict[str, Any]) -> None:
    """Adds small random values to biases and moving means, and scales moving variances by some."""
    rng = np.random.default_rng(0)
    for name in sorted(variables):
        variable = variables[name]
        values = rng.uniform(-0.05, 0.05, variable.shape).astype(np.float32)
        if name.endswith(('/bias', '/beta', '/moving_mean')):
            variable.assign_add(values)
        elif name.endswith('/moving_variance'):
            variable.assign(variable * (1.0 + values))


def _last_of_blocks(variables: dict[str, Any]) -> list[Any]:
    """The factors of the last norm of each residual block, '..._block1_3_bn/gamma'."""
    last = {}
    for name in sorted(variables):
        match = re.fullmatch(r'(.*_block\d+)_\d_bn/gamma', name)
        if match:
            last[match[1]] = variables[name]
    return list(last.values())


def images(batch_size: int, side: tuple[int, int]) -> np.ndarray:
    """Photos of noise in squares of many sizes: float32 [B, H, W, 3] in 0..255."""
    rng = np.random.default_rng(0)
    result = np.zeros((batch_size, *side, 3), np.float32)
    cells = [cell for cell in (4, 16, 64) if cell <= min(side)]
    for cell in cells:
        rows, columns = (-(-length // cell) for length in side)
        noise = rng.uniform(0, 255 / len(cells), (batch_size, rows, columns, 3))
        noise = noise.repeat(cell, axis=1).repeat(cell, axis=2)
        result += noise[:, : side[0], : side[1]].astype(np.float32)
    return result


def batch(
    batch_size: int, side: tuple[int, int], num_classes: int, mask_size: int | None
) -> dict[str, np.ndarray]:
    """A training batch with `OBJECTS` objects an image.

    Args:
      batch_size: B.
      side: (height, width) of the images.
      num_classes: K.
      mask_size: side of the mask crops; 0 makes masks of the images' size, None makes none.

    Returns:
      Keys of `InputFields`.
    """
    rng = np.random.default_rng(1)
    rows = (batch_size, _ROWS)
    weights = np.zeros(rows, np.float32)
    weights[:, :OBJECTS] = 1
    corners = rng.uniform(0, 0.6, (*rows, 2))
    boxes = np.concatenate([corners, corners + rng.uniform(0.05, 0.4, (*rows, 2))], axis=-1)
    classes = np.eye(num_classes, dtype=np.float32)[rng.integers(0, num_classes, rows)]
    arrays = {
        'image': images(batch_size, side),
        'true_image_shape': np.tile(np.array([*side, 3], np.int32), (batch_size, 1)),
        'source_id': np.array([f'{index}'.encode() for index in range(batch_size)], object),
        'groundtruth_boxes': (boxes * weights[..., None]).astype(np.float32),
        'groundtruth_classes': classes * weights[..., None],
        'groundtruth_weights': weights,
        'groundtruth_is_crowd': np.zeros(rows, bool),
        'groundtruth_area': np.zeros(rows, np.float32),
        'num_groundtruth_boxes': np.full(batch_size, OBJECTS, np.int32),
    }
    if mask_size:
        # Discs, so that targets are neither all 0 nor all 1.
        axis = np.linspace(-1, 1, mask_size) ** 2
        disc = np.uint8(255) * (axis[:, np.newaxis] + axis <= 1)
        arrays['groundtruth_instance_mask_crops'] = np.tile(disc, (*rows, 1, 1))
    elif mask_size is not None:
        arrays['groundtruth_instance_masks'] = np.ones((*rows, *side), np.uint8)
    return arrays


if __name__ == '__main__':
    # Not in the process that is measured, whose first result would come sooner after this.
    from object_detection.config.reader import read_pipeline

    write_weights(read_pipeline(sys.argv[1]), sys.argv[2])


# Instruction sets of CPUs that kernels of networks use, as Linux calls them.
_INSTRUCTIONS = ('avx2', 'avx512f', 'avx512_vnni', 'avx512_bf16', 'amx_bf16', 'amx_int8', 'asimd')
_PACKAGES = ('object-detection-toolkit', 'tensorflow', 'keras')


def describe() -> dict[str, Any]:
    """Returns the processor, its cores and instruction sets, load, memory and versions."""
    try:
        facts = pathlib.Path('/proc/cpuinfo').read_text()
    except OSError:
        facts = ''
    name = re.search(r'^(?:model name|Model)\s*:\s*(.+)$', facts, re.MULTILINE)
    flags = re.search(r'^(?:flags|Features)\s*:(.*)$', facts, re.MULTILINE)
    known = set(flags[1].split()) if flags else set()
    return {
        'cpu': name[1].strip() if name else platform.processor() or platform.machine(),
        'instructions': [each for each in _INSTRUCTIONS if each in known],
        'cores': cpu.num_cores(),
        # How many programs ran before the benchmark; None where the system does not say.
        'load': os.getloadavg()[0] if hasattr(os, 'getloadavg') else None,
        'memory_gb': cpu.total() / 1e9,
        'python': platform.python_version(),
        **{each: _version(each) for each in _PACKAGES},
    }


def set_up_devices(job: BenchmarkJob) -> 'tf.distribute.Strategy':
    """Makes the job's devices visible and builds its strategy, before TensorFlow computes anything.

    Raises:
      ConfigError: if a device does not exist.
    """
    import tensorflow as tf

    from object_detection.training.distribution import devices, strategies
    from object_detection.training.distribution.strategy_choice import Choice

    if job.logical_cpus > 1:
        (device,) = tf.config.list_physical_devices('CPU')
        parts = [tf.config.LogicalDeviceConfiguration()] * job.logical_cpus
        tf.config.set_logical_device_configuration(device, parts)
    choice = Choice(job.strategy)
    devices.set_up(JobOptions(device=job.device), choice=choice)
    return strategies.build(choice)


def device_names() -> list[str]:
    """Returns the names of the GPUs that TensorFlow uses; of the CPUs if there are none."""
    import tensorflow as tf

    gpus = tf.config.get_visible_devices('GPU')
    if not gpus:
        return [each.name for each in tf.config.list_logical_devices('CPU')]
    names = [tf.config.experimental.get_device_details(each).get('device_name') for each in gpus]
    return [
        f'{each.name.removeprefix("/physical_device:")} {name or ""}'.strip()
        for each, name in zip(gpus, names, strict=True)
    ]


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return 'not installed'
