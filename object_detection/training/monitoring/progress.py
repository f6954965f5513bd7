"""Shows the progress of a run: a live line on a terminal, log lines elsewhere."""

import contextlib
import datetime
import logging
import time
from collections.abc import Callable, Iterable
from typing import Protocol

import rich.console
import rich.padding
import rich.progress
import rich.text

from object_detection.builders.callback_builder import StepRecord
from object_detection.optimizers.gradients import TOTAL_LOSS
from object_detection.system.console import drawing, is_quiet, phase, redirects
from object_detection.system.numbers import significant
from object_detection.training.monitoring.history import short_name

_logger = logging.getLogger(__name__)

# Slow steps are also logged by the clock, so that a log shows that the run is alive.
SECONDS_BETWEEN_LINES = 30.0
_BAR_WIDTH = 10
_GAP = '  '


class Progress(Protocol):
    """What the training loop reports to."""

    def start(self, step: int, num_steps: int, batch_size: int) -> None: ...

    def update(self, record: StepRecord) -> None:
        """Refreshes what is shown live; called often."""

    def log(self, record: StepRecord) -> None:
        """Logs the record permanently; called at each log interval."""

    def close(self) -> None: ...


def automatic() -> Progress:
    """Returns a live line if stderr is a terminal, otherwise log lines; nothing if quiet."""
    if is_quiet():
        return Silent()
    console = rich.console.Console(stderr=True)
    return LiveLine(console) if console.is_terminal else LogLines()


class Silent:
    """Shows nothing; for workers other than the chief."""

    def start(self, step: int, num_steps: int, batch_size: int) -> None:
        """Nothing is shown."""

    def update(self, record: StepRecord) -> None:
        """Nothing is shown."""

    def log(self, record: StepRecord) -> None:
        """Nothing is shown."""

    def close(self) -> None:
        """Nothing is left open."""


class LogLines:
    """Logs one line for each record, and one every half a minute if steps are slow.

    Args:
      clock: returns seconds that only grow.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._first_step = contextlib.ExitStack()

    def start(self, step: int, num_steps: int, batch_size: int) -> None:
        self._num_steps = num_steps
        self._batch_size = batch_size
        self._logged_at, self._logged_step = self._clock(), None
        _logger.info('building the graph: the first step takes longer than the others')
        self._first_step.enter_context(phase('building the graph'))

    def update(self, record: StepRecord) -> None:
        self._first_step.close()
        if self._clock() - self._logged_at >= SECONDS_BETWEEN_LINES:
            self.log(record)

    def log(self, record: StepRecord) -> None:
        self._first_step.close()
        self._logged_at = self._clock()
        if record.step == self._logged_step:
            return  # A slow step at which a line is due, too.
        self._logged_step = record.step
        _logger.info(
            'step %d/%d  %s',
            record.step,
            self._num_steps,
            describe(record, self._num_steps, self._batch_size),
        )

    def close(self) -> None:
        self._first_step.close()


class LiveLine:
    """A progress bar with the numbers of the newest record, and the losses below it."""

    def __init__(self, console: rich.console.Console):
        self._progress = _BarAndDetails(
            rich.progress.TextColumn('step'),
            rich.progress.MofNCompleteColumn(),
            rich.progress.BarColumn(bar_width=_BAR_WIDTH),
            rich.progress.TextColumn('{task.fields[numbers]}'),
            rich.progress.SpinnerColumn(),
            console=console,
            **redirects(),
        )
        self._opened = contextlib.ExitStack()

    def start(self, step: int, num_steps: int, batch_size: int) -> None:
        self._num_steps = num_steps
        self._batch_size = batch_size
        # The width of the other columns: 'step', the steps, the bar, spaces, the spinner.
        self._taken = len('step') + 2 * len(str(num_steps)) + len('/') + _BAR_WIDTH + 5
        self._task = self._progress.add_task(
            'step', total=num_steps, completed=step, numbers='building the graph'
        )
        self._opened.enter_context(drawing())
        self._progress.start()

    def update(self, record: StepRecord) -> None:
        numbers = _join_up_to(
            self._progress.console.width - self._taken,
            _numbers(record, self._num_steps, self._batch_size),
        )
        self._progress.details = _losses(record)
        self._progress.update(self._task, completed=record.step, numbers=numbers)

    def log(self, record: StepRecord) -> None:
        self.update(record)

    def close(self) -> None:
        self._progress.stop()
        self._opened.close()


class _BarAndDetails(rich.progress.Progress):
    """A progress bar with a paragraph of text below it."""

    details = ''

    def get_renderables(self) -> Iterable[rich.console.RenderableType]:
        yield from super().get_renderables()
        if self.details:
            text = rich.text.Text(self.details, style='dim')
            yield rich.padding.Padding(text, (0, 0, 0, len(_GAP)))


def _join_up_to(width: int, texts: Iterable[str]) -> str:
    """Joins the texts, the most important first, up to the first that does not fit."""
    text = ''
    for each in texts:
        longer = f'{text}{_GAP}{each}' if text else each
        if len(longer) > width and text:
            break
        text = longer
    return text


def _numbers(record: StepRecord, num_steps: int, batch_size: int) -> list[str]:
    """Formats the numbers of a record except the single losses, the most important first."""
    numbers = [f'loss {record.losses[TOTAL_LOSS]:.3f}']
    rate = record.images_per_second
    if rate:
        numbers += [_time_to_go(record, num_steps, batch_size), f'{significant(rate)} images/s']
    numbers.append(f'lr {record.learning_rate:.4g}')
    numbers += filter(None, [_left_out(record)])
    if rate and record.waiting_share is not None:
        numbers.append(f'{record.waiting_share:.0%} waiting for input')
    return numbers


def _time_to_go(record: StepRecord, num_steps: int, batch_size: int) -> str:
    seconds = (num_steps - record.step) * batch_size / record.images_per_second
    return f'{datetime.timedelta(seconds=round(seconds))} to go'


def _losses(record: StepRecord) -> str:
    return ' '.join(
        f'{short_name(name)} {value:.3f}'
        for name, value in record.losses.items()
        if name != TOTAL_LOSS
    )


def describe(record: StepRecord, num_steps: int, batch_size: int) -> str:
    """Returns e.g. 'loss 1.203 (RPN/objectness 0.210)  lr 0.02  6.1 images/s, 3%
    of the time waiting for input  0:01:02 to go'."""
    total = record.losses[TOTAL_LOSS]
    text = f'loss {total:.3f} ({_losses(record)})  lr {record.learning_rate:.4g}'
    rate = record.images_per_second
    if rate:
        text += f'  {significant(rate)} images/s'
        if record.waiting_share is not None:
            text += f', {record.waiting_share:.0%} of the time waiting for input'
        text += f'  {_time_to_go(record, num_steps, batch_size)}'
    if left_out := _left_out(record):
        text += f'  {left_out}'
    return text


def _left_out(record: StepRecord) -> str:
    """Returns e.g. 'left out: 3 records, 2 objects', '' if nothing was."""
    numbers = [(record.left_out.get(name, 0), name) for name in ('records', 'objects')]
    parts = ', '.join(f'{number} {name}' for number, name in numbers if number)
    return f'left out: {parts}' if parts else ''
