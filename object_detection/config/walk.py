"""Walks over the fields that are set in a config."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message


class SetField(NamedTuple):
    """One field that is set, or one element of a repeated one.

    Attributes:
      path: from the root, such as 'eval_input_reader[0].label_map_path'.
      key: 'Message.field', the field's name in the schema.
      field: its descriptor.
      value: its value; a message for message fields.
    """

    path: str
    key: str
    field: FieldDescriptor
    value: Any


def set_fields(
    message: Message, *, path: str = '', skip: Callable[[str], bool] = lambda key: False
) -> Iterator[SetField]:
    """Yields the set fields of `message` and, depth first, of the messages in it.

    Args:
      message: where to start; its own path is `path`.
      path: put before all paths.
      skip: told a key, whether not to go into the messages of that field.
    """
    for field, value in message.ListFields():
        key = field_key(field)
        place = f'{path}.{field.name}' if path else field.name
        for suffix, element in _elements(field, value):
            yield SetField(place + suffix, key, field, element)
            if isinstance(element, Message) and not skip(key):
                yield from set_fields(element, path=place + suffix, skip=skip)


def is_map(field: FieldDescriptor) -> bool:
    return bool(field.message_type and field.message_type.GetOptions().map_entry)


def field_key(field: FieldDescriptor) -> str:
    """'Message.field', with the outer message's name before that of a nested one."""
    owner = field.containing_type.full_name.removeprefix('object_detection.protos.')
    return f'{owner}.{field.name}'


def _elements(field: FieldDescriptor, value: Any) -> Iterator[tuple[str, Any]]:
    """Pairs of an element's index, as it is written in a path, and its value."""
    if is_map(field):
        yield from ((f'[{key}]', entry) for key, entry in value.items())
    elif field.is_repeated:
        yield from ((f'[{index}]', element) for index, element in enumerate(value))
    else:
        yield '', value
