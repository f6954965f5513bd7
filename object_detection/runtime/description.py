"""What a model file is to its readers: inputs, preprocessing, outputs, classes, as JSON beside it.

`model.onnx` is described by `model.onnx.json` in the same folder. Formats whose files can hold
text (ONNX, TFLite) hold the same JSON inside, which is read if the file beside is absent.
"""

import dataclasses
import json
import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from object_detection.config.job_options import PRECISION_ALIASES, PRECISIONS
from object_detection.core.fields import DetectionFields
from object_detection.errors import UserError, expected, format_list
from object_detection.resizers.value_range import DEFAULT_RANGE, ValueRange
from object_detection.visualization.drawing import class_color

# Field of `details`: the numbers of the file, one of `formats.QUANTIZATIONS`.
QUANTIZATION = 'quantization'
# Version of the JSON: readers refuse others.
SCHEMA = 1
# Files of users are untrusted: no description of a real model comes near these.
_MAX_BYTES = 16 << 20
_MAX_SIDE = 1 << 16
_MAX_ENTRIES = 1 << 20
_MAX_VALUES = 1 << 30
_DTYPES = ('float32', 'float16', 'bfloat16', 'int8', 'uint8', 'int32', 'int64', 'bool')
_IMAGE_DTYPES = ('float32', 'uint8')
_PRECISIONS = tuple(name for name in PRECISIONS if name not in PRECISION_ALIASES)
_COLOR_ORDERS = ('RGB', 'GRAY')
# Without these outputs there are no detections.
_NEEDED = (DetectionFields.BOXES, DetectionFields.SCORES, DetectionFields.NUM_DETECTIONS)
# Names of the inputs of a model of one image size.
IMAGE, TRUE_IMAGE_SHAPE = 'image', 'true_image_shape'


@dataclasses.dataclass(frozen=True)
class TensorDescription:
    """An input or a weight of a model.

    Attributes:
      name: the name by which the file's runtime takes it.
      dtype: a NumPy name, such as 'float32'.
      shape: the size of each axis; None for an axis of any size.
    """

    name: str
    dtype: str
    shape: tuple[int | None, ...]


@dataclasses.dataclass(frozen=True)
class ModelDescription:
    """A model file as its clients need to know it.

    Attributes:
      format: a key of `formats.EXPORT_FORMATS`.
      toolkit_version: version of this toolkit that wrote the file.
      inputs: in the order of the file. The first one holds images [B, H, W, C], of channels in the
        order `color_order`, values of `value_range`: the model normalizes them itself. A second
        one, `true_image_shape`, int32 [B, 3], is (height, width, channels) of each image without
        its padding.
      outputs: names in the order of the file; those of `DetectionFields`.
      resizer: text of the ImageResizer proto by which images are brought to the input's size; ''
        if the model resizes images of any size itself.
      class_names: id, from 1 -> name; empty if no label map is known.
      first_class_id: the number by which the file's `detection_classes` denote the class with the
        id 1: 1, or 0 for formats whose classes are 0-based.
      precision: the precision in which the model computes.
      color_order: 'RGB'; 'GRAY' for a single channel.
      value_range: the values of the first input, min and max. Where the resizer has a range of its
        own, images are mapped from that one before they are resized.
      advised_threshold: the score from which on F1 was greatest in the model's evaluation; None
        if it was not evaluated.
      weights: arguments of the model after its inputs, in order, of formats that keep the weights
        in a file of their own.
      details: further facts of a format, JSON values by name.
    """

    format: str
    toolkit_version: str
    inputs: tuple[TensorDescription, ...]
    outputs: tuple[str, ...]
    resizer: str = ''
    class_names: Mapping[int, str] = dataclasses.field(default_factory=dict)
    first_class_id: int = 1
    precision: str = 'float32'
    color_order: str = 'RGB'
    value_range: ValueRange = DEFAULT_RANGE
    advised_threshold: float | None = None
    weights: tuple[TensorDescription, ...] = ()
    details: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def to_json(self) -> str:
        """Returns the JSON, which lists classes with the colours in which `tfod` draws them."""
        described = dataclasses.asdict(self)
        described['classes'] = [
            {'id': number, 'name': name, 'color': list(class_color(number))}
            for number, name in sorted(described.pop('class_names').items())
        ]
        return json.dumps({'schema': SCHEMA, **described}, indent=1, ensure_ascii=False) + '\n'


def path_beside(path: pathlib.Path) -> pathlib.Path:
    """Returns the path of the JSON that describes the model file `path`."""
    return path.with_name(f'{path.name}.json')


def read_beside(path: pathlib.Path, format_name: str) -> ModelDescription | None:
    """Reads the description of the model file `path`; None if there is no file of it.

    Args:
      path: the model file.
      format_name: its format.

    Raises:
      UserError: if the file is no description; the message names file and field.
    """
    beside = path_beside(path)
    if not beside.is_file():
        return None
    if beside.stat().st_size > _MAX_BYTES:
        raise UserError(f'{beside}: expected a model description of at most {_MAX_BYTES} bytes.')
    return parse(beside.read_bytes(), str(beside), format_name)


