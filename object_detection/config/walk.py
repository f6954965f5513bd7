"""Walks over the fields that are set in a config."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message


class SetField(NamedTuple):
    """One field that is set, or one element of a repeated one.

    Attributes:
      path: path from the root, such as 'eval_input_reader[0].label_map_path'.
      key: 'Message.field', the field's name in the schema.
      field: descriptor of the field.
      value: value of the field or element; a message for message fields.
    """

    path: str
    key: str
    field: FieldDescriptor
    value: Any


def set_fields(
    message: Message,
    *,
    path: str = '',
    skip: Callable[[FieldDescriptor], bool] = lambda field: False,
) -> Iterator[SetField]:
    """Yields the set fields of `message` and, depth first, of the messages in it.

    Args:
      message: the message to start from.
      path: path of `message`, the prefix of all paths.
      skip: a field -> whether the fields of its messages are skipped.
    """
    for field, value in message.ListFields():
        key = field_key(field)
        place = f'{path}.{field.name}' if path else field.name
        for suffix, element in elements(field, value):
            yield SetField(place + suffix, key, field, element)
            if isinstance(element, Message) and not skip(field):
                yield from set_fields(element, path=place + suffix, skip=skip)


def is_map(field: FieldDescriptor) -> bool:
    return bool(field.message_type and field.message_type.GetOptions().map_entry)


def field_key(field: FieldDescriptor) -> str:
    """Returns 'Message.field'; nested messages are written 'Outer.Message'."""
    owner = field.containing_type.full_name.removeprefix('object_detection.protos.')
    return f'{owner}.{field.name}'


def elements(field: FieldDescriptor, value: Any) -> Iterator[tuple[str, Any]]:
    """Yields pairs of the index of an element, as written in a path, and its value."""
    if is_map(field):
        yield from ((f'[{key}]', entry) for key, entry in value.items())
    elif field.is_repeated:
        yield from ((f'[{index}]', element) for index, element in enumerate(value))
    else:
        yield '', value
