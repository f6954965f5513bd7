"""The history of a training: lines of JSON, which reports read."""

import contextlib
import json
import logging
import os
import pathlib
import time
from typing import Any

from object_detection.builders.callback_builder import Callback, Start, StepRecord
from object_detection.system import files

FILE_NAME = 'history.jsonl'
_TAIL = 2**20  # bytes
# Of a `StepRecord`, in this order.
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


class History(Callback):
    """Appends records to a file, and drops what a killed run wrote after its last checkpoint.

    Args:
      path: path of the file.
    """

    def __init__(self, path: pathlib.Path):
        self._path = path

    def on_start(self, start: Start) -> None:
        """Removes the entries of later steps."""
        kept = [entry for entry in read(self._path) if entry['step'] <= start.step]
        files.write_text(self._path, ''.join(_line(entry) for entry in kept))

    def on_step(self, record: StepRecord) -> None:
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
    'images_per_second', 'gradient_norm', 'losses' (name -> value), and others of a `StepRecord`;
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
