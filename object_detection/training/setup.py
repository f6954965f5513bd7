"""Builds the components of a training from its pipeline config."""

import contextlib
import dataclasses
import logging
import os
import secrets
from collections.abc import Callable, Collection, Iterator, Sequence

import keras
import numpy as np
import tensorflow as tf

from object_detection.builders import (
    dataset_builder,
    evaluator_builder,
    optimizer_builder,
)
from object_detection.builders.callback_builder import Callbacks
from object_detection.builders.input_readers import corrupt_files
from object_detection.builders.input_readers import examples as examples_builder
from object_detection.core import determinism
from object_detection.data import label_map
from object_detection.data.pipeline import bad_records, data_service
from object_detection.data.pipeline.bad_records import BadRecords
from object_detection.errors import format_list
from object_detection.meta_architectures import detector, layer_depths, trainable_variables
from object_detection.meta_architectures.detection_model import DetectionModel
from object_detection.models import precision as precisions
from object_detection.optimizers.optimizers import Optimizer
from object_detection.protos import optimizer_pb2, train_pb2
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from object_detection.training import execution
from object_detection.training.checkpoints import manager
from object_detection.training.checkpoints.input_state import InputState
from object_detection.training.distribution import collectives, strategies
from object_detection.training.monitoring import progress as progresses
from object_detection.training.monitoring.log_files import NO_FILES, JobFiles
from object_detection.training.monitoring.recorder import Recorder
from object_detection.training.monitoring.run_types import Intervals
from object_detection.training.step import TrainStep

_logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class TrainingRun:
    """A training in one process: its config, resolved and checked, and what the caller decides.

    Attributes:
      config: the resolved config.
      directory: the model_dir.
      strategy: the strategy of the devices.
      intervals: when to log, save and evaluate.
      files: files apart from the model_dir.
      max_to_keep, progress, config_path: see `loop.train`.
      callbacks: all that the training calls; none on workers other than the chief.
    """

    config: TrainEvalPipelineConfig
    directory: str
    strategy: tf.distribute.Strategy
    intervals: Intervals
    files: JobFiles = NO_FILES
    max_to_keep: int | None = None
    progress: progresses.Progress | None = None
    config_path: str | os.PathLike | None = None
    callbacks: Callbacks = dataclasses.field(default_factory=Callbacks)

    @property
    def is_chief(self) -> bool:
        """Whether this process saves, evaluates and writes."""
        return strategies.is_chief(self.strategy)


def set_seed(config: train_pb2.TrainConfig, seed: int) -> None:
    """Seeds Python, NumPy and TensorFlow, and makes operations deterministic if configured."""
    keras.utils.set_random_seed(seed)
    if config.deterministic_ops:
        determinism.switch_on()


def build_left_out(run: TrainingRun) -> BadRecords:
    """Builds what counts the bad records of a worker, and lists them in `model_dir`.

    Each worker reads a part of the records, and has a file of its own.
    """
    worker = strategies.worker_index(run.strategy)
    name = f'worker_{worker}_{bad_records.FILE_NAME}' if worker else bad_records.FILE_NAME
    path = os.path.join(run.directory, name)
    return examples_builder.left_out(run.config.train_input_reader, 'train_input_reader', path)


def build(
    run: TrainingRun, input_state: InputState, left_out: BadRecords, step: int
) -> tuple[TrainStep, Iterator]:
    """Builds, in the strategy's scope, the step and an iterator over its batches. Collective.

    Args:
      run: the training.
      input_state: the seed, and where the input resumes.
      left_out: counts bad records, see `dataset_builder.build_train`.
      step: number of steps done.
    """
    config, detector = run.config, build_detector(run.config)
    iterator = training_data(
        config, run.strategy, input_state.seed, input_state.start, left_out, step=step
    )
    train_step = build_step(
        config.train_config,
        detector,
        iterator.element_spec,
        input_state.seed,
        bucket_sizes=examples_builder.bucket_sizes(config.train_input_reader),
    )
    return train_step, iterator


