"""The `tfod` command. Sub-commands are imported when they run: TensorFlow takes seconds to load."""

import errno
import importlib
import os
import sys
from collections.abc import Sequence

import click

from object_detection.errors import (
    LOST_WORKER_STATUS,
    UnreadableCheckpointError,
    UserError,
    WorkerError,
)

# Errors of writing: the disk or its quota is full, or the file system is read-only.
_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG)

# Name -> line of `tfod --help`; object_detection/cli/<name>.py holds the click command `command`.
COMMANDS = {
    'demo': 'Run the main job on generated data, printing each command.',
    'data': 'Download a public data set and convert it, or split yours.',
    'weights': 'Download weights of backbones and of whole detectors.',
    'convert': 'Convert a data set to sharded TFRecords and a label map.',
    'config': 'Make a pipeline config from data, check or show one.',
    'summary': "List a model's layers, shapes, parameters and FLOPs.",
    'train': 'Train the model of a pipeline config.',
    'launch': 'Train in several processes, watched and restarted.',
    'data_service': 'Serve the input of trainings on other machines.',
    'eval': 'Evaluate the checkpoints of a training.',
    'status': 'Show what a training does now, its speed and results.',
    'runs': 'List the runs of a training, with what each measured.',
    'checkpoint': 'List the variables of weights files, or convert them to ours.',
    'export': 'Export a checkpoint as a SavedModel, or in other formats.',
    'predict': 'Detect objects in images with an exported model.',
    'benchmark': 'Measure the speed of a config or a model on this machine.',
}


class LazyGroup(click.Group):
    """A group that imports a command when it is run, and prints users' errors as one line."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        return importlib.import_module(f'object_detection.cli.{name}').command

    def resolve_command(self, context: click.Context, args: list[str]):
        # Suggestions are computed only after a mistake.
        if args[0] not in COMMANDS and self.get_command(context, args[0]) is None:
            import difflib

            near = difflib.get_close_matches(args[0], COMMANDS, n=1)
            if near:
                context.fail(f"No such command '{args[0]}'; did you mean '{near[0]}'?")
        return super().resolve_command(context, args)

    def format_commands(
        self, context: click.Context, formatter: click.formatting.HelpFormatter
    ) -> None:
        with formatter.section('Commands'):
            formatter.write_dl(list(COMMANDS.items()))

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        try:
            check_text(args)
        except UserError as error:
            context.fail(str(error))
        return super().parse_args(context, args)

    def invoke(self, context: click.Context) -> object:
        try:
            return super().invoke(context)
        except (UserError, OSError) as error:
            if context.params['debug'] or not is_users_error(error):
                raise
            failure = click.ClickException(str(error))
            failure.exit_code = exit_status(error)
            raise failure from error


@click.group(cls=LazyGroup, context_settings={'help_option_names': ['-h', '--help']})
@click.version_option(package_name='object-detection-toolkit')
@click.option(
    '--debug', is_flag=True, envvar='TFOD_DEBUG', help='Show tracebacks; also TFOD_DEBUG=1.'
)
def main(debug: bool) -> None:
    """Object detection and instance segmentation described by a text config.

    `tfod COMMAND --help` tells about one command; `tfod demo` is the place to start.
    """
    # TensorFlow's C++ code logs warnings that users cannot act on.
    os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')


def check_text(arguments: Sequence[str]) -> None:
    """Checks that all arguments of a command line are text, as names of files and fields must be.

    Args:
      arguments: arguments without the name of the program.

    Raises:
      UserError: if an argument is not UTF-8; the message names its flag.
    """
    for index, argument in enumerate(arguments):
        try:
            argument.encode('utf-8')
        except UnicodeEncodeError:
            before = arguments[index - 1] if index else ''
            flag = argument.partition('=')[0] if argument.startswith('-') else before
            where = flag if flag.startswith('-') and flag.isascii() else f'argument {index + 1}'
            raise UserError(
                f'{where}: expected text in UTF-8. Received: {os.fsencode(argument)!r}.'
            ) from None


def exit_status(error: Exception) -> int:
    """Returns the exit status for a user's error: 75, for `tfod launch`, if it may be temporary."""
    passes = isinstance(error, WorkerError | UnreadableCheckpointError)
    return LOST_WORKER_STATUS if passes else 1


def is_users_error(error: Exception) -> bool:
    """Whether the message alone is enough for a user to correct the mistake.

    This holds for a `UserError`, for files that cannot be opened, and for disks that are full or
    read-only. Any other error is a bug of this package, for which a traceback is printed.
    """
    if isinstance(error, OSError):
        return error.filename is not None or error.errno in _DISK_ERRORS
    return isinstance(error, UserError)


if __name__ == '__main__':
    sys.exit(main())
