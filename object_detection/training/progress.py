"""Tells how a run goes: a live line on a terminal, plain log lines elsewhere."""

import dataclasses
import datetime
import logging
from collections.abc import Mapping
from typing import Protocol

import rich.console
import rich.progress

from object_detection.training.step import TOTAL_LOSS

_logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Record:
    """Means over the steps since the last record.

    Attributes:
      step: number of steps done.
      losses: name -> mean value.
      learning_rate: of the last of the steps.
      images_per_second: None as long as only the first call, which builds the graph, was timed.
      gradient_norm: mean norm of all gradients together, before clipping.
      waiting_share: which part of the steps' time went by waiting for their batches, 0 to 1.
      latencies: see `Speed.latencies`.
      memory: see `memory.peaks`.
    """

    step: int
    losses: Mapping[str, float]
    learning_rate: float
    images_per_second: float | None
    gradient_norm: float | None = None
    waiting_share: float | None = None
    latencies: Mapping[str, Mapping[str, float]] = dataclasses.field(default_factory=dict)
    memory: Mapping[str, int] = dataclasses.field(default_factory=dict)


class Progress(Protocol):
    """What the training loop reports to."""

    def start(self, step: int, num_steps: int, batch_size: int) -> None: ...

    def update(self, record: Record) -> None:
        """Refreshes what is shown live; called often."""

    def log(self, record: Record) -> None:
        """Tells the record for good; called at each log interval."""

    def close(self) -> None: ...


def automatic() -> Progress:
    """A live line if stderr is a terminal, else log lines."""
    console = rich.console.Console(stderr=True)
    return LiveLine(console) if console.is_terminal else LogLines()


class Silent:
    """Shows nothing; for workers beside the one that does."""

    def start(self, step: int, num_steps: int, batch_size: int) -> None:
        """Nothing is shown."""

    def update(self, record: Record) -> None:
        """Nothing is shown."""

    def log(self, record: Record) -> None:
        """Nothing is shown."""

    def close(self) -> None:
        """Nothing is left open."""


class LogLines:
    """One log line a record."""

    def start(self, step: int, num_steps: int, batch_size: int) -> None:
        self._num_steps = num_steps
        self._batch_size = batch_size

    def update(self, record: Record) -> None:
        """Nothing is shown live."""

    def log(self, record: Record) -> None:
        _logger.info(
            'step %d/%d  %s',
            record.step,
            self._num_steps,
            describe(record, self._num_steps, self._batch_size),
        )

    def close(self) -> None:
        """Nothing is left open."""


class LiveLine:
    """A progress bar with the numbers of the newest record."""

    def __init__(self, console: rich.console.Console):
        self._progress = rich.progress.Progress(
            rich.progress.TextColumn('step'),
            rich.progress.MofNCompleteColumn(),
            rich.progress.BarColumn(bar_width=20),
            rich.progress.TextColumn('{task.fields[numbers]}'),
            console=console,
        )

    def start(self, step: int, num_steps: int, batch_size: int) -> None:
        self._num_steps = num_steps
        self._batch_size = batch_size
        self._task = self._progress.add_task(
            'step', total=num_steps, completed=step, numbers='building the graph'
        )
        self._progress.start()

    def update(self, record: Record) -> None:
        numbers = describe(record, self._num_steps, self._batch_size)
        self._progress.update(self._task, completed=record.step, numbers=numbers)

    def log(self, record: Record) -> None:
        self.update(record)

    def close(self) -> None:
        self._progress.stop()


def describe(record: Record, num_steps: int, batch_size: int) -> str:
    """Returns e.g. 'loss 1.203 (RPN/objectness 0.210)  lr 0.02  6.1 images/s, 3%
    of the time waiting for input  0:01:02 to go'."""
    parts = ' '.join(
        f'{short_name(name)} {value:.3f}'
        for name, value in record.losses.items()
        if name != TOTAL_LOSS
    )
    text = f'loss {record.losses[TOTAL_LOSS]:.3f} ({parts})  lr {record.learning_rate:.4g}'
    rate = record.images_per_second
    if rate:
        seconds = (num_steps - record.step) * batch_size / rate
        text += f'  {rate:.3g} images/s'
        if record.waiting_share is not None:
            text += f', {record.waiting_share:.0%} of the time waiting for input'
        text += f'  {datetime.timedelta(seconds=round(seconds))} to go'
    return text


def short_name(loss: str) -> str:
    """'Loss/RPNLoss/objectness_loss' -> 'RPN/objectness'."""
    return '/'.join(
        part.removesuffix('Loss').removesuffix('_loss')
        for part in loss.removeprefix('Loss/').split('/')
    )
