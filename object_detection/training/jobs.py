"""Runs a training or an evaluation as the flags of a command line say.

Imports no TensorFlow at first, so that mistakes on the command line, placeholders and missing files
are reported at once; checks of a config that need TensorFlow come last.
"""

import contextlib
import logging
import os
import sys
from collections.abc import Callable
from typing import Any

from object_detection.config import reader, synthetic_data
from object_detection.config.job_options import EvalOptions, JobOptions, TrainOptions, check_ranges
from object_detection.errors import ConfigError
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from object_detection.system import cpu, files, tensorflow_setup
from object_detection.training.distribution import strategy_choice
from object_detection.training.distribution.cluster import Cluster
from object_detection.training.monitoring import profiling
from object_detection.training.monitoring.log_files import LogFiles
from object_detection.validation import eval_config as eval_config_rules
from object_detection.validation import resumption, validate

_logger = logging.getLogger(__name__)

# Fields that have an effect in a train_input_reader only.
_TRAINING_ONLY = (
    'shuffle',
    'num_epochs',
    'drop_remainder',
    'filter_empty_images',
    'skip_crowd',
    'data_service',
)


def run_training(config_path: str, model_dir: str, options: TrainOptions) -> int:
    """Trains as a command line says; returns the exit status of the program.

    Raises:
      ConfigError: naming what is wrong with the flags or the config.
    """
    show_log()
    profiled = profiling.parse(options.profile_steps)
    made: dict[str, Any] = {}

    def prepare() -> None:
        choice = strategy_choice.choose(options)
        cluster = choice.cluster or Cluster()
        cpu.set_affinity(options.cpu_affinity, cluster.local_index, cluster.local_size)
        # Before TensorFlow computes anything: devices cannot be chosen afterwards.
        _import_tensorflow(options)
        from object_detection.training.distribution import devices, strategies

        devices.set_up(options, choice=choice)
        made['strategy'] = strategies.build(choice)

    pipeline = read_config(
        config_path,
        options,
        for_what='train and eval' if options.evaluates else 'train',
        prepare=prepare,
        resumed=model_dir if os.path.exists(os.path.join(model_dir, 'checkpoint')) else None,
    )
    # Imported here: TensorFlow takes seconds, and mistakes are reported before.
    from object_detection.training.loop import train
    from object_detection.training.run_types import Intervals

    result = train(
        pipeline,
        model_dir,
        intervals=Intervals(
            log=options.log_every_n,
            summary=options.summary_every_n,
            checkpoint=options.checkpoint_every_n,
            evaluation=options.eval_every_n_steps if options.evaluates else 0,
            # Step by step under the debugger.
            call=1 if options.run_eagerly else options.steps_per_loop,
            warmup=options.log_warmup_steps,
            profile=profiled,
        ),
        max_to_keep=options.max_to_keep or None,
        record_summaries=options.record_summaries,
        precision=options.precision,
        seed=options.seed,
        val_json_file=options.val_json_file,
        strategy=made['strategy'],
        config_path=config_path,
        log_files=_log_files(options),
    )
    return result.exit_status


def run_evaluation(
    config_path: str,
    checkpoint_dir: str,
    output_dir: str,
    options: EvalOptions,
    *,
    show_progress: Any = contextlib.nullcontext,
) -> int:
    """Evaluates as a command line says; returns the exit status of the program.

    Args:
      config_path: path of the pipeline config.
      checkpoint_dir: the folder where a training saves, or the prefix of one checkpoint.
      output_dir: results go to its folder eval.
      options: the flags.
      show_progress: see `evaluate_directory`.

    Raises:
      ConfigError: naming what is wrong with the flags or the config.
    """
    show_log()

    def prepare() -> None:
        cpu.set_affinity(options.cpu_affinity)
        _import_tensorflow(options)
        from object_detection.training.distribution import devices

        devices.set_up(options)

    pipeline = read_config(config_path, options, for_what='eval', prepare=prepare)
    from object_detection.training.distribution import strategies
    from object_detection.training.evaluation.eval_job import evaluate_directory

    result = evaluate_directory(
        pipeline,
        checkpoint_dir,
        output_dir=output_dir,
        timeout=0 if options.run_once else options.eval_timeout,
        precision=options.precision,
        record_summaries=options.record_summaries,
        val_json_file=options.val_json_file,
        log_files=_log_files(options),
        strategy=strategies.build(),
        show_progress=show_progress,
    )
    return result.exit_status


