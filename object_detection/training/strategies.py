"""Which devices a training runs on, and what its workers tell each other.

A *worker* is a process; each has one or more *replicas*, one a device. All workers run the same
program and the same steps. Whatever is called "collective" here is to be called by all of them, at
the same place of the program: a worker that leaves one out keeps the others waiting.
"""

import contextlib
import functools
import logging
import re
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import tensorflow as tf
from tensorflow.compiler.xla.tsl.protobuf import coordination_config_pb2
from tensorflow.python.eager import context as tensorflow_context

from object_detection.config.errors import ConfigError
from object_detection.training import rendezvous, start_watch, strategy_choice
from object_detection.training.errors import CheckpointError, WorkerError
from object_detection.training.strategy_choice import Choice

_logger = logging.getLogger(__name__)

_STATISTICS = ('/moving_mean', '/moving_variance')
_TPU_TIMEOUT = 10.0  # seconds
# What a collective fails with when another worker is gone.
_LOST = (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError)
_ABORTED = 'Collective ops is aborted'
# How TensorFlow's errors name workers.
_TASK = re.compile(r'/job:worker/(?:replica:0/)?task:(\d+)')
# For TensorFlow to connect workers that are all there.
_CONNECTION_SECONDS = 60

T = TypeVar('T')


def build(choice: Choice | None = None) -> tf.distribute.Strategy:
    """Builds the strategy; to be called before TensorFlow computes anything.

    Args:
      choice: see `strategy_choice.choose`. The default, and a kind of None, is all visible GPUs
        where there are several, or else the default strategy, which has one device (a GPU if there
        is one) and no overhead.

    Raises:
      ConfigError: if a device, or an address of the cluster, cannot be used.
      WorkerError: if other workers do not come in time.
    """
    choice = choice or Choice()
    if choice.kind == strategy_choice.TPU:
        return _tpu(choice.tpu_name)
    gpus = tf.config.get_visible_devices('GPU')
    if choice.cluster.num_workers > 1:
        return _several_workers(choice, len(gpus))
    if choice.kind == strategy_choice.MIRRORED:
        kind = 'GPU' if gpus else 'CPU'
        return tf.distribute.MirroredStrategy(
            [device.name for device in tf.config.list_logical_devices(kind)]
        )
    is_one = choice.kind == strategy_choice.ONE_DEVICE or len(gpus) < 2
    return tf.distribute.get_strategy() if is_one else tf.distribute.MirroredStrategy()


def num_workers(strategy: tf.distribute.Strategy) -> int:
    """How many processes train together."""
    return len(_addresses(strategy)) or 1


def is_chief(strategy: tf.distribute.Strategy) -> bool:
    """Whether this process is the one that writes files, evaluates and shows progress."""
    return not _addresses(strategy) or strategy.cluster_resolver.task_id == 0


def describe(strategy: tf.distribute.Strategy) -> str:
    """One phrase for the log, e.g. '2 replicas, worker 0 of 2'."""
    replicas, workers = strategy.num_replicas_in_sync, num_workers(strategy)
    text = '1 replica' if replicas == 1 else f'{replicas} replicas'
    if workers > 1:
        text += f', worker {strategy.cluster_resolver.task_id} of {workers}'
    return text


def check_batch_size(
    strategy: tf.distribute.Strategy, batch_size: int, where: str = 'train_config.batch_size'
) -> None:
    """Checks that the global batch is the same for all replicas.

    Raises:
      ConfigError: naming `where`.
    """
    replicas = strategy.num_replicas_in_sync
    if batch_size % replicas:
        raise ConfigError(
            f'{where}: expected a multiple of {replicas}, the number of replicas (devices of all '
            f'workers), among which it is divided. Received: {batch_size}.'
        )


def check_endless(strategy: tf.distribute.Strategy, num_epochs: int) -> None:
    """Checks that no replica's data end before another's.

    Raises:
      ConfigError: naming the field.
    """
    if strategy.num_replicas_in_sync > 1 and num_epochs:
        raise ConfigError(
            'train_input_reader.num_epochs: expected 0 (for ever) with several replicas, whose '
            f'parts of the data end at different steps. Received: {num_epochs}.'
        )


