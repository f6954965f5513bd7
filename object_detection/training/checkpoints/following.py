"""Follows the checkpoints of a training that may still run, until its completion marker.

A training also finishes before `num_steps`: early, or with its data. The marker is written at a
real end only, not by a process which a signal or an error stopped and which is to be started again.

Checkpoints that are queued for evaluation, and kept when the training deletes its own.

They are hard links in `model_dir/snapshots`, which take disk space only after the training has
deleted its files. The folder is the queue, so a kill loses nothing.
"""

import contextlib
import json
import logging
import os
import pathlib
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from object_detection.errors import CheckpointError, CorruptCheckpointError
from object_detection.system import files
from object_detection.training import status
from object_detection.weights import checkpoint_contents, checkpoint_files

_logger = logging.getLogger(__name__)

# Network file systems may show the files of a checkpoint this much later than the state file that
# names it.
_SECONDS_TO_SEE_FILES = 60.0


def follow(
    directory: str | os.PathLike,
    *,
    timeout: float,
    should_stop: Callable[[], bool] = lambda: False,
    poll_interval: float = 1.0,
) -> Iterator[str]:
    """Yields the newest checkpoint, then each newer one in turn as it appears.

    It ends when the training has written its completion marker and its last checkpoint was yielded,
    or when no checkpoint appeared for `timeout` seconds. A corrupt state file is tolerated: the
    training replaces it when it is started again. Files that the state file names, but that are not
    visible yet, are waited for up to a minute.

    Args:
      directory: the folder of the checkpoints; it may not exist yet.
      timeout: seconds to wait for the next checkpoint; 0 does not wait.
      should_stop: called before each poll; true ends the waiting.
      poll_interval: seconds between two polls.
    """
    checkpoints = _Checkpoints(os.fspath(directory))
    while (prefix := _next(checkpoints, timeout, should_stop, poll_interval)) is not None:
        yield prefix


def _next(
    checkpoints: '_Checkpoints',
    timeout: float,
    should_stop: Callable[[], bool],
    poll_interval: float,
) -> str | None:
    """Waits for the next checkpoint; None where `follow` ends."""
    is_logged = False
    for left in files.attempts(poll_interval, timeout=timeout, should_stop=should_stop):
        # Read before the checkpoints: the last of these is saved before the marker is written.
        finished = read_finished(checkpoints.directory)
        prefix = checkpoints.take()
        if prefix is not None:
            return prefix
        if checkpoints.has_invisible:
            continue
        if finished is not None:
            _logger.info('the training has ended at step %d: %s', *finished)
            return None
        if left and not is_logged:
            is_logged = True
            what = 'the next' if checkpoints.has_taken else 'a'
            _logger.info(
                'waiting for %s checkpoint in %s, at most %g s',
                what,
                checkpoints.directory,
                timeout,
            )
    return None


class _Checkpoints:
    """The checkpoints of a directory, each taken once."""

    def __init__(self, directory: str):
        self.directory = directory
        self._taken: set[str] = set()
        # Prefix -> when its files were first found to be invisible.
        self._invisible_since: dict[str, float] = {}
        self._logged: set[str] = set()

    @property
    def has_taken(self) -> bool:
        return bool(self._taken)

    @property
    def has_invisible(self) -> bool:
        """Whether the state file names checkpoints whose files are not visible yet."""
        return bool(self._invisible_since)

    def take(self) -> str | None:
        """Returns the oldest new checkpoint, or the newest of all at first; None without one."""
        named = self._read_names()
        for prefix in list(self._invisible_since):
            if prefix not in named:
                self._give_up(prefix)
        new = [prefix for prefix in named if prefix not in self._taken]
        if not self._taken:
            self._taken.update(new[:-1])
            new = new[-1:]
        for prefix in new:
            if checkpoint_files.is_complete(prefix):
                self._invisible_since.pop(prefix, None)
                self._taken.add(prefix)
                return prefix
            now = time.monotonic()
            if now - self._invisible_since.setdefault(prefix, now) >= _SECONDS_TO_SEE_FILES:
                self._give_up(prefix)
        return None

    def _give_up(self, prefix: str) -> None:
        _logger.warning('%s was deleted before it could be read', prefix)
        del self._invisible_since[prefix]
        self._taken.add(prefix)

    def _read_names(self) -> list[str]:
        """Returns the checkpoints that the state file names, oldest first; logs damage once."""
        try:
            state = checkpoint_files.read_state(self.directory)
        except CheckpointError as error:
            if str(error) not in self._logged:
                _logger.warning('%s', error)
            self._logged.add(str(error))
            return []
        return list(state.saved_at) if state else []


