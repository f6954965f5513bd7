"""The record of each run: command, versions and machine, and what its time was spent on."""

import contextlib
import importlib.metadata
import os
import pathlib
import platform
import secrets
import shlex
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

from object_detection.training.monitoring import history

FILE_NAME = 'runs.jsonl'
AVERAGES_FILE_NAME = 'averages.jsonl'

# What the time of a run is spent on.
START, FIRST_STEP, STEPS, SAVES, EVALUATION = 'start', 'first_step', 'steps', 'saves', 'evaluation'
_OTHER = 'other'

# Disables file monitors, hooks, and fetching missing objects of a partial clone.
_RUN_NOTHING = ('-c', 'core.fsmonitor=false', '-c', 'core.hooksPath=', '-c', 'protocol.allow=never')
_PACKAGES = ('object-detection-toolkit', 'tensorflow', 'keras', 'numpy', 'protobuf')


def write(
    directory: str | os.PathLike, *, config_path: str | os.PathLike | None = None, **facts: Any
) -> str:
    """Appends one line of JSON to `directory/train/runs.jsonl`; returns the name of the run.

    Args:
      directory: the model_dir.
      config_path: path of the file that the config was read from, or None.
      **facts: more entries, e.g. the seed and the step; JSON values.
    """
    folder = pathlib.Path(directory) / 'train'
    folder.mkdir(parents=True, exist_ok=True)
    run = secrets.token_hex(4)
    git = {'program': git_state(pathlib.Path(__file__).parent)}
    if config_path is not None:
        git['config'] = git_state(pathlib.Path(config_path).absolute())
    history.append(folder / FILE_NAME, {'run': run, **describe_environment(), 'git': git, **facts})
    return run


def write_averages(directory: str | os.PathLike, run: str, **facts: Any) -> None:
    """Appends one line of JSON to `directory/train/averages.jsonl`, when a run ends.

    Args:
      directory: the model_dir.
      run: name of the run, as `write` returned it.
      **facts: the measurements; JSON values.
    """
    path = pathlib.Path(directory) / 'train' / AVERAGES_FILE_NAME
    history.append(path, {'run': run, 'time': time.time(), **facts})


def read_runs(directory: str | os.PathLike) -> list[dict[str, Any]]:
    """Reads the entries of `write`, in order, each with that of `write_averages` as 'averages'.

    Runs that a kill or an error ended have no averages.
    """
    folder = pathlib.Path(directory) / 'train'
    averages = {entry['run']: entry for entry in history.read(folder / AVERAGES_FILE_NAME)}
    return [
        {**entry, 'averages': averages.get(entry.get('run'))}
        for entry in history.read(folder / FILE_NAME)
    ]


def num_steps(directory: str | os.PathLike) -> int | None:
    """Returns the number of steps of the last run in `directory`; None if it is unknown."""
    runs = history.read(pathlib.Path(directory) / 'train' / FILE_NAME)
    return runs[-1].get('num_steps') if runs else None


def val_json_file(directory: str | os.PathLike) -> str | None:
    """Returns the path of the annotations that the evaluations of the last run compare with.

    It is '' if they compare with the ground truth of the data, and None if the run evaluates
    nothing, or is not recorded.
    """
    runs = history.read(pathlib.Path(directory) / 'train' / FILE_NAME)
    return runs[-1].get('val_json_file') if runs else None


def describe_environment() -> dict[str, Any]:
    """Returns command line, versions, machine and devices."""
    # Imported here: reading the files does not need TensorFlow.
    import tensorflow as tf

    return {
        'time': time.time(),
        'command': shlex.join([sys.executable, *sys.argv]),
        'working_directory': os.getcwd(),
        'versions': {'python': platform.python_version(), **_versions()},
        'source': _described_source(),
        'host': platform.node(),
        'platform': platform.platform(),
        'cpus': os.cpu_count(),
        'devices': [device.name for device in tf.config.list_logical_devices()],
    }


def _versions() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def git_state(path: pathlib.Path) -> dict[str, Any] | None:
    """Returns 'commit', and whether the files differ from it, 'dirty'.

    A folder is dirty if files that git tracks are changed. Git may run programs that the repository
    names for this check, so it is done for this program's own repository only. A file is dirty if
    its content differs from the commit.

    Returns None if `path` is not tracked by a repository, or without git.
    """
    folder = path if path.is_dir() else path.parent
    # A package in an environment inside of someone's repository does not belong to that.
    if not _git(folder, 'ls-files', '--', '.'):
        return None
    commit = _git(folder, 'rev-parse', 'HEAD')
    if not commit:
        return None
    if path.is_dir():
        return {'commit': commit, 'dirty': bool(_git(folder, 'status', '--porcelain', '-uno'))}
    return {'commit': commit, 'dirty': _is_changed(path)}


def _is_changed(path: pathlib.Path) -> bool:
    """Whether the content of a file differs from the commit, apart from line endings."""
    try:
        content = path.read_text(encoding='utf-8', errors='replace')
    except OSError:
        return True
    return _git(path.parent, 'cat-file', 'blob', f'HEAD:./{path.name}') != content.strip()


def _described_source() -> str | None:
    """Returns the commit that this package runs from, if it runs from a checkout."""
    root = pathlib.Path(__file__).resolve().parents[3]
    if not (root / '.git').exists():
        return None
    return _git(root, 'describe', '--always', '--dirty') or None


def _git(folder: pathlib.Path, *arguments: str) -> str:
    """Returns what git prints; '' if it fails.

    The repository may belong to somebody else: no program that its configuration names is run.
    """
    command = ['git', '-C', str(folder), *_RUN_NOTHING, *arguments]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            encoding='utf-8',
            errors='replace',
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ''
    return done.stdout.strip() if done.returncode == 0 else ''


class RunClock:
    """Seconds of a run, by what they were spent on; on `START` from the construction.

    Args:
      announce: called with the name of what begins to be done, see `announced`.
    """

    def __init__(self, announce: Callable[[str], None] = lambda what: None):
        self._announce = announce
        self._seconds: dict[str, float] = defaultdict(float)
        self._spent_on = START
        self._since = time.monotonic()

    def begin(self) -> None:
        """Ends `START`: from now on, time that is not `spent` on anything is 'other'."""
        self._switch(_OTHER)

    @contextlib.contextmanager
    def announced(self, what: str) -> Iterator[None]:
        """As `spent`, for what may take seconds: it is announced, and `STEPS` afterwards."""
        self._announce(what)
        with self.spent(what):
            yield
        self._announce(STEPS)

    @contextlib.contextmanager
    def spent(self, what: str) -> Iterator[None]:
        """A context whose time is spent on `what`, except the time of such contexts within it."""
        outer = self._switch(what)
        try:
            yield
        finally:
            self._switch(outer)

    def describe(self) -> dict[str, float]:
        """Returns name -> seconds so far; 'all' is the sum of the others."""
        self._switch(self._spent_on)
        return {'all': sum(self._seconds.values()), **self._seconds}

    def _switch(self, what: str) -> str:
        now = time.monotonic()
        self._seconds[self._spent_on] += now - self._since
        before, self._spent_on, self._since = self._spent_on, what, now
        return before
