"""Measures inference, from resized images to detections, of a config by name.

    python benchmarks/inference.py
    python benchmarks/inference.py --config NAME --batch_size 2 --precision float32 \
        --precision bfloat16

"first" is the time from the start of the process to the first result, imports apart; "share" that
of the rate of matrix products in the same precision, measured between the runs.
"""

import os
import time

_START = time.perf_counter()

import measure  # noqa: E402


def measure_inference(
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

    from object_detection.builders import model_builder
    from object_detection.config.reader import read_pipeline
    from object_detection.training import flops, model_summary
    from object_detection.training import precision as precisions

    imports = time.perf_counter() - before
    pipeline = read_pipeline(measure.find_config(config), settings=settings)
    with precisions.scope(precision):
        detector = model_builder.build(pipeline.model, is_training=False)
        detector.build_variables()
    side = (size, size) if size else model_summary.resized_image_size(detector)
    images = tf.random.uniform([batch_size, *side, 3], maxval=255.0)
    shapes = tf.constant([[*side, 3]] * batch_size)

    @tf.function(autograph=False)
    def detect(images: tf.Tensor) -> dict[str, tf.Tensor]:
        return detector.postprocess(detector.predict(detector.normalize(images), shapes), shapes)

    def run() -> None:
        detect(images)['detection_boxes'].numpy()

    run()
    first = time.perf_counter() - _START - imports
    run()
    seconds, rate = measure.run(run, steps, precision)
    counted = flops.count(detect.get_concrete_function(images).graph)
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


if __name__ == '__main__':
    measure.command('inference', measure_inference)()
