"""Sets up the devices that TensorFlow uses; to be called before it computes anything."""

import functools
import logging
import os
import re
import warnings
from collections.abc import Mapping

import tensorflow as tf

from object_detection.config.job_options import JobOptions
from object_detection.errors import ConfigError
from object_detection.training.distribution import strategy_choice
from object_detection.training.distribution.strategy_choice import Choice

_logger = logging.getLogger(__name__)

# With one of these variables, each task of srun sees only its own GPUs.
_SHARED_OUT = ('SLURM_GPUS_PER_TASK', 'SLURM_TRES_PER_TASK')


def set_up(
    options: JobOptions,
    *,
    choice: Choice | None = None,
    environment: Mapping[str, str] = os.environ,
) -> None:
    """Makes the chosen devices visible, and sets how GPUs take memory and whether graphs are run.

    Args:
      options: the flags.
      choice: the strategy of a training: one device is the first chosen one, and the workers of a
        machine divide its GPUs among them.
      environment: says whether SLURM has divided the GPUs already.

    Raises:
      ConfigError: if a device does not exist.
    """
    everything = tf.config.list_physical_devices('GPU')
    gpus = everything if options.device is None else chosen(options.device, everything)
    if choice is not None:
        gpus = _own(gpus, choice, environment)
    if options.device is not None or len(gpus) < len(everything):
        _set(lambda: tf.config.set_visible_devices(gpus, 'GPU'), '--device')
    if options.gpu_memory_growth:
        for gpu in gpus:
            _set(
                lambda gpu=gpu: tf.config.experimental.set_memory_growth(gpu, True),
                '--gpu_memory_growth',
            )
    _set_threads(options)
    if options.run_eagerly:
        # TensorFlow would warn each time, although the input need not run eagerly.
        warnings.filterwarnings('ignore', message='.*does not apply to tf.data functions')
        tf.config.run_functions_eagerly(True)
        _logger.info('--run_eagerly: no graphs, one step a call; several times slower.')


def _set_threads(options: JobOptions) -> None:
    setters = {
        'intra_op_threads': tf.config.threading.set_intra_op_parallelism_threads,
        'inter_op_threads': tf.config.threading.set_inter_op_parallelism_threads,
    }
    for flag, setter in setters.items():
        count = getattr(options, flag)
        if count:
            _set(functools.partial(setter, count), f'--{flag}')


def _own(gpus: list, choice: Choice, environment: Mapping[str, str]) -> list:
    """Returns the GPUs of this process among those of its machine."""
    if choice.kind == strategy_choice.ONE_DEVICE:
        return gpus[:1]
    size, index = choice.cluster.local_size, choice.cluster.local_index
    if size == 1 or not gpus or any(name in environment for name in _SHARED_OUT):
        return gpus
    if len(gpus) < size:
        _logger.warning(
            '%d workers share the %d GPUs that each of them sees of this machine', size, len(gpus)
        )
        return gpus
    each = len(gpus) // size
    return gpus[index * each : (index + 1) * each]


def chosen(text: str, gpus: list, where: str = '--device') -> list:
    """Returns those of `gpus` that 'cpu', 'gpu' or 'gpu:0,1' names.

    Raises:
      ConfigError: naming the devices that exist.
    """
    match = re.fullmatch(r'(cpu|gpu)(?::(\d+(?:,\d+)*))?', text.lower())
    if not match or (match[1] == 'cpu' and match[2]):
        raise ConfigError(
            f"{where}: expected 'cpu', 'gpu' or e.g. 'gpu:0,1'; --use_tpu is for TPUs. "
            f'Received: {text!r}.'
        )
    if match[1] == 'cpu':
        return []
    indices = [int(n) for n in match[2].split(',')] if match[2] else range(len(gpus))
    if not gpus or max(indices) >= len(gpus):
        there = f'GPUs 0 to {len(gpus) - 1}' if gpus else 'no GPU'
        raise ConfigError(
            f'{where}: expected devices that TensorFlow sees ({there} here). Received: {text!r}.'
        )
    return [gpus[index] for index in dict.fromkeys(indices)]


def _set(action, what: str) -> None:
    try:
        action()
    except RuntimeError:
        # Devices are fixed once TensorFlow has started, e.g. in a notebook.
        _logger.warning('TensorFlow has started already: %s has no effect.', what)
