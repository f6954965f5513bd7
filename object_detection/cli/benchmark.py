"""`tfod benchmark`: the speed of a model on this machine."""

import dataclasses
import itertools
import pathlib
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import click

from object_detection.benchmarking import jobs, report, work
from object_detection.benchmarking.jobs import BenchmarkJob
from object_detection.cli.common import option_flags
from object_detection.cli.predict import find_images
from object_detection.config.job_options import PRECISIONS
from object_detection.config.reader import read_pipeline
from object_detection.errors import UserError
from object_detection.export.formats import formats
from object_detection.system import cpu
from object_detection.validation.validate import validate

_SAMPLES = pathlib.Path(__file__).resolve().parents[1] / 'samples' / 'configs'
_MAX_BATCH_SIZE, _MAX_STEPS, _MAX_SIDE = 65536, 100_000, 16384


@click.command(name='benchmark', context_settings={'show_default': True})
@click.argument('source', metavar='CONFIG|MODEL')
@click.option('--mode', type=click.Choice([jobs.INFERENCE, jobs.TRAINING]), default=jobs.INFERENCE)
@click.option(
    '--batch_size',
    'batch_sizes',
    type=click.IntRange(1, _MAX_BATCH_SIZE),
    multiple=True,
    default=[1],
    help='Images of a call, on all devices together; repeatable.',
)
@click.option(
    '--precision',
    'precisions',
    type=click.Choice(PRECISIONS),
    multiple=True,
    help='What it computes in; repeatable. That of the config or model if not given.',
)
@click.option(
    '--images',
    multiple=True,
    help='Image, folder or quoted pattern; repeatable. Random images if not given.',
)
@click.option('--synthetic', is_flag=True, help='Random images. A CONFIG has random weights, too.')
@click.option(
    '--image_size',
    type=(click.IntRange(1, _MAX_SIDE), click.IntRange(1, _MAX_SIDE)),
    metavar='HEIGHT WIDTH',
    help='Of the images; of random ones what the resizer makes of a square photo if not given.',
)
@click.option('--steps', type=click.IntRange(1, _MAX_STEPS), default=10, help='Timed calls.')
@click.option(
    '--warmup',
    type=click.IntRange(0, _MAX_STEPS),
    default=2,
    help='Calls between the first one and these.',
)
@click.option(
    '--threads',
    type=click.IntRange(0),
    default=0,
    help='CPU cores to run on; 0: all that the command may use.',
)
@click.option('--device', help="Devices to use: 'cpu', 'gpu', or some as in 'gpu:0,1'.")
@click.option(
    '--strategy',
    type=click.Choice(['one_device', 'mirrored']),
    help='mirrored: all devices share each batch. Default: one_device; of a training, mirrored if '
    'there are several GPUs.',
)
@option_flags.set_option('Change one field of a CONFIG; repeatable, applied in order.')
@click.option('--json', 'json_path', metavar='FILE', help='File to write the results to.')
@click.option(
    '--output', metavar='FOLDER', help='Folder for benchmark.html and the picture benchmark.png.'
)
def command(source: str, batch_sizes: tuple[int, ...], **options: Any) -> None:
    """Measures latency, throughput and memory by batch size and precision.

    CONFIG is a pipeline config, or the name of a sample; its model gets random weights, so that no
    checkpoint is needed, and is measured as `tfod export` would export it. MODEL is what
    `tfod predict --model` takes: an export of any format, a SavedModel or a model_dir.

    Each precision and batch size is measured in a process of its own. Beside the times there are
    roofs: the rate of products of large matrices in the same precision, and the time of the model's
    convolutions alone; and the share of each part of the model.
    """
    json_path, output = options.pop('json_path'), options.pop('output')
    path, is_config = _find(source)
    _check(path, is_config, options)
    images = find_images(options.pop('images'), readable=True, flag='--images')
    is_synthetic = options.pop('synthetic')
    _check_is_writable(pathlib.Path(json_path).parent if json_path else None, '--json')
    _check_is_writable(pathlib.Path(output) if output else None, '--output')
    if json_path and pathlib.Path(json_path).is_dir():
        raise UserError(f'--json: expected a file. Received the folder {json_path}.')
    if not images and not is_synthetic and not is_config:
        click.echo('no --images: random images are used.', err=True)
    document = {
        'source': source,
        'mode': options['mode'],
        'machine': work.describe(),
        'weights': 'random' if is_config else 'those of the model',
        'images': f'{len(images)} photos' if images else 'random',
        'threads': options['threads'],
        'settings': list(options['settings']),
        'rows': [],
    }
    made = {'source': path, 'is_config': is_config, 'images': tuple(map(str, images))}
    precisions = options.pop('precisions') or (None,)
    for row in _measure(made, precisions, batch_sizes, options):
        document['rows'].append(row)
        # After each measurement: the next one may take long.
        if json_path:
            report.write_json(document, json_path)
    for line in report.lines(document):
        click.echo(line)
    if output:
        report.write_page(document, output)
        click.echo(f'{pathlib.Path(output) / report.PAGE}')
    if any('error' in row for row in document['rows']):
        raise SystemExit(1)


