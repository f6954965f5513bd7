"""What a run measured, written when it ends."""

import datetime
import logging
import os
from collections.abc import Mapping
from typing import Any

from object_detection.system import memory
from object_detection.training.monitoring import run_clock, run_record
from object_detection.training.monitoring.latencies import PERCENTILES
from object_detection.training.step import TrainStep
from object_detection.training.train_result import TrainResult

_logger = logging.getLogger(__name__)

# Part of a step's FLOPs that loops of unknown length, which count once, may have.
_MOST_IN_LOOPS = 0.05


def write(
    directory: str | os.PathLike, run: str, result: TrainResult, train_step: TrainStep
) -> None:
    """Tells the averages of a run, and writes them into train/averages.jsonl.

    Args:
      directory: of the model.
      run: its name, see `run_record.write`.
      result: how it ended.
      train_step: that it ran.
    """
    if not result.speed.get('steps_per_second'):
        return
    facts = {
        'step': result.step,
        'stopped_by': result.stopped_by,
        'reason': result.reason,
        **result.speed,
        'seconds': dict(result.seconds),
        'memory': memory.peaks(),
        **_flops(train_step, result.speed['steps_per_second']),
    }
    run_record.write_averages(directory, run, **facts)
    _logger.info('this run: %s', describe(facts))


def _flops(train_step: TrainStep, steps_per_second: float) -> dict[str, int | float]:
    """Those of a step on all replicas of this process; {} where sizes are not known beforehand."""
    counted = train_step.count_flops()
    if counted is None or counted.unknown or not counted.total:
        return {}
    in_loops = sum(
        flops
        for name, flops in counted.by_operation.items()
        if any(name.startswith(f'{loop}/') for loop in counted.loops)
    )
    if in_loops > _MOST_IN_LOOPS * counted.total:
        return {}
    return {
        'flops_per_step': counted.total,
        'flops_per_second': counted.total * steps_per_second,
    }


def describe(facts: Mapping[str, Any]) -> str:
    """Returns averages in words, e.g. '5 steps/s, 40 images/s, 2% of the time waiting for input,
    50/90/95/99 % of the steps within 180/190/195/210 ms, 3.1 GiB on host, 0.5 TFLOP/s, 0:20:00 in
    all, of which 91% steps, 5% saves, 2% evaluation'."""
    parts = [
        f'{facts["steps_per_second"]:.3g} steps/s',
        f'{facts["images_per_second"]:.3g} images/s',
    ]
    if facts['waiting_share'] is not None:
        parts.append(f'{facts["waiting_share"]:.0%} of the time waiting for input')
    step = facts['latencies'].get('step')
    if step:
        times = '/'.join(f'{step[f"p{percent}"] * 1000:.3g}' for percent in PERCENTILES)
        parts.append(f'{"/".join(map(str, PERCENTILES))} % of the steps within {times} ms')
    parts += [f'{peak / 2**30:.3g} GiB on {name}' for name, peak in facts['memory'].items()]
    if 'flops_per_second' in facts:
        parts.append(f'{facts["flops_per_second"] / 1e12:.3g} TFLOP/s')
    parts += _times(facts['seconds'])
    return ', '.join(parts)


def _times(seconds: Mapping[str, float]) -> list[str]:
    if not seconds:
        return []
    whole = seconds['all']
    shares = [
        f'{seconds.get(name, 0.0) / whole:.0%} {name}'
        for name in (run_clock.STEPS, run_clock.SAVES, run_clock.EVALUATION)
    ]
    time = datetime.timedelta(seconds=round(whole))
    return [f'{time} in all, of which {", ".join(shares)}']
