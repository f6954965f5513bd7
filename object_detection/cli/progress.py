"""How far a command is, on stderr: a live bar on a terminal, a line now and then elsewhere."""

import contextlib
import datetime
import time
from collections.abc import Callable, Iterator

import click
import rich.console
import rich.progress

SECONDS_BETWEEN_LINES = 30.0

# Takes the number of things done and of all of them; None while that is not known.
Report = Callable[[int, int | None], None]


@contextlib.contextmanager
def show(
    what: str, unit: str = 'images', *, console: rich.console.Console | None = None
) -> Iterator[Report]:
    """Shows progress until the block is left; the bar then disappears.

    Args:
      what: is being done, e.g. 'predicting'.
      unit: what is counted.
      console: where to; stderr if None.

    Yields:
      What to call with the counts, from any thread and as often as wanted.
    """
    console = console or rich.console.Console(stderr=True)
    if not console.is_terminal:
        yield _Lines(what, unit)
        return
    with rich.progress.Progress(
        rich.progress.TextColumn('{task.description}'),
        rich.progress.BarColumn(bar_width=20),
        rich.progress.MofNCompleteColumn(),
        rich.progress.TextColumn(unit),
        rich.progress.TimeElapsedColumn(),
        rich.progress.TextColumn('to go'),
        rich.progress.TimeRemainingColumn(),
        console=console,
        transient=True,
    ) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


class _Lines:
    """Prints a line each half minute, so that a log shows life and stays short."""

    def __init__(self, what: str, unit: str):
        self._what = what
        self._unit = unit
        self._told = time.monotonic()
        # The first report may come long after the start: models are loaded, graphs are built.
        self._first: tuple[int, float] | None = None

    def __call__(self, done: int, total: int | None) -> None:
        now = time.monotonic()
        first_done, first_time = self._first = self._first or (done, now)
        if now - self._told < SECONDS_BETWEEN_LINES:
            return
        self._told = now
        text = f'{self._what}: {done}{"" if total is None else f" of {total}"} {self._unit}'
        if total is not None and done > first_done:
            seconds = (now - first_time) / (done - first_done) * (total - done)
            text += f', {datetime.timedelta(seconds=round(seconds))} to go'
        click.echo(text, err=True)
