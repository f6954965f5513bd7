"""What each request passes before and after the application: limits, the time, and measurements."""

import asyncio
import contextlib
import json
import logging
import time
import traceback
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from object_detection.serving.limits import Memory, RequestError, ServeOptions
from object_detection.serving.measurements import Measurements
from object_detection.system.tensorflow_setup import release_freed_memory

_logger = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

# The status that is counted, and never sent, for a client that has closed the connection.
_CLIENT_IS_GONE = 499
_RETRY_AFTER_SECONDS = 1
# A client that sends before it reads loses an answer that comes before its body ends; so much of
# a body that is too large is read and dropped.
_DRAIN_FACTOR, _DRAIN_SECONDS = 4, 5.0
# Memory of requests from which on it is given back to the system, and how long after.
_LARGE, _TRIM_SECONDS = 16_000_000, 2.0


class Gate:
    """ASGI middleware that reads bodies within limits, ends slow requests and measures all.

    Args:
      app: the application; it finds the body complete.
      options: the limits.
      memory: what counts the bytes of bodies.
      measurements: what counts requests.
    """

    def __init__(self, app: App, options: ServeOptions, memory: Memory, measurements: Measurements):
        self._app, self._options = app, options
        self._memory, self._measurements = memory, measurements
        self._active = 0
        self._trim: asyncio.TimerHandle | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope['type'] != 'http':
            await self._app(scope, receive, send)
            return
        answer, start = _Answer(send, self._memory), time.monotonic()
        if scope['method'] == 'HEAD':
            scope = {**scope, 'method': 'GET'}  # The server leaves the body of the answer out.
        try:
            if scope['method'] == 'GET':
                await self._app(scope, receive, answer)
            else:
                await self._with_body(scope, receive, answer)
        except RequestError as error:
            await answer.fail(error.status, str(error))
            _forget_variables(error)
        except _DisconnectError as error:
            answer.status = answer.status or _CLIENT_IS_GONE
            _forget_variables(error)
        except Exception as error:
            _logger.exception('a request failed')
            await answer.fail(500, 'the server failed on this request; its log says more.')
            _forget_variables(error)
        finally:
            path = getattr(scope.get('route'), 'path', 'other')
            self._measurements.observe(path, answer.status, time.monotonic() - start)

    async def _with_body(self, scope: Scope, receive: Receive, answer: '_Answer') -> None:
        self._check_room()
        body = _Body(self._options, self._memory)
        try:
            await body.receive(scope, receive)
            # Clients that send slowly take no place of those that wait for their answers.
            self._check_room()
            self._active += 1
            try:
                await self._compute(scope, body.data, receive, answer)
            finally:
                self._active -= 1
        finally:
            body.release()
            self._trim_later()

    def _check_room(self) -> None:
        if self._active >= self._options.max_queue:
            raise RequestError(503, f'{self._active} requests are held; try again later.')

    async def _compute(
        self, scope: Scope, data: bytes, receive: Receive, answer: '_Answer'
    ) -> None:
        """Runs the application for limited time, in which the client need not read the answer."""
        seconds = self._options.timeout_s
        try:
            async with asyncio.timeout(seconds) as limit:
                answer.on_start = lambda: limit.reschedule(None)
                await self._run(scope, data, receive, answer)
        except TimeoutError as error:
            raise RequestError(504, f'took more than {seconds:g} seconds.') from error

    def _trim_later(self) -> None:
        """Gives the memory of large requests back to the system some time after them."""
        if self._memory.peak > _LARGE and self._trim is None:
            loop = asyncio.get_running_loop()
            self._trim = loop.call_later(_TRIM_SECONDS, self._start_trim, loop)

    def _start_trim(self, loop: asyncio.AbstractEventLoop) -> None:
        self._trim, self._memory.peak = None, self._memory.held
        loop.run_in_executor(None, release_freed_memory)

    async def _run(self, scope: Scope, data: bytes, receive: Receive, answer: '_Answer') -> None:
        """Runs the application until it has answered or the client has gone."""
        messages = iter([{'type': 'http.request', 'body': data, 'more_body': False}])
        is_forever = asyncio.Event()

        async def replay() -> MutableMapping[str, Any]:
            for message in messages:
                return message
            await is_forever.wait()
            raise AssertionError

        async def watch() -> None:
            while (await receive())['type'] != 'http.disconnect':
                pass

        app = asyncio.ensure_future(self._app(scope, replay, answer))
        watcher = asyncio.ensure_future(watch())
        try:
            await asyncio.wait({app, watcher}, return_when=asyncio.FIRST_COMPLETED)
            if not app.done():
                raise _DisconnectError
            app.result()
        finally:
            for task in (app, watcher):
                task.cancel()
            await asyncio.gather(app, watcher, return_exceptions=True)


