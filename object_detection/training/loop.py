"""Trains a detector from a pipeline config: `train` prepares a run, `Trainer` does its steps."""

import contextlib
import dataclasses
import os
from collections.abc import Iterator, Sequence

import tensorflow as tf

from object_detection.builders.callback_builder import Callback, Callbacks, End, all_of
from object_detection.models import precision as precisions
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from object_detection.system import console, files
from object_detection.training import resolve_config, resume, run_start, setup, status
from object_detection.training.distribution import strategies
from object_detection.training.measurements import Measurements
from object_detection.training.monitoring.log_files import NO_FILES, JobFiles
from object_detection.training.monitoring.progress import Progress
from object_detection.training.monitoring.run_record import RunClock
from object_detection.training.monitoring.run_types import Intervals, TrainResult
from object_detection.training.run_evaluations import RunEvaluations
from object_detection.training.setup import TrainingRun
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
    log_files: JobFiles = NO_FILES,
    callbacks: Sequence[Callback] = (),
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
      record_summaries, val_json_file: see `JobFiles`.
      precision: a name that `precision.canonical` knows; None takes that of the config.
      seed: the seed of initial weights, data order, augmentation and sampling noise, set for
        Python, NumPy and TensorFlow; None draws one and logs it. A resumed run keeps the seed that
        it began with.
      progress: the display of the run; None chooses one for a terminal or a log.
      strategy: the strategy of the devices, see `strategies.build`; not entered by the caller. None
        takes the current one.
      config_path: path of the file that the config is from; the state of its git repository is
        recorded.
      log_files: the other files of the job.
      callbacks: what is called with each record, in addition to those of the config.
      is_validated: whether `resolve_config.read` has checked the config for this run.

    Raises:
      CallbackError: if a callback fails; a checkpoint of the last step is saved.
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
    run = TrainingRun(
        config,
        directory,
        strategy,
        intervals,
        dataclasses.replace(
            log_files, record_summaries=record_summaries, val_json_file=val_json_file
        ),
        max_to_keep,
        progress,
        config_path,
        all_of(config, callbacks) if strategies.is_chief(strategy) else Callbacks(),
    )
    evaluations = RunEvaluations(run)
    with contextlib.ExitStack() as opened:
        opened.enter_context(precisions.scope(precisions.name_of(config.train_config.precision)))
        opened.enter_context(strategies.lost_workers_named(strategy))
        if run.is_chief:
            opened.enter_context(resume.locked_directory(directory))
            opened.enter_context(status.Announcer(directory).running())
        opened.enter_context(_ended_with(run.callbacks))
        start = resume.prepare(run)
        result = resume.finished_result(evaluations, start)
        if result is None:
            resume.clear(evaluations, start.step)
            result = _train(run, evaluations, seed, start)
        run.callbacks.check()
        if run.is_chief:
            resume.mark_finished(directory, result, config.train_config.num_steps)
        names = [field.name for field in dataclasses.fields(End) if field.name != 'error']
        run.callbacks.on_end(End(**{name: getattr(result, name) for name in names}))
        run.callbacks.check()
    return result


@contextlib.contextmanager
def _ended_with(callbacks: Callbacks) -> Iterator[None]:
    """A context whose error ends callbacks."""
    try:
        yield
    except BaseException as error:
        callbacks.on_end(End(error=str(error) or type(error).__name__))
        raise


def _train(
    run: TrainingRun, evaluations: RunEvaluations, seed: int | None, start: resume.StartPoint
) -> TrainResult:
    """Builds all components, restores the newest checkpoint, and runs the steps.

    Args:
      run: the training.
      evaluations: its evaluations.
      seed: the seed of a new run; None draws one.
      start: where the run begins.
    """
    clock = RunClock(status.Announcer(run.directory)) if run.is_chief else RunClock()
    config = run.config
    input_state = resume.resume_input(
        config.train_input_reader, run.strategy, start.checkpoint, seed
    )
    setup.set_seed(config.train_config, input_state.seed)
    left_out = setup.build_left_out(run)
    with contextlib.ExitStack() as opened:
        with console.phase('building the model and the input'), run.strategy.scope():
            train_step, iterator = setup.build(run, input_state, left_out, start.step)
            checkpoints = setup.build_checkpoints(run, train_step, input_state)
            restored = resume.restore_weights(checkpoints, train_step, run)
        name = ''
        if run.is_chief:
            checkpoints.check_room(evaluations.max_snapshots)
            name = run_start.write_records(
                run, train_step, seed=input_state.seed, restored=restored
            )
        evaluation = evaluations.plan(train_step, restored, start.step, opened)
        recorder = setup.build_recorder(run, start.step)
        opened.callback(recorder.close)
        opened.enter_context(setup.input_errors_named(config))
        measurements = Measurements(
            run,
            train_step,
            recorder,
            last_good=lambda: checkpoints.latest,
            clock=clock,
            left_out=left_out.counts,
        )
        result = Trainer(
            run,
            train_step,
            iterator,
            checkpoints=checkpoints,
            recorder=recorder,
            measurements=measurements,
            evaluation=evaluation,
            input_changes=setup.InputChanges(run, input_state, left_out),
        ).run()
        left_out.log_objects()
        if run.is_chief:
            measurements.write_averages(run.directory, name, result)
        return result
