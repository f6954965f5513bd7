"""Trains a detector from a pipeline config."""

import contextlib
import dataclasses
import functools
import logging
import os
from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf

from object_detection.builders.input_readers import damaged_files
from object_detection.builders.input_readers import examples as examples_builder
from object_detection.core import determinism
from object_detection.data.pipeline import data_service
from object_detection.models import precision as precisions
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from object_detection.system import disk, files, folder_lock
from object_detection.training import resolve_config, resume, run_start, setup
from object_detection.training.checkpoints import ended, manager, recovery
from object_detection.training.checkpoints.input_state import InputPlaces
from object_detection.training.checkpoints.snapshots import Snapshots
from object_detection.training.distribution import collectives, strategies, worker_agreement
from object_detection.training.evaluation import results
from object_detection.training.measurements import Measurements
from object_detection.training.monitoring import progress as progresses
from object_detection.training.monitoring import run_averages
from object_detection.training.monitoring.log_files import NO_LOG_FILES, LogFiles
from object_detection.training.monitoring.recorder import Recorder
from object_detection.training.monitoring.run_record import RunClock
from object_detection.training.run_evaluations import RunEvaluations
from object_detection.training.run_types import Intervals, TrainResult
from object_detection.training.step import TrainStep
from object_detection.training.trainer import Trainer
from object_detection.weights import checkpoint_contents, restore

_logger = logging.getLogger(__name__)


def train(
    pipeline_config: TrainEvalPipelineConfig,
    model_dir: str | os.PathLike,
    *,
    num_steps: int | None = None,
    intervals: Intervals | None = None,
    max_to_keep: int | None = 7,
    record_summaries: bool = True,
    precision: str | None = None,
    seed: int | None = None,
    progress: progresses.Progress | None = None,
    val_json_file: str | None = None,
    strategy: tf.distribute.Strategy | None = None,
    config_path: str | os.PathLike | None = None,
    log_files: LogFiles = NO_LOG_FILES,
) -> TrainResult:
    """Trains until `num_steps`, from the newest checkpoint of `model_dir` if there is one.

    SIGTERM and SIGINT save a checkpoint and end the training; so does the end of the data. Where
    all steps are done, but not the evaluation at the end, that alone is done. Writes into
    `model_dir`: checkpoints, the best of the evaluated ones (`best/`), the config as it is used
    (`resolved_pipeline.config`), `model_summary.txt`, train/history.jsonl, train/runs.jsonl and
    TensorBoard events.

    Args:
      pipeline_config: the config, overrides applied.
      model_dir: of this model alone, on this machine; made if there is none.
      num_steps: in all, not counted from the checkpoint; None takes `train_config.num_steps`, or
        `train_config.num_epochs`.
      intervals: of logging, checkpoints and evaluation; None takes the defaults.
      max_to_keep: how many checkpoints; None keeps all.
      record_summaries: whether to write TensorBoard events.
      precision: a name that `precision.canonical` knows; None takes the config's.
      seed: of initial weights, data order, augmentation and sampling noise, set for Python, NumPy
        and TensorFlow; None draws one and logs it. A run that goes on keeps the one that it began
        with.
      progress: what is told of the run; None chooses by whether stderr is a terminal.
      val_json_file: COCO annotations to evaluate against in place of the records' ground truth.
      strategy: of the devices, see `strategies.build`; not entered by the caller. None takes the
        current one.
      config_path: of the file that the config is from; its repository's state is recorded.
      log_files: where else it writes.

    Raises:
      ConfigError: if the config cannot be trained, or a file of records is damaged, or no
        evaluation beside the training works.
      CheckpointError: if `model_dir` holds a checkpoint of another model, or cannot be written.
      DivergenceError: if a loss or a weight becomes NaN or infinite.
      WorkerError: if another worker failed.
    """
    strategy = strategy or tf.distribute.get_strategy()
    intervals = intervals or Intervals()
    directory = files.check_is_local(model_dir, 'model_dir')
    config = resolve_config.resolve(
        pipeline_config,
        directory,
        strategy,
        intervals,
        num_steps=num_steps,
        precision=precision,
    )
    run = _Run(
        config=config,
        directory=directory,
        strategy=strategy,
        intervals=intervals,
        max_to_keep=max_to_keep,
        record_summaries=record_summaries,
        evaluations=RunEvaluations(
            config,
            directory,
            strategy,
            intervals.evaluation,
            record_summaries,
            val_json_file,
            log_files,
        ),
        progress=progress,
        config_path=config_path,
        log_files=log_files,
    )
    with contextlib.ExitStack() as opened:
        opened.enter_context(precisions.scope(precisions.name_of(config.train_config.precision)))
        opened.enter_context(strategies.lost_workers_named(strategy))
        if run.is_chief:
            disk.check_writable(directory)
            opened.enter_context(folder_lock.occupied(directory))
            opened.enter_context(disk.full_disk_named(directory))
        worker_agreement.check(strategy, config, intervals)
        latest, start = run.prepare()
        result = run.end_of_finished(latest, start) or run.train(seed, latest, start)
        if run.is_chief and result.stopped_by is None:
            ended.mark_ended(directory, result.step, result.reason or 'all steps are done')
    return result


