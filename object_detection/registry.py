"""Tables of parts by name: rows of this package, of installed packages and of `--plugin` modules.

A row is given, or named as 'package.module:ATTRIBUTE' and imported when it is first asked for, so
that the names of a table are known without TensorFlow.

Rows from outside come in two ways. An installed package lists them as entry points of the group
`object_detection.<kind>`:

    [project.entry-points."object_detection.loss"]
    tversky = "my_package.losses:TVERSKY"

A module that `--plugin MODULE` names registers them when it is imported, by the functions of
`object_detection.register`. No config loads code. Names of this package cannot be replaced.
"""

import difflib
import functools
import importlib
import importlib.metadata
import logging
import os
import random
from collections.abc import Callable, ItemsView, Iterator, Mapping, Sequence, ValuesView
from typing import Any, Generic, TypeVar

from object_detection.errors import UserError, format_list

# The modules of `--plugin`, separated by commas; processes that this one starts inherit it.
PLUGINS_VARIABLE = 'TFOD_PLUGINS'
PLUGIN_HELP = (
    'Python module that is imported to register parts of your own (object_detection.register); '
    'repeatable.'
)
_GROUP = 'object_detection.'

Row = TypeVar('Row')


class Registry(Mapping[str, Row], Generic[Row]):
    """Name -> row, in the order in which the rows were given, those from outside last.

    Args:
      kind: what the rows are, such as 'loss'; a part of messages and of the group's name.
      rows: the rows of this package, or their places, 'package.module:ATTRIBUTE'.
      row_type: the class of the rows from outside; None if they are of several.

    Attributes:
      kind: as given.
      built_in: the names of this package.
    """

    def __init__(
        self,
        kind: str,
        rows: Mapping[str, Row | str] | None = None,
        row_type: type[Row] | None = None,
    ):
        self.kind = kind
        self._row_type = row_type
        self._rows: dict[str, Row | str] = dict(rows or {})
        self.built_in = frozenset(self._rows)

    def register(self, name: str, row: Row | str | None = None) -> Callable[[Row], Row]:
        """Adds a row; without `row`, returns a decorator that adds what it decorates.

        Raises:
          UserError: if the name is taken, by another row or by this package.
        """

        def add(row: Row | str) -> Any:
            known = self._rows.get(name, self._entry_points.get(name))
            if known is not None and known is not row:
                owner = 'a part of this package' if name in self.built_in else f'the row {known}'
                raise UserError(
                    f'{self.kind} {name!r}: expected a name that is not taken. Received: the name '
                    f'of {owner}.'
                )
            self._rows[name] = row
            return row

        return add if row is None else add(row)

    def __getitem__(self, name: str) -> Row:
        row = self._find(name)
        if name not in self._rows or isinstance(row, str):
            row = self._load(name, row)
        kind = self._row_type or object
        if name not in self.built_in and (not isinstance(row, kind) or isinstance(row, str)):
            expected = kind.__name__ if self._row_type else 'row of the table'
            raise UserError(
                f'{self.kind} {name!r}: expected a {expected}. '
                f'Received: {row!r}, which is registered by this name.'
            )
        self._rows[name] = row
        return row

    def items(self) -> ItemsView[str, Row]:
        """Returns the names and rows; without those of installed packages that are broken."""
        return {name: row for name in self if (row := self._usable(name)) is not None}.items()

    def values(self) -> ValuesView[Row]:
        """Returns the rows of `items`."""
        return dict(self.items()).values()

    def _usable(self, name: str) -> Row | None:
        try:
            return self[name]
        except UserError as error:
            # A package must not break commands that do not use it.
            logging.warning('%s', error)
            return None

    def __iter__(self) -> Iterator[str]:
        load_plugins()
        yield from dict.fromkeys((*self._rows, *self._entry_points))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, name: object) -> bool:
        return name in self._rows or name in list(self)

    def names(self) -> list[str]:
        """Returns all names; imports no row."""
        return list(self)

    def _find(self, name: str) -> Any:
        if name in self._rows:
            return self._rows[name]
        load_plugins()
        row = self._rows.get(name, self._entry_points.get(name))
        if row is None:
            near = difflib.get_close_matches(str(name), list(self), n=1)
            hint = f' Did you mean {near[0]!r}?' if near else ''
            packages = {entry.dist.name for entry in self._entry_points.values() if entry.dist}
            read = sorted({*packages, *plugins()})
            plugged = f' Plug-ins that were read: {format_list(read)}.' if read else ''
            raise UnknownNameError(
                f'{self.kind}: expected one of {", ".join(self)}. Received: {name!r}.{hint}'
                f'{plugged}'
            )
        return row

    @functools.cached_property
    def _entry_points(self) -> dict[str, importlib.metadata.EntryPoint]:
        """Name -> the entry point of an installed package, for names that this package has not."""
        found: dict[str, importlib.metadata.EntryPoint] = {}
        for entry in importlib.metadata.entry_points(group=_GROUP + self.kind.replace(' ', '_')):
            owner = 'this package' if entry.name in self.built_in else found.get(entry.name)
            if owner is not None and getattr(owner, 'value', None) != entry.value:
                logging.warning(
                    '%s %r of %s is not used: the name belongs to %s.',
                    self.kind,
                    entry.name,
                    entry.value,
                    getattr(owner, 'value', owner),
                )
            else:
                found[entry.name] = entry
        return found

    def _load(self, name: str, place: str | importlib.metadata.EntryPoint) -> Any:
        """Imports a row of this package, 'module:ATTRIBUTE', or of another one."""
        try:
            return load(place)
        except Exception as error:
            if name in self.built_in:
                raise
            owner = getattr(getattr(place, 'dist', None), 'name', None)
            owner = owner or ' or '.join(f'--plugin {each}' for each in plugins()) or 'a plug-in'
            raise UserError(
                f'{self.kind} {name!r} of {owner}: {getattr(place, "value", place)} cannot be '
                f'imported: {_describe_error(error)}.'
            ) from error