def agree_on_stop(strategy: tf.distribute.Strategy, flag: bool) -> bool:
    """Whether any worker wants to stop. Collective; free for one worker."""
    return any(_of_each_worker(strategy, int(flag)))


def chiefs(strategy: tf.distribute.Strategy, value: int) -> int:
    """Returns what the chief's `value` is, such as a seed that was drawn. Collective."""
    return _of_each_worker(strategy, value)[0]


def check_agreement(strategy: tf.distribute.Strategy, step: int) -> None:
    """Checks that all workers start from the same step. Collective; free for one worker.

    Args:
      step: of the checkpoint that this worker found; 0 for none.

    Raises:
      CheckpointError: on all workers, if they found different checkpoints.
    """
    steps = _of_each_worker(strategy, step)
    if len(set(steps)) > 1:
        found = ', '.join(f'worker {index} at step {each}' for index, each in enumerate(steps))
        raise CheckpointError(
            'model_dir: expected the same directory for all workers, for example on a network file '
            f'system. Received checkpoints of different steps: {found}.'
        )


def on_chief(strategy: tf.distribute.Strategy, function: Callable[[], T]) -> T | None:
    """Runs `function` on the chief, while the other workers wait. Collective.

    The function must create no variable in the strategy's scope, which only all workers can do
    together: call this outside of it.

    Returns:
      What the function returns; None on the other workers.

    Raises:
      WorkerError: on the other workers, where the function raised an error on the chief.
    """
    if num_workers(strategy) == 1:
        return function()
    result, error = None, None
    if is_chief(strategy):
        try:
            result = function()
        except Exception as caught:
            error = caught
    failed = _of_each_worker(strategy, int(error is not None))[0]
    if error is not None:
        raise error
    if failed:
        raise WorkerError('Worker 0 has failed; its log says why.')
    return result


def chiefs_reason(strategy: tf.distribute.Strategy, ask: Callable[[], str | None]) -> str | None:
    """Asks the chief for a reason to stop; on all workers None or a clause. Collective."""
    reason = on_chief(strategy, ask)
    # The others may not see yet the files that it is read from.
    return (reason or 'the chief says so') if chiefs(strategy, int(bool(reason))) else None


class StatisticsAverage:
    """Takes the mean of the replicas' moving statistics of batch norms.

    A batch norm that is not synchronised follows the images of its own replica; only the first
    replica's statistics would be saved. As moving averages are linear, it makes no difference to
    the result when and how often the mean is taken, so it is before a checkpoint or an evaluation.

    Args:
      strategy: that the variables were created in.
      variables: of the model, by name.
    """

    def __init__(self, strategy: tf.distribute.Strategy, variables: Mapping[str, tf.Variable]):
        self._strategy = strategy
        self._variables = [
            variable for name, variable in variables.items() if name.endswith(_STATISTICS)
        ]
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


@contextlib.contextmanager
def lost_workers_named(strategy: tf.distribute.Strategy) -> Iterator[None]:
    """A context that says in one sentence that another worker is gone.

    Raises:
      WorkerError: instead of TensorFlow's error.
    """
    try:
        yield
    except tf.errors.OpError as error:
        is_lost = isinstance(error, _LOST) or _ABORTED in error.message
        if num_workers(strategy) == 1 or not is_lost:
            raise
        own = strategy.cluster_resolver.task_id
        lost = sorted({int(n) for n in _TASK.findall(error.message)} - {own})
        named = f' (worker {", ".join(map(str, lost))})' if lost else ''
        raise WorkerError(
            f'Worker {own} lost touch with another one{named}, which has ended, failed or fallen '
            'silent: its log says why. Start all of them again to go on from the newest checkpoint.'
        ) from error


