"""The application of the server: its page and its paths."""

import asyncio
import contextlib
import importlib.resources
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, Literal

import fastapi
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, Response
from starlette.formparsers import MultiPartException, MultiPartParser

from object_detection.data import image_files
from object_detection.errors import format_list
from object_detection.serving import json_bodies, tf_serving
from object_detection.serving.batching import Batcher
from object_detection.serving.gate import Gate
from object_detection.serving.limits import Memory, RequestError, ServeOptions
from object_detection.serving.measurements import CONTENT_TYPE, Measurements
from object_detection.serving.model import (
    FLOAT,
    LoadedModel,
    Outputs,
    Row,
    describe_detections,
    read_picture,
    read_size,
)

# Larger bodies of JSON are read one at a time.
_LARGE = 1_000_000
# Forms are copied into files in memory, and from there.
_FORM_COPIES = 2
_PIECE = 65_536
# What the decoding of an image holds: its pixels, and those of the upright image; and its values as
# floats, if it has more than 8 bits or the model takes floats.
_PIXEL_BYTES, _FLOAT_PIXEL_BYTES = 6, 18
_PAGE_RULES = {
    'Content-Security-Policy': "default-src 'none'; script-src 'unsafe-inline'; style-src "
    "'unsafe-inline'; img-src blob: data:; connect-src 'self'; base-uri 'none'; form-action 'none'",
    'X-Content-Type-Options': 'nosniff',
}
_JSON, _MULTIPART, _IMAGE = 'application/json', 'multipart/form-data', 'image/'
_BEST = 'best'
_Threshold = Annotated[float, fastapi.Query(ge=0, le=1)] | Literal['best']
_PREDICT_FIELDS = ('score_threshold', 'max_detections', 'masks')


