"""`tfod train`: trains the model of a pipeline config."""

import sys

import click

from object_detection.config import quiet_import
from object_detection.training import jobs


@click.command(name='train')
@click.option('--config', required=True, help='Pipeline config.')
@click.option('--model_dir', required=True, help='Folder of checkpoints, events and results.')
@click.option('--num_train_steps', type=int, help='Steps in all; overrides the config.')
@click.option(
    '--eval_every_n_steps', default=0, help='Evaluate during training and at its end; 0 does not.'
)
@click.option('--checkpoint_every_n', default=1000, show_default=True, help='Steps between saves.')
@click.option('--max_to_keep', default=7, show_default=True, help='Checkpoints kept; 0 keeps all.')
@click.option('--log_every_n', default=100, show_default=True, help='Steps between log records.')
@click.option(
    '--steps_per_loop', default=1, show_default=True, help='Steps in one call of the graph.'
)
@click.option('--precision', type=click.Choice(['float32', 'bfloat16']), help='Instead of config.')
@click.option('--seed', type=int, help='Makes a run repeatable; drawn and logged if not given.')
@click.option('--record_summaries/--norecord_summaries', default=True, help='TensorBoard events.')
@click.option('--config_override', default='', help='Text proto merged into the config.')
@click.option('--set', 'settings', multiple=True, help='FIELD.PATH=VALUE; repeatable.')
def command(
    config: str,
    model_dir: str,
    num_train_steps: int | None,
    eval_every_n_steps: int,
    checkpoint_every_n: int,
    max_to_keep: int,
    log_every_n: int,
    steps_per_loop: int,
    precision: str | None,
    seed: int | None,
    record_summaries: bool,
    config_override: str,
    settings: tuple[str, ...],
) -> None:
    """Trains from the newest checkpoint of --model_dir, or from scratch if there is none.

    SIGTERM and ctrl-C save a checkpoint first; the same command then goes on from it.
    """
    jobs.show_log()
    pipeline = jobs.read_config(
        config,
        for_what='train and eval' if eval_every_n_steps else 'train',
        overrides_text=config_override,
        settings=settings,
        num_train_steps=num_train_steps,
    )
    # Imported here: TensorFlow takes seconds, and mistakes are told before.
    quiet_import.import_tensorflow()
    from object_detection.training.loop import Intervals, train

    result = train(
        pipeline,
        model_dir,
        intervals=Intervals(
            log=log_every_n,
            checkpoint=checkpoint_every_n,
            evaluation=eval_every_n_steps,
            call=steps_per_loop,
        ),
        max_to_keep=max_to_keep or None,
        record_summaries=record_summaries,
        precision=precision,
        seed=seed,
    )
    sys.exit(result.exit_status)