class Finished(NamedTuple):
    """How a training ended: the number of steps done in all, and the reason, a clause."""

    step: int
    reason: str


def mark_finished(directory: str | os.PathLike, step: int, reason: str) -> None:
    """Writes the completion marker of a training, whose last checkpoint must be saved before.

    Args:
      directory: the training's model_dir.
      step: number of steps done in all.
      reason: why the training ended, without a full stop, e.g. 'all steps are done'.
    """
    text = json.dumps({'step': step, 'reason': reason}) + '\n'
    files.write_text(pathlib.Path(directory) / status.FINISHED_FILE, text)


def clear_finished(directory: str | os.PathLike) -> None:
    """Removes the completion marker, if there is one: for the start of a training."""
    (pathlib.Path(directory) / status.FINISHED_FILE).unlink(missing_ok=True)


def read_finished(directory: str | os.PathLike) -> Finished | None:
    """Reads the completion marker of the training in `directory`; None if there is none."""
    path = pathlib.Path(directory) / status.FINISHED_FILE
    try:
        content = json.loads(path.read_text())
        return Finished(int(content['step']), str(content['reason']))
    except FileNotFoundError:
        return None
    except (KeyError, TypeError, ValueError) as error:
        _logger.warning('%s: cannot be read and is passed over: %r', path, error)
        return None


FOLDER = status.SNAPSHOTS_FOLDER
_INDEX = '.index'


class Snapshot(NamedTuple):
    """A queued checkpoint: its prefix, and the step that it was saved at."""

    prefix: str
    step: int


class Snapshots:
    """The queued checkpoints of a model_dir; only one process at a time may add and remove.

    Args:
      model_dir: the folder of the training.
    """

    def __init__(self, model_dir: str | os.PathLike):
        self._directory = os.path.join(model_dir, FOLDER)

    def add(self, checkpoint: str, step: int) -> Snapshot:
        """Keeps a checkpoint, given by its prefix, until `remove`; adding it twice has no effect.

        Raises:
          OSError: without disk space for a copy, if the file system has no hard links.
        """
        os.makedirs(self._directory, exist_ok=True)
        name = os.path.basename(checkpoint)
        snapshot = Snapshot(os.path.join(self._directory, name), step)
        self.remove(snapshot)
        try:
            # The index last: without it there is no checkpoint.
            for path in sorted(checkpoint_files.files_of(checkpoint)):
                kept = os.path.join(self._directory, os.path.basename(path))
                if not path.endswith(_INDEX):
                    _link(path, kept)
            _link(checkpoint + _INDEX, snapshot.prefix + _INDEX)
        except OSError:
            # A partial copy would take disk space that is scarce.
            self.remove(snapshot)
            raise
        return snapshot

    def remove(self, snapshot: Snapshot) -> None:
        """Removes a snapshot, if it exists."""
        with contextlib.suppress(FileNotFoundError):
            os.remove(snapshot.prefix + _INDEX)
        for path in checkpoint_files.files_of(snapshot.prefix):
            os.remove(path)

    def clear(self) -> None:
        """Removes all snapshots, and logs their steps."""
        left = self.recover(sys.maxsize)
        for snapshot in left:
            self.remove(snapshot)
        if left:
            steps = [snapshot.step for snapshot in left]
            _logger.info('steps %s, which waited to be evaluated, are left out', steps)

    def recover(self, step: int) -> list[Snapshot]:
        """Returns what an earlier run left, ordered by step; removes incomplete and later ones.

        Args:
          step: the step that the training resumes from.

        Raises:
          CheckpointError: if one cannot be read for a reason other than corruption, or belongs to
            another program.
        """
        if not os.path.isdir(self._directory):
            return []
        found = []
        for prefix in checkpoint_files.complete(self._directory):
            try:
                found.append(Snapshot(prefix, checkpoint_contents.read_step(prefix)))
            except CorruptCheckpointError as error:
                _logger.warning('not evaluated: %s', error)
        kept = sorted((each for each in found if each.step <= step), key=lambda each: each.step)
        names = {os.path.basename(snapshot.prefix) for snapshot in kept}
        for entry in os.listdir(self._directory):
            if entry.partition('.')[0] not in names:
                os.remove(os.path.join(self._directory, entry))
        return kept


def _link(path: str, kept: str) -> None:
    try:
        os.link(path, kept)
    except OSError:
        # Some network file systems have no hard links.
        shutil.copyfile(path, kept)
