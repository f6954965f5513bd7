"""Keeps the best of the evaluated models in a folder of its own."""

import contextlib
import json
import logging
import os
import pathlib
import time
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from object_detection.errors import (
    CheckpointError,
    ConfigError,
    CorruptCheckpointError,
    UnreadableCheckpointError,
    format_list,
)
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from object_detection.system import files, folder_lock
from object_detection.training import status
from object_detection.training.checkpoints import recovery
from object_detection.training.monitoring import run_record
from object_detection.validation import eval_config as eval_config_rules
from object_detection.validation import resumption
from object_detection.weights import checkpoint_contents, checkpoint_files, checkpoints

_logger = logging.getLogger(__name__)

FOLDER, METRICS = status.BEST_FOLDER, status.BEST_METRICS
# Holds the next content of metrics.json while its checkpoint is being saved.
_PENDING = 'next.json'
_LOCK = '.lock'
# A save of another process takes less, unless that process is stuck.
_LOCK_TIMEOUT = 60.0
# Maximum number of settings in a log message.
_MAX_SETTINGS = 4
# Errors of a folder, rather than of what the user has chosen.
_FILE_ERRORS = (CorruptCheckpointError, UnreadableCheckpointError, OSError, tf.errors.OpError)


class BestCheckpoint:
    """Keeps in `model_dir/best` the model whose metric was best, and its metrics.json.

    A new checkpoint is complete before the old one is deleted, so a kill always leaves one. A
    training and evaluation jobs may keep the best model in the same folder: a lock makes them take
    turns. A job that evaluates with other settings than the training in the folder, other images of
    the same data or another `val_json_file`, keeps nothing, nor does one of a part of the images if
    no training is there; only the settings of the training replace what another metric chose, and
    only the training itself what was chosen on other images. An error of the files is logged and
    the model is not kept; it never ends a training.

    Args:
      pipeline_config: `eval_config.best_checkpoint` is read.
      output_dir: the folder `best` is made in it when there is something to keep.
      variables: the model's variables by name; `update` saves their values at that time.
      val_json_file: annotations to compare with in place of the records' ground truth, or None.
      is_training: whether the training itself evaluates, and not a job.

    Raises:
      CheckpointError: if the folder holds the checkpoint of another model.
    """

    def __init__(
        self,
        pipeline_config: TrainEvalPipelineConfig,
        output_dir: str | os.PathLike,
        variables: Mapping[str, tf.Variable],
        val_json_file: str | None = None,
        is_training: bool = True,
    ):
        self._config, self._is_training = pipeline_config, is_training
        self._choice = eval_config_rules.best_metric(pipeline_config)
        self._data = eval_config_rules.evaluated_data(
            pipeline_config, self._choice.reader, val_json_file
        )
        self._directory = pathlib.Path(output_dir) / FOLDER
        self._variables = dict(variables)
        self._is_checked = False
        if self._directory.exists():
            try:
                with self._locked():
                    self._check()
            except _FILE_ERRORS as error:
                _logger.warning('%s could not be brought in order: %s', self._directory, error)

    def update(self, step: int, results: Mapping[str, Mapping[str, float]]) -> bool:
        """Keeps the model as it is now if it is the best so far.

        Args:
          step: number of training steps done.
          results: of the evaluation: reader's name -> metric name -> value.

        Returns:
          Whether it was kept.

        Raises:
          ConfigError: if the evaluation has no such metric.
        """
        metric, reader = self._choice
        if metric not in results[reader]:
            raise ConfigError(
                'eval_config.best_checkpoint.metric: '
                + eval_config_rules.unknown_metric(metric, results[reader])
            )
        value = results[reader][metric]
        if not eval_config_rules.is_defined(metric, value):
            return False
        try:
            changes = self._changes_since_training()
            if changes:
                _logger.info(
                    '%s is left as it is: this evaluation has other settings than those that the '
                    'training chooses the best model by (%s)',
                    self._directory,
                    format_list(changes, _MAX_SETTINGS, '; '),
                )
                return False
            if changes is None and self._is_of_a_part():
                _logger.info(
                    '%s is left as it is: only a part of the images is evaluated', self._directory
                )
                return False
            self._directory.mkdir(parents=True, exist_ok=True)
            with self._locked():
                return self._keep_if_better(step, results, value, replaces=changes is not None)
        except (CheckpointError, *_FILE_ERRORS) as error:
            _logger.error('step %d could not be compared with the best, or kept: %s', step, error)
            return False

    def _changes_since_training(self) -> list[str] | None:
        """Returns how the evaluation differs from the training's; None if that is not known."""
        if self._is_training:
            return []
        directory = str(self._directory.parent)
        changes = resumption.evaluation_changes(self._config, directory)
        before, now = run_record.val_json_file(directory), self._data['val_json_file']
        if changes is not None and before not in (None, now):
            changes.append(f'val_json_file: {before or "not set"} -> {now or "not set"}')
        return changes

    def _is_of_a_part(self) -> bool:
        """Whether not all images are evaluated."""
        return self._data['eval_samples'] > 0 or self._data['sample_1_of_n_examples'] > 1

    def _locked(self) -> contextlib.AbstractContextManager[None]:
        return folder_lock.exclusive(self._directory / _LOCK, _LOCK_TIMEOUT)

    def _check(self) -> None:
        """Cleans the folder and compares it with the model; under the lock."""
        latest = _clean(self._directory)
        if latest is not None:
            named = {f'model/{name}': variable for name, variable in self._variables.items()}
            checkpoint_contents.check_fits(latest, named, exact=True, within='model/')
        self._is_checked = True

    def _keep_if_better(
        self, step: int, results: Mapping[str, Mapping[str, float]], value: float, *, replaces: bool
    ) -> bool:
        """Compares with the model that is kept now, perhaps by another process; under the lock."""
        if self._is_checked:
            _finish_pending(self._directory)
        else:
            self._check()
        if not self._is_better(value, read(self._directory), replaces=replaces):
            return False
        metric, reader = self._choice
        number = _next_number(self._directory)
        entry = {
            'step': step,
            'metric': metric,
            'reader': reader,
            'value': value,
            'checkpoint': f'ckpt-{number}',
            'time': time.time(),
            'data': self._data,
            'metrics': {reader: dict(values) for reader, values in results.items()},
        }
        files.write_text(self._directory / _PENDING, json.dumps(entry, indent=1) + '\n')
        checkpoints.save_model(str(self._directory), self._variables, step, number=number)
        _finish_pending(self._directory)
        _logger.info('the best so far: %s = %.4g at step %d; kept', metric, value, step)
        return True

    def _is_better(self, value: float, kept: dict[str, Any] | None, *, replaces: bool) -> bool:
        """Whether a value is better than that of the model which is kept.

        `replaces`: whether it also replaces a model that another metric chose.
        """
        if kept is None:
            return True
        if kept.get('data', self._data) != self._data:
            _logger.info(
                '%s was chosen on other images or another val_json_file, and is %s.',
                self._directory,
                'replaced' if self._is_training else 'left as it is',
            )
            return self._is_training
        metric, reader = self._choice
        other = kept['metrics'].get(reader, {}).get(metric)
        if other is None:
            _logger.info(
                '%s was chosen by another metric or reader (%s of %r), and is %s.',
                self._directory,
                kept['metric'],
                kept['reader'],
                'replaced' if replaces else 'left as it is',
            )
            return replaces
        if not eval_config_rules.is_defined(metric, other):
            return True
        return value < other if eval_config_rules.is_less_better(metric) else value > other


