"""Signals are remembered once and then act as before."""

import os
import signal
import threading

import pytest

from object_detection.training.interrupts import Interrupts


@pytest.mark.parametrize('number', [signal.SIGTERM, signal.SIGINT])
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
