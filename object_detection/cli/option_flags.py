"""Turns dataclasses of options (`training/job_options.py`) into flags of absl and of click."""

import dataclasses
import typing
from collections.abc import Callable, Iterable
from types import NoneType
from typing import Any, TypeVar

import click
from absl import flags

Options = TypeVar('Options')

# The flags belong to the program that asks for them, in whose --help they are listed.
flags.disclaim_key_flags()


def define_absl(*options: type) -> None:
    """Defines an absl flag for each field of the dataclasses; fields they share once."""
    for field in _fields(options):
        kind, help_text = _kind(field), field.metadata['help']
        if field.metadata['choices']:
            choices = list(field.metadata['choices'])
            flags.DEFINE_enum(field.name, field.default, choices, help_text)
            continue
        define = {
            bool: flags.DEFINE_bool,
            int: flags.DEFINE_integer,
            float: flags.DEFINE_float,
            str: flags.DEFINE_string,
            tuple: flags.DEFINE_multi_string,
        }[kind]
        default = list(field.default) if kind is tuple else field.default
        define(field.name, default, help_text)


def from_absl(kind: type[Options], values: flags.FlagValues) -> Options:
    """Returns the options that parsed flags say."""
    given = {field.name: values[field.name].value for field in dataclasses.fields(kind)}
    return kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in given.items()})


def click_options(kind: type) -> Callable[[Callable], Callable]:
    """Decorates a click command: it is called with `options`, an instance of the dataclass."""

    def decorate(function: Callable) -> Callable:
        names = [field.name for field in dataclasses.fields(kind)]

        def command(**values: Any) -> Any:
            given = {name: values.pop(name) for name in names}
            return function(options=kind(**given), **values)

        command.__doc__ = function.__doc__
        # click lists what was added last first.
        for field in reversed(_fields([kind])):
            command = _click_option(field)(command)
        # What was declared on the function itself, such as --config, stays in front.
        command.__click_params__ += getattr(function, '__click_params__', [])
        return command

    return decorate


def _click_option(field: dataclasses.Field) -> Callable:
    kind, choices = _kind(field), field.metadata['choices']
    declared = [f'--{field.name}', field.name]
    options: dict[str, Any] = {'help': field.metadata['help'], 'default': field.default}
    if kind is bool:
        declared[0] += f'/--no{field.name}'
    elif kind is tuple:
        options |= {'multiple': True}
    else:
        options |= {'type': click.Choice(choices) if choices else kind}
        options['show_default'] = field.default not in (None, '')
    return click.option(*declared, **options)


def _fields(kinds: Iterable[type]) -> list[dataclasses.Field]:
    return list({f.name: f for kind in kinds for f in dataclasses.fields(kind)}.values())


def _kind(field: dataclasses.Field) -> type:
    """The type of a field without `| None`: bool, int, float, str or tuple."""
    members = [kind for kind in typing.get_args(field.type) if kind is not NoneType]
    if typing.get_origin(field.type) is tuple:
        return tuple
    return members[0] if members else field.type
