"""Resolves the config of a training: writes what the caller decides into it, and checks it."""

import logging
import os

import tensorflow as tf

from object_detection.builders import optimizer_builder
from object_detection.builders.input_readers import coco as coco_reader
from object_detection.config import synthetic_data, unsupported
from object_detection.data.pipeline import record_count
from object_detection.errors import ConfigError
from object_detection.models import precision as precisions
from object_detection.optimizers import schedules
from object_detection.protos import optimizer_pb2
from object_detection.protos.input_reader_pb2 import InputReader
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from object_detection.training.distribution import strategies
from object_detection.training.monitoring import profiling
from object_detection.training.run_types import Intervals
from object_detection.validation import resumption, validate
from object_detection.validation import train_config as train_config_rules
from object_detection.weights.checkpoint_files import STATE_FILE

_logger = logging.getLogger(__name__)


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
      pipeline_config: the config, overrides applied.
      directory: the model_dir, where the training begins or resumes.
      strategy: the strategy of the devices.
      intervals: whether the training evaluates, and which steps are profiled.
      num_steps, precision: see `loop.train`.

    Returns:
      The resolved config, with the number of steps.

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
    resolve_epochs(config)
    profiling.check(intervals.profile, train_config.num_steps)
    for caution in train_config_rules.schedule_cautions(train_config):
        unsupported.log_once(caution)
    strategies.check_batch_size(strategy, train_config.batch_size)
    strategies.check_endless(strategy, config.train_input_reader.num_epochs)
    return config


def _validate(config: TrainEvalPipelineConfig, directory: str, *, evaluates: bool) -> None:
    resumes = os.path.exists(os.path.join(directory, STATE_FILE))
    if resumes:
        # Before the other rules, which would report consequences of the same mistake.
        resumption.check(config, directory)
    validate.validate(
        config,
        for_what=['train', 'eval'] if evaluates else 'train',
        resumes=resumes,
    )
    if resumes:
        synthetic_data.check_same_kind_of_data(
            config, os.path.join(directory, resumption.CONFIG_FILE_NAME)
        )
    for field in ('early_stopping', 'async_evaluation'):
        if config.eval_config.HasField(field) and not evaluates:
            unsupported.log_once(
                f'eval_config.{field} has no effect without evaluation during training '
                '(--eval_every_n_steps).'
            )


def resolve_epochs(config: TrainEvalPipelineConfig) -> None:
    """Converts epochs to steps, by counting the records unless `steps_per_epoch` is set.

    Sets `train_config.num_steps` if `num_epochs` is set instead, and the steps of a learning rate
    schedule whose `learning_rate_unit` is EPOCHS.

    Raises:
      ConfigError: if the records cannot be counted, or there are none.
    """
    train = config.train_config
    has_epochs = train.HasField('num_epochs')
    has_schedule = train.optimizer.learning_rate_unit == optimizer_pb2.Optimizer.EPOCHS
    if not has_epochs and not has_schedule:
        return
    steps_per_epoch: float = train.steps_per_epoch
    epoch = f'{train.steps_per_epoch} steps (steps_per_epoch)'
    if not steps_per_epoch:
        examples = _count(config)
        steps_per_epoch = examples / train.batch_size
        epoch = f'{examples} examples, {train.batch_size} a step'
    if has_epochs:
        train.num_steps = schedules.steps_in(train.num_epochs, steps_per_epoch)
        _logger.info('%g epochs of %s: %d steps', train.num_epochs, epoch, train.num_steps)
        train.ClearField('num_epochs')
    if has_schedule:
        train.optimizer.CopyFrom(optimizer_builder.in_steps(train.optimizer, steps_per_epoch))
        _logger.info(
            'the learning rate schedule is in epochs of %s: %g steps', epoch, steps_per_epoch
        )
    # The resolved config counts in steps only.
    train.ClearField('steps_per_epoch')


def _count(config: TrainEvalPipelineConfig) -> int:
    """Returns the number of examples in one pass over the training data."""
    reader = config.train_input_reader
    if synthetic_data.is_synthetic(reader):
        return reader.synthetic_input_reader.num_examples
    count = _count_coco if reader.HasField('coco_input_reader') else _count_records
    records = count(reader)
    examples = -(-records // max(1, reader.sample_1_of_n_examples))
    if not examples:
        raise ConfigError(
            'train_config.num_epochs, train_config.optimizer.learning_rate_unit: expected records '
            'in train_input_reader, to know what an epoch is. Received: none.'
        )
    return examples


def _count_records(reader: InputReader) -> int:
    try:
        return record_count.count(reader.tf_record_input_reader.input_path)
    except ValueError as error:
        raise ConfigError(
            f'train_input_reader.tf_record_input_reader.input_path: {error}'
        ) from error


def _count_coco(reader: InputReader) -> int:
    try:
        return sum(map(len, coco_reader.build(reader, 'train_input_reader')))
    except ValueError as error:
        raise ConfigError(str(error)) from error
