"""Selects trained variables, factors of gradients and learning rates, and weight decay."""

import logging
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import keras
import tensorflow as tf

from object_detection.builders import training_rules
from object_detection.core import determinism
from object_detection.errors import ConfigError, format_list, raise_if_any
from object_detection.meta_architectures.detection_model import DetectionModel
from object_detection.models.normalization import FrozenBatchNorm
from object_detection.protos import optimizer_pb2
from object_detection.protos.train_pb2 import TrainConfig
from object_detection.system import private_names

_MAX_NAMES = 5
_MAX_GROUPS = 12

_logger = logging.getLogger(__name__)


class Selection(NamedTuple):
    """The trained variables, and the trainable variables that are not trained, by name."""

    trained: dict[str, tf.Variable]
    frozen: dict[str, tf.Variable]

    def describe(self) -> list[str]:
        """Returns log lines: the number of trained variables, and the frozen variables, if any."""
        lines = [f'training {_size(self.trained)}']
        if self.frozen:
            groups = _groups(list(self.frozen), list(self.trained))
            lines.append(f'frozen are {_size(self.frozen)}: {format_list(groups, _MAX_GROUPS)}')
        return lines


def choose(
    named: Mapping[str, tf.Variable],
    *,
    update_patterns: Sequence[str],
    freeze_patterns: Sequence[str],
) -> Selection:
    """Selects the trained variables by `update_trainable_variables` and `freeze_variables`.

    An expression may match anywhere in a name; `freeze_patterns` take precedence.

    Args:
      named: the trainable variables by their stable names, such as backbone/conv1_conv/kernel.
      update_patterns: regular expressions; only variables that match one are trained. None: all.
      freeze_patterns: regular expressions; variables that match one are not trained.

    Raises:
      ConfigError: if an expression is invalid or matches no name, or no variable is left to train.
    """
    updated = _matching('train_config.update_trainable_variables', update_patterns, named)
    frozen = _matching('train_config.freeze_variables', freeze_patterns, named)
    trained = (updated if update_patterns else set(named)) - frozen
    if not trained:
        raise ConfigError(
            'train_config.freeze_variables and update_trainable_variables: expected variables that '
            f'are left to train. Received: freeze_variables {list(freeze_patterns)} and '
            f'update_trainable_variables {list(update_patterns)}, which leave none of '
            f'{len(named)}, such as {_listing(named)}.'
        )
    return Selection(
        trained={name: variable for name, variable in named.items() if name in trained},
        frozen={name: variable for name, variable in named.items() if name not in trained},
    )


def freeze_norms(detector: keras.layers.Layer, frozen: Mapping[str, tf.Variable]) -> int:
    """Freezes the batch norms whose scale and offset are not trained; call it before the first run.

    Frozen batch norms normalize by their moving statistics, which no longer change. The reference
    implementation lets them change. A batch norm without scale and offset is not changed.

    Args:
      detector: with all variables built.
      frozen: `Selection.frozen`.

    Returns:
      The number of batch norms that were not frozen before.
    """
    not_trained = {id(variable) for variable in frozen.values()}
    count = 0
    for layer in private_names.layers_in(detector, include_self=False):
        if not isinstance(layer, keras.layers.BatchNormalization) or not layer.trainable:
            continue
        affine = [variable for variable in (layer.gamma, layer.beta) if variable is not None]
        if affine and all(id(variable.value) in not_trained for variable in affine):
            layer.trainable = False
            count += not isinstance(layer, FrozenBatchNorm)
    return count


def multipliers(
    names: Collection[str], entries: Iterable[optimizer_pb2.LearningRateMultiplier]
) -> dict[str, float]:
    """Returns the factors of the learning rate by variable name; names without one are left out.

    Args:
      names: of the variables that are trained.
      entries: `Optimizer.learning_rate_multiplier`; the first entry that matches a name applies.

    Raises:
      ConfigError: if an expression is invalid, a factor is not positive, or an entry has no
        effect because it matches no name that earlier entries do not match.
    """
    entries = list(entries)
    raise_if_any(training_rules.multiplier_problems(entries))
    factors: dict[str, float] = {}
    for index, entry in enumerate(entries):
        field = f'{training_rules.MULTIPLIER}[{index}].variables'
        matching = _matching_one(field, entry.variables, names)
        fresh = [name for name in matching if name not in factors]
        if not fresh:
            raise ConfigError(
                f'{field}: expected variables that no entry before it matches, as the first one '
                f'counts; put it before them. Received: {entry.variables!r}.'
            )
        factors |= dict.fromkeys(fresh, entry.multiplier)
    return factors


