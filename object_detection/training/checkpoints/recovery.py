"""What a training does with its folder before it goes on: recovers from kills and damage."""

import logging
import os
import re
import shutil
from collections.abc import Iterable

from object_detection.errors import CheckpointError, DamagedCheckpointError
from object_detection.system import disk
from object_detection.weights import checkpoint_files as files
from object_detection.weights.checkpoint_contents import check_is_ours

_logger = logging.getLogger(__name__)

# What TensorFlow leaves behind when it is killed inside a save: folders that data are gathered in,
# files before they get their names, state files before they replace the old one.
_DRAFTS = re.compile(
    r'ckpt-\d+_temp.*'
    r'|ckpt-\d+\.(index|data-\d{5}-of-\d{5})\.tempstate\d+'
    r'|checkpoint\.(tmp[0-9a-f]{32}|\d+\.tmp)'
)
_SUFFIX_OF_DAMAGED = '.damaged'


def prepare(directory: str) -> str | None:
    """Makes a model_dir ready for a training to go on in, or to start in.

    Only the process that saves may do so, before it saves, and evaluations never do.

    Args:
      directory: made if there is none.

    Returns:
      The prefix of the newest whole checkpoint, which the state file names; None to start anew.

    Raises:
      CheckpointError: if the folder cannot be written, if none of the named checkpoints is whole,
        if one cannot be read for a reason other than damage, or if they are another program's.
    """
    disk.check_writable(directory)
    with disk.writing(directory, 'The state of the checkpoints'):
        newest = _recover(directory)
        sweep(directory)
    if newest:
        check_is_ours(newest)
    return newest


def sweep(directory: str) -> list[str]:
    """Removes what a killed save left, and nothing else.

    That is: drafts of files; data without an index; checkpoints that are newer than the newest
    one in the state file, for they may be incomplete. Without a readable state file complete
    checkpoints stay, and older checkpoints always do: they may be kept for good.

    Returns:
      The names of what was removed.
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
    """Finds the newest whole checkpoint and brings the state file in line."""
    try:
        state = files.read_state(directory)
    except DamagedCheckpointError as error:
        return _adopt(directory, str(error))
    if state is None:
        return _adopt(directory, None)
    return _go_back(directory, state)


def _adopt(directory: str, damage: str | None) -> str | None:
    """Without a state file: takes the newest whole checkpoint, after reading all of it.

    It alone is named, so that the older ones are never deleted.

    Args:
      directory: of the checkpoints.
      damage: of the state file; None if there is none.
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
        # A kill inside the very first save leaves no more than this.
        _logger.info('%s: removed, for its save was not finished', path)
        os.remove(path)
    return None


def _go_back(directory: str, state: files.State) -> str:
    """Takes the newest of the named checkpoints that is whole."""
    prefixes = [prefix for prefix in state.saved_at if prefix != state.newest] + [state.newest]
    whole, damages = _newest_whole(prefixes)
    if whole is None:
        raise CheckpointError(_none_is_whole(directory, damages.values()))
    # A kill while an old checkpoint is deleted leaves its name.
    left = [p for p in prefixes if p not in damages and files.is_complete(p)]
    if left != list(state.saved_at):
        saved_at = {prefix: state.saved_at[prefix] for prefix in left}
        files.write_state(directory, files.State(whole, saved_at, state.preserved_at))
    if damages:
        _set_aside(damages)
        _logger.warning('%s Going back to %s', ' '.join(damages.values()), whole)
    return whole


def _newest_whole(prefixes: list[str]) -> tuple[str | None, dict[str, str]]:
    """Returns the last whole one, and prefix -> damage of those behind it.

    Raises:
      UnreadableCheckpointError: if one cannot be read now: it may be whole.
    """
    damages = {}
    for prefix in reversed(prefixes):
        try:
            files.read_through(prefix)
            return prefix, damages
        except DamagedCheckpointError as error:
            damages[prefix] = str(error)
    return None, damages


def _set_aside(damages: dict[str, str]) -> None:
    """Renames the files of damaged checkpoints, for the user to judge."""
    for prefix in damages:
        for path in files.files_of(prefix):
            os.replace(path, path + _SUFFIX_OF_DAMAGED)


def _none_is_whole(directory: str, damages: Iterable[str]) -> str:
    return (
        f'{directory}: it holds no checkpoint that is whole. {" ".join(filter(None, damages))} '
        'Nothing was changed; bring a copy back, or choose another model_dir to start anew.'
    )