def build_checkpoints(
    run: TrainingRun, train_step: TrainStep, input_state: InputState
) -> manager.Checkpoints:
    """Builds the `Checkpoints` that save and restore a training step and its input."""
    return manager.Checkpoints(
        run.directory,
        model=train_step.detector.named_variables(),
        optimizer=train_step.optimizer_state(),
        step=train_step.step,
        input_state=input_state,
        max_to_keep=run.max_to_keep,
        keep_every_n_hours=run.config.train_config.keep_checkpoint_every_n_hours,
        names=train_step.detector.variable_names,
    )


def build_recorder(run: TrainingRun, step: int) -> Recorder:
    """Builds the recorder of a run that begins at a step; only the chief writes and shows."""
    config, is_chief = run.config, run.is_chief
    shown = run.progress or progresses.automatic() if is_chief else progresses.Silent()
    return Recorder(
        run.directory if is_chief else None,
        step,
        progress=shown,
        names=class_names(config),
        keypoint_edges=evaluator_builder.keypoint_edges(
            config.eval_config, config.train_input_reader.label_map_path
        ),
        job_files=run.files,
        config=config,
        callbacks=run.callbacks,
    )


@contextlib.contextmanager
def input_errors_named(config: TrainEvalPipelineConfig) -> Iterator[None]:
    """A context in which errors of the training data name the corrupt file or the data service.

    Raises:
      ConfigError: in place of TensorFlow's error.
    """
    reader = config.train_input_reader
    with (
        corrupt_files.named(reader, 'train_input_reader'),
        data_service.watched(reader.data_service),
    ):
        yield


def build_detector(config: TrainEvalPipelineConfig) -> DetectionModel:
    """Builds the detector for training, with its variables, in the precision of the config."""
    precision = precisions.name_of(config.train_config.precision)
    precisions.warn_if_not_faster(precision)
    return detector.build(config, is_training=True, precision=precision)


def training_data(
    config: TrainEvalPipelineConfig,
    strategy: tf.distribute.Strategy,
    seed: int,
    start: Callable[[tf.distribute.InputContext], np.ndarray] = lambda context: None,
    left_out: BadRecords | None = None,
    *,
    step: int = 0,
) -> Iterator:
    """Returns an endless iterator over batches for all replicas. Collective.

    Args:
      config: the whole config.
      strategy: its replicas share each batch.
      seed: the seed of order and augmentation.
      start: where an input pipeline resumes, see `InputState.start`.
      left_out: counts bad records, see `dataset_builder.build_train`.
      step: number of steps done, see `dataset_builder.build_train`.
    """
    options = {} if left_out is None else {'left_out': left_out}
    if config.train_input_reader.data_service:
        # All workers share one stream, and no other training, nor an earlier start of this one.
        options['job'] = collectives.value_of_chief(strategy, secrets.randbits(62))

    def build(context: tf.distribute.InputContext) -> tf.data.Dataset:
        batches = dataset_builder.build_train(
            config, input_context=context, seed=seed, start=start(context), step=step, **options
        )
        if strategy.num_replicas_in_sync == 1:
            return batches
        # `strategies.check_endless` has made sure of it. Otherwise workers would agree before each
        # step on whether there is a batch, and the sizes of batches would be unknown.
        return batches.apply(tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY))

    return iter(strategy.distribute_datasets_from_function(build))


@dataclasses.dataclass(frozen=True)
class InputChanges:
    """The changes of the training data during a run, by `stop_after_step` of augmentations.

    Attributes:
      run: the training.
      input_state: the seed and the position, which `Checkpoints.collect` keeps.
      left_out: counts bad records.
    """

    run: TrainingRun
    input_state: InputState
    left_out: BadRecords

    def next_after(self, step: int) -> int | None:
        """Returns the number of the last step before the next change, at least `step` + 1."""
        augmentations = self.run.config.train_config.data_augmentation_options
        steps = (each.stop_after_step for each in augmentations)
        return min((each for each in steps if each > step), default=None)

    def rebuild(self, step: int) -> Iterator:
        """Returns an iterator over the batches after `step`, from the position on. Collective."""
        self.left_out.add_read(step * self.run.config.train_config.batch_size)
        self.input_state.restart()
        with self.run.strategy.scope():
            return training_data(
                self.run.config,
                self.run.strategy,
                self.input_state.seed,
                self.input_state.start,
                self.left_out,
                step=step,
            )


