"""Evaluation jobs: of one checkpoint, or of every new checkpoint of a directory."""

import contextlib
import dataclasses
import functools
import logging
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext

import tensorflow as tf

from object_detection.builders import callback_builder
from object_detection.builders.callback_builder import Callback, Callbacks, End
from object_detection.errors import CheckpointError
from object_detection.meta_architectures import detector
from object_detection.models import precision as precisions
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from object_detection.system import files
from object_detection.system.signals import Interrupts
from object_detection.training.checkpoints import following
from object_detection.training.evaluation import best_checkpoint
from object_detection.training.evaluation.best_checkpoint import BestCheckpoint
from object_detection.training.evaluation.reader_evaluation import PipelineEvaluation, ShowProgress
from object_detection.training.evaluation.results import EvaluationResult
from object_detection.training.monitoring import run_record
from object_detection.training.monitoring.log_files import NO_FILES, JobFiles
from object_detection.training.monitoring.run_types import Metrics
from object_detection.validation import eval_config as eval_config_rules
from object_detection.validation import validate
from object_detection.weights import checkpoints, restore

_logger = logging.getLogger(__name__)


def evaluate_checkpoint(
    pipeline_config: TrainEvalPipelineConfig,
    checkpoint: str | os.PathLike,
    *,
    output_dir: str | os.PathLike | None = None,
    precision: str | None = None,
    record_summaries: bool = True,
    val_json_file: str | None = None,
) -> Metrics:
    """Evaluates one checkpoint on every `eval_input_reader`; it is never kept as the best one.

    Args:
      pipeline_config: with at least one `eval_input_reader`.
      checkpoint: a prefix such as 'model/ckpt-3', or a directory, whose newest one is taken.
      output_dir: see `PipelineEvaluation`; None writes nothing.
      precision: a name that `precision.canonical` knows; None takes that of the config.
      record_summaries, val_json_file: see `JobFiles`.

    Returns:
      Reader's name ('' for a single reader without a name) -> metric name -> value.

    Raises:
      ConfigError: if the config cannot be evaluated.
      CheckpointError: if there is no such checkpoint, or it belongs to another model.
    """
    prefix = checkpoints.find(os.fspath(checkpoint))
    validate.validate(pipeline_config, for_what='eval')
    job = CheckpointEvaluation(
        pipeline_config,
        output_dir,
        precision=precision,
        job_files=JobFiles(record_summaries=record_summaries, val_json_file=val_json_file),
        best=None,
        callbacks=callback_builder.all_of(pipeline_config),
    )
    result = job.run([prefix])
    if not result.metrics:
        raise CheckpointError(f'{prefix}: expected a checkpoint. Received one deleted meanwhile.')
    return result.metrics


def evaluate_directory(
    pipeline_config: TrainEvalPipelineConfig,
    checkpoint_dir: str | os.PathLike,
    *,
    output_dir: str | os.PathLike | None = None,
    timeout: float = 3600.0,
    precision: str | None = None,
    record_summaries: bool = True,
    show_progress: ShowProgress = nullcontext,
    on_result: Callable[[EvaluationResult], None] = lambda result: None,
    val_json_file: str | None = None,
    log_files: JobFiles = NO_FILES,
    strategy: tf.distribute.Strategy | None = None,
    callbacks: Sequence[Callback] = (),
    is_validated: bool = False,
) -> EvaluationResult:
    """Evaluates the newest checkpoint of a directory, then each that is added.

    It ends with the training: after the last step that the training was started for
    (`train_config.num_steps`, if the directory has no record of its start), or after the last
    checkpoint of a training that has written its completion marker (`checkpoints.following`). It
    also ends if no checkpoint was added for `timeout` seconds. SIGTERM and SIGINT end it between
    two batches. Checkpoints that the training deletes before they can be read are left out.

    Args:
      pipeline_config: with at least one `eval_input_reader`.
      checkpoint_dir: where a training saves, or will save; or the prefix of one checkpoint, or an
        archive of a trained model (`checkpoints.is_archive`), which is evaluated once.
      output_dir: see `PipelineEvaluation`; None writes nothing.
      timeout: seconds to wait for a checkpoint; 0 evaluates the newest one only.
      precision: a name that `precision.canonical` knows; None takes that of the config.
      show_progress: see `ShowProgress`; without it the number of images is logged.
      on_result: called with the result of each checkpoint.
      record_summaries, val_json_file: see `JobFiles`.
      log_files: the other files of the job.
      strategy: the strategy of one process, whose replicas share the images; None takes the current
        one.
      callbacks: what is called with each result, in addition to those of the config.
      is_validated: whether `resolve_config.read` has checked the config for this run.

    Raises:
      CallbackError: if a callback fails; the results until then are written.
      ConfigError: if the config cannot be evaluated.
      CheckpointError: if no checkpoint appeared, or one belongs to another model.
    """
    directory = os.fspath(checkpoint_dir)
    is_one = (
        checkpoints.exists(directory)
        or checkpoints.is_weights_file(directory)
        or checkpoints.is_archive(directory)
    )
    waits = timeout > 0 and not is_one
    with Interrupts() as interrupts:

        def should_stop() -> bool:
            return interrupts.received is not None

        prefixes: Iterable[str]
        if waits:
            prefixes = following.follow(directory, timeout=timeout, should_stop=should_stop)
        else:
            prefixes = [checkpoints.find(directory)]
        if not is_validated:
            validate.validate(pipeline_config, for_what='eval')
        job = CheckpointEvaluation(
            pipeline_config,
            output_dir,
            precision=precision,
            job_files=dataclasses.replace(
                log_files, record_summaries=record_summaries, val_json_file=val_json_file
            ),
            best=_best_of_job(directory, is_one=is_one),
            strategy=strategy,
            callbacks=callback_builder.all_of(pipeline_config, callbacks),
        )
        result = job.run(prefixes, should_stop, show_progress, on_result)
        if interrupts.received is not None:
            return dataclasses.replace(result, stopped_by=int(interrupts.received))
    if not result.metrics:
        raise CheckpointError(
            f'{directory}: no checkpoint appeared in {timeout:g} s.'
            if waits
            else f'{directory}: expected a checkpoint. Received one deleted meanwhile.'
        )
    return result


