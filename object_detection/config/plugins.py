"""Builds the parts that configs name by `plugin { name: ... options { ... } }`."""

import dataclasses
import difflib
import math
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from object_detection.errors import UserError
from object_detection.protos.model_pb2 import ExperimentalModel
from object_detection.protos.plugin_pb2 import Plugin
from object_detection.registry import Registry, plugins

T = TypeVar('T')

# The option of a oneof that holds a `Plugin`.
FIELD = 'plugin'
_BOOLS = {'true': True, 'false': False}
_EXPECTED = {bool: 'true or false', int: 'an integer', float: 'a finite number', str: 'text'}


def build(
    config: Plugin, table: Registry[Any], path: str, *, methods: Sequence[str] = ('__call__',)
) -> Any:
    """Builds the row of a table that a config names, a dataclass, with the config's options.

    Args:
      config: the message.
      table: the table of parts of this kind.
      path: path of the message, for errors.
      methods: the methods that the part must have.

    Raises:
      UserError: if the table has no such row, an option is unknown, missing, of another type or
        refused by the row, or the row is no dataclass with these methods.
    """
    row = table[checked_name(config.name, table, path)]
    is_dataclass = isinstance(row, type) and dataclasses.is_dataclass(row)
    if not (is_dataclass and all(hasattr(row, method) for method in methods)):
        raise UserError(
            f'{path}: expected a dataclass with the methods {", ".join(methods)}. '
            f'Received: {row!r}, which is registered as {config.name!r}.'
        )
    return make(row, config, path)


def make(row: type[T], config: Plugin | ExperimentalModel, path: str) -> T:
    """Returns a dataclass with the options of a message.

    Raises:
      UserError: if an option is unknown, missing, of another type or refused by the dataclass.
    """
    options = options_of(row, config.options, path)
    try:
        return row(**options)
    except ValueError as error:
        raise UserError(f'{path} ({config.name}): {error}') from error


def checked_name(name: str, table: Registry[Any], path: str) -> str:
    """Returns the name that the message at `path` has; arguments as for `build`.

    Raises:
      UserError: if no plug-in registers it.
    """
    names = [each for each in table if each not in table.built_in]
    if name in names:
        return name
    if name in table:
        raise UserError(
            f'{path}.name: expected a name of a plug-in. Received: {name!r}, which is a part of '
            'this package and has options of its own.'
        )
    expected = f'one of {", ".join(names)}' if names else 'a part'
    raise UserError(
        f'{path}.name: expected {expected}, which --plugin MODULE or an installed package '
        f'registers as {table.kind}. Received: {name!r}.{_nearest(name, names)} '
        f'Modules of --plugin: {", ".join(plugins()) or "none"}.'
    )


def options_of(row: type, texts: Mapping[str, str], path: str) -> dict[str, Any]:
    """Returns field of a dataclass -> value for the options of a config.

    Raises:
      UserError: if an option is no field, has another type, or is missing; it begins with `path`.
    """
    hints = typing.get_type_hints(row)
    fields = {field.name: field for field in dataclasses.fields(row) if field.init}
    for name in texts:
        if name not in fields:
            raise UserError(
                f'{path}.options[{name}]: expected one of {", ".join(fields) or "no options"}. '
                f'Received: {name!r}.{_nearest(name, fields)}'
            )
    missing = dataclasses.MISSING
    for name, field in fields.items():
        if name not in texts and field.default is missing and field.default_factory is missing:
            raise UserError(
                f'{path}.options[{name}]: expected {_describe(hints[name])}. Received: nothing.'
            )
    return {
        name: _convert(text, hints[name], f'{path}.options[{name}]') for name, text in texts.items()
    }


def _nearest(name: str, names: Any) -> str:
    near = difflib.get_close_matches(name, list(names), n=1)
    return f' Did you mean {near[0]!r}?' if near else ''


def _convert(text: str, kind: Any, path: str) -> Any:
    """Converts a text to bool, int, float, str, a tuple of these, or one of them `| None`."""
    kind = _without_none(kind)
    try:
        if typing.get_origin(kind) is not tuple:
            return _convert_one(text, kind)
        parts, kinds = [part.strip() for part in text.split(',')], typing.get_args(kind)
        if kinds[-1] is Ellipsis:
            kinds = kinds[:1] * (len(parts) if text.strip() else 0)
        elif len(parts) != len(kinds):
            raise UserError(text)
        return tuple(_convert_one(part, each) for part, each in zip(parts, kinds, strict=False))
    except (ValueError, KeyError) as error:
        raise UserError(f'{path}: expected {_describe(kind)}. Received: {text!r}.') from error
    except TypeError as error:
        raise UserError(
            f'{path}: expected a field of type bool, int, float, str, a tuple of these, or one of '
            f'them | None, in the dataclass of the plug-in. Received: the type {kind}.'
        ) from error


def _convert_one(text: str, kind: Any) -> Any:
    if kind not in _EXPECTED:
        raise TypeError(kind)
    value = _BOOLS[text.strip().lower()] if kind is bool else kind(text)
    if kind is float and not math.isfinite(value):
        raise UserError(text)
    return value


def _without_none(kind: Any) -> Any:
    if isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union:
        kinds = [each for each in typing.get_args(kind) if each is not types.NoneType]
        return kinds[0] if len(kinds) == 1 else kind
    return kind


def _describe(kind: Any) -> str:
    """Returns the expected text of a type: 'a finite number (float)'."""
    kind = _without_none(kind)
    if typing.get_origin(kind) is tuple:
        kinds = typing.get_args(kind)
        count = '' if kinds[-1] is Ellipsis else f'{len(kinds)} '
        return f'{count}values separated by commas, each {_describe(kinds[0])}'
    name = getattr(kind, '__name__', str(kind))
    return f'{_EXPECTED[kind]} ({name})' if kind in _EXPECTED else name
