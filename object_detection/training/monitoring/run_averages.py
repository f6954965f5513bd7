"""Logs and writes the averages that a run has measured, when it ends."""

import datetime
import logging
import os
from collections.abc import Callable, Mapping
from typing import Any

from object_detection.system import cpu, numbers
from object_detection.training.monitoring import run_record
from object_detection.training.monitoring.model_summary import FlopCount
from object_detection.training.monitoring.run_types import TrainResult
from object_detection.training.monitoring.speed import PERCENTILES

_logger = logging.getLogger(__name__)

# The largest share of a step's FLOPs in loops of unknown length, which are counted once.
_MAX_LOOP_SHARE = 0.05


def write(
    directory: str | os.PathLike,
    run: str,
    result: TrainResult,
    count_flops: Callable[[], FlopCount | None],
) -> None:
    """Logs and writes the averages of a run that has ended, unless no step was timed.

    Args:
      directory: the model_dir.
      run: name of the run, see `run_record.write`.
      result: how the run ended.
      count_flops: counts the FLOPs of a step on all replicas of this process.
    """
    if not result.speed.get('steps_per_second'):
        return
    facts = {
        'step': result.step,
        'stopped_by': result.stopped_by,
        'reason': result.reason,
        **result.speed,
        'seconds': dict(result.seconds),
        'memory': cpu.peaks(),
        **_describe_flops(count_flops(), result.speed['steps_per_second']),
    }
    run_record.write_averages(directory, run, **facts)
    _logger.info('this run: %s', format_averages(facts))


def _describe_flops(counted: FlopCount | None, steps_per_second: float) -> dict[str, int | float]:
    """Returns the FLOPs of a step and of a second; {} if sizes are not static."""
    if counted is None or counted.unknown or not counted.total:
        return {}
    in_loops = sum(
        flops
        for name, flops in counted.by_operation.items()
        if any(name.startswith(f'{loop}/') for loop in counted.loops)
    )
    if in_loops > _MAX_LOOP_SHARE * counted.total:
        return {}
    return {
        'flops_per_step': counted.total,
        'flops_per_second': counted.total * steps_per_second,
    }


def format_averages(facts: Mapping[str, Any]) -> str:
    """Returns the averages as text.

    For example: '5 steps/s, 40 images/s, 2% of the time waiting for input, 50/90/95/99 % of the
    steps within 180/190/195/210 ms, 3.1 GiB on host, 0.5 TFLOP/s, 0:20:00 in all, of which 91%
    steps, 5% saves, 2% evaluation'.
    """
    parts = [
        f'{numbers.significant(facts["steps_per_second"])} steps/s',
        f'{numbers.significant(facts["images_per_second"])} images/s',
    ]
    if facts['waiting_share'] is not None:
        parts.append(f'{facts["waiting_share"]:.0%} of the time waiting for input')
    step = facts['latencies'].get('step')
    if step:
        times = '/'.join(numbers.significant(step[f'p{percent}'] * 1000) for percent in PERCENTILES)
        parts.append(f'{"/".join(map(str, PERCENTILES))} % of the steps within {times} ms')
    parts += [f'{peak / 2**30:.3g} GiB on {name}' for name, peak in facts['memory'].items()]
    if 'flops_per_second' in facts:
        parts.append(f'{numbers.significant(facts["flops_per_second"] / 1e12)} TFLOP/s')
    parts += _format_times(facts['seconds'])
    return ', '.join(parts)


def _format_times(seconds: Mapping[str, float]) -> list[str]:
    if not seconds:
        return []
    whole = seconds['all']
    shares = [
        f'{seconds.get(name, 0.0) / whole:.0%} {name}'
        for name in (run_record.STEPS, run_record.SAVES, run_record.EVALUATION)
    ]
    time = datetime.timedelta(seconds=round(whole))
    return [f'{time} in all, of which {", ".join(shares)}']
