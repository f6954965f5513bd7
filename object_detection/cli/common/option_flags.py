"""Options of commands: the common ones, and the flags of absl and of click for dataclasses.

`config/job_options.py` has the dataclasses. A command with a result is decorated by `json_option`
and prints by `show_result`.
"""

import contextlib
import dataclasses
import json
import math
import sys
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import NoneType
from typing import Any, TypeVar

import click
from absl import flags

from object_detection.config.job_options import SECTIONS
from object_detection.errors import OptionsError

Options = TypeVar('Options')

# Where `show_result` writes, in the context of a command with --json.
_JSON_FILE = 'object_detection.json_file'

# absl lists the flags in the --help of the program that defines them.
flags.disclaim_key_flags()


class SectionedOption(click.Option):
    """An option that --help lists in a section of its own title.

    Args:
      *arguments, **options: arguments of `click.Option`.
      section: title of the section; '' for the first list.
    """

    def __init__(self, *arguments: Any, section: str = '', **options: Any):
        super().__init__(*arguments, **options)
        self.section = section


class SectionedCommand(click.Command):
    """A command whose --help lists its options by section, in the order of `SECTIONS`."""

    def format_options(
        self, context: click.Context, formatter: click.formatting.HelpFormatter
    ) -> None:
        rows: dict[str, list[tuple[str, str]]] = {title: [] for title in ('', *SECTIONS)}
        for parameter in self.get_params(context):
            row = parameter.get_help_record(context)
            if row is not None:
                rows[getattr(parameter, 'section', '')].append(row)
        for title, listed in rows.items():
            if listed:
                with formatter.section(title or 'Options'):
                    formatter.write_dl(listed)


def make_json_option() -> click.Option:
    """Returns --json: `show_result` prints JSON on stdout, and all else is printed on stderr."""
    return click.Option(
        ['--json'],
        is_flag=True,
        expose_value=False,
        callback=_begin_json,
        help='Print the result as JSON on stdout, a line for each, and all else on stderr.',
    )


def json_option(command: click.Command) -> click.Command:
    """Adds `make_json_option` to a command; above the line that makes it a command."""
    command.params.append(make_json_option())
    return command


def _begin_json(context: click.Context, option: click.Parameter, value: bool) -> None:
    if value:
        context.meta[_JSON_FILE] = sys.stdout
        context.with_resource(contextlib.redirect_stdout(sys.stderr))


def wants_json() -> bool:
    """Whether the current command was given --json."""
    return _JSON_FILE in click.get_current_context().meta


def show_result(value: Any, lines: Iterable[str]) -> None:
    """Prints the result of a command: one document of JSON with --json, otherwise lines.

    Args:
      value: what `json` writes, dataclasses, named tuples, paths and NumPy's values; numbers that
        are not finite become null.
      lines: the same for a person.
    """
    context = click.get_current_context()
    if _JSON_FILE in context.meta:
        text = json.dumps(_plain(value), ensure_ascii=False, allow_nan=False)
        click.echo(text, file=context.meta[_JSON_FILE])
    else:
        for line in lines:
            click.echo(line)


def _plain(value: Any) -> Any:
    """Returns a value as dictionaries, lists, texts and finite numbers."""
    if dataclasses.is_dataclass(value):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    elif hasattr(value, '_asdict'):
        value = value._asdict()
    elif hasattr(value, 'tolist'):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(each) for each in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if isinstance(value, str | int | None) else str(value)


def config_option(help_text: str = 'Pipeline config.', *, required: bool = True) -> Callable:
    """Returns the option that names the pipeline config, with both of its names."""
    return click.option(
        '--config',
        '--pipeline_config_path',
        'config',
        required=required,
        metavar='FILE',
        help=help_text,
    )


@contextlib.contextmanager
def usage_errors() -> Iterator[None]:
    """A context in which options that contradict each other are a wrong command line."""
    try:
        yield
    except OptionsError as error:
        raise click.UsageError(str(error)) from error


def set_option(help_text: str = 'Change one field of the config; repeatable.') -> Callable:
    """Returns the option that changes fields of the config."""
    return click.option('--set', 'settings', multiple=True, metavar='PATH=VALUE', help=help_text)


def define_absl(*options: type) -> None:
    """Defines an absl flag for each field of the dataclasses; common fields are defined once.

    absl sorts flags by name, so the help text of each begins with the title of its section.
    """
    for field in _fields(options):
        kind, help_text = _kind(field), f'({_section(field)}) {field.metadata["help"]}'
        if field.metadata['choices']:
            choices = list(field.metadata['choices'])
            flags.DEFINE_enum(field.name, field.default, choices, help_text)
        else:
            define = {
                bool: flags.DEFINE_bool,
                int: flags.DEFINE_integer,
                float: flags.DEFINE_float,
                str: flags.DEFINE_string,
                tuple: flags.DEFINE_multi_string,
            }[kind]
            default = list(field.default) if kind is tuple else field.default
            define(field.name, default, help_text)
        for alias in field.metadata['aliases']:
            flags.DEFINE_alias(alias, field.name)


def from_absl(kind: type[Options], values: flags.FlagValues) -> Options:
    """Returns the options that parsed flags set."""
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
        # click lists the option that was added last first.
        for field in reversed(_fields([kind])):
            command = _click_option(field)(command)
        # Options that are declared on the function itself, such as --config, remain in front.
        command.__click_params__ += getattr(function, '__click_params__', [])
        return command

    return decorate


def _click_option(field: dataclasses.Field) -> Callable:
    kind, choices = _kind(field), field.metadata['choices']
    names = [field.name, *field.metadata['aliases']]
    declared = [f'--{name}/--no{name}' if kind is bool else f'--{name}' for name in names]
    options: dict[str, Any] = {
        'help': field.metadata['help'],
        'default': field.default,
        'show_default': field.default not in (None, '', ()),
        'hidden': field.metadata['is_hidden'],
        'section': _section(field),
    }
    if kind is tuple:
        options['multiple'] = True
    elif kind is not bool:
        options['type'] = click.Choice(choices) if choices else kind
    return click.option(*declared, field.name, cls=SectionedOption, **options)


def _fields(kinds: Iterable[type]) -> list[dataclasses.Field]:
    return list({f.name: f for kind in kinds for f in dataclasses.fields(kind)}.values())


def _section(field: dataclasses.Field) -> str:
    return field.metadata['section']


def _kind(field: dataclasses.Field) -> type:
    """Returns the type of a field without `| None`: bool, int, float, str or tuple."""
    members = [kind for kind in typing.get_args(field.type) if kind is not NoneType]
    if typing.get_origin(field.type) is tuple:
        return tuple
    return members[0] if members else field.type
