"""A training with an evaluation beside it, which a test may kill: both are forks of one program.

The evaluation is the real process around a fake detector. Starting it as a program takes seconds,
so a nursery makes it: a child of the training, which is forked before TensorFlow computes anything.
As with the program, the end of the training ends the evaluation.
"""

import logging
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
import types
from unittest import mock

from object_detection.system import signals
from object_detection.training.evaluation import async_evaluation, worker
from object_detection.training.loop import train
from object_detection.training.monitoring.run_types import Intervals
from tests.training import fakes

EVALUATE_EVERY = 4
_SECONDS_A_STEP = 0.25
_PID_SIZE = 4


class _Display:
    """Waits after each step, so that evaluations keep up."""

    def start(self, step, num_steps, batch_size):
        pass

    def update(self, record):
        pass

    def log(self, record):
        time.sleep(_SECONDS_A_STEP)

    def close(self):
        pass


class Nursery:
    """Makes the processes of evaluations, in place of `subprocess.Popen`."""

    def __init__(self):
        self._socket, theirs = socket.socketpair()
        if not os.fork():
            self._socket.close()
            self._serve(theirs)
        theirs.close()

    def _serve(self, requests):
        signals.end_with_parent()
        # Nobody asks for the status of its children.
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        while True:
            _, descriptors, _, _ = socket.recv_fds(requests, 1, 1)
            if not descriptors:
                os._exit(0)
            pid = os.fork()
            if not pid:
                requests.close()
                os._exit(worker.main([str(descriptors[0])]))
            os.close(descriptors[0])
            requests.send(pid.to_bytes(_PID_SIZE, 'big'))

    def __call__(self, command, *, env, pass_fds, stdin):
        socket.send_fds(self._socket, [b'!'], pass_fds)
        return _Program(int.from_bytes(self._socket.recv(_PID_SIZE), 'big'))


class _Program:
    """As much of a `subprocess.Popen` as the training uses."""

    def __init__(self, pid):
        self.pid = pid

    def wait(self, timeout=60.0):
        ends = time.monotonic() + timeout
        while pathlib.Path(f'/proc/{self.pid}').exists():
            if time.monotonic() > ends:
                raise subprocess.TimeoutExpired('evaluation', timeout)
            time.sleep(0.001)
        return -signal.SIGKILL

    def kill(self):
        try:
            os.kill(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            return


def run(directory: str, num_steps: int, log_path: str) -> None:
    """Trains on, with an evaluation of every fourth step; the log is added to `log_path`."""
    with open(log_path, 'a') as log:
        os.dup2(log.fileno(), 2)
    logging.basicConfig(
        force=True, level=logging.INFO, format='%(levelname)s %(name)s: %(message)s'
    )
    fakes.patch_builders(lambda target, value: mock.patch(target, value).start())
    program = types.SimpleNamespace(**vars(subprocess) | {'Popen': Nursery()})
    mock.patch.object(async_evaluation, 'subprocess', program).start()
    config = fakes.pipeline_config()
    config.eval_config.async_evaluation.niceness = 0
    config.eval_config.async_evaluation.max_waiting = 1000
    config.eval_config.best_checkpoint.keep = True
    config.eval_config.best_checkpoint.metric = 'Loss/total_loss'
    labels = pathlib.Path(directory).with_name('labels.pbtxt')
    config.eval_input_reader.add().label_map_path = fakes.write_label_map(labels)
    result = train(
        config,
        directory,
        num_steps=num_steps,
        intervals=Intervals(log=1, checkpoint=3, evaluation=EVALUATE_EVERY, call=1),
        max_to_keep=2,
        seed=1,
        progress=_Display(),
    )
    sys.exit(result.exit_status)
