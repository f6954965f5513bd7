"""Converts any supported file of weights to a checkpoint of this toolkit."""

import os
from typing import NamedTuple

from object_detection.core.detector import Detector
from object_detection.errors import CheckpointError
from object_detection.system import disk, files, publishing
from object_detection.weights import checkpoint_files, checkpoints, restore
from object_detection.weights import sources as weight_sources
from object_detection.weights.interfaces import CHECKPOINT_TYPES

CONFIG_FILE = 'pipeline.config'
_NAME = 'ckpt-0'
# The files of a conversion; the file that names the others is the last one.
_FILES = (
    f'{_NAME}.data-00000-of-00001',
    f'{_NAME}.index',
    CONFIG_FILE,
    checkpoint_files.STATE_FILE,
)


class Conversion(NamedTuple):
    """The result of a conversion.

    Attributes:
      source: description of the file.
      checkpoint_type: the type that was restored from it.
      report: the result for each variable.
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
    all_that_fits: bool = False,
    pipeline_text: str,
) -> Conversion:
    """Restores a detector from a file and writes it as `ckpt-0`, together with `pipeline.config`.

    Nothing in the folder changes before everything is written.

    Args:
      detector: detector with all its variables, whose values change.
      path: path of a file that `restore.restore` accepts.
      output: folder on this machine; an earlier conversion in it is replaced.
      checkpoint_type: see `restore.restore`; None takes the largest type that the file supports.
      all_that_fits: see `restore.restore`.
      pipeline_text: the pipeline config as text.

    Raises:
      ConfigError: if `output` is on another machine.
      CheckpointError: if the file cannot be read or does not fit, or `output` cannot be written or
        contains other files.
    """
    check_output(output)
    with weight_sources.open_source(path) as source:
        description = source.description
        checkpoint_type = checkpoint_type or max(source.types, key=CHECKPOINT_TYPES.index)
    disk.check_writable(output, checkpoints.num_bytes(detector.named_variables()))
    report = restore.restore(detector, path, checkpoint_type, all_that_fits=all_that_fits)
    _write(detector, output, pipeline_text)
    return Conversion(description, checkpoint_type, report, os.path.join(output, _NAME))


def check_output(output: str) -> None:
    """Checks that a conversion may be written to a folder.

    Raises:
      ConfigError: if it is on another machine.
      CheckpointError: if it holds anything except an earlier conversion, complete or interrupted.
    """
    files.check_is_local(output, '--output')
    if not os.path.exists(output):
        return
    if not os.path.isdir(output):
        raise CheckpointError(f'{output}: expected a folder to write. Received: a file.')
    names = os.listdir(output)
    held = sorted(name for name in names if not name.startswith(publishing.PREFIX))
    was_killed = len(held) < len(names) and checkpoint_files.STATE_FILE not in held
    if held and set(held) != set(_FILES) and not (was_killed and set(held) < set(_FILES)):
        raise CheckpointError(
            f'{output}: expected a new folder, an empty one or an earlier conversion, which is '
            f'replaced. Received: one that holds {held[0]}; give another output directory.'
        )


def _write(detector: Detector, output: str, pipeline_text: str) -> None:
    with disk.writing(output, 'The conversion'), publishing.open_draft(output) as draft:
        checkpoints.save_model(os.fspath(draft.folder), detector.named_variables(), 0)
        files.write_text(draft.folder / CONFIG_FILE, pipeline_text)
        draft.publish(_FILES)
