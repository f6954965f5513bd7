"""Signals at awkward moments: inside a save, inside the first step, while data are waited for."""

import os
import signal

import tensorflow as tf

from object_detection.training.loop import train
from object_detection.training.monitoring import history
from object_detection.training.monitoring.run_types import Intervals
from object_detection.weights import checkpoint_files, checkpoints
from tests import slow_cases
from tests.training import fakes
from tests.weights.tiny_checkpoints import files_of, names_in, state_of

_SIGNALS = [signal.SIGTERM, signal.SIGINT]


class _Sender:
    """Sends this process a signal at the n-th call."""

    def __init__(self, number, at_call=1):
        self._number = number
        self._left = at_call

    def __call__(self):
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), self._number)


def _train(directory, num_steps):
    return train(
        fakes.pipeline_config(),
        directory,
        num_steps=num_steps,
        intervals=Intervals(checkpoint=2, log=1),
        record_summaries=False,
        seed=1,
    )


def _check_stopped(directory, result, number, step):
    assert (result.step, result.stopped_by, result.exit_status) == (step, number, 128 + number)
    assert checkpoints.find(str(directory)) == result.checkpoint
    assert checkpoints.read_step(result.checkpoint) == step
    kept = [name for name in names_in(directory) if name.startswith(('ckpt', 'checkpoint'))]
    assert kept == files_of(*state_of(directory))
    # And the training can go on.
    assert _train(directory, step + 1).step == step + 1
    steps = [entry['step'] for entry in history.read(directory / 'train' / 'history.jsonl')]
    assert steps == list(range(1, step + 2))


@slow_cases.parametrize(1, 'number', _SIGNALS)
def test_inside_a_save(tmp_path, monkeypatch, number):
    fakes.patch_builders(monkeypatch.setattr)
    send, make_durable = _Sender(number, at_call=2), checkpoint_files.make_durable

    def make_durable_and_send(prefix):
        send()
        make_durable(prefix)

    monkeypatch.setattr(checkpoint_files, 'make_durable', make_durable_and_send)
    result = _train(tmp_path, 50)
    _check_stopped(tmp_path, result, number, 4)


@slow_cases.parametrize(1, 'number', _SIGNALS)
def test_inside_the_first_step(tmp_path, monkeypatch, number):
    send = _Sender(number)

    class Detector(fakes.FakeDetector):
        def normalize(self, images):
            tf.py_function(send, [], [])
            return super().normalize(images)

    fakes.patch_builders(monkeypatch.setattr, detector=Detector)
    result = _train(tmp_path, 50)
    _check_stopped(tmp_path, result, number, 1)


@slow_cases.parametrize(1, 'number', _SIGNALS)
def test_while_the_first_batch_is_waited_for(tmp_path, monkeypatch, number):
    send = _Sender(number)
    fakes.patch_builders(monkeypatch.setattr)

    def build(config, input_context, seed, start, left_out, step=0):
        def wait(batch):
            tf.py_function(send, [], [])
            return batch

        return fakes.dataset(6, 2, repeat=True).map(wait)

    monkeypatch.setattr('object_detection.builders.dataset_builder.build_train', build)
    result = _train(tmp_path, 50)
    assert result.exit_status == 128 + number
    _check_stopped(tmp_path, result, number, result.step)


def test_a_save_at_the_end_is_not_done_twice(tmp_path, monkeypatch):
    """The signal comes in the save of the last step, which is done then."""
    fakes.patch_builders(monkeypatch.setattr)
    send, make_durable = _Sender(signal.SIGTERM, at_call=2), checkpoint_files.make_durable

    def make_durable_and_send(prefix):
        make_durable(prefix)
        send()

    monkeypatch.setattr(checkpoint_files, 'make_durable', make_durable_and_send)
    result = _train(tmp_path, 3)
    assert (result.step, result.exit_status) == (3, 143)
    assert state_of(tmp_path) == [1, 2]
    # Nothing is left to do, which is told as such.
    assert _train(tmp_path, 3).exit_status == 0
