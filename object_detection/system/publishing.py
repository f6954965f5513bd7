"""Scratch folders in which exports are written, checked, and then moved into place.

Imports no TensorFlow.
"""

import contextlib
import os
import pathlib
import shutil
import tempfile
from collections.abc import Iterator, Sequence

from object_detection.system import disk, files, folder_lock

# Of the names of scratch folders.
PREFIX = '.export-'


class Draft:
    """An export on its way, in a scratch folder of the output folder.

    Attributes:
      folder: where to write the new items; empty at first.
      scratch: the scratch folder, for further files; it is removed at the end.
    """

    def __init__(self, output: pathlib.Path, scratch: pathlib.Path):
        self.scratch, self.folder = scratch, scratch / 'new'
        self._output, self._aside = output, scratch / 'old'

    def publish(self, names: Sequence[str | os.PathLike]) -> None:
        """Moves items into the output folder, the last one at the end.

        Earlier items of these names are first moved aside, in reverse order: if the last item is in
        place, all of them belong to one export. If a move fails, everything is as it was. A killed
        process leaves earlier items aside; the next draft, or the next that is published, moves
        them back. Drafts of one folder are published one after another.

        Args:
          names: the items, files or folders, relative to `folder`.
        """
        with _locked(self._output):
            _settle(self._output)
            for parent in {pathlib.PurePath(name).parent for name in names}:
                (self._output / parent).mkdir(exist_ok=True)
                (self._aside / parent).mkdir(parents=True, exist_ok=True)
            old = [(self._output / name, self._aside / name) for name in reversed(names)]
            new = [(self.folder / name, self._output / name) for name in names]
            files.move_all([each for each in old if each[0].exists()] + new)


@contextlib.contextmanager
def open_draft(output: str | os.PathLike) -> Iterator[Draft]:
    """Yields an empty draft in a folder, which is created; removes it at the end of the block.

    Drafts that killed processes left behind are removed before. If such a process was moving its
    draft into place, the earlier export comes back.

    Raises:
      CheckpointError: if the disk is full or read-only.
    """
    output = pathlib.Path(output)
    with disk.full_disk_named(os.fspath(output)), contextlib.ExitStack() as stack:
        output.mkdir(parents=True, exist_ok=True)
        with _locked(output):  # No other process begins, publishes or removes a draft.
            _settle(output)
            scratch = pathlib.Path(tempfile.mkdtemp(prefix=PREFIX, dir=output))
            # Until the process ends, or the folder is removed.
            stack.enter_context(_locked(scratch))
            stack.callback(shutil.rmtree, scratch, ignore_errors=True)
        draft = Draft(output, scratch)
        draft.folder.mkdir()
        yield draft


def _settle(output: pathlib.Path) -> None:
    """Removes drafts of killed processes, after what they have moved aside is back."""
    for leftover in sorted(output.glob(f'{PREFIX}*/')):
        with _locked(leftover, wait=False) as is_unused:
            if is_unused:
                _undo(output, leftover)
                shutil.rmtree(leftover, ignore_errors=True)


@contextlib.contextmanager
def _locked(folder: pathlib.Path, *, wait: bool = True) -> Iterator[bool]:
    """Locks a folder; False if another process or user has it, it is gone, or has no locks."""
    with contextlib.ExitStack() as stack:
        is_locked = False
        # Another process has removed or locked it, it is that of another user, which nobody else
        # can read, or the system cannot open folders.
        with contextlib.suppress(FileNotFoundError, PermissionError, BlockingIOError):
            descriptor = os.open(folder, os.O_RDONLY)
            stack.callback(os.close, descriptor)
            is_locked = folder_lock.lock(descriptor, wait=wait)
        yield is_locked


def _undo(output: pathlib.Path, scratch: pathlib.Path) -> None:
    """Moves items back that a killed process has moved aside, unless it was about to finish."""
    new, aside = scratch / 'new', scratch / 'old'
    if aside.is_dir() and any(each.is_file() for each in new.rglob('*')):
        _move_back(output, new, aside)


def _move_back(output: pathlib.Path, new: pathlib.Path, aside: pathlib.Path) -> None:
    for item in sorted(aside.iterdir()):
        in_place, unmoved = output / item.name, new / item.name
        if in_place.is_dir() and unmoved.is_dir():
            # No item, but the folder of some.
            _move_back(in_place, unmoved, item)
            continue
        if in_place.exists() and not unmoved.exists():
            os.replace(in_place, unmoved)
        if not in_place.exists():
            os.replace(item, in_place)
