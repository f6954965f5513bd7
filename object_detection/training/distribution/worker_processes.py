"""The processes of one start of a launcher: their output, their signals and their end.

Imports no TensorFlow.
"""

import contextlib
import ctypes
import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import IO

from object_detection.errors import LOST_WORKER_STATUS, ConfigError
from object_detection.system.signals import LAUNCHER_PIPE

_logger = logging.getLogger(__name__)

_POLL_SECONDS = 0.1
_SECONDS_FOR_A_REASON = 2.0
# Statuses of workers that a forwarded signal has stopped.
_STOPPED_BY_SIGNAL = tuple(
    status for n in (signal.SIGTERM, signal.SIGINT) for status in (-n, 128 + int(n))
)
# Statuses of workers that were stopped because another one had failed.
_STOPPED_AFTER_FAILURE = (
    0,
    LOST_WORKER_STATUS,
    -signal.SIGTERM,
    -signal.SIGKILL,
    128 + signal.SIGTERM,
)
_CHILD_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER of prctl
# Has the system send SIGTERM to the worker, which this program becomes, when the launcher ends. Not
# done between fork and exec, where a process of several threads must not run Python.
_TIED_TO_LAUNCHER = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG
if os.getppid() != int(sys.argv[1]):
    sys.exit(143)  # gone before that
for number in (signal.SIGPIPE, signal.SIGXFSZ):
    signal.signal(number, signal.SIG_DFL)  # which Python ignores, and the worker would inherit
os.execvp(sys.argv[2], sys.argv[2:])
"""


class Workers:
    """A context of workers, of which none outlives it.

    Each worker is a separate process group: if `command` is a script, signals also reach the
    programs that it has started, and the worker has ended when all of them have.

    Args:
      command: the command of each worker, its program first.
      environments: additional environment variables of each worker.
      environment: the environment variables of all workers.
      first: number of the first worker.
      grace: seconds that they have to end by themselves, before they are killed.
    """

    def __init__(
        self,
        command: Sequence[str],
        environments: Sequence[Mapping[str, str]],
        environment: Mapping[str, str],
        *,
        first: int,
        grace: float,
    ):
        self._command = command
        self._environments = [
            {**environment, **own, 'PYTHONUNBUFFERED': '1'} for own in environments
        ]
        self._first = first
        self._grace = grace
        self._processes: list[subprocess.Popen] = []
        self._printers: list[threading.Thread] = []
        self._num_forwarded = 0
        self._status = 0
        self._stops_at = 0.0
        self._kills_at: float | None = None
        # Process groups with processes left; the number of any other group may be reused.
        self._groups: set[int] = set()
        self._own_end: int | None = None
        self._leftover_since: dict[int, float] = {}

    def __enter__(self) -> 'Workers':
        _adopt_orphans(True)
        try:
            self._start()
        except BaseException:
            self._kill()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._kill()

    def wait(self, signals: 'Signals') -> int:
        """Waits for all workers; returns 0, or the status of the worker that ended the others."""
        while running := [p.pid for p in self._processes if self._is_running(p)]:
            self._forward(signals.received, running)
            self._stop_after_a_failure(running)
            self._stop_leftovers()
            time.sleep(_POLL_SECONDS)
        for printer in self._printers:
            printer.join(self._grace)
        status = self._status or self._first_failure() or self._lowest_status()
        # A worker that has lost another one may end first; the error of the other is the reason.
        reasons = [
            p.returncode for p in self._processes if p.returncode not in _STOPPED_AFTER_FAILURE
        ]
        return reasons[0] if status == LOST_WORKER_STATUS and reasons else status

    def _start(self) -> None:
        path = self._environments[0].get('PATH')
        if shutil.which(self._command[0], path=path) is None:
            raise ConfigError(
                'COMMAND: expected a command of tfod, or a program that can be run. '
                f'Received: {self._command[0]}.'
            )
        # The pipe ends with this process, however it ends; workers started by a script poll it.
        lifeline, own_end = os.pipe()
        self._own_end = own_end
        try:
            for index, environment in enumerate(self._environments):
                self._start_one(self._first + index, environment, lifeline)
        finally:
            os.close(lifeline)

    def _start_one(self, number: int, environment: Mapping[str, str], lifeline: int) -> None:
        inode = os.fstat(lifeline).st_ino
        # In a separate session, ctrl-C reaches workers only through the launcher, once.
        process = subprocess.Popen(
            _tied(self._command),
            env={**environment, LAUNCHER_PIPE: f'{lifeline}:{inode}'},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=[lifeline],
        )
        self._processes.append(process)
        self._groups.add(process.pid)
        printer = threading.Thread(target=_print, args=(process, number), daemon=True)
        self._printers.append(printer)
        printer.start()

    def _is_running(self, process: subprocess.Popen) -> bool:
        """Whether any process of a worker is left; reaps those that have ended."""
        if process.poll() is None:
            return True
        if process.pid in self._groups and not _has_members(process.pid):
            self._groups.remove(process.pid)
        return process.pid in self._groups

    def _stop_leftovers(self) -> None:
        """Ends processes that a command has left running, unless a signal is ending them."""
        if self._num_forwarded:
            return
        now = time.monotonic()
        for process in self._processes:
            group = process.pid
            if process.returncode is None or group not in self._groups:
                continue
            if group not in self._leftover_since:
                self._leftover_since[group] = now
                _send([group], signal.SIGTERM)
            elif now > self._leftover_since[group] + self._grace:
                _send([group], signal.SIGKILL)

    def _forward(self, received: Sequence[signal.Signals], running: Sequence[int]) -> None:
        """Sends the signals that have arrived since the last call."""
        while self._num_forwarded < len(received):
            number = received[self._num_forwarded]
            self._num_forwarded += 1
            if number == signal.SIGHUP:
                number = signal.SIGTERM  # workers have no terminal, and do not handle it
            # The first signal lets them save, the second ends Python.
            number = signal.SIGKILL if self._num_forwarded > 2 else number
            _logger.warning('%s is sent on to the workers', number.name)
            _send(running, number)

    def _stop_after_a_failure(self, running: Sequence[int]) -> None:
        """Ends the other workers once one has failed; after a forwarded signal they are ending."""
        now = time.monotonic()
        if not self._status:
            self._status = self._first_failure()
            if not self._status:
                return
            # The worker that was lost may be about to log the reason.
            is_lost = self._status == LOST_WORKER_STATUS
            self._stops_at = now + (_SECONDS_FOR_A_REASON if is_lost else 0.0)
        if self._kills_at is None and now >= self._stops_at:
            _logger.error('stopping the other workers')
            if not self._num_forwarded:
                _send(running, signal.SIGTERM)
            self._kills_at = now + self._grace
        if self._kills_at is not None and now > self._kills_at:
            _send(running, signal.SIGKILL)

    def _first_failure(self) -> int:
        """Returns the status of a failed worker: a killed one before those that lost it."""
        expected = (None, 0, *(_STOPPED_BY_SIGNAL if self._num_forwarded else ()))
        failed = [p for p in self._processes if p.returncode not in expected]
        if not failed:
            return 0
        worst = min(failed, key=lambda p: p.returncode)
        number = self._first + self._processes.index(worst)
        _logger.error('worker %d has ended with status %d', number, worst.returncode)
        return worst.returncode

    def _lowest_status(self) -> int:
        """Returns the lowest status of workers that a forwarded signal has ended; 0 without one."""
        return min((p.returncode for p in self._processes if p.returncode), default=0)

    def _kill(self) -> None:
        for process in self._processes:
            if process.pid in self._groups:
                _send([process.pid], signal.SIGKILL)
            process.wait()
            while self._is_running(process):
                time.sleep(_POLL_SECONDS)
        if self._own_end is not None:
            os.close(self._own_end)
            self._own_end = None
        _adopt_orphans(False)


class Signals:
    """A context that records each SIGTERM, SIGINT and SIGHUP; nohup's SIGHUP stays ignored."""

    def __init__(self):
        self.received: list[signal.Signals] = []
        self._previous: dict[int, object] = {}

    def __enter__(self) -> 'Signals':
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                self._previous[number] = signal.signal(number, self._remember)
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _remember(self, number: int, frame: object) -> None:
        self.received.append(signal.Signals(number))


