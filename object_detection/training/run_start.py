"""The start of a run: what is logged and written, and the check of the first batch."""

import logging
import os
from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from object_detection.config import show
from object_detection.core.fields import InputFields as F
from object_detection.data import objects
from object_detection.errors import ConfigError, format_list
from object_detection.meta_architectures.detection_model import DetectionModel
from object_detection.models import precision as precisions
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from object_detection.system import files
from object_detection.training.distribution import strategies
from object_detection.training.monitoring import model_summary, run_record
from object_detection.training.setup import TrainingRun
from object_detection.training.step import TrainStep
from object_detection.validation import resumption

_logger = logging.getLogger(__name__)

SUMMARY_FILE_NAME = 'model_summary.txt'

_MASKS = (F.GROUNDTRUTH_INSTANCE_MASK_CROPS, F.GROUNDTRUTH_INSTANCE_MASKS)
# Fewer objects may all be wrong by chance: a warning is logged in place of an error.
_ENOUGH_OBJECTS = 4


def write_records(
    run: TrainingRun, train_step: TrainStep, *, seed: int, restored: str | None
) -> str:
    """Logs and writes the records of a run that starts; returns the name of the run.

    Args:
      run: the training.
      train_step: the step, restored.
      seed: the seed of the run.
      restored: prefix of the checkpoint that the run resumes from, or None.
    """
    config, directory, strategy = run.config, run.directory, run.strategy
    step, compared = int(train_step.step.numpy()), run.files.val_json_file
    if restored is None:
        _write_summary(directory, train_step)
    else:
        resumption.log_changes(config, directory)
    show.write_pipeline(config, os.path.join(directory, resumption.CONFIG_FILE_NAME))
    resumption.write_classes(config, directory)
    name = run_record.write(
        directory,
        config_path=run.config_path,
        seed=seed,
        step=step,
        num_steps=config.train_config.num_steps,
        batch_size=config.train_config.batch_size,
        precision=precisions.name_of(config.train_config.precision),
        replicas=strategy.num_replicas_in_sync,
        workers=strategies.num_workers(strategy),
        val_json_file=(os.path.abspath(compared) if compared else '')
        if run.intervals.evaluation
        else None,
    )
    _log_start(config, directory, train_step, seed)
    if restored:
        _logger.info('going on from %s, step %d', restored, step)
        if config.train_config.fine_tune_checkpoint:
            _logger.info('train_config.fine_tune_checkpoint is not read again')
    return name


def _write_summary(directory: str, train_step: TrainStep) -> None:
    """Logs and writes a summary of the model, for which it is traced."""
    summary = model_summary.lines(
        train_step.detector, trained=train_step.optimizer.variables.keys()
    )
    files.write_text(os.path.join(directory, SUMMARY_FILE_NAME), '\n'.join(summary) + '\n')
    _logger.info('the model:\n%s', '\n'.join(summary))


def _log_start(
    config: TrainEvalPipelineConfig, directory: str, train_step: TrainStep, seed: int
) -> None:
    train_config = config.train_config
    devices = tf.config.list_logical_devices('GPU') or tf.config.list_logical_devices('CPU')
    _logger.info(
        'training %s in %s: %s on %s (%s); batch size %d, %d steps, seed %d',
        train_step.detector.name,
        directory,
        precisions.name_of(train_config.precision),
        devices[0].name,
        strategies.describe(train_step.strategy),
        train_config.batch_size,
        train_config.num_steps,
        seed,
    )
    if train_step.optimizer.averages():
        _logger.info(
            'moving averages of the weights are kept, evaluated and exported '
            '(train_config.optimizer.use_moving_average, the default)'
        )


def check_batch(detector: DetectionModel, batch: Mapping[str, np.ndarray]) -> None:
    """Checks that a batch is what the model trains on.

    Args:
      detector: gives the number of classes, and whether it needs masks.
      batch: keys of `InputFields` -> NumPy arrays.

    Raises:
      ConfigError: naming the problem and the images.
    """
    ids = [bytes(text).decode(errors='replace') for text in batch[F.SOURCE_ID]]
    where = f'train_input_reader, first batch (source ids {format_list(map(repr, ids))})'
    classes = batch[F.GROUNDTRUTH_CLASSES]
    if classes.shape[-1] != detector.num_classes:
        raise ConfigError(
            f'{where}: expected labels of num_classes = {detector.num_classes} classes. '
            f'Received: {classes.shape[-1]}.'
        )
    rows = np.arange(classes.shape[1]) < batch[F.NUM_GROUNDTRUTH_BOXES][:, np.newaxis]
    if not rows.any():
        _warn_no_objects(batch, where)
        return
    _check_boxes(batch, rows, where)
    if detector.needs_masks:
        _check_masks(batch, rows, where)


def _warn_no_objects(batch: Mapping[str, np.ndarray], where: str) -> None:
    counts = batch[F.INVALID_OBJECTS].sum(axis=0) if F.INVALID_OBJECTS in batch else ()
    left_out = objects.describe_invalid(dict(zip(objects.INVALID_KINDS, counts, strict=False)))
    reason = f'; objects were left out: {left_out}' if left_out else ''
    _logger.warning('%s: no image has an object to learn from%s.', where, reason)


def _check_boxes(batch: Mapping[str, np.ndarray], rows: np.ndarray, where: str) -> None:
    boxes = batch[F.GROUNDTRUTH_BOXES][rows]
    low, high = boxes.min(), boxes.max()
    if not (np.isfinite(boxes).all() and low >= -1e-3 and high <= 1 + 1e-3):
        raise ConfigError(
            f'{where}: expected boxes within the image, normalized to 0..1. '
            f'Received: coordinates from {low:g} to {high:g}.'
        )
    sides = (boxes[:, 2:] - boxes[:, :2]) * batch[F.IMAGE].shape[1:3]
    if (sides.max(axis=1) < 1).all():
        _refuse(
            f'{where}: expected boxes of some pixels. Received: {len(boxes)} boxes, the largest of '
            f'{sides.max():.3g} pixels; were they divided by the image size twice?',
            len(boxes),
        )


def _check_masks(batch: Mapping[str, np.ndarray], rows: np.ndarray, where: str) -> None:
    key = next((key for key in _MASKS if key in batch), None)
    if key is None:
        raise ConfigError(
            f'{where}: expected masks, since the model has a mask head. Received: none; set '
            'train_input_reader.load_instance_masks: true.'
        )
    if not batch[key][rows].any():
        count = int(rows.sum())
        _refuse(
            f'{where}: expected masks that cover their objects. Received: {count} empty masks; are '
            'they as large as their images, and is mask_type that of the records?',
            count,
        )


def _refuse(problem: str, num_objects: int) -> None:
    if num_objects >= _ENOUGH_OBJECTS:
        raise ConfigError(problem)
    _logger.warning('%s', problem)
