"""Writes the weights of any file that a detector can be started from as a checkpoint of ours."""

import contextlib
import os
import shutil
import tempfile
from typing import NamedTuple

from object_detection.errors import CheckpointError
from object_detection.system import disk, files
from object_detection.weights import checkpoint_files, checkpoints, restore
from object_detection.weights import sources as weight_sources
from object_detection.weights.interfaces import CHECKPOINT_TYPES, Detector

CONFIG_FILE = 'pipeline.config'
_NAME = 'ckpt-0'
# What a conversion writes, the file that names the rest last.
_FILES = (
    f'{_NAME}.data-00000-of-00001',
    f'{_NAME}.index',
    CONFIG_FILE,
    checkpoint_files.STATE_FILE,
)
_SCRATCH = '.convert-'


class Conversion(NamedTuple):
    """What was done.

    Attributes:
      source: the file, in words.
      checkpoint_type: what was taken of it.
      report: what became of each variable.
      prefix: prefix of the checkpoint that was written.
    """

    source: str
    checkpoint_type: str
    report: restore.Report
    prefix: str


def convert(
    detector: Detector,
    path: str,
    output: str,
    *,
    checkpoint_type: str | None = None,
    whatever_fits: bool = False,
    pipeline_text: str,
) -> Conversion:
    """Restores a detector from a file and writes it as `ckpt-0`, with `pipeline.config` beside.

    Nothing in the folder changes before all is written.

    Args:
      detector: with all its variables, which change.
      path: of what `restore.restore` takes.
      output: folder on this machine; an earlier conversion in it is replaced.
      checkpoint_type: see `restore.restore`; None for the most that the file can serve.
      whatever_fits: see `restore.restore`.
      pipeline_text: the pipeline config as text.

    Raises:
      ConfigError: if `output` is on another machine.
      CheckpointError: if the file cannot be read or does not fit, or `output` cannot be written or
        holds something else.
    """
    check_output(output)
    with weight_sources.open_source(path) as source:
        description = source.description
        checkpoint_type = checkpoint_type or max(source.types, key=CHECKPOINT_TYPES.index)
    variables = detector.named_variables().values()
    disk.check_writable(output, sum(v.dtype.size * v.shape.num_elements() for v in variables))
    report = restore.restore(detector, path, checkpoint_type, whatever_fits=whatever_fits)
    _write(detector, output, pipeline_text)
    return Conversion(description, checkpoint_type, report, os.path.join(output, _NAME))


def check_output(output: str) -> None:
    """Accepts a folder that a conversion may be written to.

    Raises:
      ConfigError: if it is on another machine.
      CheckpointError: if it holds anything but an earlier conversion, whole or killed.
    """
    files.check_is_local(output, '--output')
    if not os.path.exists(output):
        return
    if not os.path.isdir(output):
        raise CheckpointError(f'{output}: expected a folder to write. Received: a file.')
    names = os.listdir(output)
    held = sorted(name for name in names if not name.startswith(_SCRATCH))
    was_killed = len(held) < len(names) and checkpoint_files.STATE_FILE not in held
    if held and set(held) != set(_FILES) and not (was_killed and set(held) < set(_FILES)):
        raise CheckpointError(
            f'{output}: expected a new folder, an empty one or an earlier conversion, which is '
            f'replaced. Received: one that holds {held[0]}; give another output directory.'
        )


def _write(detector: Detector, output: str, pipeline_text: str) -> None:
    """Writes into a scratch folder in `output` and moves what is complete, the state file last."""
    state_file = os.path.join(output, checkpoint_files.STATE_FILE)
    with disk.writing(output, 'The conversion'):
        os.makedirs(output, exist_ok=True)
        # Until the last move it marks the folder as one of an unfinished conversion.
        scratch = tempfile.mkdtemp(prefix=_SCRATCH, dir=output)
        with contextlib.ExitStack() as after_failure:
            after_failure.callback(_remove_scratch, output)
            if not os.path.exists(state_file):
                _remove_files(output)
            _remove_scratch(output, but=os.path.basename(scratch))
            draft = os.path.join(scratch, 'new')
            checkpoints.save_model(draft, detector.named_variables(), 0)
            files.write_text(os.path.join(draft, CONFIG_FILE), pipeline_text)
            after_failure.pop_all()
        # Without it no checkpoint of the folder is taken, however far the moves get.
        with contextlib.suppress(FileNotFoundError):
            os.remove(state_file)
        for name in _FILES:
            os.replace(os.path.join(draft, name), os.path.join(output, name))
        _remove_scratch(output)


def _remove_files(output: str) -> None:
    """Removes what a killed conversion has moved."""
    for name in _FILES:
        with contextlib.suppress(FileNotFoundError):
            os.remove(os.path.join(output, name))


def _remove_scratch(output: str, but: str = '') -> None:
    for name in os.listdir(output):
        if name.startswith(_SCRATCH) and name != but:
            shutil.rmtree(os.path.join(output, name), ignore_errors=True)
