"""Input that other processes prepare: tf.data service, which several trainings' workers read from.

What is served runs in these processes: Python functions, such as reports, cannot be part of it.
"""

import logging
import socket
import time
from collections.abc import Callable, Sequence

import tensorflow as tf

_logger = logging.getLogger(__name__)

# Each of the processes that serve takes so many files less than there are at a time, so that files
# are left for the others.
_SHARES = 8
PREFIX = 'grpc://'
_CONNECTION_SECONDS = 10.0
_BETWEEN_ATTEMPTS = 1.0


def records(
    files: Sequence[str],
    *,
    num_readers: int,
    block_length: int,
    shuffle_buffer: int,
    num_epochs: int | None,
    is_usable: Callable[[tf.Tensor], tf.Tensor] | None = None,
) -> tf.data.Dataset:
    """Reads the records of files, which the serving processes share out among each other.

    Args:
      files: names, in the order in which they are given out.
      num_readers, block_length: files at a time, and records of each in turn.
      shuffle_buffer: records to draw from in each process; 0 or 1 keeps the order.
      num_epochs: None repeats for ever; each record once an epoch.
      is_usable: which records are wanted.

    Returns:
      strings.
    """
    # No shuffling of the names here: the first process would take them all into its buffer.
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
    """Has the batches made by the service at `address`.

    Args:
      batches: of `records`, at one source of files alone.
      address: grpc://host:port of the dispatcher.
      job: those who read a job of the same name share its batches.
    """
    options = tf.data.Options()
    options.deterministic = False
    # Buffers and random numbers begin anew in each process.
    options.experimental_external_state_policy = tf.data.experimental.ExternalStatePolicy.IGNORE
    return batches.with_options(options).apply(
        tf.data.experimental.service.distribute(
            processing_mode=tf.data.experimental.service.ShardingPolicy.DYNAMIC,
            service=address,
            job_name=job,
        )
    )


def check_answers(address: str, where: str, timeout: float = 0.0) -> None:
    """Connects once, as TensorFlow would wait for one that does not answer.

    Args:
      address: host:port, with or without grpc://.
      where: named in the error.
      timeout: seconds in which a service that does not answer yet is asked again.

    Raises:
      ValueError: if nothing answers.
    """
    host, _, port = address.removeprefix(PREFIX).rpartition(':')
    deadline = time.monotonic() + timeout
    is_logged = False
    while True:
        try:
            socket.create_connection((host, int(port)), timeout=_CONNECTION_SECONDS).close()
            return
        except (OSError, ValueError) as error:
            if isinstance(error, ValueError) or time.monotonic() >= deadline:
                raise ValueError(
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
        time.sleep(_BETWEEN_ATTEMPTS)