def build_step(
    config: train_pb2.TrainConfig,
    detector: DetectionModel,
    element_spec: object,
    seed: int,
    *,
    bucket_sizes: Sequence[tuple[int, int]] = (),
) -> TrainStep:
    """Builds the training step and its optimizer, in the scope of the strategy.

    Args:
      config: the pipeline's train_config.
      detector: with its variables built.
      element_spec: the spec of the batches.
      seed: the seed of the sampling noise.
      bucket_sizes: (height, width) of the batches, if the reader has buckets.

    Raises:
      ConfigError: if a pattern of variable names matches no variable of the detector, or steps
        cannot be executed as configured with this detector, data or devices.
    """
    selection = trainable_variables.choose(
        detector.named_trainable_variables(),
        update_patterns=config.update_trainable_variables,
        freeze_patterns=config.freeze_variables,
    )
    for line in selection.describe():
        _logger.info('%s', line)
    num_norms = trainable_variables.freeze_norms(detector, selection.frozen)
    if num_norms:
        _logger.info(
            'batch norms whose scale and offset are frozen keep their moving statistics: %d',
            num_norms,
        )
    plateau = optimizer_builder.build_plateau(config.optimizer)
    optimizer = optimizer_builder.build(
        config.optimizer, rate_factor=_rate_factor(config), plateau=plateau
    )
    optimizer.build(
        selection.trained,
        multipliers=rate_multipliers(config.optimizer, detector, selection.trained),
    )
    _log_decay(optimizer, trainable_variables.penalized(detector, config))
    return TrainStep(
        detector,
        optimizer,
        element_spec=element_spec,
        seed=seed,
        clip_norm=config.gradient_clipping_by_norm,
        gradient_factors=trainable_variables.gradient_factors(
            selection.trained, config.bias_grad_multiplier
        ),
        add_regularization_loss=config.add_regularization_loss,
        execution=execution.of_training(config, detector, element_spec, bucket_sizes),
        loss_scale=optimizer_builder.build_loss_scale(config),
        reduction=optimizer_builder.build_reduction(config),
        plateau=plateau,
    )


def rate_multipliers(
    config: optimizer_pb2.Optimizer, detector: DetectionModel, names: Collection[str]
) -> dict[str, float]:
    """Returns the factors of the learning rate of trained variables by name, where not 1."""
    factors = trainable_variables.multipliers(names, config.learning_rate_multiplier)
    if config.layer_decay == 1:
        return factors
    depths = layer_depths.of_variables(detector)
    decay, deepest = config.layer_decay, max(depths.values())
    _logger.info(
        'the backbone has %d blocks, whose learning rates have factors of %.3g to %.3g '
        '(train_config.optimizer.layer_decay)',
        deepest,
        decay**deepest,
        decay,
    )
    return factors | {
        name: factors.get(name, 1.0) * decay ** depths[name] for name in names if name in depths
    }


def _log_decay(optimizer: Optimizer, penalized: Collection[str]) -> None:
    """Logs which variables have decoupled weight decay, and which of these have a penalty, too."""
    if not optimizer.decayed:
        return
    _logger.info(
        '%d of %d variables have decoupled weight decay (weight_decay of the optimizer)',
        len(optimizer.decayed),
        len(optimizer.variables),
    )
    if both := sorted(optimizer.decayed.intersection(penalized)):
        _logger.info(
            '%d of them also have a penalty in the loss, and decay twice: %s; '
            'train_config.weight_decay of weight 0 takes the place of all penalties',
            len(both),
            format_list(both),
        )


def _rate_factor(config: train_pb2.TrainConfig) -> float:
    """Returns the factor of all learning rates that follows from the batch size, and logs it."""
    if not config.HasField('auto_scale_lr'):
        return 1.0
    reference = config.auto_scale_lr.reference_batch_size
    factor = config.batch_size / reference
    _logger.info(
        'learning rates are multiplied by %g: batch size %d, train_config.auto_scale_lr.'
        'reference_batch_size %d',
        factor,
        config.batch_size,
        reference,
    )
    return factor


def class_names(config: TrainEvalPipelineConfig) -> dict[int, str]:
    """Returns 1-based class id -> name; empty without a label map."""
    path = config.train_input_reader.label_map_path
    if not path:
        return {}
    return label_map.load(path).names
