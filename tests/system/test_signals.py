"""Signals are remembered once and then act as before."""

import os
import resource
import signal
import subprocess
import sys
import threading
import time

from object_detection.system import signals
from object_detection.system.signals import LAUNCHER_PIPE, Interrupts
from tests import rows

# Its main thread waits inside a call, as TensorFlow does for a record, so that Python runs no
# handler; another thread prints what is remembered.
_STUCK = """
import ctypes, signal, threading, time
from object_detection.system import signals
signals._SECONDS_TO_END = signals._SECONDS_WITHOUT_LAUNCHER = 0.0
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, signal.default_int_handler)
mutex = ctypes.create_string_buffer(128)
library = ctypes.CDLL(None)
with signals.Interrupts() as caught:
    def tell():
        print('ready', flush=True)
        while caught.received is None:
            time.sleep(0.005)
        print(caught.received.name, flush=True)
    threading.Thread(target=tell, daemon=True).start()
    library.pthread_mutex_lock(mutex)
    library.pthread_mutex_lock(mutex)
"""


def _start_stuck(**options):
    return subprocess.Popen(
        [sys.executable, '-c', _STUCK], stdout=subprocess.PIPE, text=True, **options
    )


@rows.parametrize('number', [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_a_process_that_is_stuck_in_a_call(number):
    with _start_stuck() as process:
        assert process.stdout.readline() == 'ready\n'
        process.send_signal(number)
        assert process.stdout.readline() == f'{number.name}\n'
        process.send_signal(number)
        assert process.wait(60) == 128 + number


def test_without_its_launcher_a_process_that_is_stuck_ends():
    reader, writer = os.pipe()
    name = f'{reader}:{os.fstat(reader).st_ino}'
    with _start_stuck(pass_fds=[reader], env=os.environ | {LAUNCHER_PIPE: name}) as process:
        os.close(reader)
        assert process.stdout.readline() == 'ready\n'
        os.close(writer)
        assert process.wait(60) == 143


def test_a_process_with_many_files_gets_signals():
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(20)]
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(before[1], 4096), before[1]))
    try:
        while opened[-1] < 1100:
            opened.append(os.open(os.devnull, os.O_RDONLY))
        with Interrupts() as interrupts:
            os.kill(os.getpid(), signal.SIGTERM)
            assert interrupts.received == signal.SIGTERM
            assert interrupts._watch._thread.is_alive()
    finally:
        for descriptor in opened:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_pipe_of_somebody_else_is_not_watched():
    # An inode that is not that of descriptor 0, and nothing at all.
    for name in ('0:1', '99999:1', ''):
        os.environ[LAUNCHER_PIPE] = name
        try:
            with Interrupts() as interrupts:
                assert interrupts.received is None
        finally:
            del os.environ[LAUNCHER_PIPE]


def test_the_wakeup_descriptor_is_put_back():
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    before = signal.set_wakeup_fd(writer)
    try:
        with Interrupts():
            pass
        assert signal.set_wakeup_fd(before) == writer
    finally:
        signal.set_wakeup_fd(before)
        os.close(reader)
        os.close(writer)


@rows.parametrize('number', [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_remembered_and_handlers_are_put_back(number):
    before = signal.getsignal(number)
    with Interrupts() as interrupts:
        assert interrupts.received is None
        os.kill(os.getpid(), number)
        assert interrupts.received == number
        # A second one is not held back.
        assert signal.getsignal(number) == before
    assert signal.getsignal(number) == before


def test_other_threads_have_no_handlers():
    seen = []

    def work():
        with Interrupts() as interrupts:
            seen.append(interrupts.received)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [None]


# A process with a temporary folder and a child, as `tfod benchmark` and `tfod export` have them.
_PARENT = """
import os, signal, subprocess, sys, tempfile
from object_detection.system import signals
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # ignored under nohup
child = 'from object_detection.system import signals; signals.end_with_parent(); input()'
with signals.unwinding(), tempfile.TemporaryDirectory(dir=sys.argv[1]):
    with subprocess.Popen([sys.executable, '-c', child], stdin=subprocess.PIPE) as process:
        print(process.pid, flush=True)
        try:
            process.wait()
        except BaseException:
            process.kill()
            raise
"""


@rows.parametrize(
    ('number', 'status'),
    [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGKILL, -signal.SIGKILL)],
)
def test_a_process_that_ends_by_a_signal_leaves_no_child_and_no_folder(number, status, tmp_path):
    command = [sys.executable, '-c', _PARENT, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        child = int(process.stdout.readline())
        # The child is ready when it waits for its input.
        wait_for(lambda: _state(child) == 'S')
        process.send_signal(number)
        assert process.wait(60) == status
    wait_for(lambda: _state(child) in ('', 'Z'))
    assert (os.listdir(tmp_path) == []) == (number != signal.SIGKILL)


def test_signals_that_are_handled_or_ignored_stay_so():
    before = {n: signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGHUP)}
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with signals.unwinding():
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    finally:
        signal.signal(signal.SIGHUP, before[signal.SIGHUP])
    assert {n: signal.getsignal(n) for n in before} == before


def _state(process: int) -> str:
    """The letter of a process's state in /proc; '' without the process."""
    try:
        with open(f'/proc/{process}/stat') as file:
            return file.read().rpartition(')')[2].split()[0]
    except OSError:
        return ''


def wait_for(condition) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)
