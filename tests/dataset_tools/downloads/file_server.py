"""A server on loopback that serves files, and misbehaves as it is told."""

import contextlib
import http.server
import re
import threading
import urllib.parse
from collections.abc import Iterator

import pytest

_PROXY_VARIABLES = ('http_proxy', 'https_proxy', 'all_proxy', 'no_proxy')


class FileServer(http.server.ThreadingHTTPServer):
    """Serves `files`.

    Attributes:
      files: contents by path, '/a.bin'.
      tags: ETags by path.
      ranges: whether Range requests are honoured.
      honours_if_range: whether If-Range is.
      plan: what happens to the next requests, one entry each: a status, 'drop' (half of the body,
        then the connection ends), 'stall' (half of the body, then silence), 'slow', 'short' (a
        Content-Length that is too small), 'chunked' (no length), or '' (all is well).
      requests: the headers of all requests, with the path under 'path'.
    """

    daemon_threads = True

    def __init__(self):
        super().__init__(('127.0.0.1', 0), _Handler)
        self.files: dict[str, bytes] = {}
        self.tags: dict[str, str] = {}
        self.ranges = self.honours_if_range = True
        self.plan: list[str | int] = []
        self.requests: list[dict[str, str]] = []
        self.closing = threading.Event()

    @property
    def url(self) -> str:
        return f'http://127.0.0.1:{self.server_port}'

    def handle_error(self, request, client_address) -> None:
        """Clients that hang up are part of the tests."""


class _Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_) -> None:
        pass

    def do_GET(self) -> None:
        server: FileServer = self.server
        path = urllib.parse.urlsplit(self.path).path
        server.requests.append({**self.headers, 'path': self.path})
        action = server.plan.pop(0) if server.plan else ''
        if isinstance(action, int) or path not in server.files:
            self.send_error(action or 404)
            return
        self._send(path, action)

    def _send(self, path: str, action: str) -> None:
        content, tag = self.server.files[path], self.server.tags.get(path, '')
        start = self._start(tag)
        if start >= len(content) > 0:
            self.send_response(416)
            self.send_header('Content-Range', f'bytes */{len(content)}')
            self.end_headers()
            return
        body = content[start:]
        self.send_response(206 if start else 200)
        if start:
            last = len(content) - 1
            self.send_header('Content-Range', f'bytes {start}-{last}/{len(content)}')
        if tag:
            self.send_header('ETag', tag)
        if action != 'chunked':
            self.send_header('Content-Length', str(len(body) - (action == 'short')))
        self.end_headers()
        self._send_body(body, action)

    def _start(self, tag: str) -> int:
        match = re.match(r'bytes=(\d+)-', self.headers.get('Range', ''))
        stale = self.headers.get('If-Range', tag) != tag and self.server.honours_if_range
        return int(match[1]) if match and self.server.ranges and not stale else 0

    def _send_body(self, body: bytes, action: str) -> None:
        half = len(body) // 2
        if action == 'slow':
            pieces = 50
            for i in range(0, len(body), len(body) // pieces):
                self.wfile.write(body[i : i + len(body) // pieces])
                self.server.closing.wait(0.2)
        elif action in ('drop', 'stall'):
            self.wfile.write(body[:half])
            if action == 'stall':
                self.server.closing.wait(10)
        else:
            self.wfile.write(body)


@contextlib.contextmanager
def serving() -> Iterator[FileServer]:
    """Runs a server while the block lasts."""
    with FileServer() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.closing.set()
            server.shutdown()
            thread.join()


def without_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets requests go to loopback whatever the environment says."""
    for name in _PROXY_VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
