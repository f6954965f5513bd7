"""What happens when the data service of a training is gone."""

import logging
import os
import socket
import threading

import pytest
import tensorflow as tf

from object_detection.data.pipeline import service_watch
from object_detection.errors import LOST_WORKER_STATUS, WorkerError
from object_detection.protos.input_reader_pb2 import InputReader


@pytest.fixture
def ended(monkeypatch, caplog):
    """Hastens the watch; holds the status that it ends the process with."""
    statuses, told = [], threading.Event()

    def end(status):
        statuses.append(status)
        told.set()

    monkeypatch.setattr(os, '_exit', end)
    monkeypatch.setattr(service_watch, '_BETWEEN_LOOKS', 0.02)
    monkeypatch.setattr(service_watch, '_PATIENCE', 0.2)
    caplog.set_level(logging.INFO)
    return statuses, told


def _served(server):
    return InputReader(data_service=f'grpc://localhost:{server.getsockname()[1]}')


def _watches():
    return [thread for thread in threading.enumerate() if thread.name == 'service_watch']


def test_a_service_that_is_gone_ends_the_process(ended, caplog):
    statuses, told = ended
    with socket.create_server(('localhost', 0)) as server, service_watch.watched(_served(server)):
        assert not told.wait(0.3)
        server.close()
        assert told.wait(10)
    assert statuses == [LOST_WORKER_STATUS]
    warning, reason = caplog.messages
    assert 'The training ends if it stays so for 0.2 s' in warning
    assert reason.endswith(
        'start it and the training again, which goes on from the newest checkpoint'
    )


def test_one_that_comes_back_in_time_does_not(ended, monkeypatch, caplog):
    statuses, _ = ended
    monkeypatch.setattr(service_watch, '_PATIENCE', 60.0)
    answers = iter([ValueError('gone.'), ValueError('gone.')])
    again = threading.Event()

    def check(address, where):
        for error in answers:
            raise error
        again.set()

    monkeypatch.setattr('object_detection.data.pipeline.data_service.check_answers', check)
    with service_watch.watched(InputReader(data_service='grpc://a:1')):
        assert again.wait(10)
    for thread in _watches():
        thread.join()
    assert not statuses
    assert caplog.messages == [
        'gone. The training ends if it stays so for 60 s',
        'train_input_reader.data_service: grpc://a:1 answers again',
    ]


def test_without_a_service_nothing_is_watched():
    with service_watch.watched(InputReader()):
        assert not _watches()


def test_a_service_that_was_started_again_is_told():
    reader = InputReader(data_service='grpc://localhost:1')
    lost = 'Unknown iteration client id 3000. This could be caused by a dispatcher restart.'
    said = 'localhost:1 was started again and does not know'
    with pytest.raises(WorkerError, match=said), service_watch.watched(reader):
        raise tf.errors.NotFoundError(None, None, lost)
    with pytest.raises(tf.errors.NotFoundError), service_watch.watched(reader):
        raise tf.errors.NotFoundError(None, None, 'a file')