class Service:
    """A model behind a batcher, with threads that decode images and write answers.

    Args:
      model: the model; its `run` is called by one thread.
      options: the limits.

    Attributes:
      model, options: as given.
      memory: what counts the bytes that requests hold.
      measurements: what counts requests and batches.
      is_draining: whether the server will stop, and says so.
    """

    def __init__(self, model: LoadedModel, options: ServeOptions):
        self.model, self.options = model, options
        self.memory = Memory(options.max_memory_mb * 1e6)
        self.measurements = Measurements(lambda: self._batcher.count, lambda: self.memory.held)
        self._batcher = Batcher(model.run, options, self.measurements.observe_batch)
        self._pool = ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix='request')
        self._reader = ThreadPoolExecutor(1, thread_name_prefix='request_body')
        self.is_draining = False

    @property
    def is_accepting(self) -> bool:
        return self._batcher.is_accepting

    def close(self) -> None:
        """Computes what was accepted, and accepts no more."""
        self._batcher.close()

    def end(self) -> None:
        """Ends all threads; no request may be waiting for its answer."""
        self.close()
        self._pool.shutdown()
        self._reader.shutdown()

    async def aside(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Runs a function in one of the threads."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, function, *arguments)

    async def read(self, function: Callable[..., Any], body: bytes, *arguments: Any) -> Any:
        """Runs a function on a body of JSON in a thread; large bodies one after another."""
        pool = self._reader if len(body) > _LARGE else self._pool
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(pool, function, body, *arguments)

    async def run(self, rows: Sequence[Row]) -> list[Outputs]:
        """Returns the outputs of each row; `submit` of the batcher says what it raises."""
        futures = self._batcher.submit([(_kind(row), row) for row in rows])
        return list(await asyncio.gather(*map(asyncio.wrap_future, futures)))

    async def detect(
        self, files: Sequence[tuple[str, bytes]], wanted: Mapping[str, Any]
    ) -> list[dict[str, Any]]:
        """Returns the detections of image files, given with the names that errors show."""
        _check_count(files, self.options)
        self._batcher.check_room(len(files))
        sizes = [await self._named(name, read_size, encoded) for name, encoded in files]
        held = sum(
            height * width * self._bytes_of_pixel(encoded)
            for (height, width), (_, encoded) in zip(sizes, files, strict=True)
        )
        with self.memory.hold(held):
            pictures = [await self._named(name, read_picture, encoded) for name, encoded in files]
            outputs = await self.run([self.model.as_row(picture) for picture in pictures])
        shapes = [picture.values.shape[:2] for picture in pictures]
        del pictures
        return [
            {
                'file': name,
                'height': shape[0],
                'width': shape[1],
                'detections': await self.aside(self._describe, each, shape, wanted),
            }
            for (name, _), shape, each in zip(files, shapes, outputs, strict=True)
        ]

    def _bytes_of_pixel(self, encoded: bytes) -> int:
        has_floats = self.model.input.dtype == FLOAT or image_files.has_16_bits(encoded)
        return _FLOAT_PIXEL_BYTES if has_floats else _PIXEL_BYTES

    def _describe(
        self, outputs: Outputs, size: tuple[int, int], wanted: Mapping[str, Any]
    ) -> list[dict[str, Any]]:
        return describe_detections(outputs, size, self.model.class_names, **wanted)

    async def _named(self, name: str, function: Callable, encoded: bytes) -> Any:
        """Runs a function on a file aside; its errors say which file it was."""
        try:
            return await self.aside(function, encoded, self.options.max_pixels)
        except RequestError as error:
            raise RequestError(error.status, f'{name}: {error}') from error


def create_app(model: LoadedModel, options: ServeOptions) -> fastapi.FastAPI:
    """Returns the application for one model, which stops with the end of its lifespan.

    Args:
      model: a loaded model.
      options: names and limits.
    """
    service = Service(model, options)

    @contextlib.asynccontextmanager
    async def lifespan(_: fastapi.FastAPI) -> AsyncIterator[None]:
        yield
        await asyncio.get_running_loop().run_in_executor(None, service.end)

    # Without the pages that FastAPI makes: they load scripts from elsewhere, and show no bodies.
    app = fastapi.FastAPI(openapi_url=None, lifespan=lifespan)
    app.state.service = service
    app.add_middleware(
        Gate, options=options, memory=service.memory, measurements=service.measurements
    )
    _add_errors(app)
    _add_page(app, service)
    _add_predict(app, service)
    _add_tf_serving(app, service)
    return app


def _add_errors(app: fastapi.FastAPI) -> None:
    """Gives all errors the form of TensorFlow Serving's: {"error": message}."""

    async def failed(_: fastapi.Request, error: Exception) -> Response:
        return JSONResponse({'error': str(error.detail)}, error.status_code)

    async def invalid(_: fastapi.Request, error: RequestValidationError) -> Response:
        # The place of a parameter that may be of two types goes on with the type.
        problems = [f'{each["loc"][:2][-1]}: {each["msg"]}' for each in error.errors()]
        return JSONResponse({'error': format_list(problems, separator='; ')}, 422)

    for status in (400, 404, 405):
        app.add_exception_handler(status, failed)
    app.add_exception_handler(RequestValidationError, invalid)


def _add_page(app: fastapi.FastAPI, service: Service) -> None:
    page = (importlib.resources.files(__package__) / 'page.html').read_text(encoding='utf-8')
    model, options = service.model, service.options

    @app.get('/')
    async def show_page() -> Response:
        return HTMLResponse(page, headers=_PAGE_RULES)

    @app.get('/model')
    async def show_model() -> dict[str, Any]:
        return {
            'name': options.model_name,
            'version': options.model_version,
            'source': os.path.basename(os.path.normpath(model.source)),
            'precision': model.precision,
            'class_names': model.class_names,
            'advised_threshold': model.advised_threshold,
            'max_body': options.max_body,
            'max_pixels': options.max_pixels,
            'max_images': options.max_images,
        }

    @app.get('/healthz')
    async def show_health() -> Response:
        return _health(service.is_accepting)

    @app.get('/readyz')
    async def show_readiness() -> Response:
        return _health(service.is_accepting and not service.is_draining)

    @app.get('/metrics')
    async def show_metrics() -> Response:
        return Response(service.measurements.text(), media_type=CONTENT_TYPE)


def _health(is_well: bool) -> Response:
    return JSONResponse(*(({'status': 'ok'},) if is_well else ({'status': 'stopping'}, 503)))


def _add_predict(app: fastapi.FastAPI, service: Service) -> None:
    @app.post('/predict')
    async def predict(
        request: fastapi.Request,
        score_threshold: Annotated[_Threshold, fastapi.Query()] = 0.0,
        max_detections: Annotated[int | None, fastapi.Query(ge=1)] = None,
        masks: bool = True,
    ) -> Response:
        """Returns the detections of image files: multipart, JSON with base64, or one raw image."""
        unknown = sorted(set(request.query_params) - set(_PREDICT_FIELDS))
        if unknown:
            raise RequestError(
                422, f'expected {", ".join(_PREDICT_FIELDS)}. Received: {unknown[0]!r:.80}.'
            )
        if score_threshold == _BEST:
            score_threshold = service.model.advised_threshold
            if score_threshold is None:
                raise RequestError(422, f'score_threshold: the model has no {_BEST} one.')
        wanted = {'min_score': score_threshold, 'max_detections': max_detections, 'masks': masks}
        kind = request.headers.get('content-type', '').partition(';')[0].strip().lower()
        body = await request.body()
        with service.memory.hold(_bytes_to_read(kind) * len(body)):
            found = await service.detect(await _read_files(request, kind, body, service), wanted)
        return JSONResponse({'predictions': found})


def _bytes_to_read(kind: str) -> int:
    """Returns how many bytes reading takes for each byte of a body of a type."""
    return {_JSON: json_bodies.BYTES_PER_BYTE, _MULTIPART: _FORM_COPIES}.get(kind, 0)


async def _read_files(
    request: fastapi.Request, kind: str, body: bytes, service: Service
) -> list[tuple[str, bytes]]:
    """Returns names and bytes of the image files of a request.

    Raises:
      RequestError: with status 415 for another type of content, and 422 for a body without images
        or with other fields.
    """
    if kind == _MULTIPART:
        return await _read_form(request, body, service.options)
    if kind.startswith(_IMAGE):
        return [('image', body)]
    if kind != _JSON:
        raise RequestError(
            415, f'expected {_MULTIPART}, {_JSON} or {_IMAGE}*. Received: {kind!r:.80}.'
        )
    return await service.read(_read_texts, body, service.options)


def _read_texts(body: bytes, options: ServeOptions) -> list[tuple[str, bytes]]:
    values = json_bodies.read(body, 422, options.max_images)
    if not isinstance(values, dict) or set(values) != {'images'}:
        raise RequestError(422, 'expected {"images": [...]} with base64 texts.')
    images = values['images']
    if not isinstance(images, list) or not images:
        raise RequestError(422, 'images: expected a list of base64 texts.')
    _check_count(images, options)
    named = ((f'images[{i}]', text) for i, text in enumerate(images))
    return [(name, tf_serving.decode_base64(text, name, status=422)) for name, text in named]


def _check_count(images: Sequence[Any], options: ServeOptions) -> None:
    if len(images) > options.max_images:
        raise RequestError(
            413, f'expected at most {options.max_images} images. Received: {len(images)}.'
        )


class _FormParser(MultiPartParser):
    """Keeps files in memory, where the body is already: each on the disk takes a descriptor."""

    spool_max_size = sys.maxsize
    # A file that is cut off is not among the items of the form.
    is_within_file = False

    def on_part_begin(self) -> None:
        self.is_within_file = True
        super().on_part_begin()

    def on_part_end(self) -> None:
        super().on_part_end()
        self.is_within_file = False


async def _read_form(
    request: fastapi.Request, body: bytes, options: ServeOptions
) -> list[tuple[str, bytes]]:
    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(body), _PIECE):
            yield body[start : start + _PIECE]
            await asyncio.sleep(0)  # Other requests have their turn.
        if parser.is_within_file:
            raise MultiPartException('the form ends within a file.')

    parser = _FormParser(request.headers, pieces(), max_files=options.max_images, max_fields=16)
    try:
        form = await parser.parse()
    except MultiPartException as error:
        raise RequestError(400, error.message) from error
    try:
        files = []
        for field, value in form.multi_items():
            if isinstance(value, str):
                raise RequestError(422, f'{field!r:.80}: expected image files alone, not fields.')
            files.append((value.filename or field, await value.read()))
    finally:
        await form.close()
    if not files:
        raise RequestError(422, 'expected at least one image file. Received: none.')
    return files


