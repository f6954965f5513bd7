"""Trains a detector from a pipeline config: `train` prepares a run, `Trainer` does its steps."""

import contextlib
import dataclasses
import functools
import os

import tensorflow as tf

from object_detection.models import precision as precisions
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from object_detection.system import console, files
from object_detection.training import resolve_config, resume, run_start, setup, status
from object_detection.training.distribution import strategies
from object_detection.training.measurements import Measurements
from object_detection.training.monitoring.log_files import NO_LOG_FILES, LogFiles
from object_detection.training.monitoring.progress import Progress
from object_detection.training.monitoring.run_record import RunClock
from object_detection.training.monitoring.run_types import Intervals, TrainResult
from object_detection.training.run_evaluations import RunEvaluations
from object_detection.training.trainer import Trainer


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
    progress: Progress | None = None,
    val_json_file: str | None = None,
    strategy: tf.distribute.Strategy | None = None,
    config_path: str | os.PathLike | None = None,
    log_files: LogFiles = NO_LOG_FILES,
    is_validated: bool = False,
) -> TrainResult:
    """Trains until `num_steps`, from the newest checkpoint of `model_dir` if there is one.

    SIGTERM and SIGINT save a checkpoint and end the training; so does the end of the data. If all
    steps are done, but not the evaluation of the last one, only that is done. Writes into
    `model_dir`: checkpoints, the best of the evaluated ones (`best/`), the resolved config
    (`resolved_pipeline.config`), `model_summary.txt`, train/history.jsonl, train/runs.jsonl and
    TensorBoard events.

    Args:
      pipeline_config: the config, overrides applied.
      model_dir: a local folder for this model only; made if it does not exist.
      num_steps: number of steps in all, those before a checkpoint included; None takes
        `train_config.num_steps`, or `train_config.num_epochs`.
      intervals: when to log, save and evaluate; None takes the defaults.
      max_to_keep: how many checkpoints to keep; None keeps all.
      record_summaries: whether to write TensorBoard events.
      precision: a name that `precision.canonical` knows; None takes that of the config.
      seed: the seed of initial weights, data order, augmentation and sampling noise, set for
        Python, NumPy and TensorFlow; None draws one and logs it. A resumed run keeps the seed that
        it began with.
      progress: the display of the run; None chooses one for a terminal or a log.
      val_json_file: COCO annotations to evaluate against in place of the records' ground truth.
      strategy: the strategy of the devices, see `strategies.build`; not entered by the caller. None
        takes the current one.
      config_path: path of the file that the config is from; the state of its git repository is
        recorded.
      log_files: files outside of `model_dir`.
      is_validated: whether `resolve_config.read` has checked the config for this run.

    Raises:
      ConfigError: if the config cannot be trained, a file of records is corrupt, or the
        asynchronous evaluation cannot work.
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
        is_validated=is_validated,
    )
    training = _Training(
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
        if training.is_chief:
            opened.enter_context(resume.locked_directory(directory))
            opened.enter_context(status.Announcer(directory).running())
        start = resume.prepare(config, directory, strategy, intervals)
        result = resume.finished_result(config, directory, training.evaluations, start)
        if result is None:
            resume.clear(training.evaluations, start.step)
            result = training.run(seed, start)
        if training.is_chief:
            resume.mark_finished(directory, result, config.train_config.num_steps)
    return result


@dataclasses.dataclass(frozen=True)
class _Training:
    """A training of a resolved config in one process; see `train`."""

    config: TrainEvalPipelineConfig
    directory: str
    strategy: tf.distribute.Strategy
    intervals: Intervals
    max_to_keep: int | None
    record_summaries: bool
    evaluations: RunEvaluations
    progress: Progress | None
    config_path: str | os.PathLike | None = None
    log_files: LogFiles = NO_LOG_FILES

    @property
    def is_chief(self) -> bool:
        return strategies.is_chief(self.strategy)

    def run(self, seed: int | None, start: resume.StartPoint) -> TrainResult:
        """Builds all components, restores the newest checkpoint, and runs the steps.

        Args:
          seed: the seed of a new run; None draws one.
          start: where the run begins.
        """
        clock = RunClock(status.Announcer(self.directory)) if self.is_chief else RunClock()
        config, strategy = self.config, self.strategy
        input_state = resume.resume_input(
            config.train_input_reader, strategy, start.checkpoint, seed
        )
        setup.set_seed(config.train_config, input_state.seed)
        left_out = setup.build_left_out(config, self.directory, strategy)
        with contextlib.ExitStack() as opened:
            with console.phase('building the model and the input'), strategy.scope():
                train_step, iterator = setup.build(
                    config, strategy, input_state, left_out, start.step
                )
                checkpoints = setup.build_checkpoints(
                    config.train_config, self.directory, train_step, input_state, self.max_to_keep
                )
                restored = resume.restore_weights(checkpoints, train_step, config, self.directory)
            name = ''
            if self.is_chief:
                checkpoints.check_room(self.evaluations.max_snapshots)
                name = run_start.write_records(
                    config,
                    self.directory,
                    train_step,
                    seed=input_state.seed,
                    restored=restored,
                    val_json_file=self.evaluations.compared_file,
                    config_path=self.config_path,
                )
            evaluation = self.evaluations.plan(train_step, restored, start.step, opened)
            recorder = setup.build_recorder(
                config,
                self.directory,
                strategy,
                start.step,
                progress=self.progress,
                record_summaries=self.record_summaries,
                log_files=self.log_files,
            )
            opened.callback(recorder.close)
            opened.enter_context(setup.input_errors_named(config))
            measurements = Measurements(
                train_step,
                recorder,
                batch_size=config.train_config.batch_size,
                intervals=self.intervals,
                last_good=lambda: checkpoints.latest,
                clock=clock,
                is_served=bool(config.train_input_reader.data_service),
                left_out=left_out.counts,
            )
            result = Trainer(
                train_step=train_step,
                iterator=iterator,
                checkpoints=checkpoints,
                recorder=recorder,
                measurements=measurements,
                num_steps=config.train_config.num_steps,
                intervals=self.intervals,
                check_batch=functools.partial(run_start.check_batch, train_step.detector),
                evaluation=evaluation,
                input_changes=setup.InputChanges(config, strategy, input_state, left_out),
            ).run()
            left_out.log_objects()
            if self.is_chief:
                measurements.write_averages(self.directory, name, result)
            return result
