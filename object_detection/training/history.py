"""A run's losses as lines of JSON, which reports read."""

import json
import pathlib
import time
from typing import Any

from object_detection.training.progress import Record

FILE_NAME = 'history.jsonl'


class History:
    """Appends records to a file; what a killed run wrote after its last checkpoint is dropped.

    Args:
      path: of the file.
      step: number of steps done; later entries of an earlier run are removed.
    """

    def __init__(self, path: pathlib.Path, step: int):
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        kept = [entry for entry in read(path) if entry['step'] <= step]
        path.write_text(''.join(_line(entry) for entry in kept))

    def add(self, record: Record) -> None:
        entry = {
            'step': record.step,
            'time': time.time(),
            'learning_rate': record.learning_rate,
            'images_per_second': record.images_per_second,
            'losses': dict(record.losses),
        }
        append(self._path, entry)


def append(path: pathlib.Path, entry: dict[str, Any]) -> None:
    """Appends one entry to a file of JSON lines."""
    with path.open('a') as file:
        file.write(_line(entry))


def read(path: pathlib.Path) -> list[dict[str, Any]]:
    """Reads the entries: 'step', 'time' (seconds since 1970), 'learning_rate',
    'images_per_second', 'losses' (name -> value); none if there is no file.

    A last line cut off by a kill is left out.
    """
    entries = []
    if path.exists():
        for line in path.read_text().splitlines():
            try:
                entries.append(json.loads(line))
            except json.JSONDecodeError:
                break
    return entries


def _line(entry: dict[str, Any]) -> str:
    return json.dumps(entry) + '\n'
