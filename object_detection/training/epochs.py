"""From epochs to steps, by counting the records of a pass over the training data."""

import logging

from object_detection.builders import optimizer_builder
from object_detection.builders.input_readers import annotation_files, rules
from object_detection.config import synthetic_data
from object_detection.data.pipeline import record_files
from object_detection.errors import ConfigError
from object_detection.optimizers import schedules
from object_detection.protos import optimizer_pb2
from object_detection.protos.input_reader_pb2 import InputReader
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig

_logger = logging.getLogger(__name__)


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
    count = _count_images if rules.reads_annotations(reader) else _count_records
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
        return record_files.count(reader.tf_record_input_reader.input_path)
    except ValueError as error:
        raise ConfigError(
            f'train_input_reader.tf_record_input_reader.input_path: {error}'
        ) from error


def _count_images(reader: InputReader) -> int:
    try:
        return sum(map(len, annotation_files.build(reader, 'train_input_reader')))
    except ValueError as error:
        raise ConfigError(str(error)) from error
