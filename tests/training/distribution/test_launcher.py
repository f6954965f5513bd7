"""The launcher of workers: with small programs, and with workers that train and are killed."""

import functools
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from object_detection.cli.main import exit_status
from object_detection.errors import (
    LOST_WORKER_STATUS,
    ConfigError,
    CorruptCheckpointError,
    UnreadableCheckpointError,
    WorkerError,
)
from object_detection.training.distribution import launcher, worker_processes
from object_detection.training.distribution.launcher import Launch
from object_detection.training.monitoring import history
from tests.training.lost_workers import ROOT, TIME_LIMIT, Workers

# `index` and `attempt` (from 0) say who a program is. Each tells how often it was started, and goes
# on when all others have been started as often: none is stopped before it could tell.
_PROGRAM = """
import json, os, signal, sys, time
cluster = json.loads(os.environ['TF_CONFIG'])
index = cluster['task']['index']
def starts(number):
    path = os.path.join({folder!r}, str(number))
    return int(open(path).read() or 0) if os.path.exists(path) else 0
attempt = starts(index)
with open(os.path.join({folder!r}, str(index)), 'w') as file: file.write(str(attempt + 1))
print('attempt', attempt)
while min(map(starts, range(len(cluster['cluster']['worker'])))) <= attempt: time.sleep(0.01)
def until_stopped(status):
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(status))
    print('waiting')
    time.sleep(60)
"""


def _command(folder, body):
    return [sys.executable, '-S', '-c', _PROGRAM.format(folder=str(folder)) + body]


def _run(folder, body, processes=2, arguments=(), **options):
    """Returns the status, and how often each worker was started."""
    command = [*_command(folder, body), *arguments]
    status = launcher.run(Launch(command, processes, **options))
    return status, [int((folder / str(n)).read_text()) for n in range(processes)]


def test_workers_that_succeed_end_it(tmp_path, capfd):
    assert _run(tmp_path, 'print("done", file=sys.stderr)') == (0, [1, 1])
    lines = capfd.readouterr().err.splitlines()
    assert sorted(lines) == [f'[{n}] {text}' for n in (0, 1) for text in ('attempt 0', 'done')]


def test_a_killed_worker_makes_all_start_again(tmp_path):
    body = """
if not attempt and index: os.kill(os.getpid(), signal.SIGKILL)
if not attempt: until_stopped(143)
"""
    assert _run(tmp_path, body) == (0, [2, 2])


def test_a_worker_that_lost_another_machine_makes_all_start_again(tmp_path):
    assert _run(tmp_path, f'sys.exit({LOST_WORKER_STATUS} if not attempt else 0)') == (0, [2, 2])


def test_it_is_given_up_after_some_restarts(tmp_path):
    body = 'os.kill(os.getpid(), signal.SIGKILL)'
    assert _run(tmp_path, body, processes=1, max_restarts=2) == (128 + signal.SIGKILL, [3])


def test_restarts_that_brought_new_checkpoints_do_not_count(tmp_path):
    # Three starts save one each, as TensorFlow writes it; the later ones save nothing.
    body = """
if attempt < 3:
    with open(os.path.join(sys.argv[2], 'checkpoint'), 'w') as file:
        print(f'model_checkpoint_path: "ckpt-{attempt + 9}"', file=file)
        print(f'all_model_checkpoint_paths: "ckpt-{attempt + 99}"', file=file)
os.kill(os.getpid(), signal.SIGKILL)
"""
    options = {'processes': 1, 'max_restarts': 1, 'arguments': ['--model_dir', str(tmp_path)]}
    assert _run(tmp_path, body, **options) == (128 + signal.SIGKILL, [4])


@pytest.mark.parametrize('first', [0, LOST_WORKER_STATUS])
def test_an_error_that_would_come_again_ends_it(tmp_path, first):
    # The others may notice that a worker has failed before the launcher does.
    body = f"""
if index == 1: time.sleep(0.3); sys.exit(3)
if {first}: sys.exit({first})
until_stopped(143)
"""
    assert _run(tmp_path, body) == (3, [1, 1])


