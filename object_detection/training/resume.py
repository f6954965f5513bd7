"""With which seed a run begins or goes on, and where its input stands."""

import logging
import secrets

import tensorflow as tf

from object_detection.builders.input_readers import tf_records
from object_detection.protos.input_reader_pb2 import InputReader
from object_detection.training.checkpoints import input_state
from object_detection.training.checkpoints.input_state import InputPlaces
from object_detection.training.distribution import collectives
from object_detection.weights import checkpoints

_logger = logging.getLogger(__name__)


def take_up(
    reader: InputReader,
    strategy: tf.distribute.Strategy,
    latest: str | None,
    seed: int | None,
) -> InputPlaces:
    """Takes seed and places of the newest checkpoint, or else `seed`, or draws one. Collective.

    Args:
      reader: of the training data.
      strategy: of the devices.
      latest: prefix of the newest checkpoint, or None.
      seed: that the user wants, or None.
    """
    saved = input_state.read(latest) if latest else None
    if saved is None:
        drawn = secrets.randbelow(2**31) if seed is None else seed
        used = collectives.chiefs(strategy, drawn)
        if latest:
            # Otherwise each start would see the same images first.
            used = (used + checkpoints.read_step(latest)) % 2**31
            _logger.info(
                '%s does not hold where its input stood: the records begin in a fresh order',
                latest,
            )
    else:
        used = saved.seed
        if seed not in (None, used):
            _logger.warning(
                '--seed %d has no effect: the run goes on with seed %d, that of its checkpoint; '
                'another model_dir starts anew',
                seed,
                used,
            )
    return InputPlaces(
        strategy,
        seed=used,
        layout=tf_records.layout(reader),
        former_layout=tf_records.layout(reader, by_sizes=False),
        row_size=tf_records.row_size(reader),
        saved=saved,
    )
