"""Runs a training or an evaluation as the flags of a command line say.

Imports no TensorFlow at first, so that mistakes on the command line, placeholders and missing files
are reported at once; checks of a config that need TensorFlow come last.
"""

import contextlib
import logging
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from object_detection.config import report
from object_detection.config.job_options import EvalOptions, JobOptions, TrainOptions
from object_detection.system import console, cpu, tensorflow_setup
from object_detection.training import resolve_config
from object_detection.training.distribution import strategy_choice
from object_detection.training.distribution.cluster import Cluster
from object_detection.training.monitoring import profiling


@report.job()
def run_training(
    config_path: str,
    model_dir: str,
    options: TrainOptions,
    *,
    callbacks: Sequence[Any] = (),
) -> int:
    """Trains as a command line says; returns the exit status of the program.

    Args:
      config_path: path of the pipeline config.
      model_dir: folder of the training.
      options: the flags.
      callbacks: see `loop.train`.

    Raises:
      ConfigError: naming what is wrong with the flags or the config.
    """
    show_log()
    log_files = resolve_config.log_files(options)
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

    pipeline = resolve_config.read(
        config_path,
        options,
        for_what='train and eval' if options.evaluates else 'train',
        prepare=prepare,
        resumed=model_dir if os.path.exists(os.path.join(model_dir, 'checkpoint')) else None,
    )
    # Imported here: TensorFlow takes seconds, and mistakes are reported before.
    from object_detection.training.loop import train
    from object_detection.training.monitoring.run_types import Intervals

    result = train(
        pipeline,
        model_dir,
        intervals=Intervals(
            log=options.log_every_n or Intervals.log_of(pipeline.train_config.num_steps),
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
        log_files=log_files,
        callbacks=callbacks,
        is_validated=True,
    )
    return result.exit_status


@report.job()
def run_evaluation(
    config_path: str,
    checkpoint_dir: str,
    output_dir: str,
    options: EvalOptions,
    *,
    show_progress: Any = contextlib.nullcontext,
    on_result: Callable[[Any], None] = lambda result: None,
    callbacks: Sequence[Any] = (),
) -> int:
    """Evaluates as a command line says; returns the exit status of the program.

    Args:
      config_path: path of the pipeline config.
      checkpoint_dir: the folder where a training saves, or the prefix of one checkpoint.
      output_dir: results go to its folder eval.
      options: the flags.
      show_progress, on_result, callbacks: see `evaluate_directory`.

    Raises:
      ConfigError: naming what is wrong with the flags or the config.
    """
    show_log()
    log_files = resolve_config.log_files(options)

    def prepare() -> None:
        cpu.set_affinity(options.cpu_affinity)
        _import_tensorflow(options)
        from object_detection.training.distribution import devices

        devices.set_up(options)

    pipeline = resolve_config.read(
        config_path, options, for_what='eval', prepare=prepare, checkpoint=checkpoint_dir
    )
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
        log_files=log_files,
        strategy=strategies.build(),
        callbacks=callbacks,
        is_validated=True,
        show_progress=show_progress,
        on_result=on_result,
    )
    return result.exit_status


def _import_tensorflow(options: JobOptions) -> None:
    if options.compilation_cache is not None:
        tensorflow_setup.use_compilation_cache(options.compilation_cache)
    tensorflow_setup.keep_freed_memory()
    tensorflow_setup.import_tensorflow()


def show_log() -> None:
    """Shows this package's messages on stderr; for programs, not for libraries."""
    logger = logging.getLogger('object_detection')
    if not logger.handlers:
        handler = _StderrHandler()
        handler.setFormatter(logging.Formatter('%(asctime)s %(message)s', '%H:%M:%S'))
        logger.addHandler(handler)
    if not console.is_quiet():
        logger.setLevel(logging.INFO)
    logger.propagate = False


class _StderrHandler(logging.StreamHandler):
    """Writes to the current sys.stderr, which a live line replaces."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)
