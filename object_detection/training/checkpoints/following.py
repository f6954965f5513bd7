"""Follows the checkpoints of a training that may still run, until its completion marker.

A training also finishes before `num_steps`: early, or with its data. The marker is written at a
real end only, not by a process which a signal or an error stopped and which is to be started again.
"""

import json
import logging
import os
import pathlib
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from object_detection.errors import CheckpointError
from object_detection.system import files
from object_detection.weights import checkpoint_files

_logger = logging.getLogger(__name__)

# Network file systems show the files of a checkpoint up to so much later than the state file that
# names it.
_SECONDS_TO_SEE_FILES = 60.0

# The completion marker, in the training's model_dir.
_FINISHED_FILE = os.path.join('train', 'ended.json')


def follow(
    directory: str | os.PathLike,
    *,
    timeout: float,
    should_stop: Callable[[], bool] = lambda: False,
    poll_interval: float = 1.0,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[str]:
    """Yields the newest checkpoint, then each newer one in turn as it appears.

    Ends when the training has written its completion marker and its last checkpoint was yielded, or
    when no checkpoint came for `timeout` seconds. A corrupt state file is waited over:
    the training mends it when it is started again. So are files that are named, but cannot be seen
    yet, for a minute.

    Args:
      directory: of the checkpoints; it may not exist yet.
      timeout: seconds to wait for the next one before giving up; 0 looks once.
      should_stop: asked before each look; true ends the waiting.
      poll_interval: seconds between two looks.
    """
    folder = os.fspath(directory)
    seen: set[str] = set()
    # Prefix -> when its files were first missed.
    missed: dict[str, float] = {}
    told: set[str] = set()
    waiting_since = clock()
    is_waiting = False
    while not should_stop():
        # Read before the checkpoints, of which the last one is saved before the end is told.
        end = read_finished(folder)
        known = _known(folder, told)
        fresh = [prefix for prefix in known if prefix not in seen]
        if not seen:
            fresh = fresh[-1:]
            seen.update(set(known) - set(fresh))
        # The training may delete one while another one is evaluated.
        gone = [prefix for prefix in missed if prefix not in known]
        for prefix in fresh:
            if checkpoint_files.is_complete(prefix):
                missed.pop(prefix, None)
                seen.add(prefix)
                yield prefix
                waiting_since = clock()
                is_waiting = False
            elif clock() - missed.setdefault(prefix, clock()) >= _SECONDS_TO_SEE_FILES:
                gone.append(prefix)
        for prefix in gone:
            _logger.warning('%s was deleted before it could be read', prefix)
            del missed[prefix]
            seen.add(prefix)
        if end is not None and not fresh:
            _logger.info('the training has ended at step %d: %s', *end)
            return
        if clock() - waiting_since >= timeout:
            return
        if not fresh and not is_waiting:
            is_waiting = True
            what = 'the next' if seen else 'a'
            _logger.info('waiting for %s checkpoint in %s, at most %g s', what, folder, timeout)
        if not fresh or missed:
            sleep(min(poll_interval, timeout))


def _known(directory: str, told: set[str]) -> list[str]:
    """The complete checkpoints of a directory, oldest first; damage is told once."""
    try:
        state = checkpoint_files.read_state(directory)
    except CheckpointError as error:
        if str(error) not in told:
            _logger.warning('%s', error)
        told.add(str(error))
        return []
    return list(state.saved_at) if state else []


class Finished(NamedTuple):
    """How a training ended: after how many steps in all, and why, a clause."""

    step: int
    reason: str


def mark_finished(directory: str | os.PathLike, step: int, reason: str) -> None:
    """Writes that the training in `directory` has ended; its last checkpoint is to be saved before.

    Args:
      directory: the training's model_dir.
      step: number of steps done in all.
      reason: why, without a full stop, e.g. 'all steps are done'.
    """
    text = json.dumps({'step': step, 'reason': reason}) + '\n'
    files.write_text(pathlib.Path(directory) / _FINISHED_FILE, text)


def clear_finished(directory: str | os.PathLike) -> None:
    """Takes back what `mark_finished` wrote, if anything: for the start of a training."""
    (pathlib.Path(directory) / _FINISHED_FILE).unlink(missing_ok=True)


def read_finished(directory: str | os.PathLike) -> Finished | None:
    """Returns how the training in `directory` ended; None if it did not."""
    path = pathlib.Path(directory) / _FINISHED_FILE
    try:
        content = json.loads(path.read_text())
        return Finished(int(content['step']), str(content['reason']))
    except FileNotFoundError:
        return None
    except (KeyError, TypeError, ValueError) as error:
        _logger.warning('%s: cannot be read and is passed over: %r', path, error)
        return None
