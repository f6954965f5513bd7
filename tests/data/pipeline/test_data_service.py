"""A data service: errors at the start of its servers, their end, and a training that loses it."""

import logging
import os
import re
import signal
import socket
import threading

import pytest
import tensorflow as tf

from object_detection.data.pipeline import data_service
from object_detection.errors import LOST_WORKER_STATUS, ConfigError, WorkerError


@pytest.mark.parametrize(
    ('dispatcher', 'server'), [(None, 'dispatcher'), ('grpc://a:1', 'worker of a:1')]
)
def test_a_port_in_use_is_reported(monkeypatch, dispatcher, server):
    monkeypatch.setattr(data_service, 'check_answers', lambda address, where: None)
    with socket.create_server(('', 0)) as taken:
        port = taken.getsockname()[1]
        said = f'--port: expected a free one for the {server}. Received: {port} (Address already'
        with pytest.raises(ConfigError, match=re.escape(said)):
            data_service.serve(port, dispatcher=dispatcher, host='localhost')


def test_any_other_reason_is_reported_as_it_is(monkeypatch):
    def fail(config):
        raise RuntimeError('no more threads')

    monkeypatch.setattr('tensorflow.data.experimental.service.DispatchServer', fail)
    with pytest.raises(ConfigError, match=r'^The dispatcher cannot be started: no more threads$'):
        data_service.serve(0)


@pytest.mark.parametrize(('number', 'status'), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_the_process_that_serves(monkeypatch, number, status):
    statuses = []
    monkeypatch.setattr(os, '_exit', statuses.append)
    monkeypatch.setattr(data_service.time, 'sleep', lambda seconds: signal.raise_signal(number))
    before = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)}
    try:
        data_service.Servers(None, None, 'grpc://a:1').wait()
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
    assert statuses == [status]


@pytest.fixture
def ended(monkeypatch, caplog):
    """Hastens the watch; holds the status that it ends the process with."""
    statuses, told = [], threading.Event()

    def end(status):
        statuses.append(status)
        told.set()

    monkeypatch.setattr(os, '_exit', end)
    monkeypatch.setattr(data_service, '_POLL_SECONDS', 0.02)
    monkeypatch.setattr(data_service, '_LOST_TIMEOUT', 0.2)
    caplog.set_level(logging.INFO)
    return statuses, told


def _served(server):
    return f'grpc://localhost:{server.getsockname()[1]}'


def _watches():
    return [thread for thread in threading.enumerate() if thread.name == 'service_watch']


def test_a_service_that_is_gone_ends_the_process(ended, caplog):
    statuses, told = ended
    with socket.create_server(('localhost', 0)) as server, data_service.watched(_served(server)):
        assert not told.wait(0.3)
        server.close()
        assert told.wait(10)
    assert statuses == [LOST_WORKER_STATUS]
    warning, reason = caplog.messages
    assert 'The training ends if it stays so for 0.2 s' in warning
    assert reason.endswith(
        'start it and the training again, which continues from the newest checkpoint'
    )


def test_one_that_comes_back_in_time_does_not(ended, monkeypatch, caplog):
    statuses, _ = ended
    monkeypatch.setattr(data_service, '_LOST_TIMEOUT', 60.0)
    answers = iter([ValueError('gone.'), ValueError('gone.')])
    again = threading.Event()

    def check(address, where):
        for error in answers:
            raise error
        again.set()

    monkeypatch.setattr('object_detection.data.pipeline.data_service.check_answers', check)
    with data_service.watched('grpc://a:1'):
        assert again.wait(10)
    for thread in _watches():
        thread.join()
    assert not statuses
    assert caplog.messages == [
        'gone. The training ends if it stays so for 60 s',
        'train_input_reader.data_service: grpc://a:1 answers again',
    ]


def test_without_a_service_nothing_is_watched():
    with data_service.watched(''):
        assert not _watches()


def test_a_service_that_was_started_again_is_reported():
    address = 'grpc://localhost:1'
    lost = 'Unknown iteration client id 3000. This could be caused by a dispatcher restart.'
    said = 'localhost:1 was started again and does not know'
    with pytest.raises(WorkerError, match=said), data_service.watched(address):
        raise tf.errors.NotFoundError(None, None, lost)
    with pytest.raises(tf.errors.NotFoundError), data_service.watched(address):
        raise tf.errors.NotFoundError(None, None, 'a file')