def load(place: str | importlib.metadata.EntryPoint) -> Any:
    """Imports 'package.module:ATTRIBUTE' or an entry point, and returns what it names.

    Modules may make initializers of layers, which draw seeds from Python's generator: its state is
    restored, or the first model of a process would begin with other weights than the next one with
    the same seed.
    """
    state = random.getstate()
    try:
        if not isinstance(place, str):
            return place.load()
        module, _, attribute = place.partition(':')
        return getattr(importlib.import_module(module), attribute)
    finally:
        random.setstate(state)


class UnknownNameError(UserError, KeyError):
    """A name that a registry does not have."""

    __str__ = Exception.__str__


def plugins() -> list[str]:
    """Returns the modules of `--plugin`, of this process or of the one that started it."""
    names = os.environ.get(PLUGINS_VARIABLE, '').split(',')
    return [name.strip() for name in names if name.strip()]


def add_plugins(modules: Sequence[str]) -> None:
    """Imports the modules of `--plugin`, here and in the processes that this one will start.

    Raises:
      UserError: if a module cannot be imported, for any reason; it names the module.
    """
    if modules:
        os.environ[PLUGINS_VARIABLE] = ','.join(dict.fromkeys((*plugins(), *modules)))
        load_plugins()


_loading: set[str] = set()


def load_plugins() -> None:
    """Imports the modules of `plugins`, each once."""
    for module in plugins():
        if module in _loading:  # Its own registering asks the tables, too.
            continue
        _loading.add(module)
        try:
            importlib.import_module(module)
        except Exception as error:
            _loading.discard(module)
            raise UserError(_describe_failure(module, error)) from error


def _describe_failure(module: str, error: Exception) -> str:
    is_absent = isinstance(error, ModuleNotFoundError) and module.startswith(error.name or module)
    hint = ' Install its package, or add its folder to PYTHONPATH.' if is_absent else ''
    return (
        f'--plugin {module}: expected the name of a Python module that can be imported. '
        f'Received: {_describe_error(error)}.{hint}'
    )


def _describe_error(error: Exception) -> str:
    """Returns the message of an error of a module that is imported, and its kind."""
    is_clear = isinstance(error, ImportError | AttributeError | UserError)
    return f'{"" if is_clear else f"{type(error).__name__}: "}{error}'.rstrip('.')
