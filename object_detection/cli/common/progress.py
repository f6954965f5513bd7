"""Shows the progress of a command on stderr: a live bar on a terminal, periodic lines elsewhere."""

import contextlib
import datetime
import time
from collections.abc import Callable, Iterator

import click
import rich.console
import rich.progress

from object_detection.system import console as system_console

# A function of the number of finished items and of the total, which is None while it is unknown.
Report = Callable[[int, int | None], None]


@contextlib.contextmanager
def show(
    what: str, unit: str = 'images', *, console: rich.console.Console | None = None
) -> Iterator[Report]:
    """Shows progress until the block is left; the bar then disappears. Nothing if quiet.

    Args:
      what: name of the activity, e.g. 'predicting'.
      unit: unit of the counts.
      console: console to write to; None is stderr.

    Yields:
      A function to call with the counts, from any thread and at any rate.
    """
    if system_console.is_quiet():
        yield lambda done, total: None
        return
    console = console or rich.console.Console(stderr=True)
    if not console.is_terminal:
        yield _Lines(what, unit)
        return
    with (
        system_console.drawing(),
        rich.progress.Progress(
            rich.progress.TextColumn('{task.description}'),
            rich.progress.BarColumn(bar_width=20),
            rich.progress.MofNCompleteColumn(),
            rich.progress.TextColumn(f'{unit} in'),
            rich.progress.TimeElapsedColumn(),
            rich.progress.TextColumn('·'),
            rich.progress.TimeRemainingColumn(),
            rich.progress.TextColumn('to go'),
            console=console,
            transient=True,
            **system_console.redirects(),
        ) as bar,
    ):
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


class _Lines:
    """Prints a line every half minute, so that a log shows progress and stays short."""

    def __init__(self, what: str, unit: str):
        self._what = what
        self._unit = unit
        self._printed_at = time.monotonic()
        # The first report may come long after the start, while models are loaded and graphs built.
        self._first: tuple[int, float] | None = None

    def __call__(self, done: int, total: int | None) -> None:
        now = time.monotonic()
        first_done, first_time = self._first = self._first or (done, now)
        if now - self._printed_at < system_console.SECONDS_BETWEEN_LINES:
            return
        self._printed_at = now
        text = f'{self._what}: {done}{"" if total is None else f" of {total}"} {self._unit}'
        if total is not None and done > first_done:
            seconds = (now - first_time) / (done - first_done) * (total - done)
            text += f', {datetime.timedelta(seconds=round(seconds))} to go'
        click.echo(text, err=True)