def _best_of_job(directory: str, *, is_one: bool) -> Callable[..., BestCheckpoint] | None:
    # A best model is not compared with itself, and its folder holds no other best model.
    if is_one or best_checkpoint.is_best_directory(directory):
        return None
    return functools.partial(BestCheckpoint, is_training=False)


class CheckpointEvaluation:
    """Evaluates checkpoints with one detector, so that its graph is built once.

    Args:
      pipeline_config: has been checked.
      output_dir, precision, strategy: see `evaluate_directory`.
      job_files, best, callbacks: see `PipelineEvaluation`.
    """

    def __init__(
        self,
        pipeline_config: TrainEvalPipelineConfig,
        output_dir: str | os.PathLike | None,
        *,
        precision: str | None,
        job_files: JobFiles,
        best: Callable[..., BestCheckpoint] | None,
        strategy: tf.distribute.Strategy | None = None,
        callbacks: Callbacks | None = None,
    ):
        self._callbacks, self._end = callbacks or Callbacks(), End()
        self._pipeline, self._output_dir = pipeline_config, output_dir
        if output_dir is not None:
            output_dir = files.check_is_local(output_dir, 'model_dir')
        if job_files.val_json_file:
            eval_config_rules.check_val_json_file(pipeline_config, job_files.val_json_file)
        self._config = pipeline_config.train_config
        self._precision = precisions.resolve(self._config, precision)
        precisions.warn_if_not_faster(self._precision)
        self._strategy = strategy or tf.distribute.get_strategy()
        with self._strategy.scope():
            self._detector = detector.build(
                pipeline_config, is_training=False, precision=self._precision
            )
        self._evaluation = PipelineEvaluation(
            self._detector,
            pipeline_config,
            output_dir,
            best=best,
            job_files=job_files,
            strategy=self._strategy,
            callbacks=self._callbacks,
        )

    def run(
        self,
        prefixes: Iterable[str],
        should_stop: Callable[[], bool] = lambda: False,
        show_progress: ShowProgress = nullcontext,
        on_result: Callable[[EvaluationResult], None] = lambda result: None,
    ) -> EvaluationResult:
        """Evaluates checkpoints until the training's last step; returns the last result."""
        result = EvaluationResult()
        with contextlib.closing(self):
            for prefix in prefixes:
                found = None if should_stop() else self.evaluate(prefix, should_stop, show_progress)
                if found is None:
                    continue
                result = found
                on_result(result)
                if self._callbacks.reason:
                    _logger.info('stopping: %s', self._callbacks.reason)
                    break
                step = result.step
                # --num_train_steps may have set another length than the config.
                recorded = run_record.num_steps(os.path.dirname(prefix))
                num_steps = recorded or self._config.num_steps
                if step >= num_steps > 0:
                    _logger.info('the training has ended at step %d of %d', step, num_steps)
                    break
        return result

    def evaluate(
        self,
        prefix: str,
        should_stop: Callable[[], bool] = lambda: False,
        show_progress: ShowProgress = nullcontext,
    ) -> EvaluationResult | None:
        """Evaluates one checkpoint; returns None if it was deleted meanwhile, or when stopped."""
        with precisions.scope(self._precision):
            step = self._restore(prefix)
            if step is None:
                return None
            _logger.info('evaluating %s (step %d) in %s', prefix, step, self._precision)
            self._callbacks.on_start(
                callback_builder.start_of(self._pipeline, self._output_dir, step)
            )
            metrics = self._evaluation.run(step, should_stop, show_progress)
        self._callbacks.check()
        self._end = End(step=step)
        if metrics is None:
            _logger.info('stopped before the evaluation of %s was complete', prefix)
            return None
        return EvaluationResult(metrics, step)

    def close(self) -> None:
        self._evaluation.close()
        self._callbacks.on_end(self._end)

    def _restore(self, prefix: str) -> int | None:
        """Restores a checkpoint and returns its step; None if it was deleted meanwhile."""
        averages = self._config.optimizer.use_moving_average
        try:
            return restore.restore_exactly(self._detector, prefix, averages=averages)
        except (CheckpointError, tf.errors.NotFoundError):
            # The training deletes the file that `exists` looks for before the other files.
            if checkpoints.exists(prefix) or checkpoints.is_weights_file(prefix):
                raise
            _logger.warning('%s was deleted before it could be evaluated', prefix)
            return None
