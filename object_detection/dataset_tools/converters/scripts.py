"""The flags and the main function that the scripts of the reference system's names share."""

import sys
from collections.abc import Callable

from absl import app, flags

from object_detection.data.formats.source import Source
from object_detection.dataset_tools.converters import conversion, conversion_report
from object_detection.system import file_errors, signals

# The reference system does not have these.
flags.DEFINE_bool('strict', False, 'Writes nothing if there is any problem.')
flags.DEFINE_integer('workers', 1, 'Local processes.', lower_bound=1)
flags.DEFINE_string('runner', '', 'Beam runner; by default the job runs here.')
flags.DEFINE_multi_string('beam_option', [], 'Option of the runner: --beam_option=--name=value.')

FLAGS = flags.FLAGS


def convert(
    source: Source,
    output_prefix: str,
    num_shards: int,
    name: str = '',
    *,
    is_single_file: bool = False,
) -> None:
    """Converts a data set and prints what was converted.

    Args:
      source: the data set.
      output_prefix: prefix of the paths of all outputs.
      num_shards: number of TFRecord files.
      name: name of the split, printed first.
      is_single_file: whether the only TFRecord file is named as the prefix.

    Raises:
      ConversionError, OSError, ValueError: as `conversion.convert`.
    """
    report = conversion.convert(
        source,
        output_prefix,
        num_shards,
        is_single_file=is_single_file,
        strict=FLAGS.strict,
        workers=FLAGS.workers,
        runner=FLAGS.runner,
        beam_options=FLAGS.beam_option,
    )
    print(f'{name}: ' if name else '', conversion_report.summary(report), sep='')
    if warning := conversion_report.warning(report):
        print(f'Warning: {warning}', file=sys.stderr)


def convert_to_file(source: Source, path: str, name: str = '') -> None:
    """Converts a data set as `convert` does, to one file of exactly this path."""
    convert(source, path, 1, name, is_single_file=True)


def of_flags_alone(main: Callable[[], None]) -> Callable[[list[str]], None]:
    """Returns a main function of absl that raises a UsageError if there are arguments, too."""

    def check_and_run(argv: list[str]) -> None:
        if len(argv) > 1:
            raise app.UsageError(f'Unexpected arguments: {argv[1:]}.')
        main()

    return check_and_run


def run(main: Callable[[], None]) -> None:
    """Parses the command line and runs; users' errors become one line."""
    try:
        with signals.unwinding():
            app.run(of_flags_alone(main))
    except (OSError, ValueError) as error:
        sys.exit(f'Error: {file_errors.describe(error, sys.argv[1:])}')
