"""Trains a detector from a pipeline config."""

import contextlib
import dataclasses
import logging
import os
import secrets
from collections.abc import Callable, Mapping

import keras
import numpy as np
import tensorflow as tf

from object_detection.builders import dataset_builder, records_builder
from object_detection.config import (
    evaluation_rules,
    files,
    model_rules,
    schedule_cautions,
    synthetic_data,
    unsupported,
    validation,
    writer,
)
from object_detection.config.errors import ConfigError
from object_detection.meta_architectures.detection_model import DetectionModel
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from object_detection.training import (
    background_evaluation,
    checkpoint_contents,
    checkpoint_recovery,
    damaged_files,
    determinism,
    disk,
    ended,
    epochs,
    evaluation,
    fine_tune,
    first_batch,
    input_places,
    model_summary,
    moving_averages,
    parts,
    profiling,
    run_averages,
    run_record,
    strategies,
)
from object_detection.training import checkpoints as checkpoint_files
from object_detection.training import precision as precisions
from object_detection.training import progress as progresses
from object_detection.training.background_evaluation import BackgroundEvaluation
from object_detection.training.checkpoint_files import STATE_FILE
from object_detection.training.early_stopping import EarlyStopping
from object_detection.training.evaluation import PipelineEvaluation
from object_detection.training.interrupts import Interrupts
from object_detection.training.recorder import Recorder
from object_detection.training.snapshots import Snapshots
from object_detection.training.step import TrainStep
from object_detection.training.trainer import Intervals, Metrics, Trainer, TrainResult

_logger = logging.getLogger(__name__)