def read_config(
    path: str,
    options: JobOptions,
    *,
    for_what: str,
    prepare: Callable[[], None] = lambda: None,
    resumed: str | None = None,
) -> TrainEvalPipelineConfig:
    """Reads a pipeline config, applies what the command line says and checks the result.

    Args:
      path: path of the config.
      options: the flags.
      for_what: 'train', 'eval' or 'train and eval'.
      prepare: see `validation.validate`.
      resumed: folder of a training that is resumed, or None.

    Raises:
      ConfigError: naming what is wrong.
    """
    check_ranges(options)
    _log_files(options)
    pipeline = reader.read_pipeline(
        path, overrides_text=options.config_override, settings=options.set
    )
    _set_length(pipeline.train_config, options)
    if options.jit_compile == 'auto':
        pipeline.train_config.ClearField('jit_compile')
    elif options.jit_compile is not None:
        pipeline.train_config.jit_compile = options.jit_compile == 'true'
    if options.private_threadpool_size is not None:
        for data in (pipeline.train_input_reader, *pipeline.eval_input_reader):
            data.private_threadpool_size = options.private_threadpool_size
    if options.precision is not None:
        # Loads TensorFlow.
        from object_detection.models import precision as precisions

        precisions.write(pipeline.train_config, options.precision)
    if isinstance(options, TrainOptions) and options.deterministic_ops:
        pipeline.train_config.deterministic_ops = True
    if isinstance(options, TrainOptions) and options.data_service is not None:
        pipeline.train_input_reader.data_service = options.data_service
    if options.use_synthetic_data:
        pipeline = _with_synthetic_data(pipeline, options)
    purposes = for_what.split(' and ')
    if 'eval' in purposes:
        pipeline = _set_evaluation(pipeline, options)
        if options.val_json_file:
            eval_config_rules.check_val_json_file(pipeline, options.val_json_file)
    else:
        _check_evaluation_flags(options)
    if resumed is not None:
        # Before the other rules, which would report consequences of the same mistake.
        resumption.check(pipeline, resumed)
    validate.validate(pipeline, for_what=purposes, prepare=prepare, resumes=resumed is not None)
    return pipeline


def _import_tensorflow(options: JobOptions) -> None:
    if options.compilation_cache is not None:
        tensorflow_setup.use_compilation_cache(options.compilation_cache)
    tensorflow_setup.keep_freed_memory()
    tensorflow_setup.import_tensorflow()


def _log_files(options: JobOptions) -> LogFiles:
    """Returns the files outside of model_dir that the flags name.

    Raises:
      ConfigError: naming a flag that cannot be followed.
    """
    if options.log_tensorboard is not None and not options.record_summaries:
        raise ConfigError(
            '--log_tensorboard: expected --record_summaries, which is the default. Received: '
            '--norecord_summaries.'
        )
    if options.log_file is not None:
        folder = os.path.dirname(files.check_is_local(options.log_file, '--log_file')) or '.'
        is_folder = os.path.isdir(folder) and os.access(folder, os.W_OK)
        if os.path.exists(folder) and not is_folder:
            raise ConfigError(
                f'--log_file: expected a folder that can be written. Received: {folder}.'
            )
        if os.path.isdir(options.log_file):
            raise ConfigError(
                f'--log_file: expected a file. Received: {options.log_file}, a folder.'
            )
    return LogFiles(events=options.log_tensorboard, dllogger=options.log_file)


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
    return changed


def show_log() -> None:
    """Shows this package's messages on stderr; for programs, not for libraries."""
    logger = logging.getLogger('object_detection')
    if not logger.handlers:
        handler = _StderrHandler()
        handler.setFormatter(logging.Formatter('%(asctime)s %(message)s', '%H:%M:%S'))
        logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False


class _StderrHandler(logging.StreamHandler):
    """Writes to the current sys.stderr, which a live line replaces."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)
