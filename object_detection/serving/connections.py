"""The connections of a server: how many there are, and how long one may keep it waiting.

Imports no TensorFlow.
"""

import asyncio
import contextlib
import functools
import os
import socket
import time
from typing import Any

import fastapi
import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, H11Protocol

from object_detection.serving.app import Service
from object_detection.serving.gate import error_answer
from object_detection.serving.limits import ServeOptions

# New connections that asyncio accepts before it handles those, and what the system queues.
_ACCEPTED_AT_ONCE, _QUEUED = 16, 2048
# Descriptors that are left for connections that are being refused, and for files.
_SPARE_DESCRIPTORS = 128
# Bytes of a connection that are read before others have their turn: a body of chunks of one byte
# takes a microsecond a byte.
_READ_AT_ONCE = 16_384
_POLL_SECONDS = 0.05


class Connection(H11Protocol):
    """A connection that a client cannot hold by doing nothing.

    The header of a request must be complete `timeout_s` after the connection was opened or the last
    answer was made, and an answer must be read in the same time. If there are too many connections,
    the one that has waited longest for its client is closed. If none waits, the new one is refused
    with status 503.

    Args:
      waiting: the connections of the server that wait for their clients, the longest first.
      limit: most connections.
      seconds: the time that clients have.
      **own: as uvicorn gives them.
    """

    def __init__(
        self, *, waiting: dict['Connection', None], limit: int, seconds: float, **own: Any
    ):
        super().__init__(**own)
        self._waiting, self._limit, self._seconds = waiting, limit, seconds
        self._timer: asyncio.TimerHandle | None = None
        self._reading: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        with contextlib.suppress(AttributeError):  # Of asyncio's transports.
            transport.max_size = _READ_AT_ONCE
        self._note()
        if len(self.connections) > self._limit and not self._make_room():
            self.connections.discard(self)
            self._fail(503, f'{self._limit} connections are open; try again later.')

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        self._stop_timer()
        self.resume_writing()
        self._waiting.pop(self, None)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._note()

    def on_response_complete(self) -> None:
        self._stop_timer()
        super().on_response_complete()  # It may begin the next request, which has come already.
        self._note()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._reading = self.loop.call_later(self._seconds, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    def send_400_response(self, msg: str) -> None:
        """Answers what is not HTTP, unless another answer has begun."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self._fail(400, msg)
        else:
            self.transport.close()

    def _note(self) -> None:
        """Starts or stops the time of the client, by whose turn it is."""
        has_request = self.cycle is not None and not self.cycle.response_complete
        if has_request:
            self._stop_timer()
        elif self._timer is None:
            self._timer = self.loop.call_later(self._seconds, self._end)
        if has_request and not self.cycle.more_body:
            self._waiting.pop(self, None)
        else:
            self._waiting.setdefault(self)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end(self) -> None:
        """Closes a connection whose client has done nothing for too long."""
        self._timer = None
        if self.transport.is_closing() or self.transport.get_write_buffer_size():
            self.transport.abort()  # Closing would wait until the answer is read.
            return
        if self.conn.their_state is h11.IDLE and self.conn.trailing_data[0]:
            self._fail(408, f'the header did not arrive within {self._seconds:g} seconds.')
        else:
            self.transport.close()
        self._note()

    def _make_room(self) -> bool:
        """Closes the connection that has waited longest; False if none waits but this one."""
        for each in self._waiting:
            # An answer that is still being read is not lost.
            if each is not self and not each.transport.get_write_buffer_size():
                self.connections.discard(each)
                del self._waiting[each]
                each.transport.abort()
                return True
        return False

    def _fail(self, status: int, message: str) -> None:
        headers, body = error_answer(status, message)
        headers.append((b'connection', b'close'))
        answer = h11.Response(status_code=status, headers=headers, reason=STATUS_PHRASES[status])
        for event in (answer, h11.Data(data=body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event))
        self.transport.close()


class Server(uvicorn.Server):
    """A server that takes many connections and few at a time, and says before it stops.

    Args:
      config: of uvicorn.
      service: what answers `/readyz`.
      drain_s: for so many seconds after the signal it still accepts requests, and `/readyz` says
        that it is stopping; each answer closes its connection.
    """

    def __init__(self, config: uvicorn.Config, service: Service, drain_s: float):
        super().__init__(config)
        self._service, self._drain_s = service, drain_s

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for each in sockets or []:
            each.listen(_QUEUED)  # asyncio has set what it accepts at once.

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._service.is_draining = True
        self.server_state.default_headers.append((b'connection', b'close'))
        end = time.monotonic() + self._drain_s
        while time.monotonic() < end and not self.force_exit:
            await asyncio.sleep(_POLL_SECONDS)
        await super().shutdown(sockets)


def make_server(app: fastapi.FastAPI, options: ServeOptions) -> Server:
    """Returns a server for an application of `app.create_app`; SIGTERM and SIGINT end its `run`."""
    limit = connection_limit(options.max_connections)
    protocol = functools.partial(Connection, waiting={}, limit=limit, seconds=options.timeout_s)
    config = uvicorn.Config(
        app,
        http=protocol,
        ws='none',
        # Its warnings are about what clients send, who could fill the disk with them.
        log_level='error',
        access_log=False,
        backlog=_ACCEPTED_AT_ONCE,
        timeout_graceful_shutdown=int(2 * options.timeout_s) + 1,
    )
    return Server(config, app.state.service, options.drain_s)


def connection_limit(wanted: int) -> int:
    """Returns how many connections the process can hold, at most those that are wanted."""
    with contextlib.suppress(ImportError, OSError):  # Windows has no such limit.
        import resource

        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != resource.RLIM_INFINITY:
            return max(1, min(wanted, soft - len(os.listdir('/dev/fd')) - _SPARE_DESCRIPTORS))
    return wanted
