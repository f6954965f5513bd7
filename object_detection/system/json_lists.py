"""JSON lists that are written entry by entry, so that an interrupted job keeps its results."""

import contextlib
import json
import pathlib
from collections.abc import Iterable
from typing import Any, Self

from object_detection.system import files

DETECTIONS, IMAGES = 'detections.json', 'images.json'


class ResultsFile:
    """Writes a JSON list, one entry per line, to NAME.partial, which is renamed to NAME at the end.

    If the block raises, the list is closed and stays in NAME.partial; after a kill it lacks its
    last line, `]`.

    Args:
      path: path of the list; an existing file is replaced.
    """

    def __init__(self, path: pathlib.Path):
        self._path, self._opened = path, contextlib.ExitStack()
        self.count = 0

    def __enter__(self) -> Self:
        draft = self._opened.enter_context(files.replacing(self._path, keeps_partial=True))
        self._file = self._opened.enter_context(open(draft, 'w', encoding='utf-8'))
        self._file.write('[')
        self._file.flush()
        return self

    def add(self, entries: Iterable[Any]) -> None:
        """Appends entries; they are in the file when this returns."""
        for entry in entries:
            self._file.write(f'{"," if self.count else ""}\n{json.dumps(entry)}')
            self.count += 1
        self._file.flush()

    def __exit__(self, *error: Any) -> None:
        # After an error, too.
        self._opened.callback(self._file.write, '\n]\n')
        self._opened.__exit__(*error)


def read_list(path: pathlib.Path) -> list[Any]:
    """Reads a JSON list; [] if the file does not exist or is not a list."""
    try:
        value = json.loads(path.read_text(encoding='utf-8'))
    except (OSError, ValueError):
        return []
    return value if isinstance(value, list) else []