def test_a_worker_that_does_not_stop_is_killed(tmp_path):
    body = """
if index: time.sleep(0.3); sys.exit(3)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
time.sleep(60)
"""
    started = time.monotonic()
    assert _run(tmp_path, body, grace=0.5) == (3, [1, 1])
    assert time.monotonic() - started < 20


@pytest.fixture
def interrupt(capfd):
    """A function that sends the launcher a signal as soon as two workers wait.

    The signal is sent only while the launcher handles it: it would end the process of the tests.
    """
    has_ended, threads = threading.Event(), []

    def send(number: int) -> None:
        deadline = time.monotonic() + 30
        text = ''
        while text.count('waiting') < 2 and time.monotonic() < deadline:
            if has_ended.wait(0.05):
                return
            text += capfd.readouterr().err
        if signal.getsignal(number) not in (signal.SIG_DFL, signal.default_int_handler):
            os.kill(os.getpid(), number)

    def start(number: int) -> None:
        threads.append(threading.Thread(target=send, args=[number], daemon=True))
        threads[-1].start()

    yield start
    has_ended.set()
    for thread in threads:
        thread.join()


@pytest.mark.parametrize(
    ('number', 'received', 'status'),
    [
        (signal.SIGTERM, signal.SIGTERM, 143),
        (signal.SIGINT, signal.SIGINT, 130),
        (signal.SIGHUP, signal.SIGTERM, 143),
    ],
)
def test_a_signal_reaches_all_workers(tmp_path, interrupt, request, number, received, status):
    # In the background of a shell, or under nohup, signals that are ignored are inherited so.
    request.addfinalizer(functools.partial(signal.signal, number, signal.getsignal(number)))
    signal.signal(number, signal.default_int_handler)
    body = f"""
signal.signal({int(received)}, lambda *_: sys.exit({status}))
print('waiting')
time.sleep(60)
"""
    interrupt(number)
    assert _run(tmp_path, body) == (status, [1, 1])


def test_workers_that_end_late_after_a_signal_are_waited_for(tmp_path, interrupt):
    body = """
signal.signal(signal.SIGTERM, lambda *_: (time.sleep(index), sys.exit(143)))
print('waiting')
time.sleep(60)
"""
    interrupt(signal.SIGTERM)
    assert _run(tmp_path, body, grace=0.2) == (143, [1, 1])


def test_one_that_fails_after_a_signal_does_not_keep_the_launcher_waiting(tmp_path, interrupt):
    body = """
signal.signal(signal.SIGTERM, lambda *_: sys.exit(5) if index else None)
print('waiting')
deadline = time.monotonic() + 60
while time.monotonic() < deadline: time.sleep(1)
"""
    started = time.monotonic()
    interrupt(signal.SIGTERM)
    assert _run(tmp_path, body, grace=0.5) == (5, [1, 1])
    assert time.monotonic() - started < 20


def test_hangups_that_nohup_has_switched_off_stay_so():
    previous = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with worker_processes.Signals() as signals:
            os.kill(os.getpid(), signal.SIGHUP)
            time.sleep(0.05)
        assert not signals.received
    finally:
        signal.signal(signal.SIGHUP, previous)


def test_workers_do_not_outlive_a_launcher_that_is_killed(tmp_path):
    code = f"""
from object_detection.training.distribution.launcher import Launch, run
run(Launch({_command(tmp_path, 'until_stopped(143)')!r}, 2))
"""
    program = subprocess.Popen([sys.executable, '-c', code], stderr=subprocess.PIPE, text=True)
    with program.stderr:
        printed = [program.stderr.readline() for _ in range(4)]
        assert sum('waiting' in line for line in printed) == 2, printed
        workers = _children(program.pid)
        assert len(workers) == 2
        program.kill()
        program.wait()
    deadline = time.monotonic() + 20
    while any(os.path.exists(f'/proc/{pid}') for pid in workers):
        assert time.monotonic() < deadline
        time.sleep(0.05)


