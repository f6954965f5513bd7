"""`tfod status`: prints what a training does now."""

import dataclasses
import datetime
import time
from collections.abc import Iterator

import click
import rich.console
import rich.live
import rich.text

from object_detection.cli.common import option_flags
from object_detection.errors import UserError
from object_detection.system import disk, numbers
from object_detection.training import status
from object_detection.training.evaluation import results
from object_detection.training.monitoring import history
from object_detection.training.status import Status

_WIDTH = 13


@option_flags.json_option
@click.command(name='status')
@click.argument('model_dir', type=click.Path(exists=True, file_okay=False))
@click.option('--watch', is_flag=True, help='Refresh until the training ends, or ctrl-C.')
@click.option(
    '--every',
    type=click.FloatRange(min=0.1),
    default=2.0,
    show_default=True,
    help='Seconds between two refreshes of --watch.',
)
def command(model_dir: str, watch: bool, every: float) -> None:
    """Print what the training in MODEL_DIR does, how far it is, and its last results.

    The training may run, also on another machine that writes into MODEL_DIR, or have ended.
    """
    found = status.read(model_dir)
    if found.state == status.UNKNOWN and found.step is None and not found.evaluations:
        raise UserError(f'{model_dir}: expected the files of a training. Received: none.')
    if not watch:
        option_flags.show_result(dataclasses.asdict(found), lines(found))
    elif option_flags.wants_json():
        _print_changes(model_dir, every)
    else:
        _watch(model_dir, every)


def _watch(model_dir: str, every: float) -> None:
    console = rich.console.Console()
    if not console.is_terminal:
        _print_changes(model_dir, every)
        return
    with rich.live.Live(console=console, auto_refresh=False) as live:
        for found in _each(model_dir, every):
            live.update(rich.text.Text('\n'.join(lines(found))), refresh=True)


def _print_changes(model_dir: str, every: float) -> None:
    """Prints one line, of JSON if that is asked for, whenever something has changed."""
    printed = ''
    for found in _each(model_dir, every):
        line = headline(found)
        if line != printed:
            option_flags.show_result(dataclasses.asdict(found), [line])
            printed = line


def _each(model_dir: str, every: float) -> Iterator[Status]:
    while True:
        found = status.read(model_dir)
        yield found
        if found.has_ended:
            return
        time.sleep(every)


def headline(found: Status) -> str:
    """Returns the status as one line."""
    parts = [found.state.replace('_', ' '), _steps(found), _losses(found)]
    parts += [
        f'{name} evaluated at step {each.step}'.strip() for name, each in found.evaluations.items()
    ]
    return '  '.join(filter(None, (*parts, found.waits_for)))


def lines(found: Status) -> list[str]:
    """Returns the status as lines for a person."""
    now = time.time()
    rows = [
        ('state', found.state + (f' since {_ago(now, found.since)}' if found.since else '')),
        ('reason' if found.has_ended else 'waits for', found.waits_for),
        ('step', _steps(found)),
        ('speed', _speed(found)),
        ('time to go', _duration(found.seconds_to_go)),
        ('losses', _losses(found)),
        ('learning rate', '' if found.learning_rate is None else f'{found.learning_rate:.4g}'),
        ('last record', '' if found.logged is None else f'{_ago(now, found.logged)} ago'),
        *_evaluations(found),
        ('disk', _disk(found)),
        ('process', _process(found)),
    ]
    return [f'{title:<{_WIDTH}} {text}' for title, text in rows if text]


def _evaluations(found: Status) -> Iterator[tuple[str, str]]:
    for name, evaluation in found.evaluations.items():
        yield f'metrics {name}'.strip(), f'of step {evaluation.step}'
        for line in results.table(evaluation.metrics):
            yield '', f'  {line}'
    if found.best is not None:
        best = found.best
        yield 'best', f'{best.metric} {best.value:.4f} at step {best.step}'
    if found.waiting_evaluations:
        yield 'evaluations', f'{found.waiting_evaluations} checkpoints wait for theirs'


def _steps(found: Status) -> str:
    if found.step is None:
        return ''
    if not found.num_steps:
        return f'{found.step}'
    return f'{found.step} of {found.num_steps} ({found.step / found.num_steps:.0%})'


def _speed(found: Status) -> str:
    parts = []
    if found.steps_per_second is not None:
        rate = numbers.significant(found.steps_per_second)
        parts.append(f'{rate} steps/s with evaluations and checkpoints')
    if found.images_per_second is not None:
        parts.append(f'{numbers.significant(found.images_per_second)} images/s in steps')
    if found.waiting_share is not None:
        parts.append(f'{found.waiting_share:.0%} waiting for input')
    return ', '.join(parts)


def _losses(found: Status) -> str:
    return '  '.join(f'{history.short_name(k)} {v:.3f}' for k, v in found.losses.items())


def _disk(found: Status) -> str:
    parts = [
        f'{disk.format_bytes(size)} {"free" if name == "free" else f"of {name}"}'
        for name, size in found.disk.items()
        if size is not None
    ]
    return ', '.join(parts)


def _process(found: Status) -> str:
    place = f'{found.pid or ""} on {found.host}'.strip() if found.host else ''
    return f'{place}, start {found.starts}' if place and found.starts else place


def _ago(now: float, then: float) -> str:
    return _duration(max(0.0, now - then))


def _duration(seconds: float | None) -> str:
    return '' if seconds is None else str(datetime.timedelta(seconds=round(seconds)))
