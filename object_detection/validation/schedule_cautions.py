"""Says where a learning rate schedule and the length of the training contradict each other."""

import math
from collections.abc import Iterator

from google.protobuf.message import Message

from object_detection.protos.optimizer_pb2 import Optimizer
from object_detection.protos.train_pb2 import TrainConfig

# A rate below this share of the highest one is as good as none.
_NEGLIGIBLE = 0.01


def find(config: TrainConfig) -> Iterator[str]:
    """Yields at most one sentence: what of the schedule the training does not get to, or lacks."""
    kind = config.optimizer.WhichOneof('optimizer')
    rate = getattr(config.optimizer, kind).learning_rate if kind else None
    option = rate.WhichOneof('learning_rate') if rate else None
    # Epochs are compared once they are converted.
    in_steps = config.optimizer.learning_rate_unit == Optimizer.STEPS
    if config.num_steps and in_steps and option in _CHECKS:
        path = f'train_config.optimizer.{kind}.learning_rate.{option}'
        yield from _CHECKS[option](getattr(rate, option), config.num_steps, path)


def _cosine(schedule: Message, num_steps: int, path: str) -> Iterator[str]:
    total, base = schedule.total_steps, schedule.learning_rate_base
    if schedule.warmup_steps >= num_steps:
        yield (
            f'{_told(schedule, "warmup_steps", path)}, but train_config.num_steps is {num_steps}: '
            'the training ends within the warm-up.'
        )
    elif num_steps > total:
        yield (
            f'train_config.num_steps is {num_steps}, but {_told(schedule, "total_steps", path)}: '
            f'the learning rate is 0 for the last {num_steps - total} steps.'
        )
    else:
        start = schedule.warmup_steps + schedule.hold_base_rate_steps
        progress = max(0.0, num_steps - start) / max(1, total - start)
        share = (1 + math.cos(math.pi * progress)) / 2
        if share > _NEGLIGIBLE:
            yield (
                f'{_told(schedule, "total_steps", path)}, but train_config.num_steps is '
                f'{num_steps}: the training ends while the learning rate is still {share:.0%} of '
                f'its highest, {base:g}.'
            )


def _manual_steps(schedule: Message, num_steps: int, path: str) -> Iterator[str]:
    for index, entry in enumerate(schedule.schedule):
        if entry.step >= num_steps:
            is_warmup = schedule.warmup and index == 0
            lost = 'the training ends within the warm-up' if is_warmup else 'it is never reached'
            yield (
                f'{path}.schedule[{index}].step is {entry.step}, but train_config.num_steps is '
                f'{num_steps}: {lost}.'
            )
            return


def _exponential(schedule: Message, num_steps: int, path: str) -> Iterator[str]:
    if schedule.burnin_steps >= num_steps:
        yield (
            f'{_told(schedule, "burnin_steps", path)}, but train_config.num_steps is {num_steps}: '
            'the training ends within the burn-in.'
        )
        return
    periods = (num_steps - 1 - schedule.burnin_steps) / max(1, schedule.decay_steps)
    if schedule.staircase:
        periods = math.floor(periods)
    first = max(schedule.initial_learning_rate, schedule.min_learning_rate)
    decayed = schedule.initial_learning_rate * schedule.decay_factor**periods
    last = max(decayed, schedule.min_learning_rate)
    if last > (1 - _NEGLIGIBLE) * first:
        numbers = ', '.join(
            _told(schedule, name, path if name == 'decay_steps' else '')
            for name in ('decay_steps', 'decay_factor', 'min_learning_rate')
        )
        yield (
            f'{numbers}, and train_config.num_steps is {num_steps}: the learning rate never falls; '
            f'it is {first:g} at first and {last:g} in the last step.'
        )


def _told(schedule: Message, name: str, path: str) -> str:
    value = getattr(schedule, name)
    default = '' if schedule.HasField(name) else ' (the default)'
    number = f'{value:g}' if isinstance(value, float) else value
    return f'{path}{"." if path else ""}{name} is {number}{default}'


_CHECKS = {
    'cosine_decay_learning_rate': _cosine,
    'manual_step_learning_rate': _manual_steps,
    'exponential_decay_learning_rate': _exponential,
}
