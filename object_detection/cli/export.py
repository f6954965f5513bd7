"""`tfod export`: a SavedModel, or files of other formats, from a checkpoint."""

import pathlib
import shlex

import click

from object_detection.cli.common import option_flags, progress
from object_detection.cli.predict import find_images
from object_detection.config.job_options import PRECISIONS
from object_detection.export.formats.formats import (
    EXPORT_FORMATS,
    QUANTIZATIONS,
    SAVED_MODEL,
    TRITON_BACKENDS,
    parse_names,
)
from object_detection.runtime.input_types import IMAGE_AND_BOXES_TENSOR, INPUT_TYPES
from object_detection.system import console, tensorflow_setup

# Flags -> the option of formats that they set.
_READ_BY_FORMATS = {
    'batch_size': 'batch_size',
    'quantization': 'quantization',
    'calibration': 'calibration',
    'calibration_limit': 'calibration',
    'triton_backend': 'triton_backend',
}


@option_flags.json_option
@click.command(name='export')
@option_flags.config_option('Pipeline config that the checkpoint was trained with.')
@click.option(
    '--checkpoint_dir',
    required=True,
    metavar='PATH',
    help='Folder of checkpoints (the newest), or a prefix.',
)
@click.option(
    '--output',
    required=True,
    metavar='FOLDER',
    help='Folder to write; an earlier export is replaced.',
)
@click.option(
    '--format',
    'format_names',
    multiple=True,
    default=[SAVED_MODEL],
    show_default=True,
    metavar='NAMES',
    help=f'Any of {", ".join((SAVED_MODEL, *EXPORT_FORMATS))}; repeatable, or separated by commas.',
)
@click.option(
    '--input_type', type=click.Choice(INPUT_TYPES), default=INPUT_TYPES[0], show_default=True
)
@click.option(
    '--batch_size',
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help='Images a call, of formats that fix it (stablehlo), or the most of them (triton).',
)
@click.option(
    '--triton_backend',
    type=click.Choice(TRITON_BACKENDS),
    default=TRITON_BACKENDS[0],
    show_default=True,
    help='Model of a Triton repository.',
)
@click.option(
    '--quantization',
    type=click.Choice(QUANTIZATIONS),
    default=QUANTIZATIONS[0],
    show_default=True,
    help='Numbers of a TFLite file.',
)
@click.option(
    '--calibration',
    default='',
    metavar='IMAGES',
    help='Image, folder or quoted pattern, for --quantization int8: images like those of the use.',
)
@click.option(
    '--calibration_limit',
    type=click.IntRange(min=1),
    default=200,
    show_default=True,
    help='Most images to calibrate on.',
)
@click.option(
    '--precision',
    type=click.Choice(PRECISIONS),
    help='What it computes in; the config says it if not given.',
)
@click.option(
    '--constant_weights',
    is_flag=True,
    help='Weights as constants of the SavedModel: faster on CPUs with AMX, slower to start.',
)
@click.option('--label_map', default='', help="Class names; the config's label map if not given.")
@click.option('--config_override', default='', help='Text proto merged into the config.')
@option_flags.set_option()
@click.option('--verify', default='', help='Image or folder to compare export and model on.')
@click.option('--verify_limit', default=20, show_default=True, help='Most images to compare on.')
def command(
    config: str,
    checkpoint_dir: str,
    output: str,
    format_names: tuple[str, ...],
    input_type: str,
    batch_size: int,
    triton_backend: str,
    quantization: str,
    calibration: str,
    calibration_limit: int,
    precision: str | None,
    constant_weights: bool,
    label_map: str,
    config_override: str,
    settings: tuple[str, ...],
    verify: str,
    verify_limit: int,
) -> None:
    """Writes a model that runs without its checkpoint.

    The format saved_model, the default, is saved_model/, checkpoint/ and pipeline.config; the
    others are files in the same folder, each with its description NAME.json. Frozen batch norms are
    folded into the convolutions, and the class names of the label map are put into the model. The
    newest checkpoint of a folder is exported: --checkpoint_dir model takes the last one of a
    training, model/best the one that the training kept as its best. With --verify each export is
    loaded back and its detections are compared with those of the model in process; one that does
    not give them is not kept, and an earlier export stays.
    """
    names = parse_names(format_names)
    _check_saved_model_options(names, input_type, verify, constant_weights=constant_weights)
    _check_options(names)
    images = find_images((verify,), readable=True, flag='--verify')[:verify_limit] if verify else []
    samples = (
        _spread(find_images((calibration,), readable=True, flag='--calibration'), calibration_limit)
        if calibration
        else []
    )
    option_flags.check_checkpoint_dir(checkpoint_dir)
    from object_detection.config.reader import read_pipeline
    from object_detection.validation.validate import validate

    pipeline = read_pipeline(config, overrides_text=config_override, settings=settings)
    validate(pipeline, for_what='export')
    tensorflow_setup.import_tensorflow()
    from object_detection.export import exporter, saved_model
    from object_detection.export.formats.source import FormatOptions
    from object_detection.weights import checkpoints

    # Found only once: a running training may save another checkpoint before the comparison.
    checkpoint = checkpoints.find(checkpoint_dir)
    click.echo(f'exporting {exporter.describe(checkpoint_dir, checkpoint)}')
    shared = {'precision': precision, 'label_map_path': label_map or None, 'config_path': config}
    others = [name for name in names if name != SAVED_MODEL]
    if SAVED_MODEL in names:
        saved_model.refuse_training_folder(output)
    # The other formats are first: they may refuse a model, before anything is written.
    if samples:
        click.echo(f'calibrating on {len(samples)} images')
    made = []
    if others:
        with console.phase(f'converting to {", ".join(others)}'):
            written = exporter.export_files(
                pipeline,
                checkpoint,
                output,
                others,
                options=FormatOptions(
                    batch_size=batch_size,
                    quantization=quantization,
                    calibration=tuple(samples),
                    triton_backend=triton_backend,
                ),
                images=images,
                **shared,
            )
            made += written
        for each in made:
            click.echo(f'exported to {each.path} ({each.format_name}, {each.megabytes:.1f} MB)')
            if each.comparison is not None:
                click.echo(f'{len(images)} images: {each.comparison}')
            if each.format_name == 'triton':
                click.echo(f'serve it: {_triton_line(output)}')
    if SAVED_MODEL not in names:
        option_flags.show_result(made, [])
        return
    with progress.show('exporting and comparing') as report:
        exported = exporter.export(
            pipeline,
            checkpoint,
            output,
            input_type=input_type,
            constant_weights=constant_weights,
            images=images,
            progress=report,
            **shared,
        )
    click.echo(
        f'exported to {pathlib.Path(output) / SAVED_MODEL} ({input_type}, '
        f'computes in {exported.precision})'
    )
    if images:
        click.echo(f'{len(images)} images: {exported.comparison}')
    click.echo(f'serve it: tfod serve {shlex.quote(output)}, or {_serving_line(output)}')
    path = pathlib.Path(output) / SAVED_MODEL
    option_flags.show_result(
        [*made, {'format_name': SAVED_MODEL, 'path': path, **exported._asdict()}], []
    )


