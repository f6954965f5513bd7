"""From a command line to a config: what the programs that train and evaluate have in common.

Imports no TensorFlow itself, so that mistakes on the command line, placeholders and missing files
are told at once; the checks of a config that need it come after those that do not.
"""

import logging
import sys
from collections.abc import Iterable

from object_detection.config import reader, validation
from object_detection.config.errors import ConfigError
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig

_logger = logging.getLogger(__name__)

_LARGEST_COUNT = 2**32 - 1  # what the fields hold


def read_config(
    path: str,
    *,
    for_what: str,
    overrides_text: str = '',
    settings: Iterable[str] = (),
    num_train_steps: int | None = None,
    eval_on_train_data: bool = False,
    sample_1_of_n_eval_examples: int | None = None,
    sample_1_of_n_eval_on_train_examples: int = 5,
) -> TrainEvalPipelineConfig:
    """Reads a pipeline config, applies what the command line says and checks the result.

    Args:
      path: of the config.
      for_what: 'train', 'eval' or 'train and eval'.
      overrides_text, settings: see `reader.read_pipeline`.
      num_train_steps: overrides `train_config.num_steps`.
      eval_on_train_data: evaluate training images instead of the `eval_input_reader`s.
      sample_1_of_n_eval_examples: overrides the field of every `eval_input_reader`.
      sample_1_of_n_eval_on_train_examples: which training images are evaluated.

    Raises:
      ConfigError: naming what is wrong.
    """
    counts = {
        '--num_train_steps': num_train_steps,
        '--sample_1_of_n_eval_examples': sample_1_of_n_eval_examples,
        '--sample_1_of_n_eval_on_train_examples': sample_1_of_n_eval_on_train_examples,
    }
    for flag, count in counts.items():
        if count is not None and not 1 <= count <= _LARGEST_COUNT:
            raise ConfigError(
                f'{flag}: expected 1 to {_LARGEST_COUNT}, or leave it out. Received: {count}.'
            )
    pipeline = reader.read_pipeline(path, overrides_text=overrides_text, settings=settings)
    if num_train_steps is not None:
        pipeline.train_config.num_steps = num_train_steps
    purposes = for_what.split(' and ')
    if 'eval' not in purposes:
        if eval_on_train_data:
            raise ConfigError(
                '--eval_on_train_data: expected --checkpoint_dir or --eval_every_n_steps with it. '
                'Received: neither.'
            )
        if sample_1_of_n_eval_examples is not None:
            _logger.info('--sample_1_of_n_eval_examples has no effect: nothing is evaluated.')
    for eval_reader in pipeline.eval_input_reader:
        if sample_1_of_n_eval_examples is not None:
            eval_reader.sample_1_of_n_examples = sample_1_of_n_eval_examples
    if eval_on_train_data:
        pipeline = on_training_data(pipeline, sample_1_of_n_eval_on_train_examples)
    validation.validate(pipeline, for_what=purposes)
    return pipeline


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
    for field in ('shuffle', 'num_epochs', 'drop_remainder'):
        eval_reader.ClearField(field)
    return changed


def reject_several_devices(*, use_tpu: bool, tpu_name: str | None, num_workers: int) -> None:
    """Refuses what would need other strategies than that of one device.

    Raises:
      ConfigError: naming the flag.
    """
    if use_tpu or tpu_name:
        raise ConfigError(
            '--use_tpu, --tpu_name: training on TPUs is not supported yet; leave them out. '
            f'Received: use_tpu={use_tpu}, tpu_name={tpu_name}.'
        )
    if num_workers != 1:
        raise ConfigError(
            '--num_workers: training in several processes is not supported yet; expected 1. '
            f'Received: {num_workers}.'
        )


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
    """Writes to what sys.stderr is at the time: a live line puts itself in its place."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)
