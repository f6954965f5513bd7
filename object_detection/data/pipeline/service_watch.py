"""Notices that a data service has gone, for whose batches TensorFlow would wait for ever."""

import contextlib
import logging
import os
import threading
import time
from collections.abc import Iterator

import tensorflow as tf

from object_detection.data.pipeline import data_service
from object_detection.errors import LOST_WORKER_STATUS, WorkerError
from object_detection.protos.input_reader_pb2 import InputReader

_logger = logging.getLogger(__name__)

_WHERE = 'train_input_reader.data_service'
_BETWEEN_LOOKS = 10.0  # seconds
_PATIENCE = 60.0


@contextlib.contextmanager
def watched(reader: InputReader) -> Iterator[None]:
    """A context in which the process ends when the reader's data service does not answer any more.

    It ends at once, with `LOST_WORKER_STATUS` and without a checkpoint: the thread that waits for
    a batch cannot be woken. Nothing is watched for a reader without a data service.

    Raises:
      WorkerError: if the service was started again, which does not know the training then.
    """
    if not reader.data_service:
        yield
        return
    is_over = threading.Event()
    watch = threading.Thread(
        target=_watch, args=(reader.data_service, is_over), name='service_watch', daemon=True
    )
    watch.start()
    try:
        yield
    except tf.errors.NotFoundError as error:
        if 'dispatcher' not in error.message:
            raise
        raise WorkerError(
            f'{_WHERE}: {reader.data_service} was started again and does not know this training; '
            'start the training again to go on from the newest checkpoint.'
        ) from error
    finally:
        is_over.set()


def _watch(address: str, is_over: threading.Event) -> None:
    """Ends the process when the service is lost before `is_over`."""
    if _is_lost(address, is_over):
        _logger.error(
            '%s: %s has not answered for %g s; start it and the training again, which goes on from '
            'the newest checkpoint',
            _WHERE,
            address,
            _PATIENCE,
        )
        os._exit(LOST_WORKER_STATUS)


def _is_lost(address: str, is_over: threading.Event) -> bool:
    """Looks whether the service answers, until it has not for long, or until `is_over`."""
    silent_since = None
    while not is_over.wait(_BETWEEN_LOOKS):
        now = time.monotonic()
        try:
            data_service.check_answers(address, _WHERE)
        except ValueError as error:
            if silent_since is None:
                silent_since = now
                _logger.warning('%s The training ends if it stays so for %g s', error, _PATIENCE)
            elif now - silent_since >= _PATIENCE:
                return not is_over.is_set()
        else:
            if silent_since is not None:
                _logger.info('%s: %s answers again', _WHERE, address)
            silent_since = None
    return False
