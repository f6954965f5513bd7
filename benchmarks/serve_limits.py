"""Holds connections of a server without requests, then sends bodies that are costly to read.

    python benchmarks/serve_limits.py --model exported --image photo.jpg

Starts `tfod serve` as a process of its own that may open 1,024 files. Meanwhile `/healthz` is asked
ten times a second on connections of their own, and the image is sent again and again. Writes the
statuses, the times and the memory of the server as JSON. Exits with 1 if `/healthz` or an image was
not answered with 200 while connections were held, or a costly body was not refused.
"""

import concurrent.futures
import contextlib
import http.client
import json
import resource
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator

import click
import psutil
from serve_load import start_server

_HOST, _DESCRIPTORS = '127.0.0.1', 1024
_PARTIAL = b'POST /predict HTTP/1.1\r\nHost: x\r\nX-a: '
_BODY = 31_500_000
# Path, beginning, what is repeated, end.
_COSTLY = (
    ('/predict', '{"images":[', '{},', '{}]}'),
    ('/predict', '{"images":[', '"aaaa",', '""]}'),
    ('/predict', '{"images":', '[', ''),
    ('/v1/models/model:predict', '{"instances":[', '[],', '[]]}'),
    ('/v1/models/model:predict', '{"instances":[', '"ab",', '""]}'),
    ('/v1/models/model:predict', '{"inputs":[', '{},', '{}]}'),
    ('/v1/models/model:predict', '{"inputs":[', '[[0,0,0]],', '0]}'),
)


@click.command(help=__doc__)
@click.option('--model', required=True)
@click.option('--image', required=True, type=click.File('rb'))
@click.option('--connections', default=1200, show_default=True)
@click.option('--bodies', default=13, show_default=True)
@click.option('--seconds', default=20.0, show_default=True, help='Time of held connections.')
def main(model: str, image, connections: int, bodies: int, seconds: float) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (_DESCRIPTORS, hard))
    server, port = start_server(model)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    process, file = psutil.Process(server.pid), image.read()
    try:
        _send(port, '/predict', file, 'image/jpeg')  # The first call is slow.
        figures = {'rss_mb_before': _rss(process)}
        with _asked(port, file) as held, _held(port, connections):
            time.sleep(seconds)
        with _asked(port, file) as costly:
            highest = [_rss(process)]
            with _repeated(lambda: highest.append(_rss(process))):
                refused = _send_all(port, bodies)
        time.sleep(10)
        figures |= {'rss_mb_peak': max(highest), 'rss_mb_after': _rss(process)}
        figures |= {'held': _summary(held), 'costly': _summary(costly), 'bodies': refused}
    finally:
        server.kill()
        server.wait()
    click.echo(json.dumps(figures, indent=1))
    answered = set(figures['held']['healthz']['statuses'] | figures['held']['images']['statuses'])
    if answered != {200} or set(refused) & {0, 200, 500}:
        sys.exit(1)


@contextlib.contextmanager
def _held(port: int, count: int) -> Iterator[None]:
    """Holds connections, half of which have sent a part of a header; opens each that is closed."""
    with contextlib.ExitStack() as stack:
        for i in range(count):
            client = stack.enter_context(socket.create_connection((_HOST, port), timeout=20))
            if i % 2:
                with contextlib.suppress(OSError):
                    client.sendall(_PARTIAL)
        yield


@contextlib.contextmanager
def _asked(port: int, file: bytes) -> Iterator[dict[str, list]]:
    """Asks for the health and for detections all the time; yields lists of (status, seconds)."""
    found: dict[str, list] = {'healthz': [], 'images': []}
    with (
        _repeated(lambda: found['healthz'].append(_send(port, '/healthz'))),
        _repeated(lambda: found['images'].append(_send(port, '/predict', file, 'image/jpeg'))),
    ):
        yield found


@contextlib.contextmanager
def _repeated(function: Callable[[], None]) -> Iterator[None]:
    stop = threading.Event()

    def run() -> None:
        while not stop.wait(0.1):
            function()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _send_all(port: int, count: int) -> dict[int, int]:
    """Sends costly bodies at the same time; returns the number of each status."""
    texts = []
    for i in range(count):
        path, first, repeated, last = _COSTLY[i % len(_COSTLY)]
        texts.append((path, first + repeated * (_BODY // len(repeated)) + last))
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        sent = [
            pool.submit(_send, port, path, text.encode(), 'application/json')
            for path, text in texts
        ]
        return dict(Counter(each.result()[0] for each in sent))


def _send(port: int, path: str, body: bytes = b'', kind: str = '') -> tuple[int, float]:
    """Returns the status, 0 without an answer, and the seconds of a request."""
    start = time.perf_counter()
    connection = http.client.HTTPConnection(_HOST, port, timeout=120)
    try:
        connection.request('POST' if body else 'GET', path, body or None, {'Content-Type': kind})
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException):
        status = 0
    finally:
        connection.close()
    return status, time.perf_counter() - start


def _summary(found: dict[str, list]) -> dict[str, dict]:
    return {
        name: {
            'statuses': dict(Counter(status for status, _ in each)),
            'worst_ms': round(1000 * max(seconds for _, seconds in each), 1),
        }
        for name, each in found.items()
    }


def _rss(process: psutil.Process) -> float:
    return round(process.memory_info().rss / 1e6, 1)


if __name__ == '__main__':
    main()