# A training that a script has started: it is given a signal, and needs a moment to save.
_IN_A_SCRIPT = """
import os, sys, time
from object_detection.system.signals import Interrupts
with Interrupts() as interrupts:
    print('waiting', os.getpid(), flush=True)
    while interrupts.received is None:
        time.sleep(0.01)
    time.sleep(0.3)
    open(sys.argv[1], 'w').write(interrupts.received.name)
"""


def _script(saved):
    program = shlex.join([sys.executable, '-c', _IN_A_SCRIPT, str(saved)])
    # What follows keeps the shell from taking the program's place.
    return ['sh', '-c', f'{program}; echo ended']


def _launch_script(saved):
    code = (
        'import sys; from object_detection.training.distribution.launcher import Launch, run; '
        f'sys.exit(run(Launch({_script(saved)!r}, 1)))'
    )
    program = subprocess.Popen([sys.executable, '-c', code], stderr=subprocess.PIPE, text=True)
    pid = int(program.stderr.readline().rpartition(' ')[2])
    return program, pid


@pytest.mark.parametrize('number', [signal.SIGTERM, signal.SIGKILL])
def test_what_a_script_has_started_gets_the_signal_and_saves(tmp_path, number):
    """SIGKILL is for the launcher: the training sees that it is gone."""
    saved = tmp_path / 'saved'
    program, pid = _launch_script(saved)
    with program:
        program.send_signal(number)
        status = program.wait(60)
        program.stderr.read()
    assert status == (143 if number == signal.SIGTERM else -signal.SIGKILL)
    if number == signal.SIGTERM:
        assert not _is_alive(pid)
    deadline = time.monotonic() + 60
    while _is_alive(pid):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert saved.read_text() == 'SIGTERM'


def _is_alive(pid):
    try:
        with open(f'/proc/{pid}/stat') as file:
            return file.read().rpartition(')')[2].split()[0] != 'Z'
    except OSError:
        return False


def test_what_a_script_leaves_behind_is_ended(tmp_path):
    command = ['sh', '-c', f'sleep 600 & echo $! > {tmp_path / "pid"}']
    assert launcher.run(Launch(command, 1)) == 0
    assert not _is_alive(int((tmp_path / 'pid').read_text()))


def test_an_error_of_the_launcher_ends_the_workers(tmp_path, monkeypatch):
    pids = []

    def fail(workers, signals):
        pids.extend(process.pid for process in workers._processes)
        raise ArithmeticError

    monkeypatch.setattr(worker_processes.Workers, 'wait', fail)
    with pytest.raises(ArithmeticError):
        _run(tmp_path, 'until_stopped(143)')
    assert len(pids) == 2
    assert not any(os.path.exists(f'/proc/{pid}') for pid in pids)


def test_a_program_that_is_not_there_is_reported():
    with pytest.raises(ConfigError, match=r'^COMMAND: expected .* Received: no-such-program\.$'):
        launcher.run(Launch(['no-such-program', '--steps', '1'], 2))


def test_each_worker_has_a_place_in_the_cluster():
    contents = [json.loads(e['TF_CONFIG']) for e in Launch(['x'], 2).environments()]
    assert [content['task'] for content in contents] == [
        {'type': 'worker', 'index': index} for index in range(2)
    ]
    (addresses,) = {tuple(content['cluster']['worker']) for content in contents}
    assert all(address.startswith('127.0.0.1:') for address in addresses)
    assert len(set(addresses)) == 2


def test_ports_are_free_and_not_those_of_clients(monkeypatch):
    monkeypatch.setattr(launcher, '_PORTS', range(31_900, 31_903))
    with socket.create_server(('127.0.0.1', 31_901)):
        assert sorted(launcher._free_ports(2)) == [31_900, 31_902]
        with pytest.raises(ConfigError, match=r'^--port: expected 3 free ports .* Received: 2'):
            launcher._free_ports(3)
    monkeypatch.undo()
    assert all(port < 32_768 for port in launcher._free_ports(50))


