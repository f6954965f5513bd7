"""Measures inference, from resized images to detections and their masks, of a config by name.

    python benchmarks/inference.py
    python benchmarks/inference.py --config NAME --batch_size 2 --precision float32 \
        --precision bfloat16
    python benchmarks/inference.py --config ssd_resnet50_v1_fpn_640x640_coco17_tpu-8 --roof

"time" is the median; "first" the time from the start of the process to the first result, imports
apart; "own MB" the peak memory without what the process held after imports; "share" that of the
rate of matrix products in the same precision, measured between the runs.

With --export, what is measured is the export of the model as a SavedModel, resizing included;
"first" is the time from the start of its loading to its first result, and "export / model" its time
as a share of that of the model in process, which does the same work; both take turns.

With --roof, "of roof" is the share of the time that the model's convolutions alone take, "of 3x3"
its rate as a share of the rate of its convolutions of 3 x 3 alone, and "post-processing" the share
of the time that is saved without it; all take turns.
"""

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from typing import Any

_START = time.perf_counter()

import agreement  # noqa: E402
import measure  # noqa: E402

from object_detection.benchmarking import convolutions, node_times, rows, work  # noqa: E402

_OUTPUTS = (
    'detection_boxes',
    'detection_classes',
    'detection_scores',
    'detection_masks',
    'detection_keypoints',
    'detection_keypoint_scores',
    'num_detections',
)
# Exported beside them by detectors that propose no regions: made from every anchor.
_DENSE_OUTPUTS = (
    'detection_multiclass_scores',
    'raw_detection_boxes',
    'raw_detection_scores',
)
# What the layers give, before anything is chosen by it.
_RAW = (
    'rpn_box_encodings',
    'rpn_objectness_predictions_with_background',
    'refined_box_encodings',
    'class_predictions_with_background',
    'box_encodings',
)

_PROPOSALS = ('proposal_boxes', 'proposal_scores', 'num_proposals')


def measure_inference(job: measure.Job) -> dict:
    os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
    before = time.perf_counter()
    import tensorflow as tf

    from object_detection.config.reader import read_pipeline
    from object_detection.models import precision as precisions
    from object_detection.training.monitoring import model_summary

    imports, imports_memory = time.perf_counter() - before, rows.peak_memory()
    precision = precisions.canonical(job.precision)
    pipeline = read_pipeline(measure.find_config(job.config), settings=job.all_settings)
    detector = work.build_detector(pipeline, precision, is_training=False, weights=job.weights)
    side = (job.size, job.size) if job.size else model_summary.resized_image_size(detector)
    images = tf.constant(work.images(job.batch_size, side))
    shapes = tf.constant([[*side, 3]] * job.batch_size)

    @tf.function(autograph=False, jit_compile=job.jit_compile or None)
    def detect(images: tf.Tensor) -> dict[str, tf.Tensor]:
        return _detect(detector, images, shapes)

    def run() -> dict:
        found = detect(images)
        wanted = (*_OUTPUTS, *_DENSE_OUTPUTS, 'num_proposals')
        return {name: found[name].numpy() for name in wanted if name in found}

    with precisions.scope(precision):
        start, rivals = _START + imports, {}
        if job.export:
            exported, rivals['in_process'] = _export(detector, precision, images)
            run, start = exported, time.perf_counter()
        timed = run()
        first = time.perf_counter() - start
        for _ in range(job.warmup):
            run()
        seconds, rate = rows.run(run, job.steps, precision)
        graph = detect.get_concrete_function(images).graph
        counted = model_summary.count(graph)
        result = measure.result(
            job=job,
            image_size=side,
            imports=imports,
            imports_memory=imports_memory,
            first=first,
            seconds=seconds,
            matmul_rate=rate,
            flops=counted,
        )
        if job.roof:
            rivals['prediction'] = _prediction(detector, images, shapes)
            loops, gigaflop = _convolutions(graph)
            rivals |= loops
            result |= gigaflop
        if rivals:
            result |= _in_turns(run, rivals, job.steps)
            result |= _shares(result)
        if job.profile:
            result['parts'] = node_times.parts(run, counted.by_operation)
    result['counts'] = _counts(timed)
    if job.compare:
        result |= _agreement(job, pipeline, precision, timed, detect(images), (images, shapes))
    return result


def _prediction(detector: Any, images: Any, shapes: Any) -> Callable[[], list]:
    """Returns a function that runs the detector without its post-processing."""
    import tensorflow as tf

    predict = tf.function(lambda images: _predict(detector, images, shapes), autograph=False)
    return lambda: [value.numpy() for value in predict(images).values()]


def _convolutions(graph: Any) -> tuple[dict[str, Callable], dict[str, float]]:
    """Returns loops over the convolutions of a graph, and the work of those of 3 x 3."""
    rows = convolutions.collect(graph)
    loops = {'convolutions': convolutions.loop(rows)}
    rows = [row for row in rows if row.is_3x3]
    if not rows:
        return loops, {}
    loops['convolutions_3x3'] = convolutions.loop(rows)
    return loops, {'gigaflop_3x3': sum(row.flops for row in rows) / 1e9}


