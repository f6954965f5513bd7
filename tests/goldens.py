"""Reads golden numbers of the reference system from ../shared/goldens/components.

Every case is claimed by a test or stands in a list of `tests/golden_lists.py`, which
`tests/test_golden_cases.py` checks. A test claims a case by `parametrize`, or by `load` with the
names written out. Many quick cases are claimed by `rows`.
"""

import collections
import dataclasses
import functools
import json
import pathlib
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
import pytest

from tests import golden_lists
from tests import rows as tables

COMPONENTS = pathlib.Path(__file__).resolve().parents[2] / 'shared' / 'goldens' / 'components'

# File -> names of the cases that the imported test modules are parametrized over.
claimed: dict[str, set[str]] = collections.defaultdict(set)
# File and name -> names of the outputs that the running test has read, and RAISES.
read: dict[tuple[str, str], set[str]] = {}
RAISES = 'raises'


class Outputs(dict[str, np.ndarray]):
    """Arrays by name; notes in `read` which of them a test looks at."""

    def __init__(self, arrays: dict[str, np.ndarray], noted: set[str]):
        super().__init__(arrays)
        self._read = noted

    def __getitem__(self, name: str) -> np.ndarray:
        self._read.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self._read.add(name)
        return super().get(name, default)

    def items(self):
        self._read.update(self)
        return super().items()

    def values(self):
        self._read.update(self)
        return super().values()


@dataclasses.dataclass(frozen=True)
class Case:
    """One recorded call of the reference.

    Attributes:
      config: text proto of the component's message, or ''.
      params: keyword parameters of the call.
      inputs, outputs: name -> array; list entries are 'name.0', 'name.1', ...
    """

    config: str
    params: dict[str, Any]
    inputs: dict[str, np.ndarray]
    outputs: dict[str, np.ndarray]
    _raises: str
    _read: set[str]

    @property
    def raises(self) -> str:
        """Name of the exception that the reference raised, or ''."""
        self._read.add(RAISES)
        return self._raises


def parametrize(
    file: str,
    *,
    prefix: str | tuple[str, ...] = '',
    names: tuple[str, ...] = (),
    without: tuple[str, ...] = (),
):
    """Claims cases of `file`: `pytest.mark.parametrize` of `case_name` over their names.

    Args:
      file: without '.npz'.
      prefix: claims the cases whose names start so.
      names: claims these cases instead.
      without: beginnings of names that are left out.
    """
    if not COMPONENTS.is_dir():
        absent = pytest.mark.skip(reason='needs ../shared/goldens')
        return pytest.mark.parametrize('case_name', [pytest.param('absent', marks=absent)])
    chosen = _chosen(file, prefix=prefix, names=names, without=without)

    def claim(test):
        test.golden_file = file
        return pytest.mark.parametrize('case_name', chosen)(test)

    return claim


def _chosen(
    file: str,
    *,
    prefix: str | tuple[str, ...] = '',
    names: tuple[str, ...] = (),
    without: tuple[str, ...] = (),
) -> Sequence[str]:
    """Claims cases of `file`, see `parametrize`, and returns their names."""
    chosen = names or [
        name for name in cases(file) if name.startswith(prefix) and not name.startswith(without)
    ]
    unknown = set(chosen) - cases(file).keys()
    assert chosen, f'no golden case of {file} starts with {prefix!r}'
    assert not unknown, f'{file} has no golden cases {sorted(unknown)}'
    claimed[file].update(chosen)
    return chosen


def rows(file: str, **chosen: Any) -> Callable[[Callable], Callable]:
    """As `parametrize`, for cases that take milliseconds: all of them are one test.

    A case of which the test does not look at all outputs fails.
    """
    if not COMPONENTS.is_dir():
        return parametrize(file, **chosen)

    def claim(test: Callable) -> Callable:
        @functools.wraps(test)
        def check(case_name: str, **others: Any) -> None:
            read.clear()
            test(case_name=case_name, **others)
            left = unread((file, case_name))
            assert not left, f'outputs that are not compared: {left}'

        return tables.parametrize('case_name', _chosen(file, **chosen))(check)

    return claim


def load(file: str, name: str) -> Case:
    """Reads one case; skips the test where the folder is absent."""
    if not COMPONENTS.is_dir():
        pytest.skip('needs ../shared/goldens')
    facts = cases(file)[name]
    arrays = _arrays(file)

    def part(kind: str) -> dict[str, np.ndarray]:
        start = f'{name}/{kind}/'
        return {key[len(start) :]: value for key, value in arrays.items() if key.startswith(start)}

    noted = read.setdefault((file, name), set())
    return Case(
        config=facts.get('config') or '',
        params=facts.get('params') or {},
        inputs=part('in'),
        outputs=Outputs(part('out'), noted),
        _raises=facts.get('raises') or '',
        _read=noted,
    )


def files() -> list[str]:
    """Names of the files with cases, without '.npz'."""
    return [name.removesuffix('.npz') for name in _index()]


def cases(file: str) -> dict[str, dict[str, Any]]:
    """The facts of each case of `file`, as index.json has them."""
    return _index()[f'{file}.npz']['cases']


@functools.cache
def _index() -> dict[str, Any]:
    return json.loads((COMPONENTS / 'index.json').read_text())['files']


@functools.cache
def _arrays(file: str) -> dict[str, np.ndarray]:
    with np.load(COMPONENTS / f'{file}.npz') as archive:
        return {name: archive[name] for name in archive.files}


def unread(claim: tuple[str, str] | None) -> list[str]:
    """What the running test should have read and did not.

    Args:
      claim: file and name of the case that it is parametrized with. It must be loaded, and all that
        is recorded of it must be read, as of each other case of which an output is.
    """
    if claim and claim not in read:
        return ['/'.join(claim)]
    return [
        f'{file}: {name}/{part}'
        for (file, name), noted in read.items()
        if (file, name) == claim or noted
        for part in _missing(file, name, noted)
    ]


def _missing(file: str, name: str, noted: set[str]) -> list[str]:
    """What must be read of a case beside what is `noted`: of one not matched, any one part."""
    facts = cases(file)[name]
    parts = [
        output
        for output in facts['outputs']
        if not _is_listed(golden_lists.NOT_COMPARED, file, output)
    ]
    if facts.get('raises'):
        parts.append(RAISES)
    if _is_listed(golden_lists.NOT_MATCHED, file, name) and noted.intersection(parts):
        return []
    return [part for part in parts if part not in noted]


def _is_listed(lists: golden_lists.Lists, file: str, name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in lists.get(file, ()))
