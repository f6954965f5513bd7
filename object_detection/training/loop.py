"""Trains a detector from a pipeline config."""

import contextlib
import logging
import math
import os
import secrets
from collections.abc import Iterator

import keras
import tensorflow as tf

from object_detection.builders import dataset_builder, model_builder, optimizer_builder
from object_detection.config import files, validation, writer
from object_detection.config.errors import ConfigError
from object_detection.data import label_map
from object_detection.meta_architectures.detection_model import DetectionModel
from object_detection.protos import train_pb2
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from object_detection.training import checkpoints as checkpoint_files
from object_detection.training import damaged_files
from object_detection.training import precision as precisions
from object_detection.training import progress as progresses
from object_detection.training.evaluation import PipelineEvaluation, is_evaluated
from object_detection.training.interrupts import Interrupts
from object_detection.training.recorder import Recorder
from object_detection.training.step import TrainStep
from object_detection.training.trainer import Intervals, Trainer, TrainResult

_logger = logging.getLogger(__name__)

CONFIG_FILE_NAME = 'resolved_pipeline.config'


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
) -> TrainResult:
    """Trains until `num_steps`, from the newest checkpoint of `model_dir` if there is one.

    Runs in the current tf.distribute strategy. SIGTERM and SIGINT save a checkpoint and end the
    training; so does the end of the data. Where all steps are done, but not the evaluation at the
    end, that alone is done. Writes into `model_dir`: checkpoints, the config as it
    is used (`resolved_pipeline.config`), train/history.jsonl and TensorBoard events.

    Args:
      pipeline_config: the config, overrides applied.
      model_dir: of this model alone, on this machine; made if there is none.
      num_steps: in all, not counted from the checkpoint; None takes `train_config.num_steps`.
      intervals: of logging, checkpoints and evaluation; None takes the defaults.
      max_to_keep: how many checkpoints; None keeps all.
      record_summaries: whether to write TensorBoard events.
      precision: 'float32' or 'bfloat16'; None takes the config's.
      seed: of initial weights, data order and sampling noise, set for Python, NumPy and TensorFlow;
        None draws one and logs it, and the order of the data is not reproducible then.
      progress: what is told of the run; None chooses by whether stderr is a terminal.

    Raises:
      ConfigError: if the config cannot be trained, or a file of records is damaged.
      CheckpointError: if `model_dir` holds a checkpoint of another model.
      DivergenceError: if a loss or a weight becomes NaN or infinite.
    """
    intervals = intervals or Intervals()
    config = _resolve(pipeline_config, num_steps, precision)
    validation.validate(config, for_what=['train', 'eval'] if intervals.evaluation else 'train')
    directory = files.check_is_local(model_dir, 'model_dir')
    num_steps = config.train_config.num_steps
    latest = tf.train.latest_checkpoint(directory)
    start = checkpoint_files.read_step(latest) if latest else 0
    if start >= num_steps:
        if intervals.evaluation and not is_evaluated(config, directory, start):
            return _evaluate_the_end(config, directory, latest, record_summaries)
        _logger.info('%s is at step %d of %d: nothing left to do', directory, start, num_steps)
        return TrainResult(step=start, checkpoint=latest, losses={})

    has_seed = seed is not None
    seed = secrets.randbelow(2**31) if seed is None else seed
    keras.utils.set_random_seed(seed)
    strategy = tf.distribute.get_strategy()
    with strategy.scope():
        detector = _build_detector(config)
        # Another seed after a restart: otherwise each start would see the same images first.
        iterator = _training_data(config, strategy, seed + start, deterministic=has_seed)
        train_step = _build_step(config.train_config, detector, iterator.element_spec, seed)
        checkpoints = _checkpoints(directory, train_step, config.train_config, max_to_keep)
        restored = checkpoints.restore_latest()
        writer.write_pipeline(config, os.path.join(directory, CONFIG_FILE_NAME))
        _log_start(config, directory, train_step, seed, restored)
        with contextlib.ExitStack() as opened:
            evaluation = None
            if intervals.evaluation:
                evaluation = PipelineEvaluation(
                    detector, config, directory, record_summaries=record_summaries
                )
                opened.callback(evaluation.close)
            recorder = Recorder(
                directory,
                start,
                progress=progress or progresses.automatic(),
                record_summaries=record_summaries,
                names=_class_names(config),
            )
            opened.callback(recorder.close)
            opened.enter_context(
                damaged_files.named(config.train_input_reader, 'train_input_reader')
            )
            return Trainer(
                train_step=train_step,
                iterator=iterator,
                checkpoints=checkpoints,
                recorder=recorder,
                num_steps=num_steps,
                batch_size=config.train_config.batch_size,
                intervals=intervals,
                evaluate=evaluation.run if evaluation else None,
            ).run()


