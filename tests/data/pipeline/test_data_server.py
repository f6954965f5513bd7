"""Servers of a data service that cannot be started, and their end."""

import re
import signal
import socket

import pytest

from object_detection.data.pipeline import data_server
from object_detection.errors import ConfigError


@pytest.mark.parametrize(
    ('dispatcher', 'server'), [(None, 'dispatcher'), ('grpc://a:1', 'worker of a:1')]
)
def test_a_port_in_use_is_told(monkeypatch, dispatcher, server):
    monkeypatch.setattr(data_server, 'check_answers', lambda address, where: None)
    with socket.create_server(('', 0)) as taken:
        port = taken.getsockname()[1]
        said = f'--port: expected a free one for the {server}. Received: {port} (Address already'
        with pytest.raises(ConfigError, match=re.escape(said)):
            data_server.serve(port, dispatcher=dispatcher, host='localhost')


def test_any_other_reason_is_told_as_it_is(monkeypatch):
    def fail(config):
        raise RuntimeError('no more threads')

    monkeypatch.setattr('tensorflow.data.experimental.service.DispatchServer', fail)
    with pytest.raises(ConfigError, match=r'^The dispatcher cannot be started: no more threads$'):
        data_server.serve(0)


@pytest.mark.parametrize(('number', 'status'), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_serves_until_a_signal(monkeypatch, number, status):
    monkeypatch.setattr(data_server.time, 'sleep', lambda seconds: signal.raise_signal(number))
    before = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)}
    try:
        assert data_server.Servers(None, None, 'grpc://a:1').wait() == status
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
