"""The main function of the scripts: flags of absl for the options of a job.

Neither this module nor the scripts import TensorFlow or Beam, which --help does not need.
"""

import dataclasses
import sys
import typing
from types import NoneType

from absl import app, flags

from object_detection import registry
from object_detection.dataset_tools.context_rcnn import options as job_options
from object_detection.system import file_errors, signals

# absl lists the flags in the --help of the script that calls this.
flags.disclaim_key_flags()


def run(kind: type, job: str, summary: str = 'record_job:summary') -> None:
    """Parses the command line and runs a job; users' errors become one line.

    Args:
      kind: the class of the job's options; its fields are the flags.
      job: 'module:function' of this folder, which runs the job and returns its report.
      summary: the same of the function that makes a text of the report.
    """
    for field in dataclasses.fields(kind):
        _define(field)
    flags.DEFINE_multi_string('beam_option', [], 'Option of the runner: --beam_option=--name=x.')

    def main(argv: list[str]) -> None:
        if len(argv) > 1:
            raise app.UsageError(f'Unexpected arguments: {argv[1:]}.')
        values = flags.FLAGS
        given = {name: values[name].value for name in job_options.names(kind)}
        print(_run((job, summary), kind(**given), values.beam_option))

    try:
        with signals.unwinding():
            app.run(main, [sys.argv[0], *job_options.join_booleans(sys.argv[1:], kind)])
    except ValueError as error:
        sys.exit(f'Error: {error}')


def _run(places: tuple[str, str], options: job_options.JobOptions, beam_options: list[str]) -> str:
    job, summary = (registry.load(f'{__package__}.{place}') for place in places)
    try:
        return summary(job(options, beam_options))
    except (OSError, ValueError) as error:
        sys.exit(f'Error: {file_errors.describe(error, sys.argv[1:])}')


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
