"""What has to hold for the settings of single variables, whatever variables a model has.

It is known without TensorFlow: `variables_builder` raises it, and the validation lists it.
"""

import math
import re
from collections.abc import Iterable, Iterator

from object_detection.protos.optimizer_pb2 import LearningRateMultiplier
from object_detection.protos.train_pb2 import WeightDecay

MULTIPLIER = 'train_config.optimizer.learning_rate_multiplier'


def pattern_problems(field: str, patterns: Iterable[str]) -> Iterator[str]:
    """Yields a sentence for each element of the list `field` that is no regular expression."""
    for index, pattern in enumerate(patterns):
        yield from _pattern(f'{field}[{index}]', pattern)


def multiplier_problems(entries: Iterable[LearningRateMultiplier]) -> Iterator[str]:
    """Yields what is wrong with factors of learning rates, whatever variables there are."""
    for index, entry in enumerate(entries):
        path = f'{MULTIPLIER}[{index}]'
        if not entry.variables:
            yield f'{path}.variables is not set; expected a regular expression.'
        yield from _pattern(f'{path}.variables', entry.variables)
        if not entry.HasField('multiplier'):
            yield f'{path}.multiplier is not set; expected a factor of the learning rate.'
        elif not 0 < entry.multiplier < math.inf:
            instead = '; use train_config.freeze_variables to train none of them'
            yield (
                f'{path}.multiplier: expected a factor above 0'
                f'{instead if entry.multiplier == 0 else ""}. Received: {entry.multiplier:g}.'
            )


def weight_decay_problems(decay: WeightDecay) -> Iterator[str]:
    """Yields what is wrong with a penalty of all weights, whatever variables there are."""
    path = 'train_config.weight_decay'
    if not decay.HasField('weight'):
        yield f'{path}.weight is not set; expected e.g. 0.0001.'
    elif not 0 <= decay.weight < math.inf:
        yield f'{path}.weight: expected at least 0. Received: {decay.weight:g}.'
    yield from _pattern(f'{path}.exclude_pattern', decay.exclude_pattern)


def _pattern(field: str, pattern: str) -> Iterator[str]:
    try:
        re.compile(pattern)
    except re.error as error:
        yield f'{field}: expected a regular expression. Received: {pattern!r} ({error}).'