def _serving_line(output: str) -> str:
    """Returns the command that serves a SavedModel by TensorFlow Serving."""
    folder = shlex.quote(f'{pathlib.Path(output, SAVED_MODEL).resolve()}:/models/detector/1')
    return f'docker run -p 8501:8501 -v {folder} -e MODEL_NAME=detector tensorflow/serving'


def _triton_line(output: str) -> str:
    """Returns the command that serves the model repository; the user chooses the release."""
    folder = shlex.quote(f'{pathlib.Path(output, "triton").resolve()}:/models')
    server = 'nvcr.io/nvidia/tritonserver:RELEASE-py3 tritonserver --model-repository /models'
    return f'docker run --gpus all -p 8000:8000 -v {folder} {server}'


def _spread(paths: list[pathlib.Path], limit: int) -> list[pathlib.Path]:
    """Returns `limit` paths evenly spread over all, as neighbours are often alike."""
    step = max(1, len(paths) / limit)
    return [paths[int(index * step)] for index in range(min(limit, len(paths)))]


def _check_options(names: list[str]) -> None:
    """Refuses options that none of the formats reads."""
    context = click.get_current_context()
    for flag, option in _READ_BY_FORMATS.items():
        readers = [name for name, row in EXPORT_FORMATS.items() if option in row.options]
        is_given = context.get_parameter_source(flag) is click.core.ParameterSource.COMMANDLINE
        if is_given and not set(readers) & set(names):
            raise click.UsageError(
                f'--{flag}: expected with --format {" or ".join(readers)} alone. '
                f'Received: --format {",".join(names)}.'
            )


def _check_saved_model_options(
    names: list[str], input_type: str, verify: str, *, constant_weights: bool
) -> None:
    if verify and input_type == IMAGE_AND_BOXES_TENSOR:
        raise click.UsageError(f'--verify: not with --input_type {input_type}, which needs boxes.')
    if SAVED_MODEL not in names and constant_weights:
        raise click.UsageError(
            f'--constant_weights: for --format {SAVED_MODEL} alone. '
            f'Received: --format {",".join(names)}.'
        )
    if SAVED_MODEL not in names and input_type != INPUT_TYPES[0]:
        raise click.UsageError(
            f'--input_type: for --format {SAVED_MODEL} alone; the other formats take images. '
            f'Received: {input_type} with --format {",".join(names)}.'
        )