def _add_tf_serving(app: fastapi.FastAPI, service: Service) -> None:
    options = service.options

    @app.post('/v1/models/{name}:predict')
    @app.post('/v1/models/{name}/versions/{version}:predict')
    async def predict_tensors(
        request: fastapi.Request, name: str, version: str | None = None
    ) -> Response:
        tf_serving.check_model(options, name, version)
        body = await request.body()
        with service.memory.hold(json_bodies.BYTES_PER_BYTE * len(body)):
            parsed = await service.read(_parse_tensors, body, service.model, options)
            outputs = await service.run(parsed.rows)
        text = await service.aside(tf_serving.answer, outputs, parsed.is_columnar)
        return Response(text, media_type=_JSON)

    @app.get('/v1/models/{name}')
    @app.get('/v1/models/{name}/versions/{version}')
    async def show_status(name: str, version: str | None = None) -> dict[str, Any]:
        tf_serving.check_model(options, name, version)
        return tf_serving.status(options, is_available=service.is_accepting)

    @app.get('/v1/models/{name}/metadata')
    @app.get('/v1/models/{name}/versions/{version}/metadata')
    async def show_metadata(name: str, version: str | None = None) -> dict[str, Any]:
        tf_serving.check_model(options, name, version)
        return tf_serving.metadata(service.model, options)


def _parse_tensors(
    body: bytes, model: LoadedModel, options: ServeOptions
) -> tf_serving.PredictRequest:
    parsed = tf_serving.parse(body, model.input, options)
    return parsed._replace(rows=[model.check_row(row, options.max_pixels) for row in parsed.rows])


def _kind(row: Row) -> Any:
    """Returns what the rows of a batch have in common: the shape and dtype of images."""
    return None if isinstance(row, bytes) else (row.shape, row.dtype.str)