def parse(text: str | bytes, where: str, format_name: str) -> ModelDescription:
    """Parses a description.

    Args:
      text: the JSON.
      where: name of the file, for errors.
      format_name: the format of the file that it describes.

    Raises:
      UserError: if it is no description; the message names `where` and the field.
    """
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f'{where}: expected JSON that describes a model: {error}.') from error
    if not isinstance(values, dict):
        raise UserError(f'{where}: expected a JSON object. Received: a {type(values).__name__}.')
    fields = _Fields(values, where)
    schema = fields.get('schema', int)
    if schema != SCHEMA:
        raise expected(f'{where}: schema', f'{SCHEMA}, which this version reads', schema)
    return ModelDescription(
        format=fields.one_of('format', (format_name,)),
        toolkit_version=fields.get('toolkit_version', str),
        inputs=fields.inputs(),
        outputs=fields.outputs(),
        resizer=fields.get('resizer', str),
        class_names=fields.class_names(),
        first_class_id=fields.one_of('first_class_id', (0, 1)),
        precision=fields.one_of('precision', _PRECISIONS),
        color_order=fields.one_of('color_order', _COLOR_ORDERS),
        value_range=fields.value_range(),
        advised_threshold=fields.advised_threshold(),
        weights=fields.tensors('weights'),
        details=fields.get('details', dict),
    )


class _Fields:
    """Typed access to the fields of a JSON object of a file."""

    def __init__(self, values: dict[str, Any], where: str):
        self._values, self._where = values, where

    def get(self, name: str, kind: type) -> Any:
        value = self._values.get(name)
        # A bool is an int in Python, and none here.
        if not isinstance(value, kind) or isinstance(value, bool):
            raise expected(f'{self._where}: {name}', kind.__name__, json.dumps(value)[:80])
        return value

    def one_of(self, name: str, known: Sequence[Any]) -> Any:
        value = self.get(name, type(known[0]))
        if value not in known:
            raise expected(
                f'{self._where}: {name}', ' or '.join(map(str, known)), json.dumps(value)[:80]
            )
        return value

    def items(self, name: str, kind: type) -> list[Any]:
        values = self.get(name, list)
        if len(values) > _MAX_ENTRIES:
            raise UserError(f'{self._where}: {name}: expected at most {_MAX_ENTRIES} entries.')
        return [
            _Fields({f'{name}[{i}]': value}, self._where).get(f'{name}[{i}]', kind)
            for i, value in enumerate(values)
        ]

    def tensors(self, name: str) -> tuple[TensorDescription, ...]:
        return tuple(
            _Fields(entry, f'{self._where}: {name}[{i}]')._tensor()
            for i, entry in enumerate(self.items(name, dict))
        )

    def inputs(self) -> tuple[TensorDescription, ...]:
        inputs = self.tensors('inputs')
        if not inputs or len(inputs[0].shape) != 4:
            raise UserError(f'{self._where}: inputs: expected images [B, H, W, C] first.')
        images, *others = inputs
        if 0 in images.shape:
            raise expected(
                f'{self._where}: inputs[0]: shape', 'null or sizes above 0', list(images.shape)
            )
        if images.dtype not in _IMAGE_DTYPES:
            raise expected(
                f'{self._where}: inputs[0]: dtype', ' or '.join(_IMAGE_DTYPES), images.dtype
            )
        if others not in ([], [TensorDescription(TRUE_IMAGE_SHAPE, 'int32', (images.shape[0], 3))]):
            raise UserError(
                f'{self._where}: inputs[1]: expected {TRUE_IMAGE_SHAPE}, int32 '
                f'{json.dumps([images.shape[0], 3])}, alone. '
                f'Received: {format_list(each.name for each in others)}.'
            )
        return inputs

    def outputs(self) -> tuple[str, ...]:
        names = self.items('outputs', str)
        if len(set(names)) < len(names) or not set(_NEEDED) <= set(names):
            raise expected(
                f'{self._where}: outputs', f'distinct names, with {format_list(_NEEDED)}', names
            )
        return tuple(names)

    def value_range(self) -> ValueRange:
        values = self.get('value_range', list)
        are_numbers = all(type(each) in (int, float) and math.isfinite(each) for each in values)
        if len(values) != 2 or not are_numbers or not values[0] < values[1]:
            raise expected(
                f'{self._where}: value_range', 'two ascending numbers', json.dumps(values)[:80]
            )
        return ValueRange(*values)

    def advised_threshold(self) -> float | None:
        """Returns the field, which files of earlier versions do not have."""
        value = self._values.get('advised_threshold')
        if value is not None and not (type(value) in (int, float) and 0 <= value <= 1):
            raise expected(
                f'{self._where}: advised_threshold', 'null or 0 to 1', json.dumps(value)[:80]
            )
        return value

    def class_names(self) -> dict[int, str]:
        rows = [_Fields(entry, f'{self._where}: classes') for entry in self.items('classes', dict)]
        names = {row.get('id', int): row.get('name', str) for row in rows}
        if len(names) < len(rows) or min(names, default=1) < 1:
            raise UserError(f'{self._where}: classes: expected different ids of at least 1.')
        return names

    def _tensor(self) -> TensorDescription:
        shape = self.get('shape', list)
        for size in shape:
            is_size = isinstance(size, int) and not isinstance(size, bool)
            if size is not None and not (is_size and 0 <= size <= _MAX_SIDE):
                raise expected(
                    f'{self._where}: shape', f'sizes up to {_MAX_SIDE}', json.dumps(shape)[:80]
                )
        dtype = self.one_of('dtype', _DTYPES)
        if math.prod(size or 1 for size in shape) > _MAX_VALUES:
            raise expected(
                f'{self._where}: shape', f'at most {_MAX_VALUES} values', json.dumps(shape)[:80]
            )
        return TensorDescription(self.get('name', str), dtype, tuple(shape))