def test_each_machine_has_a_launcher():
    launch = Launch(['x'], 2, hosts=['a', 'b'], host_index=1, port=7)
    contents = [json.loads(e['TF_CONFIG']) for e in launch.environments()]
    assert contents[0]['cluster']['worker'] == ['a:7', 'a:8', 'b:7', 'b:8']
    assert [content['task']['index'] for content in contents] == [2, 3]


@pytest.mark.parametrize(
    ('options', 'said'),
    [
        ({'num_processes': 0}, '^--num_processes: expected 1 or more. Received: 0'),
        ({'num_processes': 1, 'host_index': 1}, '^--host_index: expected 0 to 0'),
        ({'num_processes': 1, 'max_restarts': -1}, '^--max_restarts, --grace: expected 0 or more'),
    ],
)
def test_mistakes_are_reported(options, said):
    with pytest.raises(ConfigError, match=said):
        Launch(['x'], **options)


@pytest.mark.slow
def test_a_training_resumes_after_a_worker_was_killed(tmp_path):
    """Real workers on loopback; the launcher's restart takes up the newest checkpoint."""
    model_dir, num_steps = tmp_path / 'model', 60
    process = subprocess.Popen(
        [
            *(sys.executable, '-m', 'object_detection.cli.main', 'launch', '--num_processes', '2'),
            *('--', sys.executable, '-m', 'tests.training.worker_run', model_dir, str(num_steps)),
        ],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
    )
    printed, killed = [], False
    try:
        for line in process.stderr:
            printed.append(line)
            if not killed and 'step 10/' in line:
                victim = _children(process.pid)[1]
                os.kill(victim, signal.SIGKILL)
                killed = True
        assert process.wait(TIME_LIMIT) == 0, ''.join(printed)
    finally:
        process.terminate()
        process.communicate()
    text = ''.join(printed)
    assert killed
    assert 'worker 1 has ended with status -9' in text
    assert 'starting all workers again from the newest checkpoint (1 of 3)' in text
    assert text.count('going on from') == 1
    steps = [entry['step'] for entry in history.read(model_dir / 'train' / history.FILE_NAME)]
    assert steps == list(range(5, num_steps + 1, 5))


@pytest.mark.slow
@pytest.mark.parametrize('victim', [0, 1, 2])
@pytest.mark.parametrize('number', [signal.SIGKILL, signal.SIGSTOP], ids=['killed', 'stopped'])
def test_a_worker_that_is_gone_or_silent_is_noticed_by_the_others(tmp_path, victim, number):
    silence = 6
    with Workers(3, tmp_path / 'model', 10**6, silence) as workers:
        workers.wait_for(0, 'step 10/')
        workers.processes[victim].send_signal(number)
        for index in {0, 1, 2} - {victim}:
            status, seconds, last = workers.end_of(index)
            assert status == LOST_WORKER_STATUS
            assert seconds < 60  # some 12 on an idle machine
            assert f'Error: Worker {index} lost touch with another one' in last


@pytest.mark.slow
def test_a_worker_that_never_comes_is_named_by_all(tmp_path):
    with Workers(3, tmp_path / 'model', 10, 6, 30, missing=[2]) as workers:
        for index in (0, 1):
            status, _, last = workers.end_of(index)
            assert status == LOST_WORKER_STATUS
            assert 'worker 2 (127.0.0.1:' in last
            assert 'did not come within 30 seconds' in last


def _children(pid):
    with open(f'/proc/{pid}/task/{pid}/children') as file:
        return [int(text) for text in file.read().split()]


@pytest.mark.parametrize(
    ('error', 'status'),
    [
        (WorkerError('gone'), 75),
        (UnreadableCheckpointError('a server is away'), 75),
        (CorruptCheckpointError('cut off'), 1),
        (ConfigError('expected more'), 1),
    ],
)
def test_a_launcher_repeats_what_may_pass(error, status):
    assert exit_status(error) == status
