"""Starts the workers of this machine, watches them, and restarts all when one is lost.

Imports no TensorFlow, so that a launcher needs little memory beside its workers.
"""

import contextlib
import dataclasses
import json
import logging
import os
import random
import re
import socket
from collections.abc import Mapping, Sequence

from object_detection.errors import LOST_WORKER_STATUS, ConfigError
from object_detection.training.distribution import cluster
from object_detection.training.distribution.worker_processes import Signals, Workers

_logger = logging.getLogger(__name__)

_FIRST_PORT = 23_456
# Ports of workers on one machine only: below those that Linux assigns to clients, where a client
# could take a port before its worker does.
_PORTS = range(20_000, 32_768)
_MODEL_DIR = '--model_dir'
# The number of the newest checkpoint, in the state file that TensorFlow writes.
_NEWEST = re.compile(r'^model_checkpoint_path: ".*?ckpt-(\d+)"', re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Launch:
    """What a launcher starts.

    Attributes:
      command: the command of one worker, its program first.
      num_processes: number of workers of this machine.
      hosts: all machines of the job, each with a launcher and as many workers; () is this one.
      host_index: index of this machine in `hosts`.
      port: port of the first worker of each machine; None takes free ports, or with several hosts
        23456.
      max_restarts: how often all workers are started again without a new checkpoint in between, if
        `command` names their folder by --model_dir.
      grace: seconds that workers have to end by themselves, before they are killed.
    """

    command: Sequence[str]
    num_processes: int
    hosts: Sequence[str] = ()
    host_index: int = 0
    port: int | None = None
    max_restarts: int = 3
    grace: float = 10.0

    def __post_init__(self):
        if self.num_processes < 1:
            raise ConfigError(
                f'--num_processes: expected 1 or more. Received: {self.num_processes}.'
            )
        if self.max_restarts < 0 or self.grace <= 0:
            raise ConfigError(
                '--max_restarts, --grace: expected 0 or more, and more than 0 seconds. '
                f'Received: {self.max_restarts} and {self.grace:g}.'
            )
        if not 0 <= self.host_index < max(1, len(self.hosts)):
            raise ConfigError(
                f'--host_index: expected 0 to {max(1, len(self.hosts)) - 1}, the place of this '
                f'machine in --hosts. Received: {self.host_index}.'
            )

    def environments(self) -> list[dict[str, str]]:
        """Returns the additional environment variables of each worker of this machine."""
        if self.port is None and not self.hosts:
            ports = _free_ports(self.num_processes)
        else:
            first = _FIRST_PORT if self.port is None else self.port
            ports = list(range(first, first + self.num_processes))
        addresses = [f'{host}:{port}' for host in self.hosts or ['127.0.0.1'] for port in ports]
        start = self.host_index * self.num_processes
        return [
            {
                cluster.VARIABLE: json.dumps(
                    {
                        'cluster': {'worker': addresses},
                        'task': {'type': 'worker', 'index': start + index},
                    }
                )
            }
            for index in range(self.num_processes)
        ]


def run(launch: Launch, environment: Mapping[str, str] = os.environ) -> int:
    """Runs the workers until they end; to be called in the main thread.

    All are restarted, to resume from the newest checkpoint, when one is killed by a signal or ends
    with the status of a lost worker. Any other error would occur again, and ends all. SIGTERM,
    SIGINT and SIGHUP are forwarded to the workers, which save and end. No worker outlives the
    launcher.

    Returns:
      The exit status of the first worker that failed, or 0.

    Raises:
      ConfigError: if there is no such program.
    """
    restarts = _Restarts(launch.command)
    with Signals() as signals:
        while True:
            with Workers(
                launch.command,
                launch.environments(),
                environment,
                first=launch.host_index * launch.num_processes,
                grace=launch.grace,
            ) as workers:
                status = workers.wait(signals)
            if status == 0 or signals.received or not _is_lost(status):
                return _exit_status(status)
            count = restarts.count()
            if count > launch.max_restarts:
                _logger.error(
                    'the workers were started %d times without a new checkpoint (--max_restarts): '
                    'no more',
                    count,
                )
                return _exit_status(status)
            _logger.warning(
                'starting all workers again from the newest checkpoint (%d of %d)',
                count,
                launch.max_restarts,
            )


class _Restarts:
    """Counts restarts since the last new checkpoint."""

    def __init__(self, command: Sequence[str]):
        self._state_file = os.path.join(_model_dir(command), 'checkpoint')
        self._newest = self._read()
        self._count = 0

    def count(self) -> int:
        """Counts another restart, from 1 after a newer checkpoint; returns the number."""
        newest = self._read()
        if newest > self._newest:
            self._newest, self._count = newest, 0
        self._count += 1
        return self._count

    def _read(self) -> int:
        """Returns the number of the newest checkpoint; 0 if there is none."""
        with contextlib.suppress(OSError, UnicodeDecodeError), open(self._state_file) as file:
            found = _NEWEST.search(file.read())
            return int(found[1]) if found else 0
        return 0


def _model_dir(command: Sequence[str]) -> str:
    """Finds --model_dir on a command line; without it, returns a path without checkpoints."""
    words = [str(word) for word in command]
    for index, word in enumerate(words):
        name, separator, value = word.partition('=')
        if name == _MODEL_DIR:
            return value if separator else ''.join(words[index + 1 : index + 2])
    return os.devnull


def _is_lost(status: int) -> bool:
    """Whether a worker with this status was killed, or has lost another worker."""
    return status < 0 or status == LOST_WORKER_STATUS


def _exit_status(status: int) -> int:
    return 128 - status if status < 0 else status


def _free_ports(count: int) -> list[int]:
    """Draws ports that no program listens at.

    Raises:
      ConfigError: if there are too few.
    """
    ports: list[int] = []
    for port in random.sample(_PORTS, len(_PORTS)):
        with contextlib.suppress(OSError):
            socket.create_server(('127.0.0.1', port)).close()
            ports.append(port)
        if len(ports) == count:
            return ports
    raise ConfigError(
        f'--port: expected {count} free ports from {_PORTS.start} to {_PORTS.stop - 1}. '
        f'Received: {len(ports)}.'
    )
