"""The `tfod` command. Sub-commands are imported when they run: TensorFlow takes seconds to load."""

import errno
import importlib
import itertools
import os
import re
import shlex
import sys
import tempfile
import traceback
from collections.abc import Sequence

import click

from object_detection import registry
from object_detection.config import report
from object_detection.errors import (
    LOST_WORKER_STATUS,
    UnreadableCheckpointError,
    UserError,
    WorkerError,
    expected,
)
from object_detection.system import file_errors, signals

# Errors of writing: the disk or its quota is full, or the file system is read-only.
_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG)
# Files of TensorFlow and Beam that read and write URLs, with errors of many types.
_FILE_SYSTEMS = ('lib/io/file_io.py', 'beam/io/filesystems.py', 'beam/io/localfilesystem.py')

_QUIET, _PLUGIN = 'quiet', 'plugin'
# Commands whose arguments may be those of another program.
_RUN_OTHERS = ('launch',)
# The command line, in the context of a command.
_ARGUMENTS = 'object_detection.arguments'
_MAX_MESSAGE = 600  # characters

# Name -> line of `tfod --help`; object_detection/cli/<name>.py holds the click command `command`.
COMMANDS = {
    'demo': 'Run the main job on generated data, printing each command.',
    'data': 'Download a public data set and convert it, or split yours.',
    'weights': 'Download weights of backbones and of whole detectors.',
    'convert': 'Convert a data set to sharded TFRecords and a label map.',
    'context': 'Make the data of Context R-CNN, in four jobs.',
    'config': 'Make a pipeline config from data, check or show one.',
    'summary': "List a model's layers, shapes, parameters and FLOPs.",
    'train': 'Train the model of a pipeline config.',
    'launch': 'Train in several processes, watched and restarted.',
    'data_service': 'Serve the input of trainings on other machines.',
    'eval': 'Evaluate the checkpoints of a training.',
    'report': 'Write a page about a training, or a comparison of several.',
    'status': 'Show what a training does now, its speed and results.',
    'runs': 'List the runs of a training, with what each measured.',
    'checkpoint': 'List the variables of weights files, or convert them to ours.',
    'export': 'Export a checkpoint as a SavedModel, or in other formats.',
    'predict': 'Detect objects in images with an exported model.',
    'serve': 'Serve a model over HTTP: a page, an API, metrics.',
    'benchmark': 'Measure the speed of a config or a model on this machine.',
}


