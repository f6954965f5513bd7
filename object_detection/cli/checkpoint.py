"""`tfod checkpoint`: looks into files of weights."""

import math

import click

from object_detection.config import quiet_import


@click.group(name='checkpoint', context_settings={'help_option_names': ['-h', '--help']})
def command() -> None:
    """Look into checkpoints and weights files."""


@command.command()
@click.argument('path')
def inspect(path: str) -> None:
    """Lists the variables of PATH with their shapes.

    PATH is the prefix of a checkpoint (DIR/ckpt-3), a folder of checkpoints (the newest is listed)
    or a Keras weights file (.h5).
    """
    quiet_import.import_tensorflow()
    from object_detection.training import weight_sources

    with weight_sources.open_source(path) as source:
        for name, shape in sorted(source.shapes.items()):
            click.echo(f'{name} {list(shape)}')
        count = sum(math.prod(shape) for shape in source.shapes.values())
        click.echo(f'{source.description}: {len(source.shapes)} variables, {count:,} numbers')
