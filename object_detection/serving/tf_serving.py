"""The REST API of TensorFlow Serving: shapes of its requests, answers and errors.

https://www.tensorflow.org/tfx/serving/api_rest describes it. Imports no TensorFlow.
"""

import base64
import binascii
import json
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from object_detection.serving import json_bodies
from object_detection.serving.limits import RequestError, ServeOptions
from object_detection.serving.model import FLOAT, STRING, LoadedModel, Row, TensorInfo, check_pixels

SIGNATURE = 'serving_default'
_METHOD = 'tensorflow/serving/predict'
_NUMBERS_AT_ONCE = 10_000
_URL_LETTERS = bytes.maketrans(b'-_', b'+/')
_KEYS = {'signature_name', 'instances', 'inputs'}
_TYPES = {'uint8': 'DT_UINT8', 'float32': 'DT_FLOAT', 'string': 'DT_STRING', 'int64': 'DT_INT64'}


class PredictRequest(NamedTuple):
    """The rows of a request, and whether they came by columns (`inputs`)."""

    rows: list[Row]
    is_columnar: bool


def parse(text: bytes, info: TensorInfo, options: ServeOptions) -> PredictRequest:
    """Reads the body of a `:predict` request.

    Args:
      text: the JSON.
      info: the input of the model.
      options: limits of images and pixels.

    Raises:
      RequestError: with status 400 for a body that does not fit the API or the model, and 413
        for too many images or pixels.
    """
    end = time.monotonic() + options.timeout_s

    def as_pixels(rows: np.ndarray) -> np.ndarray:
        if time.monotonic() > end:  # Nobody waits for it any more, but others for this thread.
            raise RequestError(504, f'reading took more than {options.timeout_s:g} seconds.')
        return _as_pixels(rows, info)

    body = json_bodies.read(
        text, 400, options.max_images, None if info.dtype == STRING else as_pixels
    )
    if not isinstance(body, dict):
        raise RequestError(400, f'expected a JSON object. Received: {_kind(body)}.')
    if unknown := sorted(set(body) - _KEYS):
        raise RequestError(
            400, f'expected the keys {", ".join(sorted(_KEYS))}. Received: {unknown[0]!r:.80}.'
        )
    signature = body.get('signature_name') or SIGNATURE
    if signature != SIGNATURE:
        raise RequestError(
            400, f'Serving signature name: "{signature!s:.80}" not found in signature def'
        )
    if ('instances' in body) == ('inputs' in body):
        raise RequestError(400, 'expected one of `instances` (rows) and `inputs` (columns).')
    is_columnar = 'inputs' in body
    values = _of_columns(body['inputs'], info) if is_columnar else _of_rows(body, info)
    if not isinstance(values, list | np.ndarray) or not len(values):
        raise RequestError(
            400, f'{info.name}: expected a list of at least one image. Received: {_kind(values)}.'
        )
    if len(values) > options.max_images:
        raise RequestError(
            413, f'expected at most {options.max_images} images. Received: {len(values)}.'
        )
    if info.dtype == STRING:
        return PredictRequest([_as_bytes(value, info) for value in values], is_columnar)
    return PredictRequest(list(_as_images(values, info, options.max_pixels)), is_columnar)


def answer(outputs: Sequence[Mapping[str, np.ndarray]], is_columnar: bool) -> bytes:
    """Returns the body of the answer: `predictions` by rows, or `outputs` by columns.

    Args:
      outputs: for each row, the tensors without the axis of the batch.
      is_columnar: whether the request was by columns.
    """
    rows = [{name: _text(value) for name, value in row.items()} for row in outputs]
    if not is_columnar:
        # A model of one output gives its values without its name.
        return f'{{"predictions": {_list(map(_without_single_name, rows))}}}'.encode()
    columns = {name: _list(row[name] for row in rows) for name in rows[0]}
    return f'{{"outputs": {_without_single_name(columns)}}}'.encode()


