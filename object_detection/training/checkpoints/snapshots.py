"""Checkpoints that are queued for evaluation, and kept when the training deletes its own.

They are hard links in `model_dir/snapshots`, which take disk space only after the training has
deleted its files. The folder is the queue, so a kill loses nothing.
"""

import contextlib
import logging
import os
import shutil
import sys
from typing import NamedTuple

from object_detection.errors import CorruptCheckpointError
from object_detection.training.monitoring import status
from object_detection.weights import checkpoint_contents, checkpoint_files

_logger = logging.getLogger(__name__)

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
