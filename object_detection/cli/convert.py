"""`tfod convert`: converts data sets in other formats to TFRecords.

The commands come from the table `data/formats/formats.py`.
"""

import dataclasses
import functools
import os
import shlex
import sys
from typing import Any

import click

from object_detection.cli.common import option_flags, progress
from object_detection.cli.main import describe_user_error
from object_detection.data.formats import formats
from object_detection.data.formats.formats import ANNOTATION_FORMATS, Format
from object_detection.data.formats.source import Found, Source
from object_detection.errors import UserError
from object_detection.tasks import data

# The exit status of a program that Ctrl-C ended.
_INTERRUPTED = 130

_HELP = """Converts a data set in the format {title}.

Writes PREFIX-00000-of-0000N ..., PREFIX_label_map.pbtxt and PREFIX.report.json, which lists what
could not be converted. Earlier outputs of the same prefix are replaced when the new ones are
complete.

{classes}
"""
_AUTO_HELP = """Finds out the format of the data set in FOLDER and converts it.

Prints what was found and the commands that are run, one for each split. Masks are converted where
all objects have one; other options of a format need its own command.
"""
_SETTINGS = {'ignore_unknown_options': True, 'show_default': True}


@click.group(name='convert')
def command() -> None:
    """Converts a data set to sharded TFRecords."""


def _common_options() -> list[click.Parameter]:
    """Returns the options of all formats."""
    return [
        option_flags.make_json_option(),
        click.Option(
            ['--output'],
            required=True,
            metavar='PREFIX',
            help='Beginning of the names of the files to write, with their folder: records/train.',
        ),
        click.Option(
            ['--shards'],
            type=int,
            show_default='one for each 100 images, up to 10',
            help='Number of TFRecord files.',
        ),
        click.Option(['--drop_empty'], is_flag=True, help='Leave out images without objects.'),
        click.Option(
            ['--label_map', 'label_map_file'],
            default='',
            help='Label map that numbers the categories by name.',
        ),
        click.Option(
            ['--max_pixels'],
            type=click.IntRange(min=0),
            default=178_956_970,
            help='Leave out larger images; 0 sets no limit.',
        ),
        click.Option(['--strict'], is_flag=True, help='Write nothing if there is any problem.'),
        click.Option(
            ['--workers', '--num_workers', 'workers'],
            default=1,
            help='Local processes; each writes whole shards.',
        ),
        click.Option(['--runner'], default='', help='Another Beam runner; its options may follow.'),
        click.Argument(
            ['beam_options'], nargs=-1, type=click.UNPROCESSED, metavar='[BEAM_OPTIONS]...'
        ),
    ]


def _own_option(field: dataclasses.Field) -> click.Parameter:
    """Returns the option of a field of a source, see `formats.source.option`."""
    if field.metadata['positional']:
        return click.Argument([field.name])
    flag = field.metadata['flag'] or field.name
    names = [f'--{flag}/--no_{flag}' if field.type is bool else f'--{flag}', field.name]
    options: dict[str, Any] = {'help': field.metadata['help']}
    if field.metadata['required']:
        options['required'] = True
    else:
        options['default'] = field.default
    if field.type is not bool:
        options['type'] = field.type
        options['show_default'] = field.default != ''
    return click.Option(names, **options)


def _command(name: str, row: Format) -> click.Command:
    """Returns the command `tfod convert NAME`."""
    own = [_own_option(field) for field in formats.fields(row.source)]
    return click.Command(
        name,
        callback=functools.partial(_convert, row.source),
        params=[*own, *_common_options()],
        help=_HELP.format(title=row.title, classes=row.classes),
        short_help=f'{row.title}.',
        context_settings=_SETTINGS,
    )


def _convert(source: type[Source], **values: Any) -> None:
    """Runs a command of the table."""
    fields = {field.name for field in dataclasses.fields(source)}
    given = {name: values.pop(name) for name in fields}
    given['max_pixels'] = given['max_pixels'] or sys.maxsize
    _run(source(**given), **values)


def _convert_auto(folder: str, dry_run: bool, output: str, **values: Any) -> None:
    """Runs `tfod convert auto`."""
    common = {key: values.pop(key) for key in ('label_map_file', 'drop_empty', 'max_pixels')}
    common['max_pixels'] = common['max_pixels'] or sys.maxsize
    try:
        found = data.detect_sets(folder, output, common)
    except UserError as error:
        raise click.ClickException(str(error)) from error
    for name, sets in found.items():
        click.echo(
            f'{folder} is in the format {ANNOTATION_FORMATS[name].title} ({sets[0].reason}).'
        )
        if len(found) > 1:
            for item in sets:
                click.echo(_command_line(name, item, data.prefix_of(output, item)))
    if len(found) > 1:
        raise click.ClickException(f'{folder} has several formats. Run the commands of one.')
    [(name, sets)] = found.items()
    failed = []
    for item in sets:
        source, prefix = item.source, data.prefix_of(output, item)
        if source.label_map_file in map(data.label_map_of, failed):
            failed.append(prefix)
            continue
        click.echo(_command_line(name, item, prefix))
        # The lists of a data set often name a part that was not downloaded.
        try:
            if not dry_run:
                _run(source, output=prefix, **values)
        except click.ClickException as error:
            error.show()
            failed.append(prefix)
    if failed:
        raise click.ClickException(f'Not converted: {", ".join(failed)}.')


def _command_line(name: str, found: Found, output: str) -> str:
    """Returns the command that converts a data set that was found."""
    words = ['tfod', 'convert', name]
    for field in formats.fields(type(found.source)):
        value = getattr(found.source, field.name)
        flag = field.metadata['flag'] or field.name
        if field.metadata['positional']:
            words.append(str(value))
        elif value is True:
            words.append(f'--{flag}')
        elif value != field.default:
            words += [f'--{flag}', str(value)]
    if found.source.label_map_file:
        words += ['--label_map', found.source.label_map_file]
    return shlex.join([*words, '--output', output])


def _run(source: Source, *, runner: str, beam_options: tuple[str, ...], **arguments: Any) -> None:
    """Converts a data set and prints the summary of its report."""
    if beam_options and not runner:
        raise click.UsageError(f'No such option or argument: {" ".join(beam_options)}')
    arguments |= {'runner': runner, 'beam_options': beam_options}
    try:
        with progress.show('converting') as report_progress:
            made = data.convert_source(source, progress=report_progress, **arguments)
    except (OSError, ValueError) as error:
        raise click.ClickException(describe_user_error(error)) from error
    except KeyboardInterrupt:
        # Otherwise Beam's threads would keep the process alive until the job is finished.
        click.echo('\nAborted!', err=True)
        os._exit(_INTERRUPTED)
    from object_detection.dataset_tools.converters import conversion_report

    option_flags.show_result(made.report, [conversion_report.summary(made.report)])
    if warning := conversion_report.warning(made.report):
        click.secho(warning, fg='red', err=True)


for _name, _row in ANNOTATION_FORMATS.items():
    command.add_command(_command(_name, _row))
command.add_command(
    click.Command(
        'auto',
        callback=_convert_auto,
        params=[
            click.Argument(['folder']),
            click.Option(['--dry_run'], is_flag=True, help='Only print what would be run.'),
            *_common_options(),
        ],
        help=_AUTO_HELP,
        short_help='Finds out the format of a folder, and converts it.',
        context_settings=_SETTINGS,
    )
)
