"""`tfod export`: a SavedModel, or files of other formats, from a checkpoint."""

from typing import Any

import click

from object_detection.cli.common import option_flags, progress
from object_detection.config.job_options import PRECISIONS
from object_detection.export.formats.formats import (
    EXPORT_FORMATS,
    QUANTIZATIONS,
    SAVED_MODEL,
    TRITON_BACKENDS,
)
from object_detection.runtime.input_types import INPUT_TYPES
from object_detection.tasks import exporting


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
    show_default='1',
    help='Images a call, of formats that fix it (stablehlo), or the most of them (triton).',
)
@click.option(
    '--triton_backend',
    type=click.Choice(TRITON_BACKENDS),
    show_default=TRITON_BACKENDS[0],
    help='Model of a Triton repository.',
)
@click.option(
    '--quantization',
    type=click.Choice(QUANTIZATIONS),
    show_default=QUANTIZATIONS[0],
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
    show_default='200',
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
def command(settings: tuple[str, ...], **options: Any) -> None:
    """Writes a model that runs without its checkpoint.

    The format saved_model, the default, is saved_model/, checkpoint/ and pipeline.config; the
    others are files in the same folder, each with its description NAME.json. Frozen batch norms are
    folded into the convolutions, and the class names of the label map are put into the model. The
    newest checkpoint of a folder is exported: --checkpoint_dir model takes the last one of a
    training, model/best the one that the training kept as its best. With --verify each export is
    loaded back and its detections are compared with those of the model in process; one that does
    not give them is not kept, and an earlier export stays.
    """
    with option_flags.usage_errors():
        made = exporting.export(
            **options, set=settings, say=click.echo, show_progress=progress.show
        )
    option_flags.show_result(made, [])