def _text(value: np.ndarray) -> str:
    """Returns JSON of an array, some rows at a time: Python's other threads wait for each call."""
    if not value.ndim:
        return json.dumps(value.tolist())
    count = max(1, _NUMBERS_AT_ONCE * len(value) // max(1, value.size))
    parts = (value[i : i + count].tolist() for i in range(0, len(value), count))
    return _list(json.dumps(part)[1:-1] for part in parts)


def _list(texts: Iterable[str]) -> str:
    return f'[{", ".join(texts)}]'


def status(options: ServeOptions, *, is_available: bool) -> dict[str, Any]:
    """Returns the state of the model."""
    state = {
        'version': str(options.model_version),
        'state': 'AVAILABLE' if is_available else 'UNLOADING',
        'status': {'error_code': 'OK', 'error_message': ''},
    }
    return {'model_version_status': [state]}


def metadata(model: LoadedModel, options: ServeOptions) -> dict[str, Any]:
    """Returns the signature of the model."""
    inputs = {model.input.name: _tensor(model.input, f'{SIGNATURE}_{model.input.name}:0')}
    outputs = {
        info.name: _tensor(info, f'StatefulPartitionedCall:{i}')
        for i, info in enumerate(model.outputs)
    }
    signature = {'inputs': inputs, 'outputs': outputs, 'method_name': _METHOD}
    version = str(options.model_version)
    return {
        'model_spec': {'name': options.model_name, 'signature_name': '', 'version': version},
        'metadata': {'signature_def': {'signature_def': {SIGNATURE: signature}}},
    }


def check_model(options: ServeOptions, name: str, version: str | None) -> None:
    """Raises RequestError, with status 404, for the name or the version of another model."""
    is_version = version in (None, str(options.model_version))
    if name == options.model_name and is_version:
        return
    wanted = f'Latest({name:.80})' if version is None else f'Specific({name:.80}, {version:.20})'
    raise RequestError(404, f'Servable not found for request: {wanted}')


def _of_rows(body: Mapping[str, Any], info: TensorInfo) -> Any:
    instances = body['instances']
    if isinstance(instances, np.ndarray):
        return instances
    if not isinstance(instances, list):
        raise RequestError(400, f'`instances`: expected a list. Received: {_kind(instances)}.')
    return [_named(value, info) for value in instances]


def _of_columns(inputs: Any, info: TensorInfo) -> Any:
    values = _named(inputs, info)
    # One image may come without the list.
    return [values] if info.dtype == STRING and isinstance(values, dict) else values


def _named(value: Any, info: TensorInfo) -> Any:
    """Returns the tensor of {name: tensor}; a tensor may also come without the name."""
    if not isinstance(value, dict) or set(value) == {'b64'}:
        return value
    if set(value) != {info.name}:
        raise RequestError(
            400,
            f'expected the input {info.name!r} alone. Received: '
            f'{", ".join(sorted(value)) or "none"!s:.80}.',
        )
    return value[info.name]


def _as_bytes(value: Any, info: TensorInfo) -> bytes:
    if isinstance(value, dict) and set(value) == {'b64'}:
        return decode_base64(value['b64'], f'{info.name}: b64', status=400)
    if isinstance(value, str):
        # As TensorFlow Serving takes plain text.
        return value.encode('utf-8', 'surrogatepass')
    raise RequestError(
        400, f'{info.name}: expected {{"b64": "..."}} for each image. Received: {_kind(value)}.'
    )


def _as_images(values: Sequence[Any], info: TensorInfo, max_pixels: int) -> np.ndarray:
    """Returns images, arrays or nested lists, as [B, H, W, 3] of the input's dtype."""
    if _has_text(values):
        raise RequestError(400, f'{_expected(info)} of type {info.dtype}. Received: text.')
    try:
        array = np.asarray(values)
    except (ValueError, OverflowError) as error:
        raise RequestError(
            400, f'{_expected(info)}. Received: lists of several lengths.'
        ) from error
    array = _as_pixels(array, info)
    if array.ndim != 4 or array.shape[3] != 3 or 0 in array.shape:
        raise RequestError(400, f'{_expected(info)}. Received: the shape {list(array.shape)}.')
    check_pixels(*array.shape[1:3], max_pixels)
    return array


def _as_pixels(array: np.ndarray, info: TensorInfo) -> np.ndarray:
    """Returns numbers in the input's dtype."""
    is_float = info.dtype == FLOAT
    if array.dtype.kind not in ('iuf' if is_float else 'iu'):
        kind = 'objects, or numbers of several kinds' if array.dtype.kind == 'O' else ''
        kind = kind or array.dtype.name
        raise RequestError(400, f'{_expected(info)} of type {info.dtype}. Received: {kind}.')
    low, high = (float(array.min()), float(array.max())) if array.size else (0.0, 0.0)
    if not is_float and not 0 <= low <= high <= 255:
        raise RequestError(400, f'{_expected(info)}, 0 to 255. Received: {low:g} to {high:g}.')
    if not (math.isfinite(low) and math.isfinite(high)):
        raise RequestError(400, f'{_expected(info)}. Received: numbers that are not finite.')
    return array.astype(info.dtype, copy=False)


def _expected(info: TensorInfo) -> str:
    return f'{info.name}: expected images [height, width, 3] of one size, as lists of numbers'


def _has_text(value: Any) -> bool:
    """Whether lists hold text, each of which would take the memory of the longest in an array."""
    return isinstance(value, str) or (isinstance(value, list) and any(map(_has_text, value)))


def decode_base64(text: Any, where: str, *, status: int) -> bytes:
    """Returns the bytes of base64 text; raises RequestError, with the status, for anything else.

    The text may have white space, the alphabet of URLs, and no padding, as with TensorFlow Serving.
    """
    try:
        if not isinstance(text, str):
            raise TypeError
        plain = text.encode().translate(_URL_LETTERS, b' \t\r\n')
        return base64.b64decode(plain + b'=' * (-len(plain) % 4), validate=True)
    except (TypeError, ValueError, binascii.Error) as error:
        raise RequestError(status, f'{where}: expected base64 text. Received other.') from error


def _without_single_name(texts: Mapping[str, str]) -> str:
    if len(texts) == 1:
        return next(iter(texts.values()))
    return f'{{{", ".join(f"{json.dumps(name)}: {text}" for name, text in texts.items())}}}'


def _tensor(info: TensorInfo, name: str) -> dict[str, Any]:
    sizes = info.shape or ()
    return {
        'dtype': _TYPES.get(info.dtype, 'DT_INVALID'),
        'tensor_shape': {
            'dim': [{'size': str(-1 if size is None else size), 'name': ''} for size in sizes],
            'unknown_rank': info.shape is None,
        },
        'name': name,
    }


def _kind(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return 'a list'
    names = {dict: 'an object', list: 'a list', str: 'text', type(None): 'null', bool: 'a boolean'}
    return 'an empty list' if value == [] else names.get(type(value), 'a number')