def _find(source: str) -> tuple[str, bool]:
    """Returns the path of the source, and whether it is a config."""
    path = pathlib.Path(source)
    if path.is_dir():
        return source, False
    if path.is_file():
        return source, formats.find(path) is None
    sample = _SAMPLES / f'{source}.config'
    if sample.is_file():
        return str(sample), True
    if list(path.parent.glob(f'{path.name}.index')):
        return source, False  # The prefix of a checkpoint.
    known = ', '.join(sorted(each.stem for each in _SAMPLES.glob('*.config')))
    raise UserError(
        f'CONFIG|MODEL: expected a config, a model or the name of a sample ({known}). '
        f'Received: {source}, and there is no such file or folder.'
    )


def _check_is_writable(folder: pathlib.Path | None, flag: str) -> None:
    """Creates the folder and a file in it, so that no measurement is lost at the end."""
    if folder is None:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UserError(f'{flag}: cannot write to {folder}: {error.strerror}.') from error


def _check(path: str, is_config: bool, options: dict[str, Any]) -> None:
    """Checks the options against each other, before TensorFlow is loaded."""
    if is_config:
        validate(read_pipeline(path, settings=options['settings']), for_what='export')
    elif options['settings']:
        raise click.UsageError(f'--set: expected a CONFIG with it. Received: the model {path}.')
    if options['mode'] == jobs.TRAINING:
        if not is_config:
            raise click.UsageError(
                f'--mode training: expected a CONFIG. Received: the model {path}; '
                'the config of a training is resolved_pipeline.config in its model_dir.'
            )
        if options['images']:
            raise click.UsageError('--images: not with --mode training, whose batches are random.')
    if options['images'] and options['synthetic']:
        raise click.UsageError('--synthetic: not with --images.')
    cores = int(cpu.num_cores())
    if options['threads'] > cores:
        raise click.UsageError(
            f'--threads: expected at most {cores} (cores). Received: {options["threads"]}.'
        )


def _measure(
    made: dict[str, Any],
    precisions: tuple[str | None, ...],
    batch_sizes: tuple[int, ...],
    options: dict[str, Any],
) -> Iterator[dict[str, Any]]:
    """Measures every precision with every batch size; a failure is a row with its `error`."""
    mode = options.pop('mode')
    job = BenchmarkJob(task=mode, **made, **options)
    exports = job.is_config and mode == jobs.INFERENCE and job.strategy != 'mirrored'
    if mode == jobs.INFERENCE and job.strategy is None:
        job = dataclasses.replace(job, strategy='one_device')
    count = itertools.count(1)
    total = len(precisions) * len(batch_sizes)
    for precision in precisions:
        shown = precision or f'precision of the {"config" if job.is_config else "model"}'
        with tempfile.TemporaryDirectory(prefix='tfod-benchmark-') as folder:
            own = dataclasses.replace(job, precision=precision)
            error = ''
            if exports:
                own, error = _tried(lambda own=own, folder=folder: _exported(own, folder), own)
            for batch_size in batch_sizes:
                click.echo(f'{next(count)} of {total}: {shown}, batch size {batch_size}', err=True)
                failed = {'precision': shown, 'batch_size': batch_size}
                each = dataclasses.replace(own, batch_size=batch_size)
                row, problem = failed, error
                if not error:
                    row, problem = _tried(lambda each=each: jobs.run_alone(each), failed)
                yield row | ({'error': problem} if problem else {})


def _tried(run: Callable[[], Any], otherwise: Any) -> tuple[Any, str]:
    """Returns the result and '', or `otherwise` and the error: others are measured all the same."""
    try:
        return run(), ''
    except UserError as error:
        return otherwise, str(error)
    except RuntimeError as error:  # The traceback of the process.
        click.echo(str(error), err=True)
        return otherwise, (str(error).strip().splitlines() or ['it failed'])[-1]


def _exported(job: BenchmarkJob, folder: str) -> BenchmarkJob:
    """Exports the config of a job with random weights; returns the job that measures the export."""
    output = str(pathlib.Path(folder) / 'export')
    found = jobs.run_alone(dataclasses.replace(job, task=jobs.EXPORT, output=output))
    return dataclasses.replace(
        job,
        source=output,
        is_config=False,
        settings=(),
        precision=None,
        image_size=job.image_size or tuple(found['image_size']),
    )