@dataclasses.dataclass(frozen=True)
class _Run:
    """A training of a resolved config in one process; see `train`."""

    config: TrainEvalPipelineConfig
    directory: str
    strategy: tf.distribute.Strategy
    intervals: Intervals
    max_to_keep: int | None
    record_summaries: bool
    evaluations: RunEvaluations
    progress: progresses.Progress | None
    config_path: str | os.PathLike | None = None
    log_files: LogFiles = NO_LOG_FILES

    @property
    def is_chief(self) -> bool:
        return strategies.is_chief(self.strategy)

    def prepare(self) -> tuple[str | None, int]:
        """Brings the directory in order; returns the newest checkpoint and its step."""

        def clean() -> None:
            newest = recovery.prepare(self.directory)
            ended.clear_ended(self.directory)
            if not self.evaluations.are_beside:
                Snapshots(self.directory).clear()
            if self.intervals.evaluation:
                step = checkpoint_contents.read_step(newest) if newest else 0
                results.drop_later(self.config, self.directory, step)

        collectives.on_chief(self.strategy, clean)
        start = collectives.check_agreement(self.strategy, lambda: _newest_step(self.directory))
        return tf.train.latest_checkpoint(self.directory), start

    def end_of_finished(self, latest: str | None, start: int) -> TrainResult | None:
        """Ends a training that has nothing left to do but to evaluate; None if it has."""
        if latest is None:
            return None
        num_steps = self.config.train_config.num_steps
        nothing_left = checkpoint_contents.describe_end(self.directory, start, num_steps)
        is_owed = bool(nothing_left) and self.evaluations.are_owed_at_the_end(start)
        reason = None
        # One that stopped early does not owe what came after the result that it stopped for.
        if self.intervals.evaluation and (is_owed or not nothing_left):
            ask = self.evaluations.reason_to_stop
            reason = collectives.chiefs_reason(self.strategy, ask)
        if reason:
            collectives.on_chief(self.strategy, Snapshots(self.directory).clear)
            _logger.info(
                '%s is at step %d and stopped early: %s; change eval_config.early_stopping to go '
                'on, or choose another model_dir to start anew',
                self.directory,
                start,
                reason,
            )
        elif is_owed:
            return self.evaluations.evaluate_the_end(latest, start)
        elif nothing_left:
            _logger.info('%s', nothing_left)
        else:
            return None
        checkpoint = latest if self.is_chief else None
        return TrainResult(step=start, checkpoint=checkpoint, losses={}, reason=reason)

    def train(self, seed: int | None, latest: str | None, start: int) -> TrainResult:
        """Builds all parts, restores what there is to go on from, and runs the steps.

        Args:
          seed: that the user wants, or None.
          latest: the newest checkpoint, or None.
          start: its step.
        """
        clock = RunClock()
        reader = self.config.train_input_reader
        places = resume.take_up(reader, self.strategy, latest, seed)
        keras.utils.set_random_seed(places.seed)
        if self.config.train_config.deterministic_ops:
            determinism.switch_on()
        with contextlib.ExitStack() as opened:
            with self.strategy.scope():
                train_step, iterator = self._build(places)
                checkpoints = self._checkpoints(train_step, places)
                restored = checkpoints.restore_latest()
                if restored is None:
                    restore.from_config(
                        train_step.detector, self.config.train_config, self.directory
                    )
            run = self._tell_start(checkpoints, train_step, places.seed, restored)
            how = self._evaluations(train_step, restored, start, opened)
            recorder = self._recorder(start)
            opened.callback(recorder.close)
            opened.enter_context(damaged_files.named(reader, 'train_input_reader'))
            opened.enter_context(data_service.watched(reader.data_service))
            result = Trainer(
                train_step=train_step,
                iterator=iterator,
                checkpoints=checkpoints,
                recorder=recorder,
                measurements=Measurements(
                    train_step,
                    recorder,
                    batch_size=self.config.train_config.batch_size,
                    intervals=self.intervals,
                    last_good=lambda: checkpoints.latest,
                    clock=clock,
                    is_served=bool(reader.data_service),
                ),
                num_steps=self.config.train_config.num_steps,
                intervals=self.intervals,
                check_batch=functools.partial(run_start.check_first_batch, self.config.model),
                **how,
            ).run()
            if self.is_chief:
                run_averages.write(self.directory, run, result, train_step.count_flops)
                recorder.averages(result.speed, result.seconds)
            return result

    def _build(self, places: InputPlaces) -> tuple[TrainStep, Iterator]:
        """Builds, in the strategy's scope, the step and an iterator over its batches."""
        detector = setup.build_detector(self.config)
        iterator = setup.training_data(self.config, self.strategy, places.seed, places.start)
        train_step = setup.build_step(
            self.config.train_config,
            detector,
            iterator.element_spec,
            places.seed,
            bucket_sizes=examples_builder.bucket_sizes(self.config.train_input_reader),
        )
        return train_step, iterator

    def _checkpoints(self, train_step: TrainStep, places: InputPlaces) -> manager.Checkpoints:
        return manager.Checkpoints(
            self.directory,
            model=train_step.detector.named_variables(),
            optimizer=train_step.optimizer_state(),
            step=train_step.step,
            places=places,
            max_to_keep=self.max_to_keep,
            keep_every_n_hours=self.config.train_config.keep_checkpoint_every_n_hours,
        )

    def _tell_start(
        self,
        checkpoints: manager.Checkpoints,
        train_step: TrainStep,
        seed: int,
        restored: str | None,
    ) -> str:
        """Has the chief look for room and write what is run; returns the name of the run."""
        if not self.is_chief:
            return ''
        checkpoints.check_room(self.evaluations.max_snapshots)
        return run_start.write_records(
            self.config,
            self.directory,
            train_step,
            seed=seed,
            restored=restored,
            config_path=self.config_path,
        )

    def _evaluations(
        self,
        train_step: TrainStep,
        restored: str | None,
        start: int,
        opened: contextlib.ExitStack,
    ) -> dict[str, Any]:
        """Returns what the trainer is to know of them; `opened` closes them."""
        if not self.intervals.evaluation:
            return {}
        evaluations = self.evaluations
        if evaluations.are_beside:
            is_due = evaluations.are_due(start)
            return {'background': evaluations.beside(restored, start, opened, is_due=is_due)}
        return {
            'evaluate': evaluations.within(train_step, opened),
            'reason_to_stop': evaluations.reason_to_stop,
            'evaluates_first': evaluations.are_owed(start),
        }

    def _recorder(self, start: int) -> Recorder:
        progress = progresses.Silent()
        if self.is_chief:
            progress = self.progress or progresses.automatic()
        return Recorder(
            self.directory if self.is_chief else None,
            start,
            progress=progress,
            record_summaries=self.record_summaries,
            names=setup.class_names(self.config),
            log_files=self.log_files,
        )


def _newest_step(directory: str) -> int:
    latest = tf.train.latest_checkpoint(directory)
    return checkpoint_contents.read_step(latest) if latest else 0
