"""Cleans the folder of a training before it starts: recovers from kills and corrupt files."""

import logging
import os
import re
import shutil
from collections.abc import Iterable

from object_detection.errors import CheckpointError, CorruptCheckpointError
from object_detection.system import disk
from object_detection.weights import checkpoint_files as files
from object_detection.weights.checkpoint_contents import check_is_ours

_logger = logging.getLogger(__name__)

# What TensorFlow leaves when it is killed inside a save: folders that data are collected in, files
# before they are renamed, state files before they replace the old one.
_DRAFTS = re.compile(
    r'ckpt-\d+_temp.*'
    r'|ckpt-\d+\.(index|data-\d{5}-of-\d{5})\.tempstate\d+'
    r'|checkpoint\.(tmp[0-9a-f]{32}|\d+\.tmp)'
)
_DAMAGED_SUFFIX = '.damaged'


def prepare(directory: str) -> str | None:
    """Prepares a model_dir for a training that starts or resumes in it.

    Only the process that saves may do so, before it saves; evaluations never do.

    Args:
      directory: the folder; made if it does not exist.

    Returns:
      The prefix of the newest complete checkpoint, which the state file names; None to begin.

    Raises:
      CheckpointError: if the folder cannot be written, if none of the named checkpoints is
        complete, if one cannot be read for a reason other than corruption, or if they belong to
        another program.
    """
    disk.check_writable(directory)
    with disk.writing(directory, 'The state of the checkpoints'):
        newest = _recover(directory)
        sweep(directory)
    if newest:
        check_is_ours(newest, resumes=True)
    return newest


def sweep(directory: str) -> list[str]:
    """Removes what a killed save left, and nothing else.

    That is: temporary files; data without an index; checkpoints that are newer than the newest one
    in the state file, as they may be incomplete. Without a readable state file complete checkpoints
    stay. Older checkpoints always stay: they may be kept permanently.

    Returns:
      The names of the removed files and folders.
    """
    try:
        state = files.read_state(directory)
    except CheckpointError:
        state = None
    named = {os.path.basename(prefix) for prefix in state.saved_at} if state else set()
    newest = files.number_of(os.path.basename(state.newest)) if state else None
    removed = []
    for entry in sorted(os.listdir(directory)):
        if _DRAFTS.fullmatch(entry) or _is_left_over(directory, entry, named, newest):
            _remove(os.path.join(directory, entry))
            removed.append(entry)
    if removed:
        _logger.info('%s: removed what a killed save left: %s', directory, ', '.join(removed))
    return removed


def _is_left_over(directory: str, entry: str, named: set[str], newest: int | None) -> bool:
    number = files.number_of(entry)
    name = entry.partition('.')[0]
    if number is None or entry == name or name in named:
        return False
    has_index = files.exists(os.path.join(directory, name))
    return not has_index or (newest is not None and number > newest)


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        os.remove(path)


def _recover(directory: str) -> str | None:
    """Finds the newest complete checkpoint, and makes the state file agree."""
    try:
        state = files.read_state(directory)
    except CorruptCheckpointError as error:
        return _adopt(directory, str(error))
    if state is None:
        return _adopt(directory, None)
    return _go_back(directory, state)


def _adopt(directory: str, damage: str | None) -> str | None:
    """Without a state file: adopts the newest complete checkpoint, after reading all of it.

    The new state file names only this one, so that older checkpoints are never deleted.

    Args:
      directory: the folder of the checkpoints.
      damage: what is wrong with the state file; None if there is none.
    """
    found = files.complete(directory)
    whole, damages = _newest_whole(found)
    if whole is not None:
        saved_at = os.path.getmtime(f'{whole}.index')
        files.write_state(directory, files.State(whole, {whole: saved_at}, saved_at - 1.0))
        _set_aside(damages)
        trouble = damage or f'{directory}: the file {files.STATE_FILE!r} is missing.'
        _logger.warning('%s Going on from %s, the newest complete checkpoint', trouble, whole)
        return whole
    if damage or len(found) > 1:
        raise CheckpointError(_none_is_whole(directory, [damage or '', *damages.values()]))
    for path in [path for prefix in found for path in files.files_of(prefix)]:
        # A kill inside the very first save leaves only this.
        _logger.info('%s: removed, for its save was not finished', path)
        os.remove(path)
    return None


def _go_back(directory: str, state: files.State) -> str:
    """Takes the newest of the named checkpoints that is complete."""
    prefixes = [prefix for prefix in state.saved_at if prefix != state.newest] + [state.newest]
    whole, damages = _newest_whole(prefixes)
    if whole is None:
        raise CheckpointError(_none_is_whole(directory, damages.values()))
    # A kill while an old checkpoint is deleted leaves its name in the state file.
    left = [p for p in prefixes if p not in damages and files.is_complete(p)]
    if left != list(state.saved_at):
        saved_at = {prefix: state.saved_at[prefix] for prefix in left}
        files.write_state(directory, files.State(whole, saved_at, state.preserved_at))
    if damages:
        _set_aside(damages)
        _logger.warning('%s Going back to %s', ' '.join(damages.values()), whole)
    return whole


def _newest_whole(prefixes: list[str]) -> tuple[str | None, dict[str, str]]:
    """Returns the last complete one, and prefix -> damage of those after it.

    Raises:
      UnreadableCheckpointError: if one cannot be read now: it may be complete.
    """
    damages = {}
    for prefix in reversed(prefixes):
        try:
            files.read_through(prefix)
            return prefix, damages
        except CorruptCheckpointError as error:
            damages[prefix] = str(error)
    return None, damages


def _set_aside(damages: dict[str, str]) -> None:
    """Renames the files of corrupt checkpoints, so that the user can inspect them."""
    for prefix in damages:
        for path in files.files_of(prefix):
            os.replace(path, path + _DAMAGED_SUFFIX)


def _none_is_whole(directory: str, damages: Iterable[str]) -> str:
    return (
        f'{directory}: it holds no checkpoint that is whole. {" ".join(filter(None, damages))} '
        'Nothing was changed; bring a copy back, or choose another model_dir to start at step 0.'
    )
