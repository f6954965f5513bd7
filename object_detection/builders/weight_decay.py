"""One penalty of the weights, in place of regularizers of single layers."""

import logging
import math
import re

import tensorflow as tf

from object_detection.core import sums
from object_detection.errors import ConfigError
from object_detection.meta_architectures.detection_model import DetectionModel
from object_detection.protos.train_pb2 import TrainConfig
from object_detection.training.step import trainable_variables
from object_detection.validation import train_config as train_config_rules

_logger = logging.getLogger(__name__)


def install(detector: DetectionModel, config: TrainConfig) -> None:
    """Makes `config.weight_decay`, if set, the detector's only penalty.

    It is weight / 2 times the sum of squares of the variables that are trained and in whose names
    `exclude_pattern` is not found.

    Args:
      detector: with all variables built.
      config: says also which variables are frozen.

    Raises:
      ConfigError: if a field of it is wrong, or no variable is left.
    """
    if not config.HasField('weight_decay'):
        return
    decay = config.weight_decay
    problems = list(train_config_rules.weight_decay_problems(decay))
    if problems:
        raise ConfigError('\n'.join(problems))
    excluded = [*filter(None, [decay.exclude_pattern]), *config.freeze_variables]
    updated = list(config.update_trainable_variables)
    variables = [
        variable
        for name, variable in trainable_variables(detector).items()
        if not _is_found(excluded, name) and (not updated or _is_found(updated, name))
    ]
    if not variables:
        raise ConfigError(
            'train_config.weight_decay.exclude_pattern: expected one that leaves trained '
            f'variables. Received: {decay.exclude_pattern!r}.'
        )
    _logger.info(
        'weight decay %g of %s parameters in %d variables',
        decay.weight,
        f'{sum(math.prod(variable.shape) for variable in variables):,}',
        len(variables),
    )

    def penalty() -> tf.Tensor:
        # l2_loss is half the sum of squares.
        return decay.weight * sums.in_order([tf.nn.l2_loss(variable) for variable in variables])

    detector.weight_decay = penalty


def _is_found(patterns: list[str], name: str) -> bool:
    return any(re.search(pattern, name) for pattern in patterns)
