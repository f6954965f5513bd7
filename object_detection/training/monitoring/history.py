"""The records of a training, and their history: lines of JSON, which reports read."""

import contextlib
import dataclasses
import json
import logging
import os
import pathlib
import time
from collections.abc import Mapping
from typing import Any

from object_detection.builders.sink_builder import Sink, StepRecord
from object_detection.system import files

FILE_NAME = 'history.jsonl'
_TAIL = 2**20  # bytes
# Of a `Record`, in this order.
_COLUMNS = (
    'learning_rate',
    'images_per_second',
    'gradient_norm',
    'losses',
    'waiting_share',
    'latencies',
    'memory',
    'left_out',
)

_logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Record:
    """Means over the steps since the last record.

    Attributes:
      step: number of steps done.
      losses: name -> mean value.
      learning_rate: learning rate of the last of the steps.
      images_per_second: None until a call other than the first, which builds the graph, was timed.
      gradient_norm: mean norm of all gradients together, before clipping.
      waiting_share: share of the steps' time that was spent waiting for batches, 0 to 1.
      latencies: see `speed.latencies`.
      memory: see `memory.peaks`.
      left_out: what was left out of the data since the start, see `BadRecords.counts`.
      times: those of the last step, see `StepRecord`.
    """

    step: int
    losses: Mapping[str, float]
    learning_rate: float
    images_per_second: float | None
    gradient_norm: float | None = None
    waiting_share: float | None = None
    latencies: Mapping[str, Mapping[str, float]] = dataclasses.field(default_factory=dict)
    memory: Mapping[str, int] = dataclasses.field(default_factory=dict)
    left_out: Mapping[str, int] = dataclasses.field(default_factory=dict)
    times: tuple[float, float, float] = (0.0, 0.0, 0.0)

    def by_name(self, batch_size: int) -> StepRecord:
        """Returns the record with all values by the names that TensorBoard shows."""
        rate = self.images_per_second
        values = {
            **self.losses,
            'learning_rate': self.learning_rate,
            'gradient_norm': self.gradient_norm,
            'images_per_sec': rate,
            'steps_per_sec': None if rate is None else rate / batch_size,
            'waiting_share': self.waiting_share,
        }
        for what, times in self.latencies.items():
            values |= {f'latency/{what}_{name}': times[name] for name in ('p50', 'p99')}
        values |= {f'memory/{name.replace(":", "_")}': peak for name, peak in self.memory.items()}
        values |= {f'left_out/{name}': count for name, count in self.left_out.items()}
        known = {name: value for name, value in values.items() if value is not None}
        return StepRecord(self.step, *self.times, known)


class History(Sink):
    """Appends records to a file, and drops what a killed run wrote after its last checkpoint.

    Args:
      path: path of the file.
      step: number of steps done; later entries of an earlier run are removed.
    """

    def __init__(self, path: pathlib.Path, step: int):
        self._path = path
        kept = [entry for entry in read(path) if entry['step'] <= step]
        files.write_text(path, ''.join(_line(entry) for entry in kept))

    def write(self, record: Record) -> None:
        """Appends a record."""
        columns = {name: getattr(record, name) for name in _COLUMNS}
        append(self._path, {'step': record.step, 'time': time.time(), **columns})


def append(path: pathlib.Path, entry: dict[str, Any]) -> None:
    """Appends one entry to a file of JSON lines, on a line of its own."""
    with path.open('ab+') as file:
        if file.tell() > 0:
            file.seek(-1, os.SEEK_END)
            # A kill may have truncated the last line.
            if file.read(1) != b'\n':
                file.write(b'\n')
        file.write(_line(entry).encode())


def read(path: pathlib.Path) -> list[dict[str, Any]]:
    """Reads the entries: 'step', 'time' (seconds since 1970), 'learning_rate',
    'images_per_second', 'gradient_norm', 'losses' (name -> value), and the others of a `Record`;
    none if there is no file.

    Lines that cannot be read, such as one that a kill truncated, are left out.
    """
    entries = []
    if path.exists():
        for number, line in enumerate(path.read_text().splitlines(), 1):
            try:
                entries.append(json.loads(line))
            except json.JSONDecodeError:
                _logger.warning('%s: line %d cannot be read and is left out.', path, number)
    return entries


def read_last(path: pathlib.Path) -> list[dict[str, Any]]:
    """Reads the entries in the last MiB of a file, as `read` does; a file may be long."""
    try:
        with path.open('rb') as file:
            start = max(0, file.seek(0, os.SEEK_END) - _TAIL)
            file.seek(start)
            lines = file.read().decode(errors='replace').splitlines()[bool(start) :]
    except FileNotFoundError:
        return []
    entries = []
    for line in lines:
        with contextlib.suppress(json.JSONDecodeError):
            entries.append(json.loads(line))
    return entries


def short_name(loss: str) -> str:
    """'Loss/RPNLoss/objectness_loss' -> 'RPN/objectness'."""
    return '/'.join(
        part.removesuffix('Loss').removesuffix('_loss')
        for part in loss.removeprefix('Loss/').split('/')
    )


def _line(entry: dict[str, Any]) -> str:
    return json.dumps(entry) + '\n'
