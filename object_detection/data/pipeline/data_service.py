"""Input that other processes prepare (tf.data service).

The module contains the serving side (`serve`, `Servers`: a dispatcher and workers), the reading
side (`records`, `through`) and the check that the service still answers (`watched`). Serving
processes run the input pipeline, so Python functions, such as reports, cannot be part of it.
"""

import contextlib
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NoReturn

import tensorflow as tf

from object_detection.errors import LOST_WORKER_STATUS, ConfigError, UserError, WorkerError
from object_detection.system import files

_logger = logging.getLogger(__name__)

# Each serving process takes fewer files at a time than there are, so that files are left for the
# other processes.
_SHARES = 8
PREFIX = 'grpc://'
_CONNECTION_SECONDS = 10.0
_SECONDS_BETWEEN_ATTEMPTS = 1.0
_HEARTBEAT_MILLISECONDS = 1000  # between two reports of a worker to its dispatcher
_SIGNAL_POLL_SECONDS = 0.2

_WHERE = 'train_input_reader.data_service'
_POLL_SECONDS = 10.0
_LOST_TIMEOUT = 60.0  # seconds


def serve(port: int, *, dispatcher: str | None = None, host: str | None = None) -> 'Servers':
    """Starts a worker, and also a dispatcher if none is given.

    Args:
      port: port of the dispatcher; 0 takes a free one. The worker of the same process takes a free
        port, and so does a worker that is given a dispatcher, with port 0.
      dispatcher: host:port of the dispatcher that the worker belongs to.
      host: host of this machine, by which trainings reach it; None takes its name.

    Raises:
      ConfigError: if a server cannot be started; the message names it and the reason.
      ValueError: if the dispatcher does not answer.
    """
    service = tf.data.experimental.service
    name = host or socket.gethostname()
    main = None
    if dispatcher is None:
        with _failure_named('dispatcher', port):
            main = service.DispatchServer(service.DispatcherConfig(port=port))
        dispatcher = f'{name}:{main.target.rpartition(":")[2]}'
        port = 0
    else:
        dispatcher = dispatcher.removeprefix(PREFIX)
        check_answers(dispatcher, '--dispatcher')
    port = port or _free_port()
    with _failure_named(f'worker of {dispatcher}', port):
        worker = service.WorkerServer(
            service.WorkerConfig(
                dispatcher_address=dispatcher,
                worker_address=f'{name}:{port}',
                port=port,
                heartbeat_interval_ms=_HEARTBEAT_MILLISECONDS,
            )
        )
    return Servers(main, worker, f'{PREFIX}{dispatcher}')


@contextlib.contextmanager
def _failure_named(server: str, port: int) -> Iterator[None]:
    """A context that starts a server; it reports a port in use, which TensorFlow does not."""
    try:
        if port:
            socket.create_server(('', port)).close()
    except OSError as error:
        raise ConfigError.expected(
            '--port', f'a free one for the {server}', f'{port} ({os.strerror(error.errno)})'
        ) from error
    try:
        yield
    except (tf.errors.OpError, RuntimeError) as error:
        reason = getattr(error, 'message', None) or str(error)
        raise ConfigError(f'The {server} cannot be started: {reason}') from error


class Servers:
    """Servers that run as long as this object exists.

    Attributes:
      address: address of the dispatcher, for --data_service.
    """

    def __init__(self, dispatcher: object | None, worker: object, address: str):
        self._servers = (worker, dispatcher)
        self.address = address

    def wait(self) -> NoReturn:
        """Waits for SIGTERM or SIGINT, and ends the process with 128 + its number.

        TensorFlow may never return from stopping a worker that prepares batches, so that the
        process ends without it.
        """
        received: list[int] = []
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda number, frame: received.append(number))
        while not received:
            time.sleep(_SIGNAL_POLL_SECONDS)
        sys.stdout.flush()
        os._exit(128 + received[0])


def _free_port() -> int:
    with socket.create_server(('', 0)) as server:
        return server.getsockname()[1]


