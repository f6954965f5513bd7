"""What one worker knows, told to all."""

import functools
import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from object_detection.training import strategies

# Of a message, in numbers of 8 bytes: one shape, so that one graph is built.
_CHUNK = 2**17


def gather(strategy: tf.distribute.Strategy, value: Any) -> list[Any]:
    """Returns each worker's `value`, in order. Collective; free for one worker.

    Args:
      strategy: of the workers.
      value: anything that can be pickled.
    """
    if strategies.num_workers(strategy) == 1:
        return [value]
    message = np.frombuffer(_padded(pickle.dumps(value)), np.int64)
    sizes = _of_each_worker(strategy, np.array([len(message)]))[:, 0]
    chunks = []
    for start in range(0, max(sizes), _CHUNK):
        chunk = np.zeros(_CHUNK, np.int64)
        own = message[start : start + _CHUNK]
        chunk[: len(own)] = own
        chunks.append(_of_each_worker(strategy, chunk))
    messages = np.concatenate(chunks, axis=1)
    # Zeros behind a pickled value are not read.
    return [pickle.loads(row[:size].tobytes()) for row, size in zip(messages, sizes, strict=True)]


def _padded(data: bytes) -> bytes:
    return data.ljust(math.ceil(len(data) / 8) * 8, b'\0')


def _of_each_worker(strategy: tf.distribute.Strategy, own: np.ndarray) -> np.ndarray:
    """Gathers int64 [n] of each worker: [workers, n]."""
    gathered = _gather(strategy)(tf.constant(own, tf.int64))
    # Each replica of a worker has told the same.
    rows = strategy.experimental_local_results(gathered)[0].numpy().reshape(-1, len(own))
    return rows[:: len(rows) // strategies.num_workers(strategy)]


@functools.lru_cache(maxsize=1)
def _gather(strategy: tf.distribute.Strategy) -> Callable[[tf.Tensor], Any]:
    def gather(own: tf.Tensor) -> tf.Tensor:
        # The copy is on the replica's device, which the collective is to run on.
        return tf.distribute.get_replica_context().all_gather(tf.identity(own), axis=0)

    return tf.function(lambda value: strategy.run(gather, args=(value,)), autograph=False)
