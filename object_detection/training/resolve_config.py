"""From a config to that of a training: what the caller decides, and the checks of it."""

import os

import tensorflow as tf

from object_detection.config import synthetic_data, unsupported
from object_detection.errors import ConfigError
from object_detection.models import precision as precisions
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from object_detection.training import epochs
from object_detection.training.distribution import strategies
from object_detection.training.monitoring import profiling
from object_detection.training.run_types import Intervals
from object_detection.validation import resumption, schedule_cautions, validate
from object_detection.weights.checkpoint_files import STATE_FILE


def resolve(
    pipeline_config: TrainEvalPipelineConfig,
    directory: str,
    strategy: tf.distribute.Strategy,
    intervals: Intervals,
    *,
    num_steps: int | None = None,
    precision: str | None = None,
) -> TrainEvalPipelineConfig:
    """Writes what the caller decides into a copy of the config, and checks it.

    Args:
      pipeline_config: overrides applied.
      directory: where the training goes on, or begins.
      strategy: of the devices.
      intervals: of evaluations and profiles.
      num_steps, precision: see `loop.train`.

    Returns:
      The config, with the number of steps.

    Raises:
      ConfigError: if it cannot be trained.
    """
    config = TrainEvalPipelineConfig()
    config.CopyFrom(pipeline_config)
    train_config = config.train_config
    if num_steps is not None:
        train_config.num_steps = num_steps
        train_config.ClearField('num_epochs')
    if train_config.num_steps < 1 and not train_config.HasField('num_epochs'):
        raise ConfigError(
            'train_config.num_steps: expected the number of steps to train, there or as '
            f'--num_train_steps. Received: {train_config.num_steps}.'
        )
    use_tpu = isinstance(strategy, tf.distribute.TPUStrategy)
    precisions.write(train_config, precision, use_tpu=use_tpu)
    _validate(config, directory, evaluates=bool(intervals.evaluation))
    epochs.resolve(config)
    profiling.check(intervals.profile, train_config.num_steps)
    for caution in schedule_cautions.find(train_config):
        unsupported.log_once(caution)
    strategies.check_batch_size(strategy, train_config.batch_size)
    strategies.check_endless(strategy, config.train_input_reader.num_epochs)
    return config


def _validate(config: TrainEvalPipelineConfig, directory: str, *, evaluates: bool) -> None:
    resumes = os.path.exists(os.path.join(directory, STATE_FILE))
    if resumes:
        # Before the rules, which would find what follows from it.
        resumption.check(config, directory)
    validate.validate(
        config,
        for_what=['train', 'eval'] if evaluates else 'train',
        resumes=resumes,
    )
    if resumes:
        synthetic_data.check_goes_on(config, os.path.join(directory, resumption.CONFIG_FILE_NAME))
    for field in ('early_stopping', 'async_evaluation'):
        if config.eval_config.HasField(field) and not evaluates:
            unsupported.log_once(
                f'eval_config.{field} has no effect without evaluation during training '
                '(--eval_every_n_steps).'
            )
