"""Workers wait for each other, for a while; threads stand for processes."""

import concurrent.futures
import errno
import signal
import socket
import subprocess
import sys
import time

import pytest

from object_detection.errors import WorkerError
from object_detection.training.distribution import launcher, rendezvous
from object_detection.training.distribution.cluster import Cluster


@pytest.fixture
def addresses():
    return tuple(f'127.0.0.1:{port}' for port in launcher._free_ports(3))


@pytest.fixture(autouse=True)
def _short(monkeypatch):
    monkeypatch.setattr(rendezvous, '_EXTRA_SECONDS', 1.0)
    monkeypatch.setattr(rendezvous, '_BETWEEN_ATTEMPTS', 0.05)
    monkeypatch.setattr(rendezvous, '_GREETING_SECONDS', 0.2)


def _gather(addresses, indices, timeout, late=()):
    """Returns what each worker is told."""

    def one(index):
        time.sleep(0.3 * (index in late))
        try:
            return rendezvous.gather(Cluster(addresses, index), timeout)
        except WorkerError as error:
            return str(error)

    with concurrent.futures.ThreadPoolExecutor(len(indices)) as threads:
        return list(threads.map(one, indices))


@pytest.mark.parametrize('late', [0, 2])
def test_all_continue_when_the_last_has_come(addresses, late):
    started = time.monotonic()
    assert _gather(addresses, range(3), 30, late=[late]) == [None] * 3
    assert 0.3 <= time.monotonic() - started < 5
    # TensorFlow serves there now.
    socket.create_server(('127.0.0.1', int(addresses[0].partition(':')[2]))).close()


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason='needs IPv6')
def test_addresses_may_be_of_either_version(addresses):
    mixed = tuple(address.replace('127.0.0.1', '[::1]') for address in addresses[:1])
    assert _gather((*mixed, *addresses[1:]), range(3), 30) == [None] * 3


@pytest.mark.parametrize(
    'error', [ValueError('not supported'), OSError(errno.EADDRNOTAVAIL, 'not available')]
)
def test_a_machine_without_ipv6_listens(addresses, monkeypatch, error):
    create = socket.create_server

    def create_server(address, *, family=socket.AF_INET, **options):
        if family == socket.AF_INET6:
            raise error
        return create(address, family=family, **options)

    monkeypatch.setattr(socket, 'create_server', create_server)
    assert _gather(addresses, range(3), 30) == [None] * 3


@pytest.mark.parametrize(
    ('host', 'expected'), [('127.0.0.1', ['127.0.0.1']), ('this-host', ['::', '0.0.0.0'])]
)
def test_the_chief_listens_where_the_others_come(addresses, monkeypatch, host, expected):
    """Not at other addresses; but a name may stand for 127.0.1.1 on its own machine alone."""
    port = int(addresses[0].partition(':')[2])
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, '', ('127.0.0.1', port))]
    monkeypatch.setattr(socket, 'getaddrinfo', lambda *args, **kwargs: found)
    with rendezvous._listen(host, port) as server:
        assert server.getsockname()[0] in expected


def test_a_port_that_gets_free_is_waited_for(addresses, monkeypatch):
    host, _, port = addresses[0].partition(':')
    other = socket.create_server((host, int(port)))
    monkeypatch.setattr(rendezvous.time, 'sleep', lambda seconds: other.close())
    with rendezvous._listen_when_free(host, int(port), time.monotonic() + 60):
        assert rendezvous.is_taken(int(port))


def test_a_port_in_use_is_an_error_of_the_chief(addresses, monkeypatch):
    monkeypatch.setattr(rendezvous, '_SECONDS_FOR_A_PORT', 0.0)
    host, _, port = addresses[0].partition(':')
    with socket.create_server((host, int(port))), pytest.raises(OSError, match='Address already'):
        rendezvous.gather(Cluster(addresses, 0), 5)


def test_a_worker_that_never_comes_is_named_to_all(addresses):
    told = _gather(addresses, [0, 1], 0.5)
    assert told[0] == told[1]
    assert told[0].startswith(
        f'worker 2 ({addresses[2]}) of 3 workers did not come within 0.5 seconds (--start_timeout)'
    )


def test_a_chief_that_never_comes_is_named(addresses):
    started = time.monotonic()
    assert _gather(addresses, [1], 0.2)[0].startswith(f'worker 0 ({addresses[0]}) of 3 workers')
    assert time.monotonic() - started < 5


def test_strangers_and_those_that_went_again_do_not_count(addresses):
    with concurrent.futures.ThreadPoolExecutor(1) as threads:
        chief = threads.submit(_gather, addresses, [0], 1.5)
        host, _, port = addresses[0].rpartition(':')
        key = rendezvous._key(Cluster(addresses))
        for said in (b'GET / HTTP/1.1\r\n', b'00000000 1\n', f'{key} 7\n'.encode(), b'\xff\n'):
            for _ in range(20):
                try:
                    with socket.create_connection((host, int(port))) as stranger:
                        stranger.sendall(said)
                    break
                except ConnectionError:
                    time.sleep(0.05)
        with socket.create_connection((host, int(port))) as gone:
            gone.sendall(f'{key} 1\n'.encode())
            time.sleep(0.2)
        (told,) = chief.result()
    assert told.startswith(f'worker 1 ({addresses[1]}), worker 2 ({addresses[2]}) of 3')


def test_what_ends_in_time_is_not_killed():
    with rendezvous.killed_after(30, 'too long'):
        pass


def test_what_takes_too_long_is_killed_with_a_sentence():
    code = """
import time
from object_detection.training.distribution import rendezvous
with rendezvous.killed_after(0.2, 'it took too long'):
    time.sleep(60)
"""
    ran = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (-signal.SIGKILL, 'it took too long\n')