CONFIG_FILE_NAME = 'resolved_pipeline.config'
SUMMARY_FILE_NAME = 'model_summary.txt'


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

    Raises:
      ConfigError: if the config cannot be trained, or a file of records is damaged.
      CheckpointError: if `model_dir` holds a checkpoint of another model, or cannot be written.
      DivergenceError: if a loss or a weight becomes NaN or infinite.
      WorkerError: if another worker failed.
    """
    strategy = strategy or tf.distribute.get_strategy()
    intervals = intervals or Intervals()
    is_tpu = isinstance(strategy, tf.distribute.TPUStrategy)
    config = _resolve(pipeline_config, num_steps, precision, is_tpu=is_tpu)
    directory = files.check_is_local(model_dir, 'model_dir')
    resumes = os.path.exists(os.path.join(directory, STATE_FILE))
    validation.validate(
        config,
        for_what=['train', 'eval'] if intervals.evaluation else 'train',
        resumes=resumes,
    )
    if resumes:
        synthetic_data.check_goes_on(config, os.path.join(directory, CONFIG_FILE_NAME))
    for field in ('early_stopping', 'async_evaluation'):
        if config.eval_config.HasField(field) and not intervals.evaluation:
            unsupported.log_once(
                f'eval_config.{field} has no effect without evaluation during training '
                '(--eval_every_n_steps).'
            )
    epochs.resolve(config)
    profiling.check(intervals.profile, config.train_config.num_steps)
    for caution in schedule_cautions.find(config.train_config):
        unsupported.log_once(caution)
    strategies.check_batch_size(strategy, config.train_config.batch_size)
    strategies.check_endless(strategy, config.train_input_reader.num_epochs)
    run = _Run(
        config=config,
        directory=directory,
        strategy=strategy,
        intervals=intervals,
        max_to_keep=max_to_keep,
        record_summaries=record_summaries,
        val_json_file=val_json_file,
        progress=progress,
        config_path=config_path,
    )
    with contextlib.ExitStack() as opened:
        opened.enter_context(precisions.scope(precisions.name_of(config.train_config.precision)))
        opened.enter_context(strategies.lost_workers_named(strategy))
        if run.is_chief:
            disk.check_writable(directory)
            opened.enter_context(disk.occupied(directory))
            opened.enter_context(disk.full_disk_named(directory))
        result = run.end_of_finished(*run.prepare()) or run.train(seed)
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
    val_json_file: str | None
    progress: progresses.Progress | None
    config_path: str | os.PathLike | None = None

    @property
    def is_chief(self) -> bool:
        return strategies.is_chief(self.strategy)

    @property
    def evaluates_beside(self) -> bool:
        """Whether evaluations are those of another process."""
        return bool(self.intervals.evaluation) and self.config.eval_config.HasField(
            'async_evaluation'
        )

    def prepare(self) -> tuple[str | None, int]:
        """Brings the directory in order; returns the newest checkpoint and its step."""

        def clean() -> None:
            newest = checkpoint_recovery.prepare(self.directory)
            ended.clear_ended(self.directory)
            if not self.evaluates_beside:
                Snapshots(self.directory).clear()
            if self.intervals.evaluation:
                step = checkpoint_files.read_step(newest) if newest else 0
                evaluation.drop_later_results(self.config, self.directory, step)

        strategies.on_chief(self.strategy, clean)
        latest = tf.train.latest_checkpoint(self.directory)
        start = checkpoint_files.read_step(latest) if latest else 0
        strategies.check_agreement(self.strategy, start)
        return latest, start

    def end_of_finished(self, latest: str | None, start: int) -> TrainResult | None:
        """Ends a training that has nothing left to do but to evaluate; None if it has."""
        if latest is None:
            return None
        num_steps = self.config.train_config.num_steps
        nothing_left = checkpoint_contents.describe_end(self.directory, start, num_steps)
        evaluates = bool(self.intervals.evaluation)
        # Files may be seen later by other workers, so the chief looks for all.
        if nothing_left and evaluates and self._chief_says(lambda: self._owes_the_end(start)):
            return self._evaluate_the_end(latest, start)
        reason = None
        if nothing_left:
            _logger.info('%s', nothing_left)
        elif evaluates:
            ask = self._early_stopping().reason_to_stop
            reason = strategies.chiefs_reason(self.strategy, ask)
        if reason:
            strategies.on_chief(self.strategy, Snapshots(self.directory).clear)
            _logger.info(
                '%s is at step %d and stopped early: %s; change eval_config.early_stopping to go '
                'on, or choose another model_dir to start anew',
                self.directory,
                start,
                reason,
            )
        if not nothing_left and not reason:
            return None
        checkpoint = latest if self.is_chief else None
        return TrainResult(step=start, checkpoint=checkpoint, losses={}, reason=reason)

    def train(self, seed: int | None) -> TrainResult:
        """Builds all parts, restores what there is to go on from, and runs the steps."""
        train_config = self.config.train_config
        places = self._input_places(seed)
        seed = places.seed
        keras.utils.set_random_seed(seed)
        if train_config.deterministic_ops:
            determinism.switch_on()
        with contextlib.ExitStack() as opened:
            with self.strategy.scope():
                detector = parts.build_detector(self.config)
                start = _newest_step(self.directory)
                iterator = parts.training_data(self.config, self.strategy, seed, places.start)
                train_step = parts.build_step(
                    train_config,
                    detector,
                    iterator.element_spec,
                    seed,
                    bucket_sizes=dataset_builder.bucket_sizes(self.config.train_input_reader),
                )
                checkpoints = self._checkpoints(train_step, places)
                restored = checkpoints.restore_latest()
                if restored is None:
                    fine_tune.from_config(detector, train_config, self.directory)
            run = ''
            if self.is_chief:
                checkpoints.check_room()
                run = self._write_records(train_step, seed, restored)
            evaluate = background = None
            if self.evaluates_beside:
                is_due = start > 0 and start % self.intervals.evaluation == 0
                background = self._background_evaluation(restored, start, opened, is_due=is_due)
            else:
                evaluate = self._evaluation(train_step, opened)
            recorder = Recorder(
                self.directory if self.is_chief else None,
                start,
                progress=(self.progress or progresses.automatic())
                if self.is_chief
                else progresses.Silent(),
                record_summaries=self.record_summaries,
                names=parts.class_names(self.config),
            )
            opened.callback(recorder.close)
            opened.enter_context(
                damaged_files.named(self.config.train_input_reader, 'train_input_reader')
            )
            result = Trainer(
                train_step=train_step,
                iterator=iterator,
                checkpoints=checkpoints,
                recorder=recorder,
                num_steps=train_config.num_steps,
                batch_size=train_config.batch_size,
                intervals=self.intervals,
                evaluate=evaluate,
                reason_to_stop=self._early_stopping().reason_to_stop if evaluate else lambda: None,
                check_batch=self._check_first_batch,
                evaluates_first=evaluate is not None and self._owes_an_evaluation(start),
                background=background,
            ).run()
            if self.is_chief:
                run_averages.write(self.directory, run, result, train_step)
            return result

    def _chief_says(self, question: Callable[[], object]) -> bool:
        answer = strategies.on_chief(self.strategy, question)
        return bool(strategies.chiefs(self.strategy, int(bool(answer))))

    def _owes_an_evaluation(self, start: int) -> bool:
        """Whether a signal or a kill kept an earlier run from that of its last checkpoint."""
        interval = self.intervals.evaluation
        if not (interval and start) or start % interval:
            return False
        return not self._chief_says(lambda: self._is_evaluated(start))

    def _background_evaluation(
        self,
        checkpoint: str | None,
        start: int,
        opened: contextlib.ExitStack,
        *,
        is_due: bool,
    ) -> BackgroundEvaluation:
        """Makes the evaluation beside the training, with what an earlier run owes to it.

        Args:
          checkpoint: that the run goes on from, or None.
          start: its step.
          opened: closes the evaluation.
          is_due: whether that step is to be evaluated.
        """
        background = background_evaluation.build(
            self.config,
            self.directory,
            self.strategy,
            self._early_stopping().reason_to_stop,
            record_summaries=self.record_summaries,
            val_json_file=self.val_json_file,
        )
        opened.callback(background.close)
        background.resume(checkpoint, start, is_due=is_due, is_evaluated=self._is_evaluated)
        return background

    def _owes_the_end(self, step: int) -> bool:
        waits = self.evaluates_beside and Snapshots(self.directory).recover(step)
        return bool(waits) or not self._is_evaluated(step)

    def _is_evaluated(self, step: int) -> bool:
        return evaluation.is_evaluated(self.config, self.directory, step, self.val_json_file)

    def _early_stopping(self) -> EarlyStopping:
        reader = evaluation_rules.stopping_metric(self.config).reader
        return EarlyStopping(
            self.config,
            lambda: evaluation.read_results(
                self.config, self.directory, reader, self.val_json_file
            ),
        )

    def _evaluate_the_end(self, checkpoint: str, start: int) -> TrainResult:
        """Does the evaluation of a finished training, which a signal kept from its own."""
        if self.evaluates_beside:
            return self._evaluate_the_end_beside(checkpoint, start)
        with self.strategy.scope():
            detector = parts.build_detector(self.config)
            checkpoint_files.restore_model(
                checkpoint,
                detector.named_variables(),
                averages=self.config.train_config.optimizer.use_moving_average,
            )
        _logger.info(
            '%s is at step %d, its last: only the evaluation is left', self.directory, start
        )
        with (
            Interrupts() as interrupts,
            contextlib.closing(self._pipeline_evaluation(detector)) as evaluation,
        ):
            metrics = evaluation.run(start, lambda: interrupts.received is not None)
        return TrainResult(
            step=start,
            checkpoint=checkpoint if self.is_chief else None,
            losses={},
            metrics=metrics,
            stopped_by=None if interrupts.received is None else int(interrupts.received),
        )

    def _evaluate_the_end_beside(self, checkpoint: str, start: int) -> TrainResult:
        with contextlib.ExitStack() as opened, Interrupts() as interrupts:
            background = self._background_evaluation(checkpoint, start, opened, is_due=True)
            background.finish(checkpoint, start, lambda: interrupts.received is not None)
        return TrainResult(
            step=start,
            checkpoint=checkpoint if self.is_chief else None,
            losses={},
            metrics=background.metrics,
            stopped_by=None if interrupts.received is None else int(interrupts.received),
        )

    def _evaluation(self, train_step: TrainStep, opened: contextlib.ExitStack):
        """Returns what the trainer evaluates by; None where it does not."""
        if not self.intervals.evaluation:
            return None
        evaluation = self._pipeline_evaluation(train_step.detector)
        opened.callback(evaluation.close)
        variables = train_step.detector.named_variables()

        def run(step: int, should_stop) -> Metrics | None:
            averages = train_step.optimizer.averages()
            with moving_averages.swapped(variables, averages, self.strategy):
                return evaluation.run(step, should_stop)

        return run

    def _pipeline_evaluation(self, detector: DetectionModel) -> PipelineEvaluation:
        return PipelineEvaluation(
            detector,
            self.config,
            self.directory,
            record_summaries=self.record_summaries,
            val_json_file=self.val_json_file,
            strategy=self.strategy,
        )

    def _input_places(self, seed: int | None) -> input_places.InputPlaces:
        """Takes seed and places of the newest checkpoint, or else `seed`, or draws one."""
        latest = tf.train.latest_checkpoint(self.directory)
        saved = input_places.read(latest) if latest else None
        if saved is None:
            drawn = secrets.randbelow(2**31) if seed is None else seed
            used = strategies.chiefs(self.strategy, drawn)
            if latest:
                # Otherwise each start would see the same images first.
                used = (used + checkpoint_files.read_step(latest)) % 2**31
                _logger.info(
                    '%s does not hold where its input stood: the records begin in a fresh order',
                    latest,
                )
        else:
            used = saved.seed
            if seed not in (None, used):
                _logger.warning(
                    '--seed %d has no effect: the run goes on as it began, with seed %d; another '
                    'model_dir starts anew',
                    seed,
                    used,
                )
        reader = self.config.train_input_reader
        return input_places.InputPlaces(
            self.strategy,
            seed=used,
            layout=records_builder.layout(reader),
            row_size=records_builder.row_size(reader),
            saved=saved,
        )

    def _checkpoints(
        self, train_step: TrainStep, places: input_places.InputPlaces
    ) -> checkpoint_files.Checkpoints:
        return checkpoint_files.Checkpoints(
            self.directory,
            model=train_step.detector.named_variables(),
            optimizer=train_step.optimizer_state(),
            step=train_step.step,
            places=places,
            max_to_keep=self.max_to_keep,
            keep_every_n_hours=self.config.train_config.keep_checkpoint_every_n_hours,
        )

    def _check_first_batch(self, batch: Mapping[str, np.ndarray]) -> None:
        model = self.config.model
        kind = model.WhichOneof('model')
        if kind is not None:
            first_batch.check(
                batch,
                num_classes=getattr(model, kind).num_classes,
                has_masks=model_rules.has_masks(model),
            )

    def _write_summary(self, train_step: TrainStep) -> None:
        """Tells and writes what the model consists of; it is traced for that, which takes time."""
        summary = model_summary.lines(
            train_step.detector, trained=train_step.optimizer.variables.keys()
        )
        files.write_text(os.path.join(self.directory, SUMMARY_FILE_NAME), '\n'.join(summary) + '\n')
        _logger.info('the model:\n%s', '\n'.join(summary))

    def _write_records(self, train_step: TrainStep, seed: int, restored: str | None) -> str:
        """Tells and writes what is run; returns the name of the run."""
        train_config = self.config.train_config
        step = int(train_step.step.numpy())
        if restored is None:
            self._write_summary(train_step)
        writer.write_pipeline(self.config, os.path.join(self.directory, CONFIG_FILE_NAME))
        run = run_record.write(
            self.directory,
            config_path=self.config_path,
            seed=seed,
            step=step,
            num_steps=train_config.num_steps,
            batch_size=train_config.batch_size,
            precision=precisions.name_of(train_config.precision),
            replicas=self.strategy.num_replicas_in_sync,
            workers=strategies.num_workers(self.strategy),
        )
        devices = tf.config.list_logical_devices('GPU') or tf.config.list_logical_devices('CPU')
        _logger.info(
            'training %s in %s: %s on %s (%s); batch size %d, %d steps, seed %d',
            train_step.detector.name,
            self.directory,
            precisions.name_of(train_config.precision),
            devices[0].name,
            strategies.describe(self.strategy),
            train_config.batch_size,
            train_config.num_steps,
            seed,
        )
        if train_step.optimizer.averages():
            _logger.info(
                'moving averages of the weights are kept, evaluated and exported '
                '(train_config.optimizer.use_moving_average, the default)'
            )
        if restored:
            _logger.info('going on from %s, step %d', restored, step)
            if train_config.fine_tune_checkpoint:
                _logger.info('train_config.fine_tune_checkpoint is not read again')
        return run


def _resolve(
    pipeline_config: TrainEvalPipelineConfig,
    num_steps: int | None,
    precision: str | None,
    *,
    is_tpu: bool,
) -> TrainEvalPipelineConfig:
    """Writes what the caller decides into a copy of the config."""
    config = TrainEvalPipelineConfig()
    config.CopyFrom(pipeline_config)
    train_config = config.train_config
    if num_steps is not None:
        train_config.num_steps = num_steps
        train_config.ClearField('num_epochs')
    if train_config.num_steps < 1 and not train_config.HasField('num_epochs'):
        raise ConfigError(
            'train_config.num_steps: expected the number of steps to train, there or as '
            f'--num_train_steps. Received: {train_config.num_steps}.'
        )
    precisions.write(train_config, precision, use_tpu=is_tpu)
    return config


def _newest_step(directory: str) -> int:
    latest = tf.train.latest_checkpoint(directory)
    return checkpoint_files.read_step(latest) if latest else 0
