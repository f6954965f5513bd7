"""Sets single fields of a config by their dotted path: `train_config.batch_size=4`.

Also the part of an error message that suggests what the user probably meant.
"""

import csv
import difflib
import functools
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from google.protobuf import text_format
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.message import Message

from object_detection.config.walk import is_map
from object_detection.errors import ConfigError, format_list
from object_detection.protos import pipeline_pb2, string_int_label_map_pb2

_MAX_NAMES = 12
# Own fields that had other names: message and field -> what stands in its place.
_FORMER = {
    ('TrainConfig', 'sink'): '`callback`, whose parts have other methods (docs/howto/plugins.md)',
}
# What is known of a type that only the reference implementation has.
NOT_BUILT = ', a feature extractor of the reference implementation that is not built here'


def unknown_field(message: Descriptor, name: str) -> str:
    """Returns a sentence for a field `name` that `message` does not have."""
    names = [field.name for field in message.fields]
    start = f'{message.name} has no field `{name}`'
    if not names:
        return f'{start}; it has no fields at all.'
    if former := _FORMER.get((message.name, name)):
        return f'{start}; in its place there is {former}.'
    nearest = difflib.get_close_matches(name, names, n=1)
    if nearest:
        return f'{start}; did you mean `{nearest[0]}`?'
    owners = _owners().get(name, ())
    elsewhere = f' (`{name}` is a field of {format_list(owners, _MAX_NAMES)})' if owners else ''
    return f'{start}; its fields: {field_list(message)}{elsewhere}.'


def unknown_value(enum: EnumDescriptor, name: str) -> str:
    """Returns a sentence for a value `name` that `enum` does not have."""
    names = [value.name for value in enum.values]
    return f'{enum.name} has no value `{name}`; its values: {", ".join(names)}.'


def unknown_choice(
    name: str,
    choices: Sequence[str],
    *,
    similar: Sequence[str] | None = None,
    cutoff: float = 0.6,
    note: str = '',
) -> str:
    """Returns what continues the name of a field whose value is none of its many choices.

    What helps most precedes the list of choices; of a long list, the nearest ones stand there.

    Args:
      name: the value.
      choices: the values that the field may have.
      similar: those of which the nearest one is suggested; None takes all.
      cutoff: least similarity of a suggestion, 0 to 1.
      note: what is known of the value, in place of a suggestion, such as ', which is not built'.
    """
    nearest = list(choices)
    if len(choices) > _MAX_NAMES:
        nearest = difflib.get_close_matches(name, choices, len(choices), 0.0)
    expected = f'xpected one of {format_list(nearest, _MAX_NAMES)}.'
    near = difflib.get_close_matches(name, choices if similar is None else similar, 1, cutoff)
    if note or near:
        hint = f'{note}.' if note else f'; did you mean {near[0]!r}?'
        return f'Received: {name!r}{hint} E{expected}'
    return f'e{expected} Received: {name!r}.'


def field_list(message: Descriptor) -> str:
    """Returns the names of the first dozen fields of a message."""
    return format_list((field.name for field in message.fields), _MAX_NAMES)


def reachable_messages(root: Descriptor) -> Iterator[Descriptor]:
    """Yields `root` and every message type reachable through its fields, each once."""
    seen, waiting = set(), [root]
    while waiting:
        message = waiting.pop()
        if message.full_name in seen:
            continue
        seen.add(message.full_name)
        yield message
        waiting += [field.message_type for field in message.fields if field.message_type]


@functools.cache
def _owners() -> dict[str, list[str]]:
    """Returns field name -> messages that have it, including the often confused label maps."""
    roots = (
        pipeline_pb2.TrainEvalPipelineConfig.DESCRIPTOR,
        string_int_label_map_pb2.StringIntLabelMap.DESCRIPTOR,
    )
    owners: dict[str, list[str]] = {}
    for root in roots:
        for message in reachable_messages(root):
            for field in message.fields:
                owners.setdefault(field.name, []).append(message.name)
    return owners


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
        raise ConfigError(unknown_field(message.DESCRIPTOR, name))
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
        fields = field_list(like.DESCRIPTOR)
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
            raise ConfigError(unknown_value(field.enum_type, text))
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
