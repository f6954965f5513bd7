"""Which devices TensorFlow may use, and how; to be called before it computes anything."""

import logging
import re
import warnings

import tensorflow as tf

from object_detection.config.errors import ConfigError
from object_detection.training.job_options import JobOptions

_logger = logging.getLogger(__name__)


def set_up(options: JobOptions) -> None:
    """Makes the chosen devices visible, and sets how GPUs take memory and whether graphs are run.

    Raises:
      ConfigError: for a device that there is not.
    """
    gpus = tf.config.list_physical_devices('GPU')
    if options.device is not None:
        gpus = _chosen(options.device, gpus)
        _set(lambda: tf.config.set_visible_devices(gpus, 'GPU'), '--device')
    if options.gpu_memory_growth:
        for gpu in gpus:
            _set(
                lambda gpu=gpu: tf.config.experimental.set_memory_growth(gpu, True),
                '--gpu_memory_growth',
            )
    if options.run_eagerly:
        # TensorFlow says so each time, and nobody asked to step through the reading of data.
        warnings.filterwarnings('ignore', message='.*does not apply to tf.data functions')
        tf.config.run_functions_eagerly(True)
        _logger.info('--run_eagerly: running without graphs, which is several times slower.')


def _chosen(text: str, gpus: list) -> list:
    """The GPUs that 'cpu', 'gpu' or 'gpu:0,1' means.

    Raises:
      ConfigError: naming what there is.
    """
    match = re.fullmatch(r'(cpu|gpu)(?::(\d+(?:,\d+)*))?', text.lower())
    if not match or (match[1] == 'cpu' and match[2]):
        raise ConfigError(f"--device: expected 'cpu', 'gpu' or e.g. 'gpu:0,1'. Received: {text!r}.")
    if match[1] == 'cpu':
        return []
    indices = [int(n) for n in match[2].split(',')] if match[2] else range(len(gpus))
    if not gpus or max(indices) >= len(gpus):
        there = f'GPUs 0 to {len(gpus) - 1}' if gpus else 'no GPU'
        raise ConfigError(
            f'--device: expected devices that TensorFlow sees ({there} here). Received: {text!r}.'
        )
    return [gpus[index] for index in dict.fromkeys(indices)]


def _set(action, what: str) -> None:
    try:
        action()
    except RuntimeError:
        # Devices are fixed once TensorFlow has started, e.g. in a notebook.
        _logger.warning('TensorFlow has started already: %s has no effect.', what)
