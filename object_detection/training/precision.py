"""The number format that a detector computes in."""

import contextlib
import logging
from collections.abc import Iterator

import keras

from object_detection.protos import train_pb2

_logger = logging.getLogger(__name__)

# Variables, coders, suppression and losses stay float32 in each.
POLICIES = {'float32': 'float32', 'bfloat16': 'mixed_bfloat16'}


def resolve(config: train_pb2.TrainConfig, flag: str | None, *, use_tpu: bool = False) -> str:
    """Decides the precision: the flag, else `precision`, else `use_bfloat16` on TPUs.

    Args:
      config: the pipeline's train_config.
      flag: what the command line says, or None.
      use_tpu: whether the model runs on TPUs.

    Raises:
      ValueError: if the flag is no known precision.
    """
    if flag is not None and flag not in POLICIES:
        raise ValueError(
            f'precision: expected one of {", ".join(sorted(POLICIES))}. Received: {flag}.'
        )
    chosen = flag or name_of(config.precision)
    if config.use_bfloat16 and flag is None and not config.HasField('precision'):
        if use_tpu:
            return 'bfloat16'
        _logger.info(
            'train_config.use_bfloat16 acts only on TPUs (--use_tpu); computing in %s. Use '
            'train_config.precision: BFLOAT16 or --precision=bfloat16 elsewhere.',
            chosen,
        )
    return chosen


def name_of(precision: int) -> str:
    """Returns 'float32' or 'bfloat16' for a value of `TrainConfig.Precision`."""
    return train_pb2.TrainConfig.Precision.Name(precision).lower()


@contextlib.contextmanager
def scope(precision: str) -> Iterator[None]:
    """Layers made inside compute in `precision`; the global policy is put back afterwards."""
    previous = keras.config.dtype_policy()
    keras.config.set_dtype_policy(POLICIES[precision])
    try:
        yield
    finally:
        keras.config.set_dtype_policy(previous)
