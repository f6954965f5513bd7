"""Processes that prepare training data for others: a dispatcher, and workers."""

import contextlib
import os
import signal
import socket
import time
from collections.abc import Iterator

import tensorflow as tf

from object_detection.data.pipeline.data_service import PREFIX, check_answers
from object_detection.errors import ConfigError

_BETWEEN_LOOKS = 0.2
_HEARTBEAT = 1000  # milliseconds between what a worker tells of itself


def serve(port: int, *, dispatcher: str | None = None, host: str | None = None) -> 'Servers':
    """Starts a worker; and a dispatcher beside it, where there is none yet.

    Args:
      port: of the dispatcher; 0 takes a free one. The worker beside it takes a free one, and so
        does one that is given a dispatcher with port 0.
      dispatcher: host:port of the dispatcher that the worker belongs to.
      host: of this machine, by which trainings reach it; None takes its name.

    Raises:
      ConfigError: if a server cannot be started, naming it and the reason.
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
                heartbeat_interval_ms=_HEARTBEAT,
            )
        )
    return Servers(main, worker, f'{PREFIX}{dispatcher}')


@contextlib.contextmanager
def _failure_named(server: str, port: int) -> Iterator[None]:
    """A context that starts a server; TensorFlow does not say that a port is taken."""
    try:
        if port:
            socket.create_server(('', port)).close()
    except OSError as error:
        raise ConfigError(
            f'--port: expected a free one for the {server}. Received: {port} '
            f'({os.strerror(error.errno)}).'
        ) from error
    try:
        yield
    except (tf.errors.OpError, RuntimeError) as error:
        reason = getattr(error, 'message', None) or str(error)
        raise ConfigError(f'The {server} cannot be started: {reason}') from error


class Servers:
    """Serve as long as this lives.

    Attributes:
      address: of the dispatcher, for --data_service.
    """

    def __init__(self, dispatcher: object | None, worker: object, address: str):
        self._servers = (worker, dispatcher)
        self.address = address

    def wait(self) -> int:
        """Waits for SIGTERM or SIGINT; returns the exit status of the program."""
        received: list[int] = []
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda number, frame: received.append(number))
        while not received:
            time.sleep(_BETWEEN_LOOKS)
        return 128 + received[0]


def _free_port() -> int:
    with socket.create_server(('', 0)) as server:
        return server.getsockname()[1]
