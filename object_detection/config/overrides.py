"""Sets single fields of a config by their dotted path: `train_config.batch_size=4`."""

import csv
import re
from typing import Any, NamedTuple

from google.protobuf import text_format
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from object_detection.config import suggestions
from object_detection.config.walk import is_map
from object_detection.errors import ConfigError

_TOKEN = re.compile(r'\.?([^.\[\]]+)|\[([^\[\]]+)\]')
_BOOLEANS = {'true': True, 'True': True, '1': True, 'false': False, 'False': False, '0': False}
_INTEGERS = {
    FieldDescriptor.CPPTYPE_INT32,
    FieldDescriptor.CPPTYPE_INT64,
    FieldDescriptor.CPPTYPE_UINT32,
    FieldDescriptor.CPPTYPE_UINT64,
}


class _Place(NamedTuple):
    """The target of a path: `field` of `message`; `key` is an index or map key, None for all."""

    message: Message
    field: FieldDescriptor
    key: Any


def apply_setting(config: Message, setting: str) -> None:
    """Changes one field of `config` in place.

    A setting is `path=value`, where the names of the path are joined by dots. An element of a
    repeated field is written `eval_input_reader[0]` or `eval_input_reader.0` (the index after the
    last appends), an entry of a map `super_categories[animal]`. A comma-separated list replaces a
    repeated field without index; an empty value clears it. Strings need no quotes. `{...}`
    replaces a message. Missing messages of the path are created, and setting one option of a
    oneof clears the others.

    Raises:
      ConfigError: if the setting cannot be applied; the message names the setting, what is wrong
        with it and the nearest name.
    """
    path, equals, value = setting.partition('=')
    try:
        if not equals:
            raise ConfigError('expected PATH=VALUE, such as train_config.batch_size=4')
        _assign(_find(config, _tokens(path.strip())), value.strip())
    except ConfigError as error:
        raise ConfigError(f'--set {setting}: {error}') from None
    except UnicodeEncodeError:
        raise ConfigError(f'--set {setting!a}: expected text in UTF-8.') from None
    except ValueError:
        # The range of integers is the only check that is left to protobuf.
        raise ConfigError(f'--set {setting}: the value is out of the range of the field.') from None


def _tokens(path: str) -> list[str]:
    tokens, position = [], 0
    while position < len(path):
        match = _TOKEN.match(path, position)
        if match is None:
            raise ConfigError(f'`{path}` is not a path of field names joined by dots.')
        tokens.append(match[1] or match[2])
        position = match.end()
    if not tokens:
        raise ConfigError('the path of a field is missing before `=`.')
    return tokens


def _find(message: Message, tokens: list[str]) -> _Place:
    """Follows the tokens to the last one; creates messages that are not set."""
    name, rest = tokens[0], tokens[1:]
    field = message.DESCRIPTOR.fields_by_name.get(name)
    if field is None:
        raise ConfigError(suggestions.unknown_field(message.DESCRIPTOR, name))
    if is_map(field):
        if len(rest) > 1:
            raise ConfigError(f'`{name}` is a map: one key may follow it. Received: {rest}.')
        key_field = field.message_type.fields_by_name['key']
        return _Place(message, field, _scalar(key_field, rest[0]) if rest else None)
    if field.is_repeated:
        if not rest:
            return _Place(message, field, None)
        index = _index(message, field, rest[0])
        rest = rest[1:]
        if not rest:
            return _Place(message, field, index)
        _require_message(field, rest)
        return _find(_element(message, field, index), rest)
    if not rest:
        return _Place(message, field, None)
    _require_message(field, rest)
    child = getattr(message, name)
    child.SetInParent()
    return _find(child, rest)


