"""`tfod report`: writes a page about a training, or one that compares several."""

import os

import click

from object_detection.cli.common import option_flags
from object_detection.errors import UserError, expected
from object_detection.reporting import comparison, page


@option_flags.json_option
@click.command(name='report')
@click.argument(
    'model_dirs',
    nargs=-1,
    required=True,
    metavar='MODEL_DIR...',
    type=click.Path(exists=True, file_okay=False),
)
@click.option(
    '--output',
    metavar='FILE',
    help=f'The page; {page.FILE_NAME} in MODEL_DIR, or {comparison.FILE_NAME} of several, if not '
    'given.',
)
@click.option(
    '--base',
    metavar='FILE',
    type=click.Path(exists=True, dir_okay=False),
    help='Config to compare with; if not given, that of the checkpoint the training started from.',
)
def command(model_dirs: tuple[str, ...], output: str | None, base: str | None) -> None:
    """Write an HTML page about the training in MODEL_DIR, or a comparison of several.

    The page needs no other files. It shows what the newest evaluation has found; the training may
    still run.
    """
    if len(set(model_dirs)) < len(model_dirs):
        raise UserError(f'MODEL_DIR: expected different folders. Received: {" ".join(model_dirs)}.')
    if len(model_dirs) > 1:
        if base:
            raise expected('--base', 'one MODEL_DIR, the first to compare with', 'several')
        path = output or comparison.FILE_NAME
        comparison.write(model_dirs, path)
    else:
        path = output or os.path.join(model_dirs[0], page.FILE_NAME)
        page.write(model_dirs[0], path, page.Extras(base=base))
    option_flags.show_result({'report': path}, [f'Look at {path}'])
