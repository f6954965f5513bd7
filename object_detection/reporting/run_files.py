"""What the files of a model_dir say about its training and its evaluations.

How the config of a training differs from another one.
"""

import contextlib
import dataclasses
import difflib
import html
import os
import pathlib
import re
from collections.abc import Mapping
from typing import Any

from object_detection.config import reader, show
from object_detection.errors import ConfigError, UserError
from object_detection.metrics.analysis import images as stored
from object_detection.metrics.analysis.images import EvaluatedImages
from object_detection.training import status
from object_detection.training.evaluation import results
from object_detection.training.monitoring import history, run_record
from object_detection.training.status import Status
from object_detection.validation.resumption import CONFIG_FILE_NAME
from object_detection.visualization.report import note

_CHECKPOINT = re.compile(r'fine_tune_checkpoint:\s*"([^"]+)"')


@dataclasses.dataclass(frozen=True)
class RunFiles:
    """The files of a model_dir; what is absent is empty.

    Attributes:
      name: its path as the user wrote it.
      history: entries of `monitoring.history`.
      runs: entries of `run_record.read_runs`, one for each start.
      evaluations: reader -> entries of metrics.jsonl, in the order of steps; of several entries of
        a step the last.
      evaluated: reader -> what the last evaluation stored of its images.
      status: see `monitoring.status`.
      config: text of the resolved config.
      base: path of the config of the checkpoint that the training started from, if it is there.
    """

    name: str
    history: list[dict[str, Any]]
    runs: list[dict[str, Any]]
    evaluations: dict[str, list[dict[str, Any]]]
    evaluated: dict[str, EvaluatedImages]
    status: Status
    config: str
    base: pathlib.Path | None

    def metrics(self, reader: str) -> Mapping[str, float]:
        """Returns the metrics of the last evaluation."""
        entries = self.evaluations.get(reader)
        return entries[-1]['metrics'] if entries else {}


def read(model_dir: str | os.PathLike) -> RunFiles:
    """Reads the files of a model_dir.

    Raises:
      UserError: if it has no files of a training or an evaluation, or one cannot be read.
    """
    folder = pathlib.Path(model_dir)
    entries = history.read(folder / 'train' / history.FILE_NAME)
    root, found = folder / 'eval', results.read_all(folder)
    stored_files = sorted(root.rglob(stored.FILE_NAME))
    config = folder / CONFIG_FILE_NAME
    if not (entries or found or stored_files or config.exists()):
        raise UserError(f'{folder}: expected the files of a training. Received: none.')
    text = config.read_text(encoding='utf-8') if config.exists() else ''
    return RunFiles(
        name=os.fspath(model_dir),
        history=entries,
        runs=run_record.read_runs(folder),
        evaluations=found,
        evaluated={results.reader_of(root, path): stored.load(path) for path in stored_files},
        status=status.read(folder),
        config=text,
        base=base_config(text),
    )


def started_from(config: str) -> str | None:
    """Returns the path of the weights that a training starts from; None for random ones."""
    match = _CHECKPOINT.search(config)
    return match[1] if match else None


def base_config(config: str) -> pathlib.Path | None:
    """Returns the config in the folder of the checkpoint that a training starts from, or above."""
    start = started_from(config)
    if start is None:
        return None
    folder = pathlib.Path(start).parent
    paths = [f / name for f in (folder, folder.parent) for name in (CONFIG_FILE_NAME, _PLAIN)]
    return next((path for path in paths if path.is_file()), None)


_PLAIN = 'pipeline.config'


_COMMENT = re.compile(r'(^|\s)#[^"]*$')


def difference(base: str, config: str, name: str | os.PathLike) -> str:
    """Returns a part of a page with the lines that two configs do not share.

    Both are compared as they are printed in one form, without comments; a text that is not valid,
    such as one of another version, is compared as it is.

    Args:
      base: text of the config that `config` is compared with.
      config: text of a config.
      name: name of the base.
    """
    compared = difflib.unified_diff(_lines(base), _lines(config), lineterm='', n=3)
    shown = list(compared)[2:]
    if not shown:
        return note(f'None from {name}.')
    return note(f'From {name}.') + f'<pre>{"<br>".join(map(_difference_line, shown))}</pre>'


def _lines(config: str) -> list[str]:
    with contextlib.suppress(ConfigError):
        config = show.to_text(reader.parse_pipeline(config, 'config'))
    lines = (_COMMENT.sub('', line).rstrip() for line in config.splitlines())
    return [line for line in lines if line and not line.lstrip().startswith('#')]


def _difference_line(line: str) -> str:
    kind = {'+': 'added', '-': 'removed'}.get(line[:1], '')
    return f'<span class="{kind}">{html.escape(line)}</span>'
