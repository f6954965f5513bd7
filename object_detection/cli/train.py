"""`tfod train`: trains the model of a pipeline config."""

import sys

import click

from object_detection.cli.common import option_flags
from object_detection.config.job_options import TRAINING_EXIT_STATUSES, TrainOptions
from object_detection.tasks import runs
from object_detection.training import status


@option_flags.json_option
@click.command(name='train', cls=option_flags.SectionedCommand, epilog=TRAINING_EXIT_STATUSES)
@option_flags.click_options(TrainOptions)
@option_flags.config_option()
@click.option(
    '--model_dir',
    required=True,
    metavar='FOLDER',
    help='Folder of checkpoints, events and results.',
)
def command(config: str, model_dir: str, options: TrainOptions) -> None:
    """Trains from the newest checkpoint of --model_dir, or from scratch if there is none.

    SIGTERM and ctrl-C save a checkpoint first; the same command then resumes from it. A
    training that is done has a page with its results, report.html in --model_dir.
    """
    exit_status = runs.run_training(config, model_dir, options)
    # Whoever watches a training has read its log already.
    option_flags.show_result(status.read(model_dir), [])
    sys.exit(exit_status)
