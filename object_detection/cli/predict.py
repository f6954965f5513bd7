"""`tfod predict`: writes annotated pictures and a COCO results file for images or records."""

import glob
import pathlib
import sys

import click

from object_detection.cli.common import option_flags, progress
from object_detection.errors import UserError
from object_detection.system import tensorflow_setup

_IMAGE_SUFFIXES = {'.jpg', '.jpeg', '.jpe', '.jfif', '.png', '.bmp', '.gif', '.webp', '.mpo'}
# Formats that cannot be read; they are also searched in folders, so that they can be reported.
_OTHER_SUFFIXES = {'.tif', '.tiff', '.heic', '.heif', '.avif', '.jp2', '.jxl'}


@click.command(name='predict')
@click.option(
    '--model',
    default='',
    help='Output or file of `tfod export`, a SavedModel, a model_dir or an unpacked archive.',
)
@option_flags.config_option('Pipeline config; in place of --model.', required=False)
@click.option(
    '--checkpoint_dir',
    default='',
    help='Folder of checkpoints (the newest), or a prefix; in place of --model.',
)
@click.option(
    '--input',
    'inputs',
    multiple=True,
    help='Image, folder or quoted pattern; repeatable. Without it, with --config, the data of each '
    'eval_input_reader.',
)
@click.option(
    '--output',
    required=True,
    metavar='FOLDER',
    help='Folder for pictures and JSON files; not that of the images.',
)
@click.option('--label_map', default='', help="Label map; the model's own names if not given.")
@click.option('--min_score', default=0.5, show_default=True, help='Lowest score that is drawn.')
@click.option(
    '--max_boxes', default=100, show_default=True, help='Most objects drawn in a picture.'
)
@click.option(
    '--limit',
    type=click.IntRange(min=0),
    default=0,
    help='Stop after so many images (of each reader); 0 = all.',
)
def command(
    model: str,
    config: str | None,
    checkpoint_dir: str,
    inputs: tuple[str, ...],
    output: str,
    label_map: str,
    min_score: float,
    max_boxes: int,
    limit: int,
) -> None:
    """Detects objects in images.

    Writes one annotated picture an image and detections.json, a COCO results file with every
    detection of any score (boxes in pixels of the image as [x, y, width, height], masks as RLE).
    A file's image id is its name if that is a number, else the lowest number that no file has;
    images.json tells for each image its id, file and picture. Pictures are called NAME.png, and
    NAME_2.png and so on where several images have that name. A command that is stopped leaves
    what it has in detections.json.partial.

    With --config and --checkpoint_dir and without --input, the images are those of each
    eval_input_reader of the config: detections.json then has their source ids, and no pictures are
    drawn. Several readers have a folder each, by their names.
    """
    _check_choice(model, config, checkpoint_dir, inputs)
    if not inputs:
        _check_draws_nothing()
    paths = find_images(inputs) if inputs else []
    if limit:
        paths = paths[:limit]
    if config:
        # Checked first, so that mistakes are reported before TensorFlow is loaded, which takes
        # seconds.
        _read_config(config, reads_records=not inputs)
    tensorflow_setup.keep_freed_memory()
    tensorflow_setup.assume_constant_weights()
    tensorflow_setup.import_tensorflow(keras_pictures=False)
    if not inputs:
        _predict_records(config, checkpoint_dir, output, limit)
        return
    from object_detection.export.predict import predict_files
    from object_detection.system import disk

    with progress.show('predicting') as report, disk.full_disk_named(output):
        summary = predict_files(
            model or checkpoint_dir,
            paths,
            output,
            label_map_path=label_map or None,
            min_score=min_score,
            max_boxes=max_boxes,
            progress=report,
            **({'config': config} if config else {}),
        )
    computed = f', computed in {summary.precision}' if summary.precision else ''
    click.echo(
        f'{summary.images} images, {summary.detections} detections '
        f'({summary.drawn} drawn, score >= {min_score:g}) in {output}{computed}'
    )
    for problem in summary.problems:
        click.echo(f'left out: {problem}', err=True)
    if not summary.images:
        click.echo('Error: none of the inputs is an image that can be read.', err=True)
        sys.exit(1)


def _check_choice(
    model: str, config: str | None, checkpoint_dir: str, inputs: tuple[str, ...]
) -> None:
    if bool(model) == bool(config or checkpoint_dir):
        raise click.UsageError(
            'Expected either --model, or --config with --checkpoint_dir. Received: '
            f'{"both" if model else "neither"}.'
        )
    if not model and not (config and checkpoint_dir):
        missing = '--checkpoint_dir' if config else '--config'
        raise click.UsageError(f'Expected --config with --checkpoint_dir; {missing} is missing.')
    if model and not inputs:
        raise click.UsageError("Missing option '--input': images for the --model.")


def _check_draws_nothing() -> None:
    """Refuses options for pictures, since no pictures of records are drawn."""
    context = click.get_current_context()
    for name in ('label_map', 'min_score', 'max_boxes'):
        if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            raise click.UsageError(
                f'--{name} is about pictures, which are drawn of --input alone. Received: no '
                '--input, whose place the records of --config take.'
            )


def _read_config(config: str, *, reads_records: bool):
    from object_detection.config.reader import read_pipeline
    from object_detection.validation.validate import validate

    pipeline = read_pipeline(config)
    validate(pipeline, for_what='eval' if reads_records else 'export')
    return pipeline


def _predict_records(config: str, checkpoint_dir: str, output: str, limit: int) -> None:
    pipeline = _read_config(config, reads_records=True)
    from object_detection.export.predict_records import predict_records
    from object_detection.system import disk

    with progress.show('predicting') as report, disk.full_disk_named(output):
        counts = predict_records(pipeline, checkpoint_dir, output, limit=limit, progress=report)
    for folder, (images, detections) in counts.items():
        click.echo(f'{images} images, {detections} detections in {folder}')


def find_images(
    inputs: tuple[str, ...], *, readable: bool = False, flag: str = '--input'
) -> list[pathlib.Path]:
    """Lists the images of files, folders and patterns, sorted for each input.

    Args:
      inputs: paths and patterns.
      readable: whether images in a folder whose format cannot be read are left out.
      flag: the flag of the inputs, for errors.

    Raises:
      ValueError: if an input does not exist or a folder holds no image.
    """
    paths: list[pathlib.Path] = []
    for text in inputs:
        path = pathlib.Path(text)
        if path.is_dir():
            paths += _in_folder(path, f'{flag} {text}', readable)
        elif path.is_file():
            paths.append(path)
        elif found := sorted(glob.glob(text, recursive=True)):
            paths += [path for path in map(pathlib.Path, found) if not path.is_dir()]
        else:
            raise UserError(f'{flag} {text}: no such file or folder.')
    return paths


def _in_folder(folder: pathlib.Path, where: str, readable: bool) -> list[pathlib.Path]:
    suffixes = _IMAGE_SUFFIXES | _OTHER_SUFFIXES
    found = sorted(path for path in folder.iterdir() if path.suffix.lower() in suffixes)
    known = [path for path in found if path.suffix.lower() in _IMAGE_SUFFIXES]
    if not known:
        others = sorted({path.suffix for path in found})
        raise UserError(
            f'{where}: the folder holds no image ({", ".join(sorted(_IMAGE_SUFFIXES))})'
            + (f', only files that cannot be read: {", ".join(others)}.' if others else '.')
        )
    return known if readable else found
