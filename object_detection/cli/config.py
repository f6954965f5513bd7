"""`tfod config`: make a pipeline config from data or for a model of others, check or show one."""

import os
import sys
from typing import Any

import click

from object_detection.cli.common import option_flags, tpu_report
from object_detection.config import families
from object_detection.config import show as shower
from object_detection.config.reader import read_pipeline
from object_detection.errors import Problems
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from object_detection.system import console, files, tensorflow_setup
from object_detection.tasks import data
from object_detection.validation import tpu
from object_detection.validation.validate import PURPOSES, validate


def _reading_options(function):
    """Adds the arguments with which both commands read a config: FILE, or --config."""
    for decorator in (
        option_flags.set_option(
            'Change one field, e.g. train_config.batch_size=4; repeatable, applied in order.'
        ),
        click.option(
            '--config_override',
            default='',
            metavar='FILE|TEXT',
            help='A second text proto (or a file with one) merged over the config.',
        ),
        option_flags.config_option('The same as FILE.', required=False),
        click.argument('file', metavar='FILE', default=''),
    ):
        function = decorator(function)
    return function


def _file(argument: str, option: str | None) -> str:
    """Returns the config's path from the argument or from the option.

    Raises:
      click.UsageError: if both or neither of them are given.
    """
    if bool(argument) == bool(option):
        raise click.UsageError(
            f'Expected FILE or --config FILE. Received: {"both" if option else "neither"}.'
        )
    return argument or option


@click.group()
def command() -> None:
    """Make a pipeline config from data, check one, or show it with all defaults."""


@option_flags.json_option
@command.command()
@_reading_options
@click.option(
    '--for',
    'purposes',
    type=click.Choice(PURPOSES),
    multiple=True,
    help='What it is to be used for; repeatable. All by default.',
)
@click.option(
    '--tpu',
    'for_tpu',
    is_flag=True,
    help='Say what in FILE does not fit a TPU and what to write instead; reads no other file.',
)
@click.option(
    '--tpu_cores',
    'cores',
    type=click.IntRange(min=1),
    default=8,
    show_default=True,
    help='Cores of the TPU, among which batches are divided; with --tpu.',
)
@click.option(
    '--tpu_program',
    'reads_program',
    is_flag=True,
    help='With --tpu: also build the model and look for dynamic shapes in the program of its '
    'training step. Takes a minute.',
)
def check(
    file: str,
    config: str | None,
    config_override: str,
    settings: tuple[str, ...],
    purposes: tuple[str, ...],
    for_tpu: bool,
    cores: int,
    reads_program: bool,
) -> None:
    """Say what is wrong with FILE: unknown names, missing or damaged files, contradictions."""
    file = _file(file, config)
    problems = Problems()
    pipeline = read_pipeline(
        file, overrides_text=config_override, settings=settings, problems=problems
    )
    if for_tpu and purposes:
        raise click.UsageError('Expected --tpu or --for. Received: both.')
    if for_tpu:
        problems.raise_if_any()
        sys.exit(_check_for_tpu(file, pipeline, cores, reads_program))
    known = problems.sentences()
    validate(pipeline, for_what=purposes or PURPOSES, reads_all=True, known=known)
    option_flags.show_result(
        {'config': file, 'ready_to': purposes or PURPOSES},
        [f'{file}: ready to {", ".join(purposes or PURPOSES)}.'],
    )


def _check_for_tpu(
    file: str, pipeline: TrainEvalPipelineConfig, cores: int, reads_program: bool
) -> bool:
    """Reports what does not fit a TPU; returns whether there is anything."""
    findings = tpu.find(pipeline, cores=cores)
    option_flags.show_result(
        {'config': file, 'findings': findings}, tpu_report.lines(file, findings, cores)
    )
    if any(finding.is_obstacle for finding in findings):
        if reads_program:
            click.echo('\nThe program was not built: change what does not fit first.')
        return True
    if not reads_program:
        return False
    tensorflow_setup.import_tensorflow()
    from object_detection.training import lowering
    from object_detection.training.monitoring import step_program

    with console.phase('building the program of the training step'):
        text = lowering.lower_for_tpu(pipeline, cores=cores)
    unfit = [*step_program.dynamic_shapes(text), *step_program.host_operations(text)]
    count = sum(step_program.count_operations(text).values())
    for line in tpu_report.program_lines(count, unfit):
        click.echo(line)
    return bool(unfit)


@option_flags.json_option
@command.command()
@_reading_options
def show(file: str, config: str | None, config_override: str, settings: tuple[str, ...]) -> None:
    """Print FILE as it is understood, with the defaults of all fields that it leaves out."""
    pipeline = read_pipeline(_file(file, config), overrides_text=config_override, settings=settings)
    option_flags.show_result(shower.to_dict(pipeline), shower.to_text(pipeline).splitlines())


