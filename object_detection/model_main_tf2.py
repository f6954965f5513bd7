"""Trains a detector, or evaluates its checkpoints.

  python -m object_detection.model_main_tf2 --pipeline_config_path=FILE --model_dir=DIR
  python -m object_detection.model_main_tf2 --pipeline_config_path=FILE --model_dir=DIR \
      --checkpoint_dir=DIR

Exit status: 0 if all is done; 1 after an error or for a wrong command line; 75 if another worker
was lost or a checkpoint cannot be read now, 130 after ctrl-C and 143 after SIGTERM: the same
command resumes from the newest checkpoint.
"""

import dataclasses
import sys

from absl import app, flags, logging

from object_detection import registry
from object_detection.cli.common import option_flags, scripts
from object_detection.config.job_options import EvalOptions, TrainOptions
from object_detection.training import jobs


def define_flags() -> None:
    """Defines the flags; in a function, because other programs have flags of the same names."""
    flags.DEFINE_string('pipeline_config_path', None, 'The pipeline config file.')
    flags.DEFINE_string('model_dir', None, 'Where checkpoints, events and results are written.')
    flags.DEFINE_string(
        'checkpoint_dir',
        None,
        'Only evaluate: the newest checkpoint of this directory, then each that is added. Results '
        'go to model_dir/eval.',
    )
    flags.DEFINE_alias('config', 'pipeline_config_path')
    option_flags.define_absl(TrainOptions, EvalOptions)
    flags.DEFINE_multi_string('plugin', [], registry.PLUGIN_HELP)
    flags.mark_flags_as_required(['pipeline_config_path', 'model_dir'])


def main(argv: list[str]) -> int:
    """Runs what the flags say; returns the exit status."""
    values = flags.FLAGS
    scripts.check_flags_only(argv)
    registry.add_plugins(values.plugin)
    _log_flags_without_effect(values)
    if values.checkpoint_dir:
        return jobs.run_evaluation(
            values.pipeline_config_path,
            values.checkpoint_dir,
            values.model_dir,
            option_flags.from_absl(EvalOptions, values),
        )
    if values.run_once:
        raise app.UsageError('--run_once: expected --checkpoint_dir with it. Received: none.')
    return jobs.run_training(
        values.pipeline_config_path, values.model_dir, option_flags.from_absl(TrainOptions, values)
    )


def _log_flags_without_effect(values: flags.FlagValues) -> None:
    used, other = TrainOptions, EvalOptions
    reason = 'without --checkpoint_dir, which this training lacks'
    if values.checkpoint_dir:
        used, other, reason = other, used, 'on an evaluation (--checkpoint_dir)'
    known = {field.name for field in dataclasses.fields(used)}
    for field in dataclasses.fields(other):
        if field.name not in known and values[field.name].present:
            print(f'--{field.name} has no effect {reason}.', file=sys.stderr)


def _hide_libraries_log() -> None:
    # absl shows it from INFO on, unless --verbosity says something else.
    if not flags.FLAGS['verbosity'].present:
        logging.set_verbosity(logging.WARNING)


def run() -> None:
    """Parses the command line and runs; users' errors become one line."""
    app.call_after_init(_hide_libraries_log)
    scripts.run(define_flags, main)


if __name__ == '__main__':
    run()
