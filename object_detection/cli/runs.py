"""`tfod runs`: lists the runs of a training and their measurements."""

import datetime
import time
from collections.abc import Mapping
from typing import Any

import click

from object_detection.cli.common import option_flags
from object_detection.system import numbers, texts
from object_detection.training.monitoring import run_record


@option_flags.json_option
@click.command(name='runs')
@click.argument('model_dir', type=click.Path(exists=True, file_okay=False))
def command(model_dir: str) -> None:
    """Print a line for each start of the training in MODEL_DIR.

    Times are of single steps, without those that built graphs; runs that were killed, or that an
    error ended, have measured nothing.
    """
    runs = run_record.read_runs(model_dir)
    rows = [_row(run) for run in runs]
    if not rows:
        raise click.ClickException(f'{model_dir}: expected the runs of a training. Received: none.')
    lines = texts.aligned([list(rows[0]), *(list(row.values()) for row in rows)])
    option_flags.show_result(runs, lines)


def _row(run: Mapping[str, Any]) -> dict[str, str]:
    measured = run['averages'] or {}
    latencies = measured.get('latencies', {})
    seconds = measured.get('seconds') or {}
    waiting, memory = measured.get('waiting_share'), measured.get('memory', {})
    commit = ((run.get('git') or {}).get('program') or {}).get('commit', '')
    return {
        'started': time.strftime('%Y-%m-%d %H:%M', time.localtime(run['time'])),
        'commit': commit[:9],
        'from': _number(run.get('step')),
        'to': _number(measured.get('step')),
        'steps/s': _number(measured.get('steps_per_second')),
        'images/s': _number(measured.get('images_per_second')),
        'step ms 50/90/95/99 %': _times(latencies.get('step')),
        'input ms 50/90/95/99 %': _times(latencies.get('input')),
        'waiting': '' if waiting is None else f'{waiting:.0%}',
        'GiB': ' '.join(f'{name} {peak / 2**30:.1f}' for name, peak in memory.items()),
        'TFLOP/s': _number(measured.get('flops_per_second'), 1e-12),
        'time': str(datetime.timedelta(seconds=round(seconds['all']))) if seconds else '',
        'steps/saves/evaluation': _shares(seconds),
    }


def _number(value: float | None, factor: float = 1.0) -> str:
    if value is None:
        return ''
    return str(value) if isinstance(value, int) else numbers.significant(value * factor)


def _times(times: Mapping[str, float] | None) -> str:
    return (
        '/'.join(numbers.significant(times[f'p{p}'] * 1000) for p in (50, 90, 95, 99))
        if times
        else ''
    )


def _shares(seconds: Mapping[str, float]) -> str:
    if not seconds.get('all'):
        return ''
    names = (run_record.STEPS, run_record.SAVES, run_record.EVALUATION)
    return '/'.join(f'{seconds.get(name, 0.0) / seconds["all"]:.0%}' for name in names)
