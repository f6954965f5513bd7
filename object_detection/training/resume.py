"""Resuming: the folder, weights, seed and data position of earlier runs, or the end of a training.

`resume_input` reads the data position, by `checkpoints.input_state`.
"""

import contextlib
import logging
import secrets
import signal
from collections.abc import Iterator
from typing import NamedTuple

import tensorflow as tf

from object_detection.builders.input_readers import tf_records
from object_detection.protos.input_reader_pb2 import InputReader
from object_detection.system import disk, folder_lock
from object_detection.training import fine_tune, status
from object_detection.training.checkpoints import following, input_state, recovery
from object_detection.training.checkpoints.following import Snapshots
from object_detection.training.checkpoints.input_state import InputState
from object_detection.training.checkpoints.manager import Checkpoints
from object_detection.training.distribution import collectives, worker_agreement
from object_detection.training.evaluation import results
from object_detection.training.monitoring.run_types import TrainResult
from object_detection.training.run_evaluations import RunEvaluations
from object_detection.training.setup import TrainingRun
from object_detection.training.step import TrainStep
from object_detection.weights import checkpoint_contents

_logger = logging.getLogger(__name__)


class StartPoint(NamedTuple):
    """Where a run begins: prefix and step of the newest checkpoint; None and 0 without one."""

    checkpoint: str | None
    step: int


@contextlib.contextmanager
def locked_directory(directory: str) -> Iterator[None]:
    """A context in which this process alone writes into a model_dir, and errors name a full disk.

    Raises:
      CheckpointError: if the folder cannot be written, or another process trains in it.
    """
    disk.check_writable(directory)
    with folder_lock.occupied(directory), disk.full_disk_named(directory):
        yield


def prepare(run: TrainingRun) -> StartPoint:
    """Repairs a model_dir after a kill, and returns where the run begins. Collective.

    Raises:
      CheckpointError: if the checkpoints there cannot be used.
      ConfigError: if the workers were started with different configs, versions or files.
    """
    strategy, directory = run.strategy, run.directory
    worker_agreement.check(strategy, run.config, run.intervals)
    collectives.on_chief(strategy, lambda: recovery.prepare(directory))
    step = collectives.check_agreement(strategy, lambda: _newest_step(directory))
    return StartPoint(tf.train.latest_checkpoint(directory), step)


def clear(evaluations: RunEvaluations, step: int) -> None:
    """Removes what earlier runs left and does not hold for steps that follow. Collective.

    Args:
      evaluations: the evaluations of the training; asynchronous ones keep what is queued.
      step: where the run begins.
    """
    run = evaluations.run

    def clean() -> None:
        following.clear_finished(run.directory)
        if not evaluations.are_asynchronous:
            Snapshots(run.directory).clear()
        if evaluations.interval:
            results.drop_later(run.config, run.directory, step)

    collectives.on_chief(run.strategy, clean)


def _newest_step(directory: str) -> int:
    latest = tf.train.latest_checkpoint(directory)
    return checkpoint_contents.read_step(latest) if latest else 0


def finished_result(evaluations: RunEvaluations, start: StartPoint) -> TrainResult | None:
    """Returns the result of a training that has no step left to do; None if it has. Collective.

    The evaluation of the last step is done if it is missing. Otherwise nothing is changed.

    Args:
      evaluations: the evaluations of the training.
      start: where the training would resume.
    """
    latest, step = start
    if latest is None:
        return None
    run, directory = evaluations.run, evaluations.run.directory
    num_steps = run.config.train_config.num_steps
    nothing_left = checkpoint_contents.describe_end(directory, step, num_steps)
    is_missing = bool(nothing_left) and evaluations.are_missing_at_end(step)
    reason = None
    # A training that stopped early lacks no evaluation after the result that stopped it.
    if evaluations.interval and (is_missing or not nothing_left):
        reason = collectives.reason_of_chief(run.strategy, lambda: evaluations.reason_to_stop(step))
    if reason:
        _logger.info(
            '%s is at step %d and stopped early: %s; change eval_config.early_stopping to go '
            'on, or choose another model_dir to start at step 0',
            directory,
            step,
            reason,
        )
    elif is_missing:
        return evaluations.evaluate_the_end(latest, step)
    elif nothing_left:
        _logger.info('%s', nothing_left)
    else:
        return None
    checkpoint = latest if run.is_chief else None
    return TrainResult(step=step, checkpoint=checkpoint, losses={}, reason=reason)


def mark_finished(directory: str, result: TrainResult, num_steps: int) -> None:
    """Writes the completion marker, unless the training can be resumed."""
    announce = status.Announcer(directory)
    if result.stopped_by is not None:
        name = signal.Signals(result.stopped_by).name
        announce(status.STOPPED, f'by {name} at step {result.step}')
    elif result.step > num_steps and not result.reason:
        # An earlier run, of more steps, went further; whether it had finished, it has said.
        announce(status.STOPPED, f'at step {result.step}, beyond the {num_steps} asked for')
    else:
        following.mark_finished(directory, result.step, result.reason or 'all steps are done')


def restore_weights(
    checkpoints: Checkpoints, train_step: TrainStep, run: TrainingRun
) -> str | None:
    """Restores the newest checkpoint, or else the weights that the config fine-tunes from, if any.

    Returns:
      The prefix of the training's own checkpoint; None if the training begins.
    """
    restored = checkpoints.restore_latest()
    if restored is None:
        fine_tune.from_config(train_step.detector, run.config.train_config, run.directory)
    return restored


def resume_input(
    reader: InputReader, strategy: tf.distribute.Strategy, latest: str | None, seed: int | None
) -> InputState:
    """Reads seed and data position of the newest checkpoint, or begins at step 0. Collective.

    Args:
      reader: the config of the training data.
      strategy: the strategy of the devices.
      latest: prefix of the newest checkpoint, or None.
      seed: the seed of a new run; None draws one.
    """
    saved = input_state.read(latest) if latest else None
    if saved is None:
        drawn = secrets.randbelow(2**31) if seed is None else seed
        used = collectives.value_of_chief(strategy, drawn)
        if latest:
            # Otherwise each start would see the same images first.
            used = (used + checkpoint_contents.read_step(latest)) % 2**31
            _logger.info(
                '%s does not hold where its input stood: the records begin in a fresh order', latest
            )
    else:
        used = saved.seed
        if seed not in (None, used):
            _logger.warning(
                '--seed %d has no effect: the run continues with seed %d, that of its checkpoint; '
                'another model_dir starts at step 0',
                seed,
                used,
            )
    return InputState(
        strategy,
        seed=used,
        fingerprint=tf_records.fingerprint(reader),
        former_fingerprint=tf_records.fingerprint(reader, by_sizes=False),
        cursor_size=tf_records.cursor_size(reader),
        saved=saved,
    )