def _agreement(
    job: measure.Job, pipeline: Any, precision: str, timed: dict, raw: dict, inputs: tuple
) -> dict:
    """Compares what was timed with the plain execution of a model with the same weights.

    Args:
      job: what was asked.
      pipeline: the config of the model.
      precision: what the timed model computed in; the plain one computes in float32, and if this is
        another precision once more in it, for the noise of rounding.
      timed: detections of the timed model.
      raw: outputs of its layers, and its proposals.
      inputs: images and their shapes.
    """
    from object_detection.meta_architectures.faster_rcnn.proposals import Proposals
    from object_detection.models import precision as precisions

    def plainly(precision: str) -> tuple[dict, dict]:
        plain = work.build_detector(pipeline, precision, is_training=False, weights=job.weights)
        with precisions.scope(precision):
            found = _detect(plain, *inputs)
            if _has_regions(plain):
                # Its own proposals would be others, and so would be all that follows.
                plain.rpn.propose = lambda *_: Proposals(*(raw[name] for name in _PROPOSALS))
            return _arrays(found), _arrays(_predict(plain, *inputs))

    found, predictions = plainly('float32')
    rounded = (None, None) if precision == 'float32' else plainly(precision)
    wanted = {name: each for name, each in predictions.items() if name not in _PROPOSALS}
    return {
        'agreement': agreement.detections(timed, found, precision, rounded[0]),
        'raw_agreement': agreement.arrays(_arrays(raw), wanted, precision, rounded[1]),
    }


def _arrays(values: dict) -> dict:
    return {name: tensor.numpy() for name, tensor in values.items()}


def _has_regions(detector) -> bool:
    return hasattr(detector, 'rpn')


def _predict(detector, images, shapes) -> dict:
    return _raw(detector.predict(detector.normalize(images), shapes))


def _raw(predictions) -> dict:
    """Returns proposals and what the layers give.

    Of a CenterNet these are the maps of the last stack; of a detection transformer, what the last
    layer of the decoder predicts.
    """
    if isinstance(predictions, Mapping):
        maps = {name: each[-1] for name, each in predictions.items() if isinstance(each, list)}
        maps.pop('extracted_features')
        return maps
    if not hasattr(predictions, 'to_dict'):
        last = predictions.layers[-1]
        return {'class_logits': last.class_logits, 'boxes': last.boxes}
    named = predictions.to_dict()
    return {name: named[name] for name in (*_PROPOSALS, *_RAW) if name in named}


def _detect(detector, images, shapes) -> dict:
    predictions = detector.predict(detector.normalize(images), shapes)
    found = detector.postprocess(predictions, shapes)
    wanted = _OUTPUTS if _has_regions(detector) else (*_OUTPUTS, *_DENSE_OUTPUTS)
    return {name: found[name] for name in wanted if name in found} | _raw(predictions)


def _export(
    detector: Any, precision: str, images: Any
) -> tuple[Callable[[], dict], Callable[[], dict]]:
    """Exports the detector.

    Returns:
      A function that runs the export on the images, and loads it the first time; and one that runs
      the detector in this process, with the same inputs and outputs.
    """
    from object_detection.export import saved_model
    from object_detection.runtime import input_types
    from object_detection.runtime.in_process import ProcessRuntime
    from object_detection.runtime.saved_detector import SavedModelRuntime

    folder = tempfile.TemporaryDirectory()
    saved_model.export(
        detector,
        folder.name,
        input_type=input_types.FLOAT_IMAGE_TENSOR,
        save_checkpoint=lambda path: os.mkdir(path),
        pipeline_text='',
        precision=precision,
    )
    loaded = []

    def arrays(found: Mapping[str, Any]) -> dict:
        # As in the model, the first class has the id 0.
        wanted = {name: found[name].numpy() for name in _OUTPUTS if name in found}
        return wanted | {'detection_classes': wanted['detection_classes'] - 1}

    def run_export() -> dict:
        if not loaded:
            loaded.append(SavedModelRuntime(folder.name))
            folder.cleanup()
        return arrays(loaded[0].run_batch(images))

    in_process = ProcessRuntime(detector)
    return run_export, lambda: arrays(in_process.run_batch(images))


def _in_turns(run: Callable, rivals: Mapping[str, Callable], steps: int) -> dict:
    """Times what is measured and its rivals by turns.

    Returns:
      The median seconds of each by its name, and those of each run as `turns`.
    """
    functions = {'whole': run, **rivals}
    rows.turns(functions, 2)
    seconds = rows.turns(functions, steps)
    return {'turns': seconds} | {name: statistics.median(all_) for name, all_ in seconds.items()}


def _shares(result: Mapping) -> dict[str, float]:
    """Compares the rounds of `_in_turns`; shares are medians over them."""
    turns = result['turns']

    def median(name: str, compare: Callable[[float, float], float]) -> float:
        return statistics.median(map(compare, turns['whole'], turns[name]))

    shares = {}
    if 'in_process' in turns:
        shares['export_by_model'] = median('in_process', lambda whole, model: whole / model)
    if 'convolutions' in turns:
        shares['share_of_roof'] = median('convolutions', lambda whole, roof: roof / whole)
        # Of the model in process: an export cannot be run without its post-processing.
        compared = turns.get('in_process', turns['whole'])
        shares['share_of_postprocessing'] = statistics.median(
            1 - part / whole for whole, part in zip(compared, turns['prediction'], strict=True)
        )
    if 'convolutions_3x3' in turns:
        work = result['gigaflop'] / result['gigaflop_3x3']
        shares['share_of_3x3'] = median('convolutions_3x3', lambda whole, roof: work * roof / whole)
    return shares


def _counts(detections: dict) -> dict[str, float]:
    """What an image had of each on average."""
    counts = {'detections': detections['num_detections'].mean()}
    if 'num_proposals' in detections:
        counts = {'proposals': detections['num_proposals'].mean(), **counts}
    if 'detection_masks' in detections:
        counts['masks'] = counts['detections']
    return {name: float(count) for name, count in counts.items()}


if __name__ == '__main__':
    measure.command('inference', measure_inference)()
