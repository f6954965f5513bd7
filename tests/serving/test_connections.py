import contextlib
import http.client
import json
import logging
import resource
import socket
import threading
import time

import pytest

pytest.importorskip('uvicorn', reason="needs the extra 'serve'")

from object_detection.serving import connections
from object_detection.serving.limits import ServeOptions
from tests.serving.fakes import BrightnessModel, image_file

PARTIAL = b'POST /predict HTTP/1.1\r\nHost: x\r\nX-a: '
GET = b'GET %b HTTP/1.1\r\nHost: x\r\n\r\n'


@pytest.fixture
def start(make_app):
    """Starts a server in a thread; returns it, with its `port` and `model`."""
    with contextlib.ExitStack() as stack:

        def run(**options) -> connections.Server:
            model, limits = BrightnessModel(), ServeOptions(max_wait_ms=0, **options)
            server = connections.make_server(make_app(model, limits), limits)
            listener = stack.enter_context(socket.create_server(('127.0.0.1', 0)))
            thread = threading.Thread(target=server.run, args=[[listener]], daemon=True)
            thread.start()
            stack.callback(thread.join, 30)
            stack.callback(setattr, server, 'should_exit', True)
            stack.callback(model.gate.set)
            server.port, server.model = listener.getsockname()[1], model
            wait_for(lambda: server.started)
            return server

        yield run


@contextlib.contextmanager
def connected(server, *messages: bytes):
    with socket.create_connection(('127.0.0.1', server.port), timeout=20) as client:
        for message in messages:
            client.sendall(message)
        yield client


def received(client) -> bytes:
    """All that comes until the server closes the connection."""
    parts = []
    with contextlib.suppress(ConnectionResetError):
        while part := client.recv(65536):
            parts.append(part)
    return b''.join(parts)


def request(server, method: str, path: str, body: bytes | None = None):
    client = http.client.HTTPConnection('127.0.0.1', server.port, timeout=20)
    client.request(method, path, body, {'Content-Type': 'image/png'} if body else {})
    answer = client.getresponse()
    answer.text = answer.read()
    client.close()
    return answer


def wait_for(condition) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_a_header_that_does_not_arrive_ends_the_connection(start):
    server = start(timeout_s=0.3)
    answered = GET % b'/healthz'
    with (
        connected(server) as silent,
        connected(server, PARTIAL) as begun,
        connected(server, answered, b'G') as second,
        connected(server, b'GET /nowhere HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n') as body,
    ):
        assert received(silent) == b''
        head, text = received(begun).split(b'\r\n\r\n')
        assert head.startswith(b'HTTP/1.1 408 ')
        assert json.loads(text) == {'error': 'the header did not arrive within 0.3 seconds.'}
        answers = received(second)
        assert answers.startswith(b'HTTP/1.1 200 ')
        assert b'HTTP/1.1 408 ' in answers
        # The rest of the body of a request that is answered already.
        assert received(body).startswith(b'HTTP/1.1 404 ')
    wait_for(lambda: not server.server_state.connections)


def test_idle_connections_make_room_for_new_ones(start):
    server = start(max_connections=3)
    with contextlib.ExitStack() as stack:
        idle = [stack.enter_context(connected(server, *[PARTIAL] * (i % 2))) for i in range(12)]
        assert request(server, 'GET', '/healthz').status == 200
        assert request(server, 'POST', '/predict', image_file()).status == 200
        assert [received(each) for each in idle[:9]] == [b''] * 9
        assert len(server.server_state.connections) <= 3


def test_connections_whose_requests_are_computed_are_not_closed_for_others(start):
    server = start(max_connections=2)
    server.model.gate.clear()
    body = image_file()
    post = b'POST /predict HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: image/png\r\n'
    post += b'Content-Length: %d\r\n\r\n' % len(body)
    with connected(server, post, body) as first, connected(server, post, body) as second:
        wait_for(lambda: len(server.model.threads) and server._service._batcher.count == 2)
        refused = request(server, 'GET', '/healthz')
        assert (refused.status, refused.headers['retry-after']) == (503, '1')
        assert json.loads(refused.text)['error'].startswith('2 connections are open')
        server.model.gate.set()
        for client in (first, second):
            assert received(client).startswith(b'HTTP/1.1 200 ')


def test_slow_bodies_take_no_place_of_those_that_are_computed(start):
    server = start(max_queue=1)
    header = b'POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n'
    with connected(server, header, b'a') as first, connected(server, header, b'a') as second:
        wait_for(lambda: server._service.memory.held == 2)
        assert request(server, 'POST', '/predict', image_file()).status == 200
        assert {each.fileno() for each in (first, second)}


def test_answers_that_are_not_read_end_the_connection(start):
    server = start(timeout_s=0.5)
    with connected(server) as client:
        client.settimeout(0.2)
        with contextlib.suppress(TimeoutError, ConnectionError):
            client.sendall(GET % b'/' * 20_000)
        wait_for(lambda: server.server_state.connections)
        wait_for(lambda: not server.server_state.connections)
    assert request(server, 'GET', '/healthz').status == 200


def test_answers_are_held_until_they_are_read(start):
    server = start(max_memory_mb=10)
    text = b'a' * 9_000_000
    server.config.app.add_api_route('/large', lambda: connections.fastapi.Response(text))
    with connected(server) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        client.sendall(GET % b'/large')
        wait_for(lambda: server._service.memory.held == len(text))
        refused = request(server, 'GET', '/large')
        assert refused.status == 503
        assert request(server, 'GET', '/healthz').status == 200
    wait_for(lambda: server._service.memory.held == 0)
    assert request(server, 'GET', '/large').text == text


def test_upgrades_and_what_is_not_http_are_answered_and_fill_no_log(start, caplog):
    server = start()
    upgrade = b'Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: a\r\n'
    with connected(server, GET[:-2] % b'/healthz' + upgrade + b'\r\n') as client:
        assert client.recv(99).startswith(b'HTTP/1.1 200 ')
    for text in (b'nonsense\r\n\r\n', b'GET / HTTP/1.1\r\nX: ' + b'a' * 70_000):
        with connected(server, text) as client:
            head, body = received(client).split(b'\r\n\r\n')
            assert head.startswith(b'HTTP/1.1 400 ')
            assert set(json.loads(body)) == {'error'}
    assert [each for each in caplog.records if each.levelno >= logging.WARNING] == []


def test_a_draining_server_says_so_and_still_answers(start):
    server = start(drain_s=30)
    assert request(server, 'GET', '/readyz').status == 200
    server.should_exit = True
    wait_for(lambda: server._service.is_draining)
    unready = request(server, 'GET', '/readyz')
    assert (unready.status, json.loads(unready.text)) == (503, {'status': 'stopping'})
    answer = request(server, 'POST', '/predict', image_file())
    assert (answer.status, answer.headers['connection']) == (200, 'close')
    assert request(server, 'GET', '/healthz').status == 200
    server.force_exit = True


def test_there_are_fewer_connections_than_descriptors(monkeypatch):
    monkeypatch.setattr(resource, 'getrlimit', lambda _: (256, 4096))
    assert 1 <= connections.connection_limit(512) <= 256 - 128
    assert connections.connection_limit(1) == 1
    monkeypatch.setattr(resource, 'getrlimit', lambda _: (resource.RLIM_INFINITY,) * 2)
    assert connections.connection_limit(512) == 512
