"""The fields of the config language."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from object_detection.config import plugins, ranges, walk
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig


def schema_fields(
    skip: Callable[[FieldDescriptor], bool] = lambda field: False,
) -> Iterator[FieldDescriptor]:
    """The fields of all messages that a config leads to, except those below a field to skip."""
    seen, waiting = set(), [TrainEvalPipelineConfig.DESCRIPTOR]
    while waiting:
        message = waiting.pop()
        if message.full_name in seen or message.GetOptions().map_entry:
            continue
        seen.add(message.full_name)
        for field in message.fields:
            yield field
            if field.message_type and not skip(field):
                waiting.append(field.message_type)


def is_unread(field: FieldDescriptor) -> bool:
    return ranges.options(field).is_unread


def unread_fields() -> dict[str, ranges.Options]:
    """'Message.field' of each field that nothing reads, and its options."""
    return {
        walk.field_key(each): ranges.options(each) for each in filter(is_unread, schema_fields())
    }


def missing_options(message: type[Message], oneof: str, builders: Mapping[str, Any]) -> set[str]:
    """The options of a oneof of the .proto file that a table of builders lacks."""
    fields = message.DESCRIPTOR.oneofs_by_name[oneof].fields
    return {field.name for field in fields} - builders.keys() - {plugins.FIELD}
