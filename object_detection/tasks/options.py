"""The options of calls: those of a dataclass as arguments, their types and choices."""

import dataclasses
import difflib
import functools
import glob
import inspect
import os
import typing
from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, TypeVar

from object_detection.errors import UserError, expected

_P = ParamSpec('_P')
_R = TypeVar('_R')
PathLike = str | os.PathLike


def takes(call: Callable[_P, Any]) -> Callable[[Callable[[Any], _R]], Callable[_P, _R]]:
    """Decorates a function of a dataclass, to be called with the arguments of the dataclass.

    Completion and `help` then show every option, with its meaning.
    """
    fields = {field.name: field for field in dataclasses.fields(call)}
    signature = inspect.signature(call)

    def decorate(function: Callable[[Any], _R]) -> Callable[_P, _R]:
        @functools.wraps(function)
        def called(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            for name in kwargs:
                if name not in fields:
                    hint = nearest(name, fields)
                    raise TypeError(f'{function.__name__}() has no option {name!r}{hint}')
            signature.bind(*args, **kwargs)  # Its errors name no class of options.
            given = call(*args, **kwargs)
            values = {name: _checked(field, getattr(given, name)) for name, field in fields.items()}
            return function(call(**values))

        returned = function.__annotations__['return']
        called.__signature__ = signature.replace(return_annotation=returned)
        parameters = signature.parameters.items()
        called.__annotations__ = {name: each.annotation for name, each in parameters}
        called.__annotations__['return'] = returned
        options = [
            f'  {name}: {field.metadata["help"]}'
            for name, field in fields.items()
            if 'help' in field.metadata
        ]
        called.__doc__ = '\n'.join([inspect.cleandoc(function.__doc__), '', 'Options:', *options])
        return called

    return decorate


def _checked(field: dataclasses.Field, value: Any) -> Any:
    """Returns the value of an option as a command line gives it.

    Raises:
      UserError: if it has another type, or is none of the choices.
    """
    if 'choices' not in field.metadata:
        return value
    value = typed(field.name, field.type, value)
    if field.metadata['choices'] and value is not None:
        check_choice(field.name, value, field.metadata['choices'])
    return value


def typed(name: str, kind: Any, value: Any) -> Any:
    """Returns the value of an option of a type, such as `int | None`, in which a path is a text."""
    if typing.get_origin(kind) is tuple:
        texts = (value,) if isinstance(value, str) else tuple(value)
        return tuple(typed(name, str, text) for text in texts)
    value = os.fspath(value) if isinstance(value, os.PathLike) else value
    kinds = typing.get_args(kind) or (kind,)
    is_int = isinstance(value, int) and not isinstance(value, bool)
    if not (type(value) in kinds or (is_int and float in kinds)):
        names = ' or '.join(each.__name__.replace('NoneType', 'None') for each in kinds)
        raise expected(name, f'a value of type {names}', repr(value))
    return value


def check_choice(name: str, value: Any, choices: Iterable[str]) -> None:
    if value not in choices:
        raise expected(name, f'one of {", ".join(choices)}', f'{value!r}{nearest(value, choices)}')


def nearest(name: Any, names: Iterable[str]) -> str:
    near = difflib.get_close_matches(str(name), [*names], n=1)
    return f' (did you mean {near[0]!r}?)' if near else ''


def check_positive(**numbers: float | None) -> None:
    for name, number in numbers.items():
        is_number = isinstance(number, int | float)
        if number is not None and not (is_number and 0 < number < 2**31):
            raise expected(f'--{name}', 'a positive number below 2^31', repr(number))


def check_checkpoint_dir(path: str) -> None:
    """Refuses a checkpoint folder that is not there, before TensorFlow is loaded; not of URLs.

    Raises:
      UserError: if there is neither the folder nor a file whose path begins with it.
    """
    if '://' not in path and not os.path.exists(path) and not glob.glob(f'{glob.escape(path)}.*'):
        raise UserError(
            f'--checkpoint_dir {path}: expected a folder of checkpoints, or a prefix such as '
            f'{os.path.join(path, "ckpt-3")}. Received: there is no such folder or file.'
        )
