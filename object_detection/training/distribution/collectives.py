"""Communication between workers.

All workers have to call a function that is marked "collective", at the same place of the program: a
worker that does not blocks the others. With one worker these functions cost nothing.

The mean of the replicas' moving statistics of batch norms.
"""

import dataclasses
import functools
import io
import math
import pickle
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf

from object_detection.core import tracing
from object_detection.errors import CheckpointError, WorkerError
from object_detection.system import files
from object_detection.training.distribution import strategies

# Size of the chunks of a message, in numbers of 8 bytes: one shape, so that one graph is built.
_CHUNK = 2**17
# How long NFS, with its defaults, may take to show files of the chief to other workers.
_SECONDS_TO_SEE_FILES = 60.0
_POLL_SECONDS = 0.5
# What pickled arrays and numbers of NumPy consist of.
_NUMPY_PARTS = {
    ('numpy', 'dtype'),
    ('numpy', 'ndarray'),
    ('numpy._core.multiarray', '_reconstruct'),
    ('numpy._core.multiarray', 'scalar'),
    ('numpy._core.numeric', '_frombuffer'),
}

T = TypeVar('T')


def gather_rows(strategy: tf.distribute.Strategy, own: np.ndarray) -> np.ndarray:
    """Gathers int64 [n] of each worker to [workers, n], in order. Collective."""
    workers = strategies.num_workers(strategy)
    if workers == 1:
        return own[np.newaxis]
    gathered = _gather(strategy)(tf.constant(own, tf.int64))
    rows = strategy.experimental_local_results(gathered)[0].numpy().reshape(-1, len(own))
    # All replicas of a worker have sent the same.
    return rows[:: len(rows) // workers]


def gather_values(strategy: tf.distribute.Strategy, value: Any) -> list[Any]:
    """Returns each worker's `value`, in order. Collective.

    Args:
      strategy: the strategy of the workers.
      value: numbers, strings, arrays, named tuples and dataclasses of this package, nested.

    Raises:
      WorkerError: if another worker has sent something else.
    """
    if strategies.num_workers(strategy) == 1:
        return [value]
    message = np.frombuffer(_padded(pickle.dumps(value)), np.int64)
    sizes = _of_each_worker(strategy, len(message))
    chunks = []
    for start in range(0, max(sizes), _CHUNK):
        chunk = np.zeros(_CHUNK, np.int64)
        own = message[start : start + _CHUNK]
        chunk[: len(own)] = own
        chunks.append(gather_rows(strategy, chunk))
    messages = np.concatenate(chunks, axis=1)
    # Zeros after a pickled value are not read.
    return [_loads(row[:size].tobytes()) for row, size in zip(messages, sizes, strict=True)]


def agree_on_stop(strategy: tf.distribute.Strategy, flag: bool) -> bool:
    """Returns whether any worker has a stop request, its own `flag`. Collective."""
    return any(_of_each_worker(strategy, int(flag)))


def value_of_chief(strategy: tf.distribute.Strategy, value: int) -> int:
    """Returns the `value` of the chief, such as a seed that was drawn. Collective."""
    return _of_each_worker(strategy, value)[0]


def check_agreement(
    strategy: tf.distribute.Strategy,
    read_step: Callable[[], int],
    timeout: float = _SECONDS_TO_SEE_FILES,
) -> int:
    """Checks that all workers start from the same step. Collective.

    Args:
      read_step: returns the step of the checkpoint that this worker finds; 0 without one.
      timeout: seconds that a worker waits for the chief's checkpoint: network file systems show new
        files late.

    Returns:
      The step.

    Raises:
      CheckpointError: on all workers, if they found different checkpoints.
    """
    own = read_step()
    expected = value_of_chief(strategy, own)
    for _ in files.attempts(_POLL_SECONDS, timeout=timeout):
        if own == expected:
            break
        own = read_step()
    steps = _of_each_worker(strategy, own)
    if len(set(steps)) > 1:
        found = ', '.join(f'worker {index} at step {each}' for index, each in enumerate(steps))
        raise CheckpointError(
            'model_dir: expected the same directory for all workers, for example on a network file '
            f'system. Received checkpoints of different steps: {found}.'
        )
    return own


def on_chief(strategy: tf.distribute.Strategy, function: Callable[[], T]) -> T | None:
    """Runs `function` on the chief, while the other workers wait. Collective.

    The function must create no variable in the strategy's scope, which only all workers can do
    together: call this outside of it.

    Returns:
      What the function returns; None on the other workers.

    Raises:
      WorkerError: on the other workers, if the function raised an error on the chief.
    """
    if strategies.num_workers(strategy) == 1:
        return function()
    result, error = None, None
    if strategies.is_chief(strategy):
        try:
            result = function()
        except Exception as caught:
            error = caught
    failed = value_of_chief(strategy, int(error is not None))
    if error is not None:
        raise error
    if failed:
        raise WorkerError('Worker 0 has failed; its log says why.')
    return result


def reason_of_chief(
    strategy: tf.distribute.Strategy, read_reason: Callable[[], str | None]
) -> str | None:
    """Returns the chief's reason to stop, a clause, or None, on all workers. Collective."""
    # Other workers may not see yet the files that the reason is read from.
    reason = on_chief(strategy, read_reason)
    # Mostly there is no reason, which takes one number to send.
    return (
        gather_values(strategy, reason)[0] if value_of_chief(strategy, int(bool(reason))) else None
    )


def _of_each_worker(strategy: tf.distribute.Strategy, value: int) -> list[int]:
    """Gathers one number of each worker, in order."""
    return gather_rows(strategy, np.array([value]))[:, 0].tolist()


class _Unpickler(pickle.Unpickler):
    """Unpickles values only: whoever reaches a worker's port could send anything."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _NUMPY_PARTS:
            return super().find_class(module, name)
        found = None
        if module.startswith('object_detection.') and '.' not in name:
            found = super().find_class(module, name)
        # Neither functions nor classes whose construction has effects.
        if not (isinstance(found, type) and _is_record(found)):
            raise WorkerError(f'Another worker has sent {module}.{name}, which is no value.')
        return found


def _is_record(kind: type) -> bool:
    return dataclasses.is_dataclass(kind) or (issubclass(kind, tuple) and hasattr(kind, '_fields'))


def _loads(data: bytes) -> Any:
    return _Unpickler(io.BytesIO(data)).load()


def _padded(data: bytes) -> bytes:
    return data.ljust(math.ceil(len(data) / 8) * 8, b'\0')


@functools.lru_cache(maxsize=1)
def _gather(strategy: tf.distribute.Strategy) -> Callable[[tf.Tensor], Any]:
    """Builds the collective once, as it is called often."""

    def gather(own: tf.Tensor) -> tf.Tensor:
        # The copy is on the replica's device, where the collective has to run.
        return tf.distribute.get_replica_context().all_gather(tf.identity(own), axis=0)

    return tf.function(lambda value: strategy.run(gather, args=(value,)), autograph=False)


class StatisticsAverage:
    """Takes the mean of the replicas' moving statistics of batch norms.

    A batch norm that is not synchronized has statistics of its own replica's images, and only those
    of the first replica would be saved. As moving averages are linear, the result does not depend
    on when and how often the mean is taken: it is taken before a checkpoint or an evaluation.

    Args:
      strategy: the strategy that the variables were created in.
      variables: the model's variables, by name.
    """

    def __init__(self, strategy: tf.distribute.Strategy, variables: Mapping[str, tf.Variable]):
        self._strategy = strategy
        self._variables = tracing.moving_statistics(variables)
        self._run = tf.function(lambda: strategy.run(self._average), autograph=False)

    def update(self) -> None:
        """Makes the statistics of all replicas equal. Collective; free for one replica."""
        if self._variables and self._strategy.num_replicas_in_sync > 1:
            self._run()

    def _average(self) -> None:
        context = tf.distribute.get_replica_context()
        replicas = context.num_replicas_in_sync
        is_first = tf.cast(tf.equal(context.replica_id_in_sync_group, 0), tf.float32)
        own = [tf.cast(variable.read_value(), tf.float32) for variable in self._variables]
        # Relative to the first replica, so that equal statistics (frozen ones) stay as they are.
        total = tf.distribute.ReduceOp.SUM
        first = context.all_reduce(total, [value * is_first for value in own])
        differences = [value - base for value, base in zip(own, first, strict=True)]
        differences = context.all_reduce(total, differences)
        for variable, base, difference in zip(self._variables, first, differences, strict=True):
            variable.assign(tf.cast(base + difference / replicas, variable.dtype))
