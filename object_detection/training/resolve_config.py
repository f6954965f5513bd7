"""From a config file and a command line to the config of a run: changes, derived values, checks.

Loads no TensorFlow when it is imported, so that mistakes on the command line, placeholders and
missing files are reported at once; the checks that need TensorFlow come after those that do not.
"""

import logging
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from object_detection.builders import callback_builder
from object_detection.config import reader, report, synthetic_data
from object_detection.config.job_options import JobOptions, TrainOptions, check_ranges
from object_detection.errors import ConfigError, Problems
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from object_detection.system import files
from object_detection.training.monitoring import profiling
from object_detection.training.monitoring.log_files import JobFiles
from object_detection.training.monitoring.run_types import Intervals
from object_detection.validation import eval_config as eval_config_rules
from object_detection.validation import resumption, validate
from object_detection.validation import train_config as train_config_rules

if TYPE_CHECKING:
    import tensorflow as tf

_logger = logging.getLogger(__name__)

# `checkpoint_files.STATE_FILE`, which loads TensorFlow.
_STATE_FILE = 'checkpoint'
# Fields that have an effect in a train_input_reader only.
_TRAINING_ONLY = (
    'shuffle',
    'num_epochs',
    'drop_remainder',
    'filter_empty_images',
    'skip_crowd',
    'repeat_factor_sampling',
    'data_service',
)


def read(
    path: str,
    options: JobOptions,
    *,
    for_what: str,
    prepare: Callable[[], None] = lambda: None,
    resumed: str | None = None,
    checkpoint: str = '',
) -> TrainEvalPipelineConfig:
    """Reads a pipeline config, applies what the command line says and checks the result.

    Args:
      path: path of the config.
      options: the flags.
      for_what: 'train', 'eval' or 'train and eval'.
      prepare: see `validate.validate`.
      resumed: folder of a training that is resumed, or None.
      checkpoint: what is evaluated: its folder has the label map that readers lack.

    Raises:
      ConfigError: naming what is wrong.
    """
    check_ranges(options)
    log_files(options)
    problems = Problems()
    pipeline = reader.read_pipeline(
        path, overrides_text=options.config_override, settings=options.set, problems=problems
    )
    _set_length(pipeline.train_config, options)
    if options.jit_compile == 'auto':
        pipeline.train_config.ClearField('jit_compile')
    elif options.jit_compile is not None:
        pipeline.train_config.jit_compile = options.jit_compile == 'true'
    if options.private_threadpool_size is not None:
        for data in (pipeline.train_input_reader, *pipeline.eval_input_reader):
            data.private_threadpool_size = options.private_threadpool_size
    for data in (pipeline.train_input_reader, *pipeline.eval_input_reader):
        if options.strict_data:
            data.strict_data = True
        if options.max_bad_records_share is not None:
            data.max_bad_records_share = options.max_bad_records_share
    if options.precision is not None:
        # Loads TensorFlow.
        from object_detection.models import precision as precisions

        precisions.write(pipeline.train_config, options.precision)
    if isinstance(options, TrainOptions) and options.deterministic_ops:
        pipeline.train_config.deterministic_ops = True
    if isinstance(options, TrainOptions) and options.data_service is not None:
        pipeline.train_input_reader.data_service = options.data_service
    with problems:
        pipeline.train_config.callback.extend(map(callback_builder.parse, options.callbacks))
    if options.use_synthetic_data:
        pipeline = _with_synthetic_data(pipeline, options)
    purposes = for_what.split(' and ')
    if 'eval' in purposes:
        pipeline = _set_evaluation(pipeline, options)
        if checkpoint:
            _find_label_maps(pipeline, checkpoint, path)
        if options.val_json_file:
            eval_config_rules.check_val_json_file(pipeline, options.val_json_file)
    else:
        _check_evaluation_flags(options)
    known = problems.sentences()
    _validate(pipeline, purposes, resumed=resumed, prepare=prepare, known=known)
    return pipeline


def _find_label_maps(pipeline: TrainEvalPipelineConfig, checkpoint: str, path: str) -> None:
    """Sets the label maps of evaluation that are not where the config says."""
    for data in pipeline.eval_input_reader:
        given = data.label_map_path
        candidates = resumption.label_maps(given, checkpoint, path)
        found = next((each for each in candidates if files.exists(each)), given)
        if given and found != given:
            _logger.info('class names are those of %s; there is no %s', found, given)
            data.label_map_path = found


