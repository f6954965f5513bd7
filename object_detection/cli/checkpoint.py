"""`tfod checkpoint`: lists files of weights, and converts third-party ones to checkpoints."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from object_detection.cli.common import option_flags
from object_detection.system import tensorflow_setup
from object_detection.weights.interfaces import CHECKPOINT_TYPES

if TYPE_CHECKING:
    from object_detection.weights.restore import Report
    from object_detection.weights.sources import ListedVariable, Listing

# Maximum number of names of each kind that `convert` lists.
_LISTED = 20


@click.group(name='checkpoint', context_settings={'help_option_names': ['-h', '--help']})
def command() -> None:
    """Look into checkpoints and weights files, and convert them.

    PATH is the prefix of a checkpoint (DIR/ckpt-3), a folder of checkpoints (the newest is taken),
    a file of PyTorch (.pth, .pt, .safetensors) or detectron2 (.pkl), in which nothing is run, a
    Keras weights file (.h5) or a NumPy archive of tensorpack (.npz). A checkpoint may be one of
    this toolkit, of the TensorFlow Object Detection API (TF 2 or TF 1), of a ResNet with variable
    names of NVIDIA, TPU and Habana, or TF-Slim, or of an Inception network or MobileNet of TF-Slim.
    """


@option_flags.json_option
@command.command()
@click.argument('path')
@click.option('--match', default='', metavar='REGEX', help='List names with a match of it alone.')
def inspect(path: str, match: str) -> None:
    """Lists the variables of PATH: name, shape, dtype, number of parameters.

    What is not of the model, such as an optimizer's state, is listed apart. The end says what PATH
    is, and as which fine_tune_checkpoint_type it can be used.
    """
    try:
        pattern = re.compile(match)
    except re.error as error:
        raise click.UsageError(
            f'--match: expected a regular expression. Received: {match!r} ({error}).'
        ) from error
    tensorflow_setup.import_tensorflow()
    from object_detection.weights import sources

    listing = sources.list_file(path)
    chosen = [v for v in listing.variables if pattern.search(v.name)]
    option_flags.show_result(_content(path, listing, chosen), _to_lines(listing, chosen))


@option_flags.json_option
@command.command()
@click.argument('path')
@option_flags.config_option('Pipeline config of the model.')
@click.option(
    '--output',
    required=True,
    metavar='FOLDER',
    help='Folder to write; an earlier conversion is replaced.',
)
@click.option(
    '--checkpoint_type',
    type=click.Choice(CHECKPOINT_TYPES),
    help='What to take of PATH; the most that it can serve if not given.',
)
@click.option('--config_override', default='', help='Text proto merged into the config.')
@option_flags.set_option()
def convert(
    path: str,
    config: str,
    output: str,
    checkpoint_type: str | None,
    config_override: str,
    settings: tuple[str, ...],
) -> None:
    """Writes the weights of PATH as a checkpoint of this toolkit, for training and evaluation.

    --output gets the checkpoint ckpt-0 and the config. What PATH does not hold is freshly
    initialised, such as all but the backbone with --checkpoint_type=classification. A variable that
    is absent or of another shape for another reason than num_classes is an error, unless
    train_config.load_all_detection_checkpoint_vars is true.
    """
    from google.protobuf import text_format

    from object_detection.config.reader import read_pipeline
    from object_detection.validation.validate import validate

    pipeline = read_pipeline(config, overrides_text=config_override, settings=settings)
    tensorflow_setup.import_tensorflow()
    from object_detection.builders import model_builder
    from object_detection.builders.input_readers import channels
    from object_detection.models import image_channels
    from object_detection.weights import conversion

    conversion.check_output(output)
    validate(pipeline, for_what='export')
    with image_channels.scope(channels.of_detector(pipeline)):
        detector = model_builder.build(pipeline.model, is_training=False)
        detector.build_variables()
    done = conversion.convert(
        detector,
        path,
        output,
        checkpoint_type=checkpoint_type,
        all_that_fits=pipeline.train_config.load_all_detection_checkpoint_vars,
        pipeline_text=text_format.MessageToString(pipeline),
    )
    lines = [f'{done.source}, as {done.checkpoint_type!r}:', *_report_lines(done.report)]
    lines.append(f'written: {done.prefix}')
    fresh = len(done.report.missing) + len(done.report.mismatched)
    if fresh:
        lines.append(
            f'{fresh} variables are freshly initialised: train the model before it is used.'
        )
    option_flags.show_result(done, lines)


def _content(path: str, listing: 'Listing', chosen: Sequence['ListedVariable']) -> dict[str, Any]:
    variables = [
        {
            'name': variable.name,
            'shape': list(variable.shape),
            'dtype': variable.dtype,
            'parameters': variable.size,
            'is_weight': variable.is_weight,
        }
        for variable in chosen
    ]
    return {
        'path': path,
        'description': listing.description,
        'fine_tune_checkpoint_types': list(listing.types),
        'parameters': sum(v.size for v in _split(listing.variables)[0]),
        'variables': variables,
    }


def _to_lines(listing: 'Listing', chosen: Sequence['ListedVariable']) -> list[str]:
    """Returns tables of the chosen variables, and totals of all variables."""
    weights, others = _split(chosen)
    lines = _table(weights)
    if others:
        lines += ['', 'other variables:', *_table(others)]
    lines += ['', listing.description]
    lines += [f'fine_tune_checkpoint_type: {", ".join(listing.types) or "none"}']
    weights, others = _split(listing.variables)
    lines += [f'weights: {_count(weights)} parameters']
    if others:
        lines += [f'others: {_count(others)} numbers']
    if len(chosen) < len(listing.variables):
        lines += [f'listed of all: {_count(chosen)} numbers']
    return lines


def _split(
    variables: Sequence['ListedVariable'],
) -> tuple[list['ListedVariable'], list['ListedVariable']]:
    """Returns the weights, and the other variables."""
    weights = [variable for variable in variables if variable.is_weight]
    return weights, [variable for variable in variables if not variable.is_weight]


def _table(variables: Sequence['ListedVariable']) -> list[str]:
    rows = [(v.name, str(list(v.shape)), v.dtype, f'{v.size:,}') for v in variables]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        f'{name:{widths[0]}}  {shape:{widths[1]}}  {dtype:{widths[2]}}  {size:>{widths[3]}}'
        for name, shape, dtype, size in rows
    ]


def _count(variables: Sequence['ListedVariable']) -> str:
    number = len(variables)
    total = sum(variable.size for variable in variables)
    return f'{number} variable{"" if number == 1 else "s"}, {total:,}'


def _report_lines(report: 'Report') -> list[str]:
    lines = [f'  restored: {len(report.restored)}']
    for what, names in (
        ('of another shape there, freshly initialised', report.mismatched),
        ('not taken from it, freshly initialised', report.missing),
        ('in it and not used', report.unused),
    ):
        if names:
            lines.append(f'  {what}: {len(names)}')
            lines += [f'    {name}' for name in names[:_LISTED]]
            if len(names) > _LISTED:
                lines.append(f'    and {len(names) - _LISTED} more')
    return lines