def read(directory: str | os.PathLike) -> dict[str, Any] | None:
    """Reads the description of the model in a folder `best`; returns None if it holds none.

    Returns:
      'step'; 'metric', 'reader', 'value': what makes it the best; 'checkpoint': name of its files;
      'time': seconds since 1970; 'metrics': reader's name -> metric name -> value.
    """
    state = tf.train.get_checkpoint_state(os.fspath(directory))
    if state is None:
        return None
    # A kill may have come after the checkpoint was saved and before metrics.json was replaced; and
    # it may be replaced between the first two reads.
    for name in (METRICS, _PENDING, METRICS):
        entry = _read_entry(pathlib.Path(directory) / name)
        if entry.get('checkpoint') == os.path.basename(state.model_checkpoint_path):
            return entry
    return None


def is_best_directory(directory: str | os.PathLike) -> bool:
    """Whether a folder is one that `BestCheckpoint` keeps a model in."""
    return read(directory) is not None


def _clean(directory: pathlib.Path) -> str | None:
    """Removes what a kill left; returns the prefix of the checkpoint, or None."""
    _finish_pending(directory)
    recovery.sweep(str(directory))
    latest = tf.train.latest_checkpoint(str(directory))
    for prefix in checkpoint_files.complete(str(directory)):
        if latest is not None and os.path.basename(prefix) != os.path.basename(latest):
            for path in checkpoint_files.files_of(prefix):
                os.remove(path)
    return latest


def _finish_pending(directory: pathlib.Path) -> None:
    """Makes metrics.json describe the checkpoint that exists."""
    pending = directory / _PENDING
    if not pending.exists():
        return
    kept = read(directory)
    if kept is not None and kept == _read_entry(pending):
        os.replace(pending, directory / METRICS)
    else:
        pending.unlink()


def _read_entry(path: pathlib.Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return {}


def _next_number(directory: pathlib.Path) -> int:
    latest = tf.train.latest_checkpoint(str(directory))
    return 0 if latest is None else int(latest.rsplit('-', 1)[1]) + 1