def _resolve(
    pipeline_config: TrainEvalPipelineConfig, num_steps: int | None, precision: str | None
) -> TrainEvalPipelineConfig:
    """Writes what the caller decides into a copy of the config."""
    config = TrainEvalPipelineConfig()
    config.CopyFrom(pipeline_config)
    if num_steps is not None:
        config.train_config.num_steps = num_steps
    if config.train_config.num_steps < 1:
        raise ConfigError(
            'train_config.num_steps: expected the number of steps to train, there or as '
            f'--num_train_steps. Received: {config.train_config.num_steps}.'
        )
    chosen = precisions.resolve(config.train_config, precision)
    if precision is not None:
        config.train_config.precision = train_pb2.TrainConfig.Precision.Value(chosen.upper())
    return config


def _build_detector(config: TrainEvalPipelineConfig) -> DetectionModel:
    with precisions.scope(precisions.name_of(config.train_config.precision)):
        detector = model_builder.build(config.model, is_training=True)
        detector.build_variables()
    return detector


def _evaluate_the_end(
    config: TrainEvalPipelineConfig, directory: str, checkpoint: str, record_summaries: bool
) -> TrainResult:
    """Does the evaluation of a finished training, which a signal kept from its own."""
    with tf.distribute.get_strategy().scope(), contextlib.ExitStack() as opened:
        interrupts = opened.enter_context(Interrupts())
        detector = _build_detector(config)
        step = checkpoint_files.restore_model(checkpoint, detector.named_variables())
        _logger.info('%s is at step %d, its last: only the evaluation is left', directory, step)
        evaluation = PipelineEvaluation(
            detector, config, directory, record_summaries=record_summaries
        )
        opened.callback(evaluation.close)
        metrics = evaluation.run(step, lambda: interrupts.received is not None)
    return TrainResult(
        step=step,
        checkpoint=checkpoint,
        losses={},
        metrics=metrics,
        stopped_by=None if interrupts.received is None else int(interrupts.received),
    )


def _training_data(
    config: TrainEvalPipelineConfig,
    strategy: tf.distribute.Strategy,
    seed: int,
    *,
    deterministic: bool,
) -> Iterator:
    return iter(
        strategy.distribute_datasets_from_function(
            lambda context: dataset_builder.build_train(
                config, input_context=context, seed=seed, deterministic=deterministic
            )
        )
    )


def _build_step(
    config: train_pb2.TrainConfig, detector: DetectionModel, element_spec: object, seed: int
) -> TrainStep:
    return TrainStep(
        detector,
        optimizer_builder.build(config.optimizer),
        element_spec=element_spec,
        seed=seed,
        clip_norm=config.gradient_clipping_by_norm,
        add_regularization_loss=config.add_regularization_loss,
    )


def _checkpoints(
    directory: str,
    train_step: TrainStep,
    config: train_pb2.TrainConfig,
    max_to_keep: int | None,
) -> checkpoint_files.Checkpoints:
    return checkpoint_files.Checkpoints(
        directory,
        model=train_step.detector.named_variables(),
        optimizer=train_step.optimizer.state(),
        step=train_step.step,
        max_to_keep=max_to_keep,
        keep_every_n_hours=config.keep_checkpoint_every_n_hours,
    )


def _class_names(config: TrainEvalPipelineConfig) -> dict[int, str]:
    path = config.train_input_reader.label_map_path
    if not path:
        return {}
    return {category['id']: category['name'] for category in label_map.load(path).categories}


def _log_start(
    config: TrainEvalPipelineConfig,
    directory: str,
    train_step: TrainStep,
    seed: int,
    restored: str | None,
) -> None:
    def count(variables):
        return sum(math.prod(variable.shape) for variable in variables.values())

    total, trained = (
        count(train_step.detector.named_variables()),
        count(train_step.optimizer.variables),
    )
    devices = tf.config.list_logical_devices('GPU') or tf.config.list_logical_devices('CPU')
    _logger.info(
        'training %s in %s: %s parameters, %s of them trainable; %s on %s; batch size %d, '
        '%d steps, seed %d',
        train_step.detector.name,
        directory,
        f'{total:,}',
        f'{trained:,}',
        precisions.name_of(config.train_config.precision),
        devices[0].name,
        config.train_config.batch_size,
        config.train_config.num_steps,
        seed,
    )
    if restored:
        _logger.info('going on from %s, step %d', restored, int(train_step.step.numpy()))
