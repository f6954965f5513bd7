"""The processes of one start of a launcher: their output, the signals they get, and their end.

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

from object_detection.errors import LOST_WORKER_STATUS, ConfigError
from object_detection.system.signals import LAUNCHER_PIPE

_logger = logging.getLogger(__name__)

_POLL_SECONDS = 0.1
_SECONDS_FOR_A_REASON = 2.0
# Statuses of workers that a signal has stopped.
_TOLD_TO_END = tuple(
    status for n in (signal.SIGTERM, signal.SIGINT) for status in (-n, 128 + int(n))
)
# Statuses of workers that were stopped since another one had failed.
_STOPPED = (0, LOST_WORKER_STATUS, -signal.SIGTERM, -signal.SIGKILL, 128 + signal.SIGTERM)
_CHILD_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER of prctl
# Has the system send SIGTERM to the worker, which takes its place, when the launcher is gone. Not
# between fork and exec, where a process of several threads can run no Python.
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

    Each worker is a process group of its own: where `command` is a script, signals reach the
    programs that it has started, too, and the worker has ended when all of them have.

    Args:
      command: of each, its program first.
      environments: of each, what is added to `environment`.
      environment: of all.
      first: number of the first one.
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
        self._passed_on = 0
        self._status = 0
        self._stops_at = 0.0
        self._kills_at: float | None = None
        # Process groups of which something is left; the number of another one may be reused.
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
        """Waits for all; returns 0, or the status of the worker that ended the others."""
        while running := [p.pid for p in self._processes if self._is_running(p)]:
            self._pass_on(signals.received, running)
            self._stop_after_a_failure(running)
            self._stop_leftovers()
            time.sleep(_POLL_SECONDS)
        for printer in self._printers:
            printer.join(self._grace)
        status = self._status or self._first_failure() or self._lowest_status()
        # One that has lost another one can be noticed before that one, whose error says why.
        reasons = [p.returncode for p in self._processes if p.returncode not in _STOPPED]
        return reasons[0] if status == LOST_WORKER_STATUS and reasons else status

    def _start(self) -> None:
        path = self._environments[0].get('PATH')
        if shutil.which(self._command[0], path=path) is None:
            raise ConfigError(
                'COMMAND: expected a command of tfod, or a program that can be run. '
                f'Received: {self._command[0]}.'
            )
        # Ends with this process, however it ends, for workers that a script has started.
        lifeline, own_end = os.pipe()
        self._own_end = own_end
        try:
            for index, environment in enumerate(self._environments):
                self._start_one(self._first + index, environment, lifeline)
        finally:
            os.close(lifeline)

    def _start_one(self, number: int, environment: Mapping[str, str], lifeline: int) -> None:
        inode = os.fstat(lifeline).st_ino
        # A session of their own: ctrl-C reaches them through the launcher alone, once.
        process = subprocess.Popen(
            [
                *(sys.executable, '-I', '-S', '-c', _TIED_TO_LAUNCHER, str(os.getpid())),
                *map(str, self._command),
            ],
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
        """Whether anything of a worker is left; reaps what has ended."""
        if process.poll() is None:
            return True
        if process.pid in self._groups and not _has_members(process.pid):
            self._groups.remove(process.pid)
        return process.pid in self._groups

    def _stop_leftovers(self) -> None:
        """Ends what a command has left running, unless a signal lets it end by itself."""
        if self._passed_on:
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

    def _pass_on(self, received: Sequence[signal.Signals], running: Sequence[int]) -> None:
        """Sends what has arrived since the last call."""
        while self._passed_on < len(received):
            number = received[self._passed_on]
            self._passed_on += 1
            if number == signal.SIGHUP:
                number = signal.SIGTERM  # workers have no terminal, and know nothing of it
            # The first lets them save, the second ends Python.
            number = signal.SIGKILL if self._passed_on > 2 else number
            _logger.warning('%s goes on to the workers', number.name)
            _send(running, number)

    def _stop_after_a_failure(self, running: Sequence[int]) -> None:
        """Ends the others once one has failed; those that a signal has reached are ending."""
        now = time.monotonic()
        if not self._status:
            self._status = self._first_failure()
            if not self._status:
                return
            # The one that was lost may be about to say why.
            is_lost = self._status == LOST_WORKER_STATUS
            self._stops_at = now + (_SECONDS_FOR_A_REASON if is_lost else 0.0)
        if self._kills_at is None and now >= self._stops_at:
            _logger.error('stopping the other workers')
            if not self._passed_on:
                _send(running, signal.SIGTERM)
            self._kills_at = now + self._grace
        if self._kills_at is not None and now > self._kills_at:
            _send(running, signal.SIGKILL)

    def _first_failure(self) -> int:
        """The status of a worker that has failed: a killed one before those that lost it."""
        as_told = (None, 0, *(_TOLD_TO_END if self._passed_on else ()))
        failed = [p for p in self._processes if p.returncode not in as_told]
        if not failed:
            return 0
        worst = min(failed, key=lambda p: p.returncode)
        number = self._first + self._processes.index(worst)
        _logger.error('worker %d has ended with status %d', number, worst.returncode)
        return worst.returncode

    def _lowest_status(self) -> int:
        """Of workers that have ended as a signal told them to."""
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
    """A context that remembers each SIGTERM, SIGINT and SIGHUP; nohup's is left ignored."""

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


def run_and_wait(command: Sequence[str]) -> tuple[int, bool]:
    """Runs a command in the foreground, and gives it the time to end by itself after a signal.

    Returns:
      Its status, and whether a signal has arrived meanwhile.
    """
    passed_on = 0
    with Signals() as signals:
        # A session of its own, as that of workers: it gets each signal once.
        process = subprocess.Popen(command, start_new_session=True)
        try:
            while process.poll() is None:
                for number in signals.received[passed_on:]:
                    process.send_signal(signal.SIGTERM if number == signal.SIGHUP else number)
                    passed_on += 1
                time.sleep(_POLL_SECONDS)
        finally:
            process.kill()
            process.wait()
    return process.returncode, bool(signals.received)


def _send(groups: Sequence[int], number: signal.Signals) -> None:
    for group in groups:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, number)


def _has_members(group: int) -> bool:
    """Whether a process group whose leader has ended, and was waited for, has others."""
    with contextlib.suppress(ChildProcessError):
        # Of a script that is gone: `_adopt_orphans`.
        while os.waitpid(-group, os.WNOHANG)[0]:
            pass
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def _adopt_orphans(is_on: bool) -> None:
    """Has the system hand over descendants whose parent is gone, to be reaped here.

    The first process of a container often reaps nothing, and what is not reaped stays in its group.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_CHILD_SUBREAPER, int(is_on))


def _print(process: subprocess.Popen, name: int) -> None:
    """Prints what a worker prints, each line under its number."""
    with process.stdout:
        for line in process.stdout:
            # A terminal that is gone must not keep the worker from being heard to its end.
            with contextlib.suppress(OSError):
                sys.stderr.write(f'[{name}] {line.decode(errors="replace")}')
                sys.stderr.flush()
