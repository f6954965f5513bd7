"""Trains a detector, or evaluates its checkpoints.

  python -m object_detection.model_main_tf2 --pipeline_config_path=FILE --model_dir=DIR
  python -m object_detection.model_main_tf2 --pipeline_config_path=FILE --model_dir=DIR \
      --checkpoint_dir=DIR
"""

import os
import sys

from absl import app, flags

from object_detection.cli.main import is_users_error
from object_detection.config import quiet_import
from object_detection.training import jobs


def define_flags() -> None:
    """Defines the flags; in a function, because other programs have flags of the same names."""
    flags.DEFINE_string('pipeline_config_path', None, 'The pipeline config file.')
    flags.DEFINE_string('model_dir', None, 'Where checkpoints, events and results are written.')
    flags.DEFINE_integer('num_train_steps', None, 'Steps in all; overrides the config.')
    flags.DEFINE_string(
        'checkpoint_dir',
        None,
        'Only evaluate: the newest checkpoint of this directory, then each that is added. Results '
        'go to model_dir/eval.',
    )
    flags.DEFINE_integer('eval_timeout', 3600, 'Seconds to wait for another checkpoint.')
    flags.DEFINE_bool('run_once', False, 'With --checkpoint_dir: the newest checkpoint only.')
    flags.DEFINE_integer(
        'eval_every_n_steps', 0, 'Evaluate during training, and at its end; 0 does not.'
    )
    flags.DEFINE_bool(
        'eval_on_train_data', False, 'Evaluate training data instead of validation data.'
    )
    flags.DEFINE_integer(
        'sample_1_of_n_eval_examples', None, 'Evaluate every n-th image; overrides the config.'
    )
    flags.DEFINE_integer(
        'sample_1_of_n_eval_on_train_examples', 5, 'The same with --eval_on_train_data.'
    )
    flags.DEFINE_bool('use_tpu', False, 'Train on TPUs; not supported yet.')
    flags.DEFINE_string('tpu_name', None, 'Name of the TPU; not supported yet.')
    flags.DEFINE_integer('num_workers', 1, 'Number of processes; more are not supported yet.')
    flags.DEFINE_integer('checkpoint_every_n', 1000, 'Steps between two checkpoints.')
    flags.DEFINE_integer('max_to_keep', 7, 'How many checkpoints to keep; 0 keeps all.')
    flags.DEFINE_bool('record_summaries', True, 'Write TensorBoard events.')
    flags.DEFINE_integer('log_every_n', 100, 'Steps between two records in the log.')
    flags.DEFINE_integer('steps_per_loop', 1, 'Steps in one call of the compiled function.')
    flags.DEFINE_enum('precision', None, ['float32', 'bfloat16'], 'Overrides the config.')
    flags.DEFINE_integer('seed', None, 'Makes a run repeatable; drawn and logged if not given.')
    flags.DEFINE_string(
        'config_override', '', 'A text proto, or a file of one, merged over the config.'
    )
    flags.DEFINE_multi_string(
        'set', [], 'A field to change, e.g. train_config.batch_size=4; repeatable.'
    )
    flags.mark_flags_as_required(['pipeline_config_path', 'model_dir'])


def main(argv: list[str]) -> int:
    """Runs what the flags say; returns the exit status."""
    values = flags.FLAGS
    if len(argv) > 1:
        raise app.UsageError(f'Expected flags only. Received: {" ".join(argv[1:])}.')
    if values.run_once and not values.checkpoint_dir:
        raise app.UsageError('--run_once: expected --checkpoint_dir with it. Received: none.')
    jobs.show_log()
    jobs.reject_several_devices(
        use_tpu=values.use_tpu, tpu_name=values.tpu_name, num_workers=values.num_workers
    )
    trains, evaluates = not values.checkpoint_dir, values.eval_every_n_steps > 0
    pipeline = jobs.read_config(
        values.pipeline_config_path,
        for_what='eval' if not trains else 'train and eval' if evaluates else 'train',
        overrides_text=values.config_override,
        settings=values['set'].value,
        num_train_steps=values.num_train_steps,
        eval_on_train_data=values.eval_on_train_data,
        sample_1_of_n_eval_examples=values.sample_1_of_n_eval_examples,
        sample_1_of_n_eval_on_train_examples=values.sample_1_of_n_eval_on_train_examples,
    )
    quiet_import.import_tensorflow()
    return _train(pipeline, values) if trains else _evaluate(pipeline, values)


def _train(pipeline, values: flags.FlagValues) -> int:
    # Imported here: TensorFlow takes seconds, and mistakes are told before.
    from object_detection.training.loop import Intervals, train

    result = train(
        pipeline,
        values.model_dir,
        intervals=Intervals(
            log=values.log_every_n,
            checkpoint=values.checkpoint_every_n,
            evaluation=values.eval_every_n_steps,
            call=values.steps_per_loop,
        ),
        max_to_keep=values.max_to_keep or None,
        record_summaries=values.record_summaries,
        precision=values.precision,
        seed=values.seed,
    )
    return result.exit_status


def _evaluate(pipeline, values: flags.FlagValues) -> int:
    from object_detection.training.evaluate import evaluate_directory

    evaluate_directory(
        pipeline,
        values.checkpoint_dir,
        output_dir=values.model_dir,
        timeout=0 if values.run_once else values.eval_timeout,
        precision=values.precision,
        record_summaries=values.record_summaries,
    )
    return 0


def run() -> None:
    """Parses the command line and runs; users' errors become one line."""
    os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
    define_flags()
    try:
        app.run(main)
    except (ValueError, OSError) as error:
        if not is_users_error(error):
            raise
        sys.exit(f'Error: {error}')


if __name__ == '__main__':
    run()