def records(
    files: Sequence[str],
    *,
    num_readers: int,
    block_length: int,
    shuffle_buffer: int,
    num_epochs: int | None,
    is_usable: Callable[[tf.Tensor], tf.Tensor] | None = None,
) -> tf.data.Dataset:
    """Reads the records of files, which the serving processes divide between them.

    Args:
      files: names in the order in which they are assigned.
      num_readers, block_length: number of files read at a time, and of consecutive records of each.
      shuffle_buffer: size of the shuffle buffer in each process; 0 or 1 keeps the order.
      num_epochs: number of epochs, in each of which every record is read once; None repeats
        forever.
      is_usable: returns whether a record is used.

    Returns:
      Dataset of string scalars.
    """
    # The names are not shuffled here: the first process would take them all into its buffer.
    names = tf.data.Dataset.from_tensor_slices(list(files))
    found = names.interleave(
        tf.data.TFRecordDataset,
        cycle_length=max(1, min(num_readers, len(files) // _SHARES)),
        block_length=max(1, block_length),
    )
    if is_usable is not None:
        found = found.filter(is_usable)
    if shuffle_buffer > 1:
        found = found.shuffle(shuffle_buffer)
    return found.repeat(num_epochs)


def through(batches: tf.data.Dataset, address: str, job: str) -> tf.data.Dataset:
    """Lets the service at `address` prepare the batches.

    Args:
      batches: batches of `records`, from a single source of files.
      address: grpc://host:port of the dispatcher.
      job: name of the job; readers of the same job share its batches.
    """
    options = tf.data.Options()
    options.deterministic = False
    # Buffers and random numbers are separate in each process.
    options.experimental_external_state_policy = tf.data.experimental.ExternalStatePolicy.IGNORE
    return batches.with_options(options).apply(
        tf.data.experimental.service.distribute(
            processing_mode=tf.data.experimental.service.ShardingPolicy.DYNAMIC,
            service=address,
            job_name=job,
        )
    )


def check_answers(address: str, where: str, timeout: float = 0.0) -> None:
    """Checks that a service answers; TensorFlow would wait for it forever.

    Args:
      address: host:port, with or without grpc://.
      where: name of the field or flag in the error.
      timeout: time in seconds during which the connection is retried.

    Raises:
      ValueError: if nothing answers.
    """
    host, _, port = address.removeprefix(PREFIX).rpartition(':')
    is_logged = False
    for left in files.attempts(_SECONDS_BETWEEN_ATTEMPTS, timeout=timeout):
        try:
            socket.create_connection((host, int(port)), timeout=_CONNECTION_SECONDS).close()
            return
        except (OSError, ValueError) as error:
            if isinstance(error, ValueError) or not left:
                raise UserError(
                    f'{where}: expected HOST:PORT of a data service (`tfod data_service`) that '
                    f'answers. Received: {address} ({error}).'
                ) from error
            if not is_logged:
                _logger.warning(
                    '%s: %s does not answer (%s); waiting for it, %g seconds at most',
                    where,
                    address,
                    error,
                    timeout,
                )
                is_logged = True


@contextlib.contextmanager
def watched(address: str) -> Iterator[None]:
    """A context in which the process ends if the data service no longer answers.

    TensorFlow would wait for a batch forever. The process ends immediately, with the exit status
    `LOST_WORKER_STATUS` and without a checkpoint, since the waiting thread cannot be interrupted.

    Args:
      address: host:port of the service, with or without grpc://; '' disables the check.

    Raises:
      WorkerError: if the service was restarted, since it then does not know the training.
    """
    if not address:
        yield
        return
    is_over = threading.Event()
    watch = threading.Thread(
        target=_watch, args=(address, is_over), name='service_watch', daemon=True
    )
    watch.start()
    try:
        yield
    except tf.errors.NotFoundError as error:
        if 'dispatcher' not in error.message:
            raise
        raise WorkerError(
            f'{_WHERE}: {address} was started again and does not know this training; '
            'start the training again to go on from the newest checkpoint.'
        ) from error
    finally:
        is_over.set()


def _watch(address: str, is_over: threading.Event) -> None:
    """Ends the process when the service is lost before `is_over`."""
    if _is_lost(address, is_over):
        _logger.error(
            '%s: %s has not answered for %g s; start it and the training again, which continues '
            'from the newest checkpoint',
            _WHERE,
            address,
            _LOST_TIMEOUT,
        )
        os._exit(LOST_WORKER_STATUS)


def _is_lost(address: str, is_over: threading.Event) -> bool:
    """Polls the service until it has not answered for `_LOST_TIMEOUT`, or until `is_over`."""
    silent_since = None
    while not is_over.wait(_POLL_SECONDS):
        now = time.monotonic()
        try:
            check_answers(address, _WHERE)
        except ValueError as error:
            if silent_since is None:
                silent_since = now
                _logger.warning(
                    '%s The training ends if it stays so for %g s', error, _LOST_TIMEOUT
                )
            elif now - silent_since >= _LOST_TIMEOUT:
                return not is_over.is_set()
        else:
            if silent_since is not None:
                _logger.info('%s: %s answers again', _WHERE, address)
            silent_since = None
    return False
