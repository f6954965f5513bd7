"""Starts the workers of this machine, watches them, and starts them again when one is lost.

Imports no TensorFlow: a launcher takes next to nothing beside its workers.
"""

import dataclasses
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence

from object_detection.config.errors import ConfigError
from object_detection.training import cluster
from object_detection.training.errors import LOST_WORKER_STATUS

_logger = logging.getLogger(__name__)

_BETWEEN_LOOKS = 0.1
_SECONDS_FOR_A_REASON = 2.0
_FIRST_PORT = 23_456
# Statuses of workers that were stopped since another one had failed.
_STOPPED = (0, LOST_WORKER_STATUS, -signal.SIGTERM, -signal.SIGKILL, 128 + signal.SIGTERM)


@dataclasses.dataclass(frozen=True)
class Launch:
    """What is to be started.

    Attributes:
      command: of one worker, its program first.
      num_processes: workers of this machine.
      hosts: all machines of the job, each with a launcher and as many workers; () is this one.
      host_index: which of them this is.
      port: of the first worker of each machine; None takes free ones, or with several hosts 23456.
      max_restarts: how often all workers are started again.
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
        """Returns what is set for each worker of this machine."""
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
    """Runs the workers until they end.

    They are started again, to go on from the newest checkpoint, when one dies of a signal or tells
    that it has lost another one. Any other error would come again, and ends all. SIGTERM and SIGINT
    go on to the workers, which save and end.

    Returns:
      The exit status: that of the first worker that failed, or 0.
    """
    with _Signals() as signals:
        for attempt in range(launch.max_restarts + 1):
            workers = _Workers(launch, environment)
            status = workers.wait(signals)
            if status == 0 or signals.received or not _is_lost(status):
                return _exit_status(status)
            if attempt < launch.max_restarts:
                _logger.warning(
                    'starting all workers again from the newest checkpoint (%d of %d)',
                    attempt + 1,
                    launch.max_restarts,
                )
        _logger.error(
            'the workers were started %d times (--max_restarts): no more', launch.max_restarts + 1
        )
        return _exit_status(status)


class _Workers:
    """The processes of one attempt."""

    def __init__(self, launch: Launch, environment: Mapping[str, str]):
        self._grace = launch.grace
        self._processes: list[subprocess.Popen] = []
        first = launch.host_index * launch.num_processes
        for own in launch.environments():
            # A session of their own: ctrl-C reaches them through the launcher alone, once.
            process = subprocess.Popen(
                list(launch.command),
                env={**environment, **own, 'PYTHONUNBUFFERED': '1'},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            self._processes.append(process)
        self._names = {process: first + index for index, process in enumerate(self._processes)}
        self._printers = [
            threading.Thread(target=_print, args=(process, name), daemon=True)
            for process, name in self._names.items()
        ]
        for printer in self._printers:
            printer.start()

    def wait(self, signals: '_Signals') -> int:
        """Waits for all; returns 0, or the status of the worker that ended the others."""
        passed_on = 0
        deadline, stops_at, status = None, 0.0, 0
        while running := [p for p in self._processes if p.poll() is None]:
            while passed_on < len(signals.received):
                number = signals.received[passed_on]
                passed_on += 1
                # The first lets them save, the second ends Python.
                number = signal.SIGKILL if passed_on > 2 else number
                _logger.warning('%s goes on to the workers', number.name)
                self._send(running, number)
            if not status and (status := self._first_failure()):
                # The one that was lost may be about to say why.
                wait = _SECONDS_FOR_A_REASON if status == LOST_WORKER_STATUS else 0.0
                stops_at = time.monotonic() + wait
            if status and deadline is None and not passed_on and time.monotonic() >= stops_at:
                _logger.error('stopping the other workers')
                self._send(running, signal.SIGTERM)
                deadline = time.monotonic() + self._grace
            if deadline is not None and time.monotonic() > deadline:
                self._send(running, signal.SIGKILL)
            time.sleep(_BETWEEN_LOOKS)
        for printer in self._printers:
            printer.join(self._grace)
        status = status or self._first_failure()
        # One that has lost another one can be noticed before that one, whose error says why.
        reasons = [p.returncode for p in self._processes if p.returncode not in _STOPPED]
        return reasons[0] if status == LOST_WORKER_STATUS and reasons else status

    def _first_failure(self) -> int:
        """The status of a worker that has failed: a killed one before those that lost it."""
        failed = [p for p in self._processes if p.returncode not in (None, 0)]
        if not failed:
            return 0
        first = min(failed, key=lambda p: p.returncode)
        _logger.error('worker %d has ended with status %d', self._names[first], first.returncode)
        return first.returncode

    @staticmethod
    def _send(processes: Sequence[subprocess.Popen], number: signal.Signals) -> None:
        for process in processes:
            process.send_signal(number)


class _Signals:
    """A context that remembers each SIGTERM and SIGINT."""

    def __init__(self):
        self.received: list[signal.Signals] = []
        self._previous: dict[int, object] = {}

    def __enter__(self) -> '_Signals':
        for number in (signal.SIGTERM, signal.SIGINT):
            self._previous[number] = signal.signal(number, self._remember)
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _remember(self, number: int, frame: object) -> None:
        self.received.append(signal.Signals(number))


def _print(process: subprocess.Popen, name: int) -> None:
    """Prints what a worker prints, each line under its number."""
    for line in process.stdout:
        sys.stderr.write(f'[{name}] {line.decode(errors="replace")}')
        sys.stderr.flush()
    process.stdout.close()


def _is_lost(status: int) -> bool:
    """Whether a worker with this status was killed, or has lost another one."""
    return status < 0 or status == LOST_WORKER_STATUS


def _exit_status(status: int) -> int:
    return 128 - status if status < 0 else status


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(('127.0.0.1', 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