def _assign(place: _Place, value: str) -> None:
    message, field, key = place
    if is_map(field):
        _assign_map(place, value)
    elif field.message_type:
        _assign_message(place, value)
    elif not field.is_repeated:
        setattr(message, field.name, _scalar(field, value))
    elif key is None:
        values = [_scalar(field, text) for text in _split(value)]
        getattr(message, field.name)[:] = values
    else:
        values = list(getattr(message, field.name))
        values[key : key + 1] = [_scalar(field, value)]
        getattr(message, field.name)[:] = values


def _assign_map(place: _Place, value: str) -> None:
    message, field, key = place
    entries = getattr(message, field.name)
    if key is None:
        if value:
            raise ConfigError(
                f'`{field.name}` is a map: set {field.name}[KEY]; an empty value clears all.'
            )
        entries.clear()
        return
    value_field = field.message_type.fields_by_name['value']
    if value_field.message_type:
        entries[key].CopyFrom(_parsed(entries[key], value))
    else:
        entries[key] = _scalar(value_field, value)


def _assign_message(place: _Place, value: str) -> None:
    message, field, key = place
    if field.is_repeated and key is None:
        if value:
            raise ConfigError(
                f'`{field.name}` is a list of messages: set {field.name}[0] or another; an empty '
                'value clears all.'
            )
        message.ClearField(field.name)
        return
    target = getattr(message, field.name) if key is None else _element(message, field, key)
    parsed = _parsed(target, value)
    target.CopyFrom(parsed)
    target.SetInParent()


def _parsed(like: Message, value: str) -> Message:
    """Parses `{...}` as a message of the type of `like`."""
    if not (value.startswith('{') and value.endswith('}')):
        name = like.DESCRIPTOR.name
        fields = suggestions.field_list(like.DESCRIPTOR)
        raise ConfigError(
            f'the field is a whole {name}: add the name of one of its fields ({fields}) to the '
            f'path, or replace all of it by {{...}}. Received: {value!r}.'
        )
    try:
        return text_format.Parse(value[1:-1], type(like)())
    except text_format.ParseError as error:
        raise ConfigError(str(error)) from None


def _scalar(field: FieldDescriptor, text: str) -> Any:
    """Converts text to the type of the field; the range of integers is checked on assignment."""
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        quoted = len(text) > 1 and text[0] == text[-1] and text[0] in '\'"'
        return text[1:-1] if quoted else text
    if field.cpp_type == FieldDescriptor.CPPTYPE_ENUM:
        if text not in field.enum_type.values_by_name:
            raise ConfigError(suggestions.unknown_value(field.enum_type, text))
        return field.enum_type.values_by_name[text].number
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        if text not in _BOOLEANS:
            raise ConfigError(f'expected true or false. Received: {text!r}.')
        return _BOOLEANS[text]
    whole = field.cpp_type in _INTEGERS
    try:
        return int(text) if whole else float(text)
    except ValueError:
        kind = 'a whole number' if whole else 'a number'
        raise ConfigError(f'expected {kind}. Received: {text!r}.') from None


def _split(value: str) -> list[str]:
    """Splits a comma list; double quotes protect commas, brackets around the list are optional."""
    if value.startswith('[') and value.endswith(']'):
        value = value[1:-1]
    if not value.strip():
        return []
    return [text.strip() for text in next(csv.reader([value], skipinitialspace=True))]


def _index(message: Message, field: FieldDescriptor, token: str) -> int:
    size = len(getattr(message, field.name))
    if not token.isdecimal() or int(token) > size:
        raise ConfigError(
            f'`{field.name}` has {size} elements: expected an index from 0 to {size} ({size} '
            f'appends one). Received: {token}.'
        )
    return int(token)


def _element(message: Message, field: FieldDescriptor, index: int) -> Message:
    elements = getattr(message, field.name)
    return elements.add() if index == len(elements) else elements[index]


def _require_message(field: FieldDescriptor, rest: list[str]) -> None:
    if not field.message_type:
        raise ConfigError(f'`{field.name}` is a plain value and has no field `{rest[0]}`.')
