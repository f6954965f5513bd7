"""Prints a config with the defaults of the fields that it leaves out.

Writes a pipeline config.
"""

import io
import math
from collections.abc import Iterator
from typing import Any

from google.protobuf import text_format
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from object_detection.config import ranges, walk
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from object_detection.system import files

_INDENT = '  '


def to_text(message: Message) -> str:
    """Returns a text proto that reads back as exactly the same config.

    Fields are in the order of the schema. A field that is not set is added as a comment with its
    default, `# name: value`, if the schema names a default and the field has an effect. A message
    that is not set is omitted, since for most messages its absence is a choice of its own.
    """
    return ''.join(f'{line}\n' for line in _lines(message))


def to_dict(message: Message) -> dict[str, Any]:
    """Returns what `to_text` shows as dictionaries, lists, numbers and texts.

    A number that is not finite is a text, such as 'inf'.
    """
    found: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        if field.is_repeated:
            values = getattr(message, field.name)
            if walk.is_map(field):
                value = field.message_type.fields_by_name['value']
                found[field.name] = {str(key): _plain(value, values[key]) for key in values}
            else:
                found[field.name] = [_plain(field, each) for each in values]
        elif message.HasField(field.name):
            found[field.name] = _plain(field, getattr(message, field.name))
        elif field.has_default_value and not _has_no_effect(field):
            found[field.name] = _plain(field, field.default_value)
    return found


def _plain(field: FieldDescriptor, value: Any) -> Any:
    if isinstance(value, Message):
        return to_dict(value)
    if field.enum_type is not None:
        return field.enum_type.values_by_number[value].name
    if isinstance(value, bytes):
        return value.decode(errors='backslashreplace')
    is_infinite = isinstance(value, float) and not math.isfinite(value)
    return str(value) if is_infinite else value


def _lines(message: Message) -> Iterator[str]:
    for field in message.DESCRIPTOR.fields:
        if field.is_repeated:
            yield from _repeated_lines(message, field)
        elif message.HasField(field.name):
            yield from _value_lines(field, getattr(message, field.name))
        elif field.has_default_value and not _has_no_effect(field):
            for line in _value_lines(field, field.default_value):
                yield f'# {line}'


def _repeated_lines(message: Message, field: FieldDescriptor) -> Iterator[str]:
    values = getattr(message, field.name)
    if walk.is_map(field):
        for key in sorted(values):
            entry = type(message)()
            target = getattr(entry, field.name)
            if isinstance(values[key], Message):
                target[key].CopyFrom(values[key])
            else:
                target[key] = values[key]
            yield from text_format.MessageToString(entry, as_utf8=True).splitlines()
    else:
        for value in values:
            yield from _value_lines(field, value)


def _value_lines(field: FieldDescriptor, value: object) -> Iterator[str]:
    if isinstance(value, Message):
        yield f'{field.name} {{'
        yield from (_INDENT + line for line in _lines(value))
        yield '}'
        return
    out = io.StringIO()
    text_format.PrintField(field, value, out, as_utf8=True)
    yield out.getvalue().rstrip('\n')


def _has_no_effect(field: FieldDescriptor) -> bool:
    return field.GetOptions().deprecated or ranges.options(field).is_unread


def write_pipeline(pipeline: TrainEvalPipelineConfig, path: str) -> None:
    """Writes the set fields as a text proto and never leaves a partial file under `path`.

    Args:
      pipeline: the config to write.
      path: the file, which is replaced if it exists; its folder is created if it does not.
    """
    files.write_text(path, text_format.MessageToString(pipeline, as_utf8=True))
