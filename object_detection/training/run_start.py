"""What is looked at, told and written when a run starts."""

import logging
import os
from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from object_detection.config import writer
from object_detection.models import precision as precisions
from object_detection.protos.model_pb2 import DetectionModel as ModelConfig
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from object_detection.system import files
from object_detection.training import first_batch
from object_detection.training.distribution import strategies
from object_detection.training.monitoring import model_summary, run_record
from object_detection.training.step import TrainStep
from object_detection.validation import resumption
from object_detection.validation.models import faster_rcnn as model_rules

_logger = logging.getLogger(__name__)

SUMMARY_FILE_NAME = 'model_summary.txt'


def check_first_batch(config: ModelConfig, batch: Mapping[str, np.ndarray]) -> None:
    """Compares the first batch with the model.

    Raises:
      ConfigError: if they do not fit.
    """
    kind = config.WhichOneof('model')
    if kind is not None:
        first_batch.check(
            batch,
            num_classes=getattr(config, kind).num_classes,
            has_masks=model_rules.has_masks(config),
        )


def write_records(
    config: TrainEvalPipelineConfig,
    directory: str,
    train_step: TrainStep,
    *,
    seed: int,
    restored: str | None,
    config_path: str | os.PathLike | None = None,
) -> str:
    """Tells and writes what is run; returns the name of the run.

    Args:
      config: as it is used.
      directory: of the model.
      train_step: restored.
      seed: of the run.
      restored: checkpoint that it goes on from, or None.
      config_path: of the file that the config is from.
    """
    step = int(train_step.step.numpy())
    if restored is None:
        _write_summary(directory, train_step)
    else:
        resumption.log_changes(config, directory)
    writer.write_pipeline(config, os.path.join(directory, resumption.CONFIG_FILE_NAME))
    resumption.write_classes(config, directory)
    run = run_record.write(
        directory,
        config_path=config_path,
        seed=seed,
        step=step,
        num_steps=config.train_config.num_steps,
        batch_size=config.train_config.batch_size,
        precision=precisions.name_of(config.train_config.precision),
        replicas=train_step.strategy.num_replicas_in_sync,
        workers=strategies.num_workers(train_step.strategy),
    )
    _tell(config, directory, train_step, seed)
    if restored:
        _logger.info('going on from %s, step %d', restored, step)
        if config.train_config.fine_tune_checkpoint:
            _logger.info('train_config.fine_tune_checkpoint is not read again')
    return run


def _write_summary(directory: str, train_step: TrainStep) -> None:
    """Tells and writes what the model consists of; it is traced for that, which takes time."""
    summary = model_summary.lines(
        train_step.detector, trained=train_step.optimizer.variables.keys()
    )
    files.write_text(os.path.join(directory, SUMMARY_FILE_NAME), '\n'.join(summary) + '\n')
    _logger.info('the model:\n%s', '\n'.join(summary))


def _tell(
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