def gradient_factors(names: Iterable[str], bias_grad_multiplier: float) -> dict[str, float]:
    """Returns the factor of each bias's gradient by name; {} for 0 and 1, which change nothing.

    Args:
      names: of the variables that are trained.
      bias_grad_multiplier: see `TrainConfig`.
    """
    if bias_grad_multiplier in (0, 1):
        return {}
    biases = (name for name in names if name.rpartition('/')[2] == 'bias')
    return dict.fromkeys(biases, bias_grad_multiplier)


def install_weight_decay(detector: DetectionModel, config: TrainConfig) -> None:
    """Makes `config.weight_decay`, if set, the only penalty of the detector.

    The penalty replaces the regularizers of single layers. It is weight / 2 times the sum of
    squares of the trained variables whose names `exclude_pattern` does not match.

    Args:
      detector: with all variables built.
      config: message that also determines the frozen variables.

    Raises:
      ConfigError: if a field of `weight_decay` is wrong, or no variable is left.
    """
    if not config.HasField('weight_decay'):
        return
    decay = config.weight_decay
    raise_if_any(training_rules.weight_decay_problems(decay))
    variables = list(_of_weight_decay(detector, config).values())
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
        return decay.weight * determinism.sum_in_order(
            [tf.nn.l2_loss(variable) for variable in variables]
        )

    detector.weight_decay = penalty


def penalized(detector: DetectionModel, config: TrainConfig) -> set[str]:
    """Returns the names of the variables with a penalty in the loss.

    Args:
      detector: after `install_weight_decay`.
      config: see there.
    """
    if not config.add_regularization_loss:
        return set()
    if config.HasField('weight_decay'):
        return set(_of_weight_decay(detector, config)) if config.weight_decay.weight else set()
    regularized = {id(each.value) for each in detector.weights if each.regularizer is not None}
    named = detector.named_trainable_variables()
    return {name for name, variable in named.items() if id(variable) in regularized}


def _of_weight_decay(detector: DetectionModel, config: TrainConfig) -> dict[str, tf.Variable]:
    """Returns the trained variables that `config.weight_decay` does not exclude, by name."""
    excluded = [*filter(None, [config.weight_decay.exclude_pattern]), *config.freeze_variables]
    updated = list(config.update_trainable_variables)
    return {
        name: variable
        for name, variable in detector.named_trainable_variables().items()
        if not _is_found(excluded, name) and (not updated or _is_found(updated, name))
    }


def _matching(field: str, patterns: Sequence[str], names: Collection[str]) -> set[str]:
    raise_if_any(training_rules.pattern_problems(field, patterns))
    matching: set[str] = set()
    for index, pattern in enumerate(patterns):
        matching.update(_matching_one(f'{field}[{index}]', pattern, names))
    return matching


def _matching_one(field: str, pattern: str, names: Collection[str]) -> list[str]:
    matching = [name for name in names if re.search(pattern, name)]
    if not matching:
        raise ConfigError(
            f'{field}: expected a regular expression that is found in the name of a variable that '
            f'can be trained, such as {_listing(names)}. Received: {pattern!r}.'
        )
    return matching


def _is_found(patterns: list[str], name: str) -> bool:
    return any(re.search(pattern, name) for pattern in patterns)


def _listing(names: Collection[str]) -> str:
    """Returns some of the names, from all parts of the model."""
    names = list(names)
    step = max(1, math.ceil(len(names) / _MAX_NAMES))
    return ', '.join(names[::step])


def _size(variables: Mapping[str, tf.Variable]) -> str:
    count = sum(math.prod(variable.shape) for variable in variables.values())
    return f'{count:,} parameters in {_variables(len(variables))}'


def _variables(count: int) -> str:
    return '1 variable' if count == 1 else f'{count} variables'


def _groups(frozen: list[str], trained: list[str], start: str = '') -> Iterator[str]:
    """Yields beginnings of names, cut after '/' or '_', that only frozen variables have.

    Args:
      frozen, trained: names that begin with `start`.
      start: the common beginning of the names.
    """
    if not trained:
        is_one = len(frozen) == 1
        yield frozen[0] if is_one else f'{start}* ({_variables(len(frozen))})'
        return
    parts: dict[str, list[str]] = {}
    for name in frozen:
        end = re.search('[/_]|$', name[len(start) :]).end() + len(start)
        parts.setdefault(name[:end], []).append(name)
    for part, names in parts.items():
        others = [name for name in trained if name.startswith(part) and part != names[0]]
        yield from _groups(names, others, part)