@option_flags.json_option
@command.command(context_settings={'show_default': True})
@click.option(
    '--data',
    required=True,
    metavar='PREFIX',
    help='The training records: what `tfod convert ... --output` was given.',
)
@click.option(
    '--val',
    'validation',
    default='',
    metavar='PREFIX',
    help='The validation records; by default those named as --data, with val or valid for train.',
)
@click.option(
    '--label_map', default='', help='Label map of the data, if not PREFIX_label_map.pbtxt.'
)
@click.option(
    '--for',
    'device',
    type=click.Choice(data.DEVICES),
    default='cpu',
    help='What the model is trained on, or `mobile` for an SSD, made for phones.',
)
@click.option(
    '--model',
    type=click.Choice(data.MODELS),
    default=None,
    show_default='one that suits --for',
    help='The kind of detector: `detr` is an RT-DETR.',
)
@click.option(
    '--task',
    type=click.Choice(data.TASKS),
    default=None,
    show_default=False,
    help='What is detected; by default masks where the records have masks.',
)
@click.option(
    '--backbone',
    default='',
    metavar='NAME',
    help='Network of the feature extractor, such as resnet_v1_50 or keras:ConvNeXtTiny, under a '
    'feature pyramid; by default one that suits --for, or that of --weights.',
)
@click.option(
    '--weights',
    default='',
    metavar='PATH',
    help='Weights to begin with: a file of `tfod weights download`, a folder of them, a detector '
    'of torchvision or detectron2, a zoo model, or a model_dir. By default the folder `weights`, '
    'if there is one.',
)
@click.option(
    '--num_train_steps',
    type=click.IntRange(min=1, max=2**31 - 1),
    show_default='chosen by the number of images',
    help='Steps of the training; the schedule of the learning rate ends with them.',
)
@click.option(
    '--epochs',
    type=click.FloatRange(min=0, max=1e6, min_open=True),
    help='Passes over the data, in place of --num_train_steps.',
)
@click.option('--output', default='pipeline.config', metavar='FILE', help='The config to write.')
@click.option('--force', is_flag=True, help='Replace the file if there is one.')
def new(**options: Any) -> None:
    """Write a config that fits converted data, and say why each value was chosen.

    Classes, label map, paths, sizes of images and anchors, numbers of objects, learning rate and
    steps come from the records. The config passes `tfod config check`; change what you know better.
    """
    with option_flags.usage_errors():
        made = data.new_config(**options)
    option_flags.show_result(
        {'config': made.path, 'ready_to': PURPOSES, 'reasons': made.reasons},
        [
            *made.lines,
            f'{made.path}: ready to {", ".join(PURPOSES)}.',
            f'Next: tfod train --config {made.path} --model_dir model',
        ],
    )


@option_flags.json_option
@command.command('from_transformers')
@click.argument('file', metavar='CONFIG.JSON')
@click.option(
    '--output',
    default='pipeline.config',
    show_default=True,
    metavar='FILE',
    help='The config to write.',
)
@click.option(
    '--label_map',
    default='',
    metavar='FILE',
    help='Also write the label map of the classes that CONFIG.JSON names.',
)
@click.option(
    '--weights',
    default='',
    metavar='FILE',
    help='Weights that a training begins with, such as the model.safetensors of CONFIG.JSON.',
)
@click.option('--force', is_flag=True, help='Replace the files if there are some.')
def from_transformers(file: str, output: str, label_map: str, weights: str, force: bool) -> None:
    """Write a config for the config.json of a detector of transformers.

    RT-DETR (v1 and v2), D-FINE, RF-DETR and DETR: the model of the config computes what theirs
    does, and its weights are restored from their file. The training is in the manner of the
    papers, for records that are to be named. A preprocessor_config.json in the folder of
    CONFIG.JSON gives the size of images. A field that asks for what is not built is an error.
    """
    for path in filter(None, (output, label_map)):
        if os.path.exists(path) and not force:
            raise click.ClickException(f'{path} exists; give another name, or --force.')
    made = families.translator('transformers')(file, label_map=label_map, weights=weights)
    files.write_text(output, made.text())
    lines = [*made.notes(), f'{output}: written.']
    if label_map:
        files.write_text(label_map, made.label_map_text())
        lines.append(f'{label_map}: the names of {len(made.translated.labels)} classes.')
    result = {
        'config': output,
        'model': made.translated.kind,
        'classes': made.translated.labels,
        'not_read': made.translated.unknown,
    }
    option_flags.show_result(result, lines)