def run_and_wait(command: Sequence[str], output: IO[str] | None = None) -> tuple[int, bool]:
    """Runs a command in the foreground, and lets it end by itself after a signal.

    Args:
      command: the program and its arguments.
      output: the file that its stdout goes to; this process's own, if not given.

    Returns:
      Its status, and whether a signal has arrived meanwhile.
    """
    num_forwarded = 0
    with Signals() as signals:
        # In a separate session, like workers, it receives each signal once.
        process = subprocess.Popen(_tied(command), start_new_session=True, stdout=output)
        try:
            while process.poll() is None:
                for number in signals.received[num_forwarded:]:
                    process.send_signal(signal.SIGTERM if number == signal.SIGHUP else number)
                    num_forwarded += 1
                time.sleep(_POLL_SECONDS)
        finally:
            process.kill()
            process.wait()
    return process.returncode, bool(signals.received)


def _tied(command: Sequence[str]) -> list[str]:
    """Returns a command that ends with this process."""
    tie = (sys.executable, '-I', '-S', '-c', _TIED_TO_LAUNCHER, str(os.getpid()))
    return [*tie, *map(str, command)]


def _send(groups: Sequence[int], number: signal.Signals) -> None:
    for group in groups:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, number)


def _has_members(group: int) -> bool:
    """Whether a process group, whose leader has been reaped, has other processes."""
    with contextlib.suppress(ChildProcessError):
        # Reaps processes of a script that has ended, see `_adopt_orphans`.
        while os.waitpid(-group, os.WNOHANG)[0]:
            pass
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def _adopt_orphans(is_on: bool) -> None:
    """Has the system make this process the parent of descendants whose parent has ended.

    They are reaped here: the first process of a container often reaps nothing, and processes that
    are not reaped stay in their group.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_CHILD_SUBREAPER, int(is_on))


def _print(process: subprocess.Popen, name: int) -> None:
    """Prints the output of a worker, each line with its number."""
    with process.stdout:
        for line in process.stdout:
            # Without a terminal, the output of the worker still has to be read to its end.
            with contextlib.suppress(OSError):
                sys.stderr.write(f'[{name}] {line.decode(errors="replace")}')
                sys.stderr.flush()
