"""The table of export formats: what each model becomes, how fast, how large and how exact.

    python benchmarks/formats.py --config FILE --images PHOTOS
    python benchmarks/formats.py --config FILE --checkpoint_dir DIR --format onnx --images PHOTOS
    python benchmarks/formats.py --config FILE --images PHOTOS --folder FOLDER --only exports
    python benchmarks/formats.py --config FILE --images PHOTOS --folder FOLDER --only times

Exports each config as `tfod export --format --verify` does, and times what `tfod predict --model`
runs, in turns with the SavedModel, on one image of the model's own size. Every format has a process
of its own with a limit on its memory, so that one that crashes or takes too much is a row as well.
Without --checkpoint_dir the weights are random; single-shot models then have spread scores.
"""

import dataclasses
import json
import pathlib
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

import click
import numpy as np

from object_detection.benchmarking import rows, work
from object_detection.cli.predict import find_images
from object_detection.config.reader import read_pipeline
from object_detection.errors import UserError
from object_detection.export.formats import formats
from object_detection.system import tensorflow_setup

# With a colon the --quantization.
_NAMES = ('tflite', 'tflite:int8', 'onnx', 'openvino', 'stablehlo')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """What one process measures.

    Attributes:
      name: one of `_NAMES`, or 'saved_model', which the others are compared with and need first.
      config, settings: the model.
      checkpoint: folder of its weights; random ones are written to it if it is absent.
      output: folder of the exports.
      photos: image files to compare on.
      calibration: image files to calibrate with.
      steps: number of timed runs.
      task: 'exports', or 'times' of the files that such a run left.
      memory_gb: most address space of the process.
    """

    name: str
    config: str
    settings: tuple[str, ...]
    checkpoint: str
    output: str
    photos: tuple[str, ...]
    calibration: tuple[str, ...]
    steps: int
    task: str
    memory_gb: float

    @property
    def folder(self) -> pathlib.Path:
        """The folder of the file: two of one format would have the same name."""
        return pathlib.Path(self.output) / self.name.partition(':')[2]


@click.command(help=__doc__)
@click.option('--config', 'configs', multiple=True, required=True)
@click.option('--checkpoint_dir', default='', help='Trained weights of the config.')
@click.option('--format', 'names', multiple=True, default=_NAMES, type=click.Choice(_NAMES))
@click.option('--images', required=True, help='Photos to compare on, and to calibrate with.')
@click.option('--limit', default=3, show_default=True, help='Most photos of the comparison.')
@click.option('--calibration_limit', default=100, show_default=True, help='Most of the others.')
@click.option('--steps', default=7, show_default=True, help='Timed runs of each.')
@click.option(
    '--only',
    type=click.Choice(['exports', 'times']),
    help='Write and compare files in --folder, or time those there, when nothing else runs.',
)
@click.option('--set', 'settings', multiple=True, help='FIELD.PATH=VALUE in the configs.')
@click.option('--memory_gb', default=16.0, show_default=True, help='Most memory of a process.')
@click.option('--folder', default='', help='For the exports; a SavedModel there is used again.')
def main(
    configs: tuple[str, ...],
    checkpoint_dir: str,
    names: tuple[str, ...],
    images: str,
    limit: int,
    only: str | None,
    calibration_limit: int,
    folder: str,
    **options: Any,
) -> None:
    photos = [str(path) for path in find_images((images,), readable=True)]
    click.echo(json.dumps(work.describe()))
    for config in configs:
        with tempfile.TemporaryDirectory() as scratch:
            own = pathlib.Path(folder or scratch) / pathlib.Path(config).stem
            for name in ('saved_model', *names):
                if name == 'saved_model' and (own / name).is_dir():
                    continue
                job = Job(
                    name=name,
                    config=config,
                    checkpoint=checkpoint_dir or str(own / 'model'),
                    output=str(own),
                    photos=tuple(photos[:limit]),
                    calibration=tuple(photos[:calibration_limit]),
                    task='exports',
                    **options,
                )
                found = {'model': own.name, 'format': name} | _measure(job, only)
                click.echo(json.dumps(found))


def _measure(job: Job, only: str | None) -> dict[str, Any]:
    found = {} if only == 'times' else _run_alone(job)
    if only == 'exports' or 'refused' in found or 'crashed' in found:
        return found
    return found | _run_alone(dataclasses.replace(job, task='times'))


def _run_alone(job: Job) -> dict[str, Any]:
    """Measures in a process of its own; a crash is a result."""
    command = [sys.executable, __file__, 'row', json.dumps(dataclasses.asdict(job))]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode < 0:
        return {'crashed': signal.Signals(-done.returncode).name}
    if done.returncode:
        return {'crashed': (done.stderr.strip().splitlines() or ['no message'])[-1]}
    return json.loads(done.stdout.splitlines()[-1])