def log_files(options: JobOptions) -> JobFiles:
    """Returns the files outside of model_dir that the flags name.

    Raises:
      ConfigError: naming a flag that cannot be followed.
    """
    if options.log_tensorboard is not None and not options.record_summaries:
        raise ConfigError(
            '--log_tensorboard: expected --record_summaries, which is the default. Received: '
            '--norecord_summaries.'
        )
    if options.log_tensorboard and '://' not in options.log_tensorboard:
        _check_can_be_written('--log_tensorboard', options.log_tensorboard)
    if options.log_file is not None:
        local = files.check_is_local(options.log_file, '--log_file')
        _check_can_be_written('--log_file', os.path.dirname(local))
        if os.path.isdir(options.log_file):
            raise ConfigError(
                f'--log_file: expected a file. Received: {options.log_file}, a folder.'
            )
    return JobFiles(events=options.log_tensorboard, dllogger=options.log_file)


def _check_can_be_written(flag: str, folder: str) -> None:
    """Checks that a folder, or the first one above it that is there, can be written."""
    known = os.path.abspath(folder)
    while not os.path.lexists(known):
        known = os.path.dirname(known)
    if not (os.path.isdir(known) and os.access(known, os.W_OK)):
        raise ConfigError(f'{flag}: expected a folder that can be written. Received: {folder}.')


def resolve(
    pipeline_config: TrainEvalPipelineConfig,
    directory: str,
    strategy: 'tf.distribute.Strategy',
    intervals: Intervals,
    *,
    num_steps: int | None = None,
    precision: str | None = None,
    is_validated: bool = False,
) -> TrainEvalPipelineConfig:
    """Writes what the caller decides into a copy of the config, and checks it.

    Args:
      pipeline_config: the config, overrides applied.
      directory: the model_dir, where the training begins or resumes.
      strategy: the strategy of the devices.
      intervals: whether the training evaluates, and which steps are profiled.
      num_steps, precision, is_validated: see `loop.train`.

    Returns:
      The resolved config, with the number of steps.

    Raises:
      ConfigError: if it cannot be trained.
    """
    # Imported here: `read` loads no TensorFlow.
    import tensorflow as tf

    from object_detection.models import precision as precisions
    from object_detection.training import epochs
    from object_detection.training.distribution import strategies

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
    use_tpu = isinstance(strategy, tf.distribute.TPUStrategy)
    precisions.write(train_config, precision, use_tpu=use_tpu)
    _check(config, directory, evaluates=bool(intervals.evaluation), is_validated=is_validated)
    epochs.resolve_epochs(config)
    profiling.check(intervals.profile, train_config.num_steps)
    for sentence in train_config_rules.schedule_warnings(train_config):
        report.current().warn(sentence)
    strategies.check_batch_size(strategy, train_config.batch_size)
    strategies.check_endless(strategy, config.train_input_reader.num_epochs)
    return config


def _check(
    config: TrainEvalPipelineConfig, directory: str, *, evaluates: bool, is_validated: bool
) -> None:
    resumes = os.path.exists(os.path.join(directory, _STATE_FILE))
    if not is_validated:
        purposes = ['train', 'eval'] if evaluates else ['train']
        _validate(config, purposes, resumed=directory if resumes else None)
    if resumes:
        synthetic_data.check_same_kind_of_data(
            config, os.path.join(directory, resumption.CONFIG_FILE_NAME)
        )
    fields = {
        'eval_config.early_stopping': config.eval_config.HasField('early_stopping'),
        'eval_config.async_evaluation': config.eval_config.HasField('async_evaluation'),
        eval_config_rules.PLATEAU: config.train_config.optimizer.HasField('reduce_on_plateau'),
    }
    for field, is_set in fields.items():
        if is_set and not evaluates:
            report.current().warn(
                f'{field} has no effect without evaluation during training (--eval_every_n_steps).'
            )


def _validate(
    config: TrainEvalPipelineConfig,
    purposes: Sequence[str],
    *,
    resumed: str | None,
    prepare: Callable[[], None] = lambda: None,
    known: Sequence[str] = (),
) -> None:
    if resumed is not None and not known:
        # Before the other rules, which would report consequences of the same mistake.
        resumption.check(config, resumed)
    resumes = resumed is not None
    validate.validate(config, for_what=purposes, prepare=prepare, resumes=resumes, known=known)


