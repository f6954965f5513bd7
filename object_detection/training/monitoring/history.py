"""The history of a training: its records as lines of JSON, which reports read."""

import contextlib
import json
import logging
import os
import pathlib
import time
from typing import TYPE_CHECKING, Any

from object_detection.builders.sink_builder import Sink
from object_detection.system import files

if TYPE_CHECKING:
    # This imports TensorFlow, which readers of the files do not need.
    from object_detection.training.monitoring.progress import Record

FILE_NAME = 'history.jsonl'
_TAIL = 2**20  # bytes

_logger = logging.getLogger(__name__)


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

    def write(self, record: 'Record') -> None:
        """Appends a record."""
        entry = {
            'step': record.step,
            'time': time.time(),
            'learning_rate': record.learning_rate,
            'images_per_second': record.images_per_second,
            'gradient_norm': record.gradient_norm,
            'losses': dict(record.losses),
            'waiting_share': record.waiting_share,
            'latencies': record.latencies,
            'memory': record.memory,
            'left_out': dict(record.left_out),
        }
        append(self._path, entry)


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
