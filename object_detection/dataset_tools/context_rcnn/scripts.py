"""The main function of the scripts: flags of absl for the options of a job."""

import dataclasses
import sys
import typing
from collections.abc import Callable
from types import NoneType
from typing import Any

from absl import app, flags

from object_detection.dataset_tools.context_rcnn import options as job_options
from object_detection.dataset_tools.converters.beam_job import ConversionError

# absl lists the flags in the --help of the script that calls this.
flags.disclaim_key_flags()


def run(kind: type, job: Callable[..., dict[str, Any]], show: Callable[[dict], str]) -> None:
    """Parses the command line and runs a job; users' errors become one line.

    Args:
      kind: the class of the job's options; its fields are the flags.
      job: runs the job, as `context.run`.
      show: returns the line to print of a report.
    """
    for field in dataclasses.fields(kind):
        _define(field)
    flags.DEFINE_multi_string('beam_option', [], 'Option of the runner: --beam_option=--name=x.')

    def main(argv: list[str]) -> None:
        if len(argv) > 1:
            raise app.UsageError(f'Unexpected arguments: {argv[1:]}.')
        values = flags.FLAGS
        given = {name: values[name].value for name in job_options.names(kind)}
        print(show(job(kind(**given), values.beam_option)))

    try:
        arguments = job_options.join_booleans(sys.argv[1:], kind)
        app.run(main, [sys.argv[0], *arguments])
    except (ConversionError, OSError, ValueError) as error:
        sys.exit(f'Error: {error}')


def _define(field: dataclasses.Field) -> None:
    kinds = [each for each in typing.get_args(field.type) if each is not NoneType]
    kind = kinds[0] if kinds else field.type
    help_text = field.metadata['help']
    if choices := field.metadata['choices']:
        flags.DEFINE_enum(field.name, field.default, list(choices), help_text)
        return
    define = {
        bool: flags.DEFINE_bool,
        int: flags.DEFINE_integer,
        float: flags.DEFINE_float,
        str: flags.DEFINE_string,
    }[kind]
    define(field.name, field.default, help_text)
