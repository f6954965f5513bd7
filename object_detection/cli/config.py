"""`tfod config`: check a pipeline config, or show it with all defaults."""

import click

from object_detection.cli import option_flags
from object_detection.config import show as shower
from object_detection.config.reader import read_pipeline
from object_detection.config.validation import PURPOSES, validate


def _reading_options(function):
    """Adds the arguments that both commands read a config by: FILE, or --config as elsewhere."""
    for decorator in (
        click.option(
            '--set',
            'settings',
            multiple=True,
            metavar='PATH=VALUE',
            help='Change one field, e.g. train_config.batch_size=4; repeatable, applied in order.',
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
    """The config's path, from the argument or from the option.

    Raises:
      click.UsageError: if it is given by both or by neither.
    """
    if bool(argument) == bool(option):
        raise click.UsageError(
            'Expected the config as FILE or as --config FILE. Received: '
            f'{"both" if option else "neither"}.'
        )
    return argument or option


@click.group()
def command() -> None:
    """Check a pipeline config, or show it with all defaults."""


@command.command()
@_reading_options
@click.option(
    '--for',
    'purposes',
    type=click.Choice(PURPOSES),
    multiple=True,
    help='What it is to be used for; repeatable. All by default.',
)
def check(
    file: str,
    config: str | None,
    config_override: str,
    settings: tuple[str, ...],
    purposes: tuple[str, ...],
) -> None:
    """Say what is wrong with FILE: unknown names, missing files, contradictory fields."""
    file = _file(file, config)
    pipeline = read_pipeline(file, overrides_text=config_override, settings=settings)
    validate(pipeline, for_what=purposes or PURPOSES)
    click.echo(f'{file}: ready to {", ".join(purposes or PURPOSES)}.')


@command.command()
@_reading_options
def show(file: str, config: str | None, config_override: str, settings: tuple[str, ...]) -> None:
    """Print FILE as it is understood, with the defaults of all fields that it leaves out."""
    pipeline = read_pipeline(_file(file, config), overrides_text=config_override, settings=settings)
    click.echo(shower.to_text(pipeline), nl=False)
