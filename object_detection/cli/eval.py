"""`tfod eval`: evaluates the checkpoints of a training."""

import os
import sys
from typing import Any

import click

from object_detection.cli.common import option_flags, progress
from object_detection.config.job_options import EVALUATION_EXIT_STATUSES, EvalOptions
from object_detection.training import jobs


@option_flags.json_option
@click.command(name='eval', cls=option_flags.SectionedCommand, epilog=EVALUATION_EXIT_STATUSES)
@option_flags.click_options(EvalOptions)
@option_flags.config_option()
@click.option(
    '--checkpoint_dir',
    required=True,
    metavar='PATH',
    help='Folder of checkpoints, one prefix, or an unpacked model of the zoo.',
)
@click.option(
    '--model_dir',
    metavar='FOLDER',
    help='Results go to its folder eval; --checkpoint_dir if not given.',
)
def command(config: str, checkpoint_dir: str, model_dir: str | None, options: EvalOptions) -> None:
    """Evaluates the newest checkpoint, then each that is added until the training has ended."""
    status = jobs.run_evaluation(
        config,
        checkpoint_dir,
        model_dir or _folder_of(checkpoint_dir),
        options,
        show_progress=lambda: progress.show('evaluating'),
        on_result=_show,
    )
    sys.exit(status)


def _show(result: Any) -> None:
    """Prints the metrics of a checkpoint with --json; the log has them for a person."""
    option_flags.show_result({'step': result.step, 'metrics': result.metrics}, [])


def _folder_of(checkpoint_dir: str) -> str:
    """Returns the folder itself, or the folder of a prefix such as folder/ckpt-3."""
    return checkpoint_dir if os.path.isdir(checkpoint_dir) else os.path.dirname(checkpoint_dir)