def _set_length(config: Any, options: JobOptions) -> None:
    if options.num_train_steps is not None and options.num_epochs is not None:
        raise ConfigError('--num_train_steps, --num_epochs: expected one of them. Received: both.')
    if options.num_train_steps is not None:
        config.num_steps = options.num_train_steps
        config.ClearField('num_epochs')
    if options.num_epochs is not None:
        if options.num_epochs <= 0:
            raise ConfigError(
                f'--num_epochs: expected a positive number. Received: {options.num_epochs:g}.'
            )
        config.num_epochs = options.num_epochs
        config.ClearField('num_steps')
    if isinstance(options, TrainOptions) and options.steps_per_epoch is not None:
        config.steps_per_epoch = options.steps_per_epoch


def _with_synthetic_data(
    pipeline: TrainEvalPipelineConfig, options: JobOptions
) -> TrainEvalPipelineConfig:
    if options.val_json_file:
        raise ConfigError(
            '--val_json_file: expected data that the file annotates. Received: '
            '--use_synthetic_data.'
        )
    started = pipeline.train_config.fine_tune_checkpoint
    if started:
        _logger.info(
            '--use_synthetic_data: train_config.fine_tune_checkpoint (%s) is not read; the weights '
            'are random and stay so, by learning rates of almost 0',
            started,
        )
    return synthetic_data.without_files(pipeline)


def _set_evaluation(
    pipeline: TrainEvalPipelineConfig, options: JobOptions
) -> TrainEvalPipelineConfig:
    if options.sample_1_of_n_eval_examples is not None:
        for eval_reader in pipeline.eval_input_reader:
            eval_reader.sample_1_of_n_examples = options.sample_1_of_n_eval_examples
    if options.eval_samples is not None:
        pipeline.eval_config.eval_samples = options.eval_samples
    if isinstance(options, TrainOptions):
        _set_async_evaluation(pipeline.eval_config, options)
    if options.eval_on_train_data:
        return on_training_data(pipeline, options.sample_1_of_n_eval_on_train_examples)
    return pipeline


def _set_async_evaluation(config: Any, options: TrainOptions) -> None:
    if options.async_eval:
        config.async_evaluation.SetInParent()
    for flag, field in (('eval_device', 'device'), ('eval_cpu_affinity', 'cpu_affinity')):
        value = getattr(options, flag)
        if value is None:
            continue
        if not config.HasField('async_evaluation'):
            raise ConfigError(
                f'--{flag}: expected --async_eval with it, or eval_config.async_evaluation. '
                'Received: neither.'
            )
        setattr(config.async_evaluation, field, value)


def _check_evaluation_flags(options: JobOptions) -> None:
    """Reports flags of the evaluation that have no effect, as nothing is evaluated."""
    for name in ('eval_on_train_data', 'val_json_file'):
        if getattr(options, name):
            raise ConfigError(
                f'--{name}: expected --eval_every_n_steps, or an evaluation job (`tfod eval`, '
                '--checkpoint_dir). Received: a training that does not evaluate.'
            )
    if getattr(options, 'evaluate', None) and not options.eval_every_n_steps:
        _logger.info('--evaluate has no effect without --eval_every_n_steps: nothing is evaluated.')
    names = ('async_eval', 'eval_device', 'eval_cpu_affinity')
    for name in ('sample_1_of_n_eval_examples', 'eval_samples', *names):
        if getattr(options, name, None):
            _logger.info('--%s has no effect: nothing is evaluated.', name)


def on_training_data(
    pipeline_config: TrainEvalPipelineConfig, sample_1_of_n: int
) -> TrainEvalPipelineConfig:
    """Returns a config that evaluates every n-th training image instead of the validation data."""
    changed = TrainEvalPipelineConfig()
    changed.CopyFrom(pipeline_config)
    del changed.eval_input_reader[:]
    eval_reader = changed.eval_input_reader.add()
    eval_reader.CopyFrom(pipeline_config.train_input_reader)
    eval_reader.name = 'training_data'
    eval_reader.sample_1_of_n_examples = sample_1_of_n
    for field in _TRAINING_ONLY:
        eval_reader.ClearField(field)
    # The best model is chosen on validation data only; readers chosen by name are gone.
    changed.eval_config.best_checkpoint.keep = False
    changed.eval_config.best_checkpoint.ClearField('reader')
    if changed.eval_config.HasField('early_stopping'):
        changed.eval_config.early_stopping.ClearField('reader')
    if changed.train_config.optimizer.HasField('reduce_on_plateau'):
        changed.train_config.optimizer.reduce_on_plateau.ClearField('reader')
    return changed