def measure(job: Job) -> dict[str, Any]:
    """Exports and compares one format, or times it; a refusal is a result."""
    most = int(job.memory_gb * 1e9)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    pipeline = read_pipeline(job.config, settings=job.settings)
    if job.task == 'times':
        # As `tfod predict` does.
        tensorflow_setup.keep_freed_memory()
        tensorflow_setup.assume_constant_weights()
        found = _time(pipeline, job)
    else:
        try:
            found = _write(pipeline, job)
        except UserError as error:
            return {'refused': str(error)}
    return found | {'peak_mb': round(rows.peak_memory())}


def _write(pipeline: Any, job: Job) -> dict[str, Any]:
    from object_detection.export import exporter
    from object_detection.export.formats.source import FormatOptions
    from object_detection.weights import checkpoints

    if not pathlib.Path(job.checkpoint).is_dir():
        detector = work.build_with_spread_scores(pipeline, 'float32')
        _spread_regions(detector)
        checkpoints.save_model(job.checkpoint, detector.named_variables(), 1)
    start = time.perf_counter()
    if job.name == 'saved_model':
        compared = exporter.export(
            pipeline, job.checkpoint, job.output, precision='float32', images=job.photos
        ).comparison
        files = (pathlib.Path(job.output) / job.name).rglob('*')
        size = sum(each.stat().st_size for each in files if each.is_file()) / 1e6
    else:
        name, _, quantization = job.name.partition(':')
        options = FormatOptions(
            quantization=quantization or formats.FLOAT32,
            calibration=tuple(map(pathlib.Path, job.calibration)) if quantization else (),
        )
        (written,) = exporter.export_files(
            pipeline,
            job.checkpoint,
            str(job.folder),
            [name],
            options=options,
            precision='float32',
            # A quantized model of random weights need not resemble itself: no failure.
            images=() if quantization else job.photos,
        )
        compared, size = (
            written.comparison or _resemblance(pipeline, job, written.path),
            written.megabytes,
        )
    seconds = time.perf_counter() - start
    return {'export_seconds': round(seconds, 1), 'mb': round(size, 1)} | compared._asdict()


def _spread_regions(detector: Any) -> None:
    """Makes logits of proposals and regions vary by 1.5, as single-shot detectors' do here.

    With random weights scores are almost equal, so that a rounding changes which are the best.
    """
    from object_detection.training.monitoring import model_summary

    if not hasattr(detector, 'rpn'):
        return
    side = model_summary.resized_image_size(detector)
    images, shapes = detector.preprocess(work.images(1, side))
    found = detector.predict(images, shapes, training=False).to_dict()
    for layer, output in (
        ('rpn/objectness_', 'rpn_objectness_predictions_with_background'),
        ('box_head/classes', 'class_predictions_with_background'),
    ):
        spread = float(np.std(found[output] - np.mean(found[output], axis=-2)))
        for name, variable in detector.named_variables().items():
            if name.startswith(layer) and name.endswith('kernel'):
                variable.assign(variable * 1.5 / spread)


def _resemblance(pipeline: Any, job: Job, path: pathlib.Path) -> Any:
    from object_detection.export import exporter, verification
    from object_detection.runtime.images import read_image

    detect = verification.in_process(exporter.load_detector(pipeline, job.checkpoint, 'float32'))
    images = [read_image(each)[0] for each in job.photos]
    expected = [(each, detect(each[np.newaxis])) for each in images]
    return verification.resemble(formats.load(path), expected)


def _time(pipeline: Any, job: Job) -> dict[str, Any]:
    import tensorflow as tf

    from object_detection.builders import model_builder
    from object_detection.runtime.saved_detector import SavedModelRuntime
    from object_detection.training.monitoring import model_summary

    side = model_summary.resized_image_size(model_builder.build(pipeline.model, is_training=False))
    image = tf.constant(work.images(1, side).astype(np.uint8))
    detectors = {'saved_model': SavedModelRuntime(job.output)}
    if job.name != 'saved_model':
        row = formats.EXPORT_FORMATS[job.name.partition(':')[0]]
        detectors[job.name] = formats.load(job.folder / row.file_name)
    functions = {
        name: (lambda detector=each: {k: v.numpy() for k, v in detector.run_batch(image).items()})
        for name, each in detectors.items()
    }
    rows.turns(functions, 2)
    seconds = rows.turns(functions, job.steps)
    own, saved = seconds[job.name], seconds['saved_model']
    return {
        'image_size': side,
        'seconds': statistics.median(own),
        'saved_model_seconds': statistics.median(saved),
        'by_saved_model': statistics.median(a / b for a, b in zip(own, saved, strict=True)),
    }


if __name__ == '__main__':
    if sys.argv[1:2] == ['row']:
        print(json.dumps(measure(Job(**json.loads(sys.argv[2])))))
    else:
        main()
