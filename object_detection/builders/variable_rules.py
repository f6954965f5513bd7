"""Rules for the settings of single variables and layers that hold for every model.

The rules need no TensorFlow. `variables_builder` and `precision_exemptions` raise the problems as
errors, and the validation lists them.
"""

import math
import re
from collections.abc import Collection, Iterable, Iterator

from object_detection.protos.optimizer_pb2 import LearningRateMultiplier
from object_detection.protos.train_pb2 import WeightDecay

MULTIPLIER = 'train_config.optimizer.learning_rate_multiplier'
EXEMPTIONS = 'train_config.precision_exempt_patterns'


def pattern_problems(field: str, patterns: Iterable[str]) -> Iterator[str]:
    """Yields a sentence for each element of the list `field` that is no regular expression."""
    for index, pattern in enumerate(patterns):
        yield from _pattern(f'{field}[{index}]', pattern)


def multiplier_problems(entries: Iterable[LearningRateMultiplier]) -> Iterator[str]:
    """Yields the problems of learning rate multipliers that no model could remedy."""
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
    """Yields the problems of `weight_decay` that no model could remedy."""
    path = 'train_config.weight_decay'
    if not decay.HasField('weight'):
        yield f'{path}.weight is not set; expected e.g. 0.0001.'
    elif not 0 <= decay.weight < math.inf:
        yield f'{path}.weight: expected at least 0. Received: {decay.weight:g}.'
    yield from _pattern(f'{path}.exclude_pattern', decay.exclude_pattern)


def exemption_problems(patterns: Collection[str], *, uses_tf32: bool) -> Iterator[str]:
    """Yields the problems of `precision_exempt_patterns` that no model could remedy."""
    yield from pattern_problems(EXEMPTIONS, patterns)
    if uses_tf32 and patterns:
        yield (
            f'{EXEMPTIONS}: expected precision: MIXED_BFLOAT16 or '
            'MIXED_FLOAT16 with it, as GPUs take TF32 for all layers or none. Received: TF32.'
        )


def _pattern(field: str, pattern: str) -> Iterator[str]:
    try:
        re.compile(pattern)
    except re.error as error:
        yield f'{field}: expected a regular expression. Received: {pattern!r} ({error}).'
