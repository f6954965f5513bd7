"""A training's word that it has ended, for the eval job that follows its checkpoints.

Training also ends before `num_steps`: early, or with its data. Only a real end is told, not that of
a process which a signal or an error stopped and which is to be started again.
"""

import json
import logging
import os
import pathlib
from typing import NamedTuple

from object_detection.system import files

_logger = logging.getLogger(__name__)

_FILE_NAME = os.path.join('train', 'ended.json')


class Ended(NamedTuple):
    """How a training ended: after how many steps in all, and why, a clause."""

    step: int
    reason: str


def mark_ended(directory: str | os.PathLike, step: int, reason: str) -> None:
    """Writes that the training in `directory` has ended; its last checkpoint is to be saved before.

    Args:
      directory: the training's model_dir.
      step: number of steps done in all.
      reason: why, without a full stop, e.g. 'all steps are done'.
    """
    text = json.dumps({'step': step, 'reason': reason}) + '\n'
    files.write_text(pathlib.Path(directory) / _FILE_NAME, text)


def clear_ended(directory: str | os.PathLike) -> None:
    """Takes back what `mark_ended` wrote, if anything: for the start of a training."""
    (pathlib.Path(directory) / _FILE_NAME).unlink(missing_ok=True)


def read_ended(directory: str | os.PathLike) -> Ended | None:
    """Returns how the training in `directory` ended; None if it did not."""
    path = pathlib.Path(directory) / _FILE_NAME
    try:
        content = json.loads(path.read_text())
        return Ended(int(content['step']), str(content['reason']))
    except FileNotFoundError:
        return None
    except (KeyError, TypeError, ValueError) as error:
        _logger.warning('%s: cannot be read and is passed over: %r', path, error)
        return None
