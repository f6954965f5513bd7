"""Evaluates one checkpoint, or every new checkpoint of a directory."""

import contextlib
import logging
import os
from collections.abc import Iterable
from contextlib import nullcontext

import tensorflow as tf

from object_detection.builders import model_builder
from object_detection.config import files, validation
from object_detection.meta_architectures.detection_model import DetectionModel
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from object_detection.training import checkpoints
from object_detection.training import precision as precisions
from object_detection.training.errors import CheckpointError
from object_detection.training.evaluation import PipelineEvaluation, ShowProgress

_logger = logging.getLogger(__name__)

# Reader's name -> metric name -> value.
Results = dict[str, dict[str, float]]


def evaluate_checkpoint(
    pipeline_config: TrainEvalPipelineConfig,
    checkpoint: str | os.PathLike,
    *,
    output_dir: str | os.PathLike | None = None,
    precision: str | None = None,
    record_summaries: bool = True,
) -> Results:
    """Evaluates one checkpoint on every `eval_input_reader`.

    Args:
      pipeline_config: with at least one `eval_input_reader`.
      checkpoint: a prefix such as 'model/ckpt-3', or a directory, whose newest is taken.
      output_dir: see `PipelineEvaluation`; None writes nothing.
      precision: 'float32' or 'bfloat16'; None takes the config's.
      record_summaries: whether to write TensorBoard events.

    Returns:
      Reader's name ('' for a single one without) -> metric name -> value.

    Raises:
      ConfigError: if the config cannot be evaluated.
      CheckpointError: if there is no such checkpoint, or it is of another model.
    """
    prefix = checkpoints.find(os.fspath(checkpoint))
    results = _evaluate_all(pipeline_config, [prefix], output_dir, precision, record_summaries)
    if not results:
        raise CheckpointError(f'{prefix}: expected a checkpoint. Received one deleted meanwhile.')
    return results


def evaluate_directory(
    pipeline_config: TrainEvalPipelineConfig,
    checkpoint_dir: str | os.PathLike,
    *,
    output_dir: str | os.PathLike | None = None,
    timeout: float = 3600.0,
    precision: str | None = None,
    record_summaries: bool = True,
    show_progress: ShowProgress = nullcontext,
) -> Results:
    """Evaluates the newest checkpoint of a directory, then each that is added.

    Ends when a checkpoint's step has reached `train_config.num_steps`, or none was added for
    `timeout` seconds. Checkpoints that the training deletes before they can be read are left out.

    Args:
      pipeline_config: with at least one `eval_input_reader`.
      checkpoint_dir: where a training saves, or will save; or the prefix of one checkpoint.
      output_dir: see `PipelineEvaluation`; None writes nothing.
      timeout: seconds; 0 evaluates what is there, once.
      precision: 'float32' or 'bfloat16'; None takes the config's.
      record_summaries: whether to write TensorBoard events.
      show_progress: see `evaluation.ShowProgress`; logs the number of images if not given.

    Returns:
      The results of the last checkpoint; see `evaluate_checkpoint`.

    Raises:
      ConfigError: if the config cannot be evaluated.
      CheckpointError: if no checkpoint appeared, or one is of another model.
    """
    directory = os.fspath(checkpoint_dir)
    if timeout <= 0 or checkpoints.exists(directory):
        prefixes: Iterable[str] = [checkpoints.find(directory)]
    else:
        prefixes = checkpoints.follow(directory, timeout=timeout)
    results = _evaluate_all(
        pipeline_config, prefixes, output_dir, precision, record_summaries, show_progress
    )
    if not results:
        raise CheckpointError(f'{directory}: no checkpoint appeared in {timeout:g} s.')
    return results


def build_detector(
    pipeline_config: TrainEvalPipelineConfig, precision: str | None = None
) -> DetectionModel:
    """Builds the detector for inference, with its variables.

    Args:
      pipeline_config: the whole config.
      precision: 'float32' or 'bfloat16'; None takes the config's.
    """
    chosen = precisions.resolve(pipeline_config.train_config, precision)
    with precisions.scope(chosen):
        detector = model_builder.build(pipeline_config.model, is_training=False)
        detector.build_variables()
    return detector


def _evaluate_all(
    pipeline_config: TrainEvalPipelineConfig,
    prefixes: Iterable[str],
    output_dir: str | os.PathLike | None,
    precision: str | None,
    record_summaries: bool,
    show_progress: ShowProgress = nullcontext,
) -> Results:
    """Evaluates checkpoints as they come, until the training has ended; the last one's results."""
    validation.validate(pipeline_config, for_what='eval')
    num_steps = pipeline_config.train_config.num_steps
    detector = build_detector(pipeline_config, precision)
    evaluation = PipelineEvaluation(
        detector,
        pipeline_config,
        None if output_dir is None else files.check_is_local(output_dir, 'model_dir'),
        record_summaries=record_summaries,
    )
    results: Results = {}
    with contextlib.closing(evaluation):
        for prefix in prefixes:
            step = _restore(prefix, detector)
            if step is None:
                continue
            _logger.info('evaluating %s (step %d)', prefix, step)
            results = evaluation.run(step, show_progress=show_progress)
            if step >= num_steps > 0:
                _logger.info('the training has ended at step %d of %d', step, num_steps)
                break
    return results


def _restore(prefix: str, detector: DetectionModel) -> int | None:
    """Restores a checkpoint and returns its step; None if it was deleted meanwhile."""
    try:
        return checkpoints.restore_model(prefix, detector.named_variables())
    except (CheckpointError, tf.errors.NotFoundError):
        # Of the files of a checkpoint, that which `exists` looks for is deleted first.
        if checkpoints.exists(prefix):
            raise
        _logger.warning('%s was deleted before it could be evaluated', prefix)
        return None
