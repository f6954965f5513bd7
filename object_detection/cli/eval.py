"""`tfod eval`: evaluates the checkpoints of a training."""

import os

import click

from object_detection.cli import progress
from object_detection.config import quiet_import
from object_detection.training import jobs


@click.command(name='eval')
@click.option('--config', required=True, help='Pipeline config.')
@click.option('--checkpoint_dir', required=True, help='Folder of checkpoints, or one prefix.')
@click.option('--model_dir', help='Results go to its folder eval; --checkpoint_dir if not given.')
@click.option('--run_once', is_flag=True, help='Only the newest checkpoint that is there.')
@click.option(
    '--eval_timeout', default=3600, show_default=True, help='Seconds to wait for a checkpoint.'
)
@click.option('--num_train_steps', type=int, help='Where the training ends; overrides the config.')
@click.option('--eval_on_train_data', is_flag=True, help='Training instead of validation data.')
@click.option('--sample_1_of_n_eval_examples', type=int, help='Evaluate every n-th image.')
@click.option(
    '--sample_1_of_n_eval_on_train_examples',
    default=5,
    show_default=True,
    help='The same with --eval_on_train_data.',
)
@click.option('--precision', type=click.Choice(['float32', 'bfloat16']), help='Instead of config.')
@click.option('--record_summaries/--norecord_summaries', default=True, help='TensorBoard events.')
@click.option('--config_override', default='', help='Text proto merged into the config.')
@click.option('--set', 'settings', multiple=True, help='FIELD.PATH=VALUE; repeatable.')
def command(
    config: str,
    checkpoint_dir: str,
    model_dir: str | None,
    run_once: bool,
    eval_timeout: int,
    num_train_steps: int | None,
    eval_on_train_data: bool,
    sample_1_of_n_eval_examples: int | None,
    sample_1_of_n_eval_on_train_examples: int,
    precision: str | None,
    record_summaries: bool,
    config_override: str,
    settings: tuple[str, ...],
) -> None:
    """Evaluates the newest checkpoint, then each that is added until the training has ended."""
    jobs.show_log()
    pipeline = jobs.read_config(
        config,
        for_what='eval',
        overrides_text=config_override,
        settings=settings,
        num_train_steps=num_train_steps,
        eval_on_train_data=eval_on_train_data,
        sample_1_of_n_eval_examples=sample_1_of_n_eval_examples,
        sample_1_of_n_eval_on_train_examples=sample_1_of_n_eval_on_train_examples,
    )
    # Imported here: TensorFlow takes seconds, and mistakes are told before.
    quiet_import.import_tensorflow()
    from object_detection.training.evaluate import evaluate_directory

    evaluate_directory(
        pipeline,
        checkpoint_dir,
        output_dir=model_dir or _folder_of(checkpoint_dir),
        timeout=0 if run_once else eval_timeout,
        precision=precision,
        record_summaries=record_summaries,
        show_progress=lambda: progress.show('evaluating'),
    )


def _folder_of(checkpoint_dir: str) -> str:
    """The folder itself, or that of a prefix such as folder/ckpt-3."""
    return checkpoint_dir if os.path.isdir(checkpoint_dir) else os.path.dirname(checkpoint_dir)