class LazyGroup(click.Group):
    """A group that imports a command when it is run, and prints users' errors as one line."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        if name not in _RUN_OTHERS:
            # Before the import: the commands and choices of some are the names of tables.
            registry.add_plugins(_values_of(_PLUGIN, _arguments(context)))
        command = importlib.import_module(f'object_detection.cli.{name}').command
        add_common_options(command)
        return command

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
        context.meta[_ARGUMENTS] = list(args)
        try:
            check_text(args)
        except UserError as error:
            context.fail(str(error))
        return super().parse_args(context, args)

    def invoke(self, context: click.Context) -> object:
        try:
            with signals.unwinding(), report.job():
                return super().invoke(context)
        # click ends quietly if nobody reads the output any more, as in `tfod ... | head`.
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise
        except Exception as error:
            if context.params['debug']:
                raise
            text = describe_user_error(error) if is_users_error(error) else describe_defect(error)
            failure = click.ClickException(text)
            failure.exit_code = exit_status(error)
            raise failure from error


@click.group(cls=LazyGroup, context_settings={'help_option_names': ['-h', '--help']})
@click.version_option(package_name='object-detection-toolkit')
@click.option(
    '--debug', is_flag=True, envvar='TFOD_DEBUG', help='Show tracebacks; also TFOD_DEBUG=1.'
)
def main(debug: bool) -> None:
    """Object detection and instance segmentation described by a text config.

    `tfod demo` shows all of it on generated data. With your own data: `tfod convert`, then
    `tfod config new`, then `tfod train`. `tfod COMMAND --help` describes one command.
    """
    # TensorFlow's C++ code logs warnings that users cannot act on.
    os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')


def add_common_options(command: click.Command) -> None:
    """Adds the options that every command has, to a command and to those within it."""
    for inner in getattr(command, 'commands', {}).values():
        add_common_options(inner)
        # Click would cut the first sentence where a line is full.
        inner.short_help = inner.short_help or first_sentence(inner.help or '')
    if not isinstance(command, click.Group) and all(p.name != _QUIET for p in command.params):
        command.params.append(
            click.Option(
                [f'--{_QUIET}'],
                is_flag=True,
                is_eager=True,
                expose_value=False,
                callback=lambda context, option, value: _be_quiet() if value else None,
                help='Show no progress; log warnings and errors only.',
            )
        )
        command.params.append(
            click.Option(
                [f'--{_PLUGIN}'],
                multiple=True,
                metavar='MODULE',
                is_eager=True,
                expose_value=False,
                callback=lambda context, option, values: registry.add_plugins(values),
                help=registry.PLUGIN_HELP,
            )
        )


def _arguments(context: click.Context | None) -> Sequence[str]:
    return () if context is None else context.meta.get(_ARGUMENTS, ())


def _values_of(name: str, arguments: Sequence[str]) -> list[str]:
    """Returns the values of an option of a command line, before click knows its options."""
    arguments = list(itertools.takewhile(lambda each: each != '--', arguments))
    flag = f'--{name}'
    after = [value for option, value in itertools.pairwise(arguments) if option == flag]
    return after + [a.partition('=')[2] for a in arguments if a.startswith(f'{flag}=')]


def first_sentence(text: str) -> str:
    """Returns the first sentence of a help text, on one line."""
    return re.split(r'(?<=\.)\s', ' '.join(text.split()))[0]


def _be_quiet() -> None:
    # Imported here: it imports rich, which --help does not need.
    from object_detection.system import console

    console.be_quiet()


def describe_user_error(error: Exception) -> str:
    """Returns the message of an error of a user; several problems are a numbered list.

    Of a file that the command line names, it says by which option.
    """
    problems = getattr(error, 'problems', ())
    if len(problems) < 2:
        context = click.get_current_context(silent=True)
        arguments = sys.argv[1:] if context is None else _arguments(context)
        return file_errors.describe(error, arguments)
    listed = [f'{i:3}. {indented(text, 5)}' for i, text in enumerate(problems, 1)]
    return '\n'.join([f'{len(problems)} problems:', *listed])


def describe_defect(error: Exception) -> str:
    """Returns a short block for an error that is most likely a defect of this package.

    The traceback goes to a file, so that it is not lost with a run that took long.
    """
    last = traceback.extract_tb(error.__traceback__)[-1]
    message = ''.join(traceback.format_exception_only(error)).strip()
    shown = message if len(message) <= _MAX_MESSAGE else f'{message[:_MAX_MESSAGE]} ...'
    return '\n'.join(
        [
            'this is most likely a defect of this program.',
            f'  {indented(shown, 2)}',
            f'  raised in {last.name}, {last.filename}, line {last.lineno}',
            f'  The traceback is in {_write_traceback(error)}; `tfod --debug COMMAND` prints it.',
            '  Please report it to the maintainers, with that file and your command.',
        ]
    )


def indented(text: str, spaces: int) -> str:
    """Returns a text whose lines after the first are indented."""
    return text.replace('\n', '\n' + ' ' * spaces)


def _write_traceback(error: Exception) -> str:
    text = ''.join(traceback.format_exception(error))
    try:
        with tempfile.NamedTemporaryFile(
            'w', prefix='tfod-error-', suffix='.txt', delete=False, encoding='utf-8'
        ) as file:
            file.write(f'{shlex.join(sys.argv)}\n\n{text}')
    except OSError:
        # With a full disk, this is where it can be seen.
        click.echo(text, err=True)
        return 'the lines above'
    return file.name


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
            raise expected(where, 'text in UTF-8', f'{os.fsencode(argument)!r}') from None


def exit_status(error: Exception) -> int:
    """Returns the exit status for a user's error: 75, for `tfod launch`, if it may be temporary."""
    passes = isinstance(error, WorkerError | UnreadableCheckpointError)
    return LOST_WORKER_STATUS if passes else 1


def is_users_error(error: Exception) -> bool:
    """Whether the message alone is enough for a user to correct the mistake.

    This holds for a `UserError`, for files that cannot be opened, here or in an object store, and
    for disks that are full or read-only. Any other error is a defect of this package, see
    `describe_defect`.
    """
    frames = traceback.extract_tb(error.__traceback__)
    if frames and frames[-1].filename.endswith(_FILE_SYSTEMS):
        return True
    if isinstance(error, OSError):
        is_ours = isinstance(error, FileNotFoundError)  # The system names the file.
        return is_ours or error.filename is not None or error.errno in _DISK_ERRORS
    return isinstance(error, UserError)


if __name__ == '__main__':
    sys.exit(main())
