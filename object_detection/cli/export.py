"""`tfod export`: a SavedModel from a checkpoint."""

import pathlib

import click

from object_detection.cli import option_flags, progress
from object_detection.cli.predict import find_images
from object_detection.config.job_options import PRECISIONS
from object_detection.export.input_types import IMAGE_AND_BOXES_TENSOR, INPUT_TYPES
from object_detection.system import tensorflow_setup


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
    '--input_type', type=click.Choice(INPUT_TYPES), default=INPUT_TYPES[0], show_default=True
)
@click.option(
    '--precision',
    type=click.Choice(PRECISIONS),
    help='What it computes in; the config says it if not given.',
)
@click.option('--label_map', default='', help="Class names; the config's label map if not given.")
@click.option('--config_override', default='', help='Text proto merged into the config.')
@click.option(
    '--set', 'settings', multiple=True, help='FIELD.PATH=VALUE in the config; repeatable.'
)
@click.option('--verify', default='', help='Image or folder to compare export and model on.')
@click.option('--verify_limit', default=20, show_default=True, help='Most images to compare on.')
def command(
    config: str,
    checkpoint_dir: str,
    output: str,
    input_type: str,
    precision: str | None,
    label_map: str,
    config_override: str,
    settings: tuple[str, ...],
    verify: str,
    verify_limit: int,
) -> None:
    """Writes saved_model/, checkpoint/ and pipeline.config.

    Frozen batch norms are folded into the convolutions, and the class names of the label map are
    put into the SavedModel. The newest checkpoint of a folder is exported: --checkpoint_dir model
    takes the last one of a training, model/best the one that the training kept as its best. With
    --verify the export is loaded back and its detections are compared with those of the model in
    process.
    """
    if verify and input_type == IMAGE_AND_BOXES_TENSOR:
        raise click.UsageError(f'--verify: not with --input_type {input_type}, which needs boxes.')
    images = find_images((verify,), readable=True)[:verify_limit] if verify else []
    from object_detection.config.reader import read_pipeline
    from object_detection.validation.validate import validate

    pipeline = read_pipeline(config, overrides_text=config_override, settings=settings)
    validate(pipeline, for_what='export')
    tensorflow_setup.import_tensorflow()
    from object_detection.export import exporter
    from object_detection.weights import checkpoints

    # Found only once: a running training may save another checkpoint before the comparison.
    checkpoint = checkpoints.find(checkpoint_dir)
    click.echo(f'exporting {exporter.describe(checkpoint_dir, checkpoint)}')
    computed = exporter.export(
        pipeline,
        checkpoint,
        output,
        input_type=input_type,
        precision=precision,
        label_map_path=label_map or None,
    )
    click.echo(
        f'exported to {pathlib.Path(output) / "saved_model"} ({input_type}, computes in {computed})'
    )
    if images:
        with progress.show('comparing') as report:
            comparison = exporter.verify(
                pipeline, checkpoint, output, images, precision=precision, progress=report
            )
        click.echo(
            f'{len(images)} images: {comparison.detections} detections in process, '
            f'{comparison.unmatched} without counterpart, largest difference of a box '
            f'coordinate, score or mask probability {comparison.largest_difference:.1e}'
        )
        if not comparison.detections:
            raise click.ClickException('nothing was detected, so nothing was compared.')
        if not comparison.agrees:
            raise click.ClickException('the exported model does not give the same detections.')
