"""Measures the training step of a config by name: forward, backward and update.

    python benchmarks/training.py
    python benchmarks/training.py --config NAME --batch_size 2 --precision float32 \
        --precision bfloat16

"first" is the time from the start of the process to the first step's losses, imports apart;
"share" that of the rate of matrix products in the same precision, measured between the steps.
"""

import os
import time

_START = time.perf_counter()

import measure  # noqa: E402
import numpy as np  # noqa: E402

_OBJECTS = 8
_ROWS = 100


def measure_training(
    config: str,
    batch_size: int,
    size: int | None,
    steps: int,
    precision: str,
    settings: tuple[str, ...],
) -> dict:
    os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
    before = time.perf_counter()
    import tensorflow as tf

    from object_detection.builders import model_builder, optimizer_builder
    from object_detection.config.reader import read_pipeline
    from object_detection.training import flops, model_summary
    from object_detection.training import precision as precisions
    from object_detection.training.step import TOTAL_LOSS, TrainStep

    imports = time.perf_counter() - before
    pipeline = read_pipeline(measure.find_config(config), settings=settings)
    with precisions.scope(precision):
        detector = model_builder.build(pipeline.model, is_training=True)
        detector.build_variables()
    side = (size, size) if size else model_summary.resized_image_size(detector)
    mask_size = pipeline.model.faster_rcnn.groundtruth_mask_crop_size
    arrays = random_batch(
        batch_size, side, detector.num_classes, mask_size if detector.mask_stage else None
    )
    batch = {name: tf.constant(array) for name, array in arrays.items()}
    step = TrainStep(
        detector,
        optimizer_builder.build(pipeline.train_config.optimizer),
        element_spec={name: tf.TensorSpec(v.shape, v.dtype) for name, v in batch.items()},
        clip_norm=pipeline.train_config.gradient_clipping_by_norm,
    )

    def run() -> None:
        step(batch)[TOTAL_LOSS].numpy()

    run()
    first = time.perf_counter() - _START - imports
    run()
    seconds, rate = measure.run(run, steps, precision)
    traced = tf.function(lambda: step(batch), autograph=False).get_concrete_function()
    counted = flops.count(traced.graph)
    return measure.result(
        precision=precision,
        image_size=side,
        imports=imports,
        first=first,
        seconds=seconds,
        matmul_rate=rate,
        flops=counted.total,
        unknown=counted.unknown,
    )


def random_batch(
    batch_size: int, side: tuple[int, int], num_classes: int, mask_size: int | None
) -> dict[str, np.ndarray]:
    """Images of noise with a few objects; masks of `mask_size` (0: the images') if not None."""
    rng = np.random.default_rng(0)
    rows = (batch_size, _ROWS)
    weights = np.zeros(rows, np.float32)
    weights[:, :_OBJECTS] = 1
    corners = rng.uniform(0, 0.6, (*rows, 2))
    boxes = np.concatenate([corners, corners + rng.uniform(0.05, 0.4, (*rows, 2))], axis=-1)
    classes = np.eye(num_classes, dtype=np.float32)[rng.integers(0, num_classes, rows)]
    batch = {
        'image': rng.uniform(0, 255, (batch_size, *side, 3)).astype(np.float32),
        'true_image_shape': np.tile(np.array([*side, 3], np.int32), (batch_size, 1)),
        'source_id': np.array([f'{index}'.encode() for index in range(batch_size)], object),
        'groundtruth_boxes': (boxes * weights[..., None]).astype(np.float32),
        'groundtruth_classes': classes * weights[..., None],
        'groundtruth_weights': weights,
        'groundtruth_is_crowd': np.zeros(rows, bool),
        'groundtruth_area': np.zeros(rows, np.float32),
        'num_groundtruth_boxes': np.full(batch_size, _OBJECTS, np.int32),
    }
    if mask_size:
        shape = (*rows, mask_size, mask_size)
        batch['groundtruth_instance_mask_crops'] = np.full(shape, 255, np.uint8)
    elif mask_size is not None:
        batch['groundtruth_instance_masks'] = np.ones((*rows, *side), np.uint8)
    return batch


if __name__ == '__main__':
    measure.command('training step', measure_training)()
