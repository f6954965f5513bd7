"""What is told of a training whose numbers are not finite any more."""

import math
from collections.abc import Callable, Sequence

from object_detection.training.step import GRADIENT_NORM, TOTAL_LOSS, StepReport

_MOST_SOURCE_IDS = 16


def describe(
    reports: Sequence[StepReport], learning_rate: Callable[[int], float], last_good: str | None
) -> str:
    """Returns which numbers of which step were not finite, and where the training can go on.

    Args:
      reports: of the calls since the numbers were last looked at, in order.
      learning_rate: of the update after so many others.
      last_good: prefix of the newest checkpoint, or None.
    """
    report = next((r for r in reports if not r.is_finite()), reports[-1])
    values = {name: float(value) for name, value in report.values.items()}
    terms = [name for name in values if name not in (TOTAL_LOSS, GRADIENT_NORM)]
    broken = [name for name in terms if not math.isfinite(values[name])]
    # Each term can be finite and their gradients, or their sum, not.
    told = broken or [GRADIENT_NORM if math.isfinite(values[TOTAL_LOSS]) else TOTAL_LOSS]
    others = ', '.join(f'{name} = {values[name]:g}' for name in terms if name not in broken)
    step = int(report.step)
    ids = [text.decode(errors='replace') for text in report.source_ids.numpy()]
    more = f' and {len(ids) - _MOST_SOURCE_IDS} more' if len(ids) > _MOST_SOURCE_IDS else ''
    saved = (
        f'the last good checkpoint is {last_good}' if last_good else 'there is no checkpoint yet'
    )
    return (
        f'The training diverged: {", ".join(f"{name} = {values[name]:g}" for name in told)} at '
        f'step {step + 1}, learning rate {learning_rate(step):g}'
        f'{f" (the others: {others})" if others else ""}. The images of that batch have the '
        f'source ids {", ".join(map(repr, ids[:_MOST_SOURCE_IDS]))}{more}. Nothing of it was '
        f'saved; {saved}. A lower learning rate, a longer warm-up or '
        'train_config.gradient_clipping_by_norm may help.'
    )
