"""`tfod train`: trains the model of a pipeline config."""

import sys

import click

from object_detection.cli import option_flags
from object_detection.training import jobs
from object_detection.training.job_options import TrainOptions


@click.command(name='train')
@option_flags.click_options(TrainOptions)
@click.option('--config', required=True, help='Pipeline config.')
@click.option('--model_dir', required=True, help='Folder of checkpoints, events and results.')
def command(config: str, model_dir: str, options: TrainOptions) -> None:
    """Trains from the newest checkpoint of --model_dir, or from scratch if there is none.

    SIGTERM and ctrl-C save a checkpoint first; the same command then goes on from it.
    """
    sys.exit(jobs.run_training(config, model_dir, options))