def _forget_variables(error: BaseException | None) -> None:
    """Releases bodies and texts, which the error of a task holds until garbage is collected."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


class _DisconnectError(Exception):
    """The client has closed the connection."""


class _Answer:
    """`send` for an answer whose bytes are held until the client has read nearly all.

    Args:
      send: of the server.
      memory: what counts the bytes.

    Attributes:
      status: of the answer; 0 until it begins.
      on_start: called when it begins.
    """

    def __init__(self, send: Send, memory: Memory):
        self._send, self._memory = send, memory
        self._start: MutableMapping[str, Any] = {}
        self.status = 0
        self.on_start: Callable[[], None] = lambda: None

    async def __call__(self, message: MutableMapping[str, Any]) -> None:
        if message['type'] == 'http.response.start':
            self._start = message  # It is sent when there is room for its body.
            return
        with self._memory.hold(len(message.get('body', b''))):
            if not self.status:
                self.on_start()
                self.status = self._start['status']
                await self._send(self._start)
            await self._send({**message, 'more_body': True})
            # The server waits with the next part until the client has read this one.
            await self._send({**message, 'body': b'', 'more_body': message.get('more_body', False)})

    async def fail(self, status: int, message: str) -> None:
        """Sends an error, unless an answer has begun."""
        if self.status:
            return
        self.status = status
        headers, body = error_answer(status, message)
        if status in (408, 413):
            # The rest of the body is not read.
            headers.append((b'connection', b'close'))
        await self._send({'type': 'http.response.start', 'status': status, 'headers': headers})
        await self._send({'type': 'http.response.body', 'body': body})


def error_answer(status: int, message: str) -> tuple[list[tuple[bytes, bytes]], bytes]:
    """Returns the headers and the body of an error."""
    body = json.dumps({'error': message}).encode()
    headers = [(b'content-type', b'application/json')]
    headers.append((b'content-length', str(len(body)).encode()))
    if status == 503:
        headers.append((b'retry-after', str(_RETRY_AFTER_SECONDS).encode()))
    return headers, body


class _Body:
    """The body of a request, and its share of the memory."""

    def __init__(self, options: ServeOptions, memory: Memory):
        self._options, self._memory = options, memory
        self._held, self._has_more = 0, True
        self.data = b''

    def release(self) -> None:
        self._memory.give_back(self._held)
        self._held, self.data = 0, b''

    async def receive(self, scope: Scope, receive: Receive) -> None:
        """Reads the body.

        Raises:
          RequestError: with status 408 if it does not come in time, 413 if it is larger than is
            allowed, also if its header says less, 415 if it is compressed, and 503 without memory.
        """
        headers = dict(scope['headers'])
        if headers.get(b'content-encoding', b'identity') != b'identity':
            raise RequestError(415, 'expected a body without Content-Encoding.')
        length = headers.get(b'content-length', b'0')
        stated = int(length) if length.isdigit() else 0
        if stated > self._options.max_body:
            # A client that asks first, by Expect, has sent nothing yet.
            if b'expect' not in headers:
                await self._drain(receive)
            raise self._too_large()
        try:
            async with asyncio.timeout(self._options.timeout_s):
                await self._read(receive)
        except TimeoutError as error:
            seconds = self._options.timeout_s
            message = f'the body did not arrive within {seconds:g} seconds.'
            raise RequestError(408, message) from error
        except RequestError:
            await self._drain(receive)
            raise

    async def _read(self, receive: Receive) -> None:
        parts = []
        while self._has_more:
            message = await receive()
            if message['type'] == 'http.disconnect':
                raise _DisconnectError
            part, self._has_more = message.get('body', b''), message.get('more_body', False)
            if self._held + len(part) > self._options.max_body:
                raise self._too_large()
            self._memory.take(len(part))
            self._held += len(part)
            parts.append(part)
        self.data = b''.join(parts)

    def _too_large(self) -> RequestError:
        return RequestError(413, f'expected a body of at most {self._options.max_body} bytes.')

    async def _drain(self, receive: Receive) -> None:
        """Reads what follows of the body, within limits of bytes and time, and drops it."""
        left = _DRAIN_FACTOR * self._options.max_body
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_DRAIN_SECONDS):
                while self._has_more and left > 0:
                    message = await receive()
                    left -= len(message.get('body', b''))
                    self._has_more = message.get('more_body', False)
