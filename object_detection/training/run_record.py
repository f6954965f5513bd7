"""A record of each start of a training: what ran, with which versions, where."""

import importlib.metadata
import os
import pathlib
import platform
import shlex
import subprocess
import sys
import time
from typing import Any

import tensorflow as tf

from object_detection.training import history

FILE_NAME = 'runs.jsonl'

_PACKAGES = ('object-detection-toolkit', 'tensorflow', 'keras', 'numpy', 'protobuf')


def write(directory: str | os.PathLike, **facts: Any) -> None:
    """Appends one line of JSON to `directory/train/runs.jsonl`.

    Args:
      directory: of the model.
      **facts: what the caller knows, e.g. the seed and the step; JSON values.
    """
    folder = pathlib.Path(directory) / 'train'
    folder.mkdir(parents=True, exist_ok=True)
    history.append(folder / FILE_NAME, {**describe(), **facts})


def num_steps(directory: str | os.PathLike) -> int | None:
    """Returns how long the training in `directory` was last asked to be; None if it is not told."""
    runs = history.read(pathlib.Path(directory) / 'train' / FILE_NAME)
    return runs[-1].get('num_steps') if runs else None


def describe() -> dict[str, Any]:
    """Returns command line, versions, machine and devices."""
    return {
        'time': time.time(),
        'command': shlex.join([sys.executable, *sys.argv]),
        'working_directory': os.getcwd(),
        'versions': {'python': platform.python_version(), **_versions()},
        'source': _git_state(),
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


def _git_state() -> str | None:
    """The commit that this package runs from, if it runs from a checkout."""
    root = pathlib.Path(__file__).resolve().parents[2]
    if not (root / '.git').exists():
        return None
    command = ['git', '-C', str(root), 'describe', '--always', '--dirty']
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None
