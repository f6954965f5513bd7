"""The length of a training in steps, where the config says epochs."""

import logging
import math

from object_detection.config.errors import ConfigError
from object_detection.data import record_count
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig

_logger = logging.getLogger(__name__)


def resolve(config: TrainEvalPipelineConfig) -> None:
    """Sets `train_config.num_steps` where `num_epochs` is set instead, by counting the records.

    Raises:
      ConfigError: if the records cannot be counted, or there are none.
    """
    train = config.train_config
    if not train.HasField('num_epochs'):
        return
    reader = config.train_input_reader
    try:
        records = record_count.count(reader.tf_record_input_reader.input_path)
    except ValueError as error:
        raise ConfigError(
            f'train_input_reader.tf_record_input_reader.input_path: {error}'
        ) from error
    examples = -(-records // max(1, reader.sample_1_of_n_examples))
    if not examples:
        raise ConfigError(
            'train_config.num_epochs: expected records in train_input_reader. Received: none.'
        )
    steps = train.num_epochs * examples / train.batch_size
    # The field has 24 bits: 0.1 epochs of 1000 would be 101 steps.
    train.num_steps = max(1, math.ceil(steps * (1 - 1e-7)))
    _logger.info(
        '%g epochs of %d examples, %d a step: %d steps',
        train.num_epochs,
        examples,
        train.batch_size,
        train.num_steps,
    )
    train.ClearField('num_epochs')