def _addresses(strategy: tf.distribute.Strategy) -> list[str]:
    """Of the workers; [] where the process is alone."""
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return []
    return strategy.cluster_resolver.cluster_spec().as_dict()['worker']


def _of_each_worker(strategy: tf.distribute.Strategy, value: int) -> list[int]:
    """Gathers one number of each worker, in order."""
    workers = num_workers(strategy)
    if workers == 1:
        return [value]

    gathered = _gather(strategy)(tf.constant([value], tf.int64))
    values = strategy.experimental_local_results(gathered)[0].numpy().tolist()
    return values[:: strategy.num_replicas_in_sync // workers]


@functools.lru_cache(maxsize=1)
def _gather(strategy: tf.distribute.Strategy) -> Callable[[tf.Tensor], Any]:
    """Makes the collective once: it is called at every step."""

    def gather(own: tf.Tensor) -> tf.Tensor:
        # The copy is on the replica's device, which the collective is to run on.
        return tf.distribute.get_replica_context().all_gather(tf.identity(own), axis=0)

    return tf.function(lambda value: strategy.run(gather, args=(value,)), autograph=False)


def _several_workers(choice: Choice, num_gpus: int) -> tf.distribute.Strategy:
    cluster = choice.cluster
    own = cluster.addresses[cluster.index]
    _logger.info(
        'worker %d of %d, %s: waiting for the others', cluster.index, cluster.num_workers, own
    )
    # Not TensorFlow's own reader of TF_CONFIG, which asks for no consistency.
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec({'worker': list(cluster.addresses)}),
        task_type='worker',
        task_id=cluster.index,
        num_accelerators={'GPU': num_gpus} if num_gpus else {},
        rpc_layer='grpc',
    )
    _set_heartbeat(cluster.num_workers, choice.worker_timeout)
    try:
        rendezvous.gather(cluster, choice.start_timeout)
        with (
            _signal_handlers_kept(),
            start_watch.killed_after(
                max(choice.worker_timeout, _CONNECTION_SECONDS),
                f'Error: worker {cluster.index} of {cluster.num_workers} was ended, as another one '
                'was lost while they connected; start all of them again.',
            ),
        ):
            return tf.distribute.MultiWorkerMirroredStrategy(cluster_resolver=resolver)
    except (OSError, tf.errors.OpError) as error:
        raise ConfigError(
            f'{cluster.source}: worker {cluster.index} cannot serve at {own}, expected an address '
            f'of this machine with a free port. Received: {getattr(error, "message", error)}'
        ) from error


def _set_heartbeat(num_workers: int, timeout: int) -> None:
    """Sets how long a worker may be silent; there is no public function for it."""
    jobs = [coordination_config_pb2.CoordinatedJob(name='worker', num_tasks=num_workers)]
    tensorflow_context.context().configure_coordination_service(
        service_type='standalone',
        service_leader='/job:worker/replica:0/task:0',
        heartbeat_timeout_in_ms=1000 * timeout,
        coordinated_jobs=jobs,
    )


@contextlib.contextmanager
def _signal_handlers_kept() -> Iterator[None]:
    """A context that undoes what TensorFlow does to SIGTERM, which would have no effect."""
    try:
        yield
    finally:
        handler = signal.getsignal(signal.SIGTERM)
        if handler is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)


def _tpu(name: str) -> tf.distribute.Strategy:
    try:
        _check_answers(name)
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=name)
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
        return tf.distribute.TPUStrategy(resolver)
    # Depending on what is missing, libraries of many kinds raise errors of theirs.
    except Exception as error:
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise ConfigError(
            '--use_tpu, --tpu_name: expected a TPU that can be reached. '
            f'Received: {name or "no name"} ({reason[0].rstrip(".")}).'
        ) from error


def _check_answers(name: str) -> None:
    """Connects once to an address, as TensorFlow would wait for one that does not answer."""
    host, _, port = name.removeprefix('grpc://').rpartition(':')
    if host and port.isdigit():
        socket.create_connection((host, int(port)), timeout=_TPU_TIMEOUT).close()
